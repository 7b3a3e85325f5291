"""Compiled functions, where nothing can be kept."""

import pytest
from numba.core import caching

from headwater.streams.compiled import compiled


def _twice(number: int) -> int:
    return 2 * number


def test_without_a_place_for_the_cache_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a read-only image without a home."""
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    twice = compiled(_twice)
    assert twice(4) == 8
    assert twice is not _twice
