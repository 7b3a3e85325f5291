"""Times in microseconds as the calendar has them.

This file alone decides where the calendar ends: a number beyond the year 9999, or before the year
1, has no date.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def maybe_moment(time_us: int) -> datetime | None:
    """Return the moment so many microseconds after 1970, if the calendar has it."""
    try:
        return EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return None
