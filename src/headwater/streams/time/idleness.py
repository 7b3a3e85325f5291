"""Which partitions are not waited for.

This file alone decides when a partition is idle: no event time came from it for a while, and it was
read in spite of that. The second keeps a partition that has something to read, and is not read,
from being given up. It asks no broker, no query and no clock; ends of logs, positions and time are
handed in.

Silence is measured by a clock that never jumps, and that stands still while the host is suspended.
It counts from the planning at which a time was heard, not from when a task reported it: a batch
that takes long makes no partition silent. What was reported to an earlier process counts from when
it was written, if that was before this process began: only for this the wall clock is asked, once.
A query that ends by itself (`availableNow`) waits for nothing: there, silence is what was silence
when it began, or was never heard of; how long its batches take changes nothing.

A silent partition is idle if

- the query has read it to its end: in `availableNow`, to where it ended when the query began; or
- two batches have read rows of it since it fell silent, none of these rows had an event time, and
  it is not catching up. They were filtered out, or the clock of a device is broken: that must not
  stop the clock of all others for ever, if the same goes on coming. A query that ends by itself
  does not give up what it reads: it is not there to be quick, and its result must not depend on
  its speed.

A query that reads a backlog in parts knows nothing of the rows in front of it, and they may be good
ones: whoever gives up a partition there loses them. So it is waited for until it was read to where
it ended when the silence was noticed; and again to where it ends by then, if what is left is less
than half of what was left before. That is so a few times at most. A query that falls behind for
ever is not waited for to catch up.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from headwater.streams.time.fold import Place, Progress

# The first batch after a long silence may be one with a row or two that happen to have no time.
_BATCHES_UNTIL_MUTE: Final = 2


class Log(NamedTuple):
    """The first offset of a partition, and the one after its last readable record."""

    start: int
    end: int


class _Heard(NamedTuple):
    """How many event times were reported, and when the last was heard of."""

    times: int
    at_ms: int


class _Mute(NamedTuple):
    """What was read of a partition since it fell silent.

    Attributes:
        position: Up to where.
        batches: In how many batches.
        until: Where it ended when it fell silent, or was last read to its end of then.
        left: How much there was to read by then.
    """

    position: int
    batches: int
    until: int
    left: int


class Idleness:
    """Remembers since when partitions are silent, and what was read of them since."""

    def __init__(self, idle_ms: int | None, began_ms: int) -> None:
        """Begin to watch.

        Args:
            idle_ms: For how long a partition has to be silent; None: it never is idle.
            began_ms: When this process began, by the wall clock.
        """
        self._idle_ms = idle_ms
        self._began_ms = began_ms
        self._ends: Mapping[Place, Log] | None = None
        self._first: dict[Place, int] = {}
        self._heard: dict[Place, _Heard] = {}
        self._mute: dict[Place, _Mute] = {}

    def hurry(self, logs: Mapping[Place, Log]) -> None:
        """Take note that the query ends when it has read what is there now."""
        self._ends = dict(logs)

    def silent(
        self,
        partitions: Mapping[Place, Progress | None],
        counts: Mapping[Place, int],
        now_ms: int,
    ) -> set[Place]:
        """Return the partitions that are silent.

        Args:
            partitions: How far each partition has come.
            counts: How many event times were reported of each, as far as this process has read.
            now_ms: A clock that never goes back.
        """
        before, self._heard = self._heard, {}
        for place, progress in partitions.items():
            count = counts.get(place, 0)
            known = before.get(place)
            if known is not None and known.times == count:
                self._heard[place] = known
            else:
                is_first = known is None and place not in self._first
                self._first.setdefault(place, count)
                ago_ms = self._ago_ms(progress) if is_first else 0
                self._heard[place] = _Heard(count, now_ms - ago_ms)
        if self._idle_ms is None:
            return set()
        found = {
            place
            for place, progress in partitions.items()
            if self._is_silent(place, progress, self._idle_ms, now_ms)
        }
        self._mute = {place: mute for place, mute in self._mute.items() if place in found}
        return found

    def _ago_ms(self, progress: Progress | None) -> int:
        """Return how long before this process began a time was last reported."""
        return 0 if progress is None else max(0, self._began_ms - progress.timed_ms)

    def _is_silent(
        self, place: Place, progress: Progress | None, idle_ms: int, now_ms: int
    ) -> bool:
        heard = self._heard[place]
        if self._ends is None:
            return now_ms - heard.at_ms >= idle_ms
        if heard.times != self._first[place]:
            return False
        return progress is None or self._ago_ms(progress) >= idle_ms

    def idle(self, logs: Mapping[Place, Log], positions: Mapping[Place, int]) -> set[Place]:
        """Return those of the silent partitions that are idle.

        Args:
            logs: What there is to read of each silent partition now.
            positions: How far the query has read each partition.
        """
        return {place for place in logs if self._is_read(place, logs[place], positions)}

    def _is_read(self, place: Place, log: Log, positions: Mapping[Place, int]) -> bool:
        position = max(positions.get(place, 0), log.start)
        end = log.end if self._ends is None else self._ends.get(place, log).end
        if position >= end:
            self._mute.pop(place, None)
            return True
        if self._ends is not None:
            return False
        mute = self._mute.get(place, _Mute(position, 0, end, end - position))
        if position > mute.position:
            mute = mute._replace(position=position, batches=mute.batches + 1)
        if position >= mute.until and 2 * (end - position) < mute.left:
            mute = mute._replace(until=end, left=end - position)
        self._mute[place] = mute
        return position >= mute.until and mute.batches >= _BATCHES_UNTIL_MUTE
