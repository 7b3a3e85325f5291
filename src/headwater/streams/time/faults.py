"""Events without a time that can be believed: how they are counted, and what is said of them.

This file alone decides under which names the counts travel, from the tasks that see the events to
whoever shows them, and when somebody is to be warned. It knows neither Spark nor a broker.

Such events move no watermark and are in no window. A few are noise: they are counted. If most are
of that kind, a column is not what its user takes it for, and nothing would come out, ever.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headwater.streams.time.moments import maybe_moment

COUNTS: Final = "headwater.time."
"""How the names begin under which Spark reports counts; a number and the column follow."""

ROWS: Final = "rows"
NO_TIME: Final = "no_time"
FUTURE: Final = "future"
FURTHEST: Final = "furthest_us"
"""The counts: all rows, those without a time, those from the future, and the latest of these."""

CLAIMED: Final = "claimed"
"""The column that has a time from the future as it came, on its way to where it is counted."""


class Faults(NamedTuple):
    """What was seen of a column of times.

    Attributes:
        rows: How many events there were.
        no_time: How many of them have no time.
        future: How many have one that is too far in the future.
        furthest_us: The latest of those.
    """

    rows: int = 0
    no_time: int = 0
    future: int = 0
    furthest_us: int | None = None

    def with_more(self, other: "Faults") -> "Faults":
        """Return both together."""
        known = [each for each in (self.furthest_us, other.furthest_us) if each is not None]
        return Faults(
            self.rows + other.rows,
            self.no_time + other.no_time,
            self.future + other.future,
            max(known, default=None),
        )


def counts_name(number: int, columns: str) -> str:
    """Return the name for the counts of one input of an operator.

    Args:
        number: Tells it from all others of this process.
        columns: What its watermark goes by.
    """
    return f"{COUNTS}{number}.{columns}"


def columns_in(name: str) -> str:
    """Return the columns that such a name is of."""
    return name.removeprefix(COUNTS).partition(".")[2]


def counted(metrics: Mapping[str, Any]) -> Faults:
    """Read counts as Spark reports them; it has null for the sum of nothing."""
    rows, no_time, future = (int(metrics.get(name) or 0) for name in (ROWS, NO_TIME, FUTURE))
    furthest = metrics.get(FURTHEST)
    return Faults(rows, no_time, future, None if furthest is None else int(furthest))


def maybe_warning(columns: str, faults: Faults) -> str | None:
    """Return what is to be said of a batch, or None where most of its events have a time.

    Args:
        columns: What the watermark goes by.
        faults: What was seen of it.
    """
    wrong = faults.no_time + faults.future
    if not wrong or 2 * wrong < faults.rows:
        return None
    what = f"{wrong:,} of {faults.rows:,} events of a batch have no time to go by in {columns!r}"
    told = [f"{what}: they are in no window, and do not move the watermark"]
    if faults.future:
        told.append(
            f"{faults.future:,} are dated further ahead of their records than `future` allows, up "
            f"to {_moment(faults.furthest_us)}: check the unit that {columns!r} is made from and "
            "the clocks that wrote it, or allow more with hf.watermark(..., future=...)"
        )
    if faults.no_time:
        told.append(
            f"{faults.no_time:,} have none: check how {columns!r} is made, a format that does not "
            "fit gives null"
        )
    return ". ".join(told)


def _moment(time_us: int | None) -> str:
    if time_us is None:
        return "an unknown time"
    moment = maybe_moment(time_us)
    if moment is None:
        return f"{time_us:,} microseconds after 1970, beyond the year 9999"
    return f"{moment.replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"
