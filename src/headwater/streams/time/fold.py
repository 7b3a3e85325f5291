"""What time it is, from what each partition has reported.

This file alone decides the watermark. It is pure: what was reported, and which partitions are idle,
is handed in.

A report says the largest event time that a task has seen in a partition, and in which rows. Of many
reports the largest counts, so that their order and number do not matter. The watermark is the
smallest of the partitions' times less the delay, and never goes back. A partition of which no time
is known holds it where it is.

Idle partitions hold up nobody. Where all are idle, the last to fall silent would have been alone at
some moment, and which one that was is chance; so that chance decides nothing, the watermark is then
that of the partition which is furthest ahead. Only when it has said so, it says that it is idle.
"""

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

Place = tuple[str, int]
"""A partition: its topic's name and its number."""


class Reach(NamedTuple):
    """What a task has seen of one partition.

    Attributes:
        time_us: The largest event time; None where no row had one to be believed.
        first: The smallest offset.
        last: The largest offset.
    """

    time_us: int | None
    first: int
    last: int


class Report(NamedTuple):
    """What a task has seen of one partition, as it is written down.

    Attributes:
        time_us, first, last: As `Reach` has them.
        at_ms: When it was reported, by the wall clock.
    """

    time_us: int | None
    first: int
    last: int
    at_ms: int


class Progress(NamedTuple):
    """How far the event time of a partition has come, by all its reports.

    Attributes:
        time_us: The largest event time.
        timed_ms: When an event time was last reported, by the wall clock of the host that did.
    """

    time_us: int
    timed_ms: int


class Decision(NamedTuple):
    """What time it is.

    Attributes:
        watermark_us: Events before this are believed to have come; None while nothing is known.
        idle: Whether nothing is to be waited for.
    """

    watermark_us: int | None
    idle: bool


END_US: Final = 2**60
"""The watermark of a stream that has ended: behind all windows, and far from where numbers end."""

UNKNOWN: Final = Decision(None, idle=False)
"""What time it is before anything was reported."""


def merged(one: Progress | None, other: Progress) -> Progress:
    """Return how far a partition has come by two accounts of it."""
    if one is None:
        return other
    return Progress(max(one.time_us, other.time_us), max(one.timed_ms, other.timed_ms))


def decide(
    before: Decision,
    partitions: Mapping[Place, Progress | None],
    idle: Container[Place],
    delay_us: int,
) -> Decision:
    """Decide what time it is.

    Args:
        before: The decision before.
        partitions: All that are read, and how far each has come; None for one without a time.
        idle: Those of them that are not waited for.
        delay_us: By how much events may come out of order.
    """
    awake = [progress for place, progress in partitions.items() if place not in idle]
    times = [None if progress is None else progress.time_us for progress in awake]
    if None in times:
        return Decision(before.watermark_us, idle=False)
    known = [time_us for time_us in times if time_us is not None]
    if known:
        ahead = largest(before.watermark_us, min(known) - delay_us)
        return Decision(ahead, idle=False)
    ahead = before.watermark_us
    for progress in partitions.values():
        if progress is not None:
            ahead = largest(ahead, progress.time_us - delay_us)
    return Decision(ahead, idle=bool(partitions) and ahead == before.watermark_us)


def largest(one: int | None, other: int | None) -> int | None:
    """Return the larger of two numbers, of which either may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
