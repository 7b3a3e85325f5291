"""When a dry run gives up, without Spark."""

from typing import Any, cast

import pytest

from headwater.streams.running.errors import PipelineFailedError
from headwater.streams.running.sampling import _first_batch


class Query:
    """A query that is at its first batch, or has found nothing to read."""

    isActive = True  # noqa: N815 - the name is Spark's
    recentProgress = ()  # noqa: N815 - as above

    def __init__(self, message: str) -> None:
        self.status = {"message": message, "isDataAvailable": False}


def test_a_batch_that_does_not_end_is_not_taken_for_none() -> None:
    with pytest.raises(PipelineFailedError, match="'p' has not ended its first batch") as raised:
        _first_batch("p", cast("Any", Query("Processing new data")), [1], 0.01)
    assert "--records" in raised.value.hint


def test_nothing_to_read_is_no_failure() -> None:
    assert _first_batch("p", cast("Any", Query("Waiting for data to arrive")), [1], 30.0) == 0
