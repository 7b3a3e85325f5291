"""Differences that are kept are told to users, and each is shown by a test."""

from pathlib import Path

import pytest

from headwater.delivery.dialects.kafka import registry
from tests.contracts.differences import DIFFERENCES

HERE = Path(__file__).parent
SKIPPED = Path(registry.__file__).with_name("skipped.md").read_text(encoding="utf-8")
TESTS = "".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_is_told_and_shown(name: str) -> None:
    difference = DIFFERENCES[name]

    assert difference.kafkas != difference.ours
    assert difference.reason.endswith(".")
    assert difference.told in SKIPPED, "users are not told"
    assert f'"{name}"' in TESTS, "no test shows it"
