"""What all crash tests of the log share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of recoveries would fill the captured log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
