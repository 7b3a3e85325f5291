"""Which partitions are not waited for.

This file alone decides when a partition is idle: when no event time came from it for a while, and
all that it has was read. The second keeps one that is merely read slowly from being given up. It
asks no broker and no clock; ends of logs, time and the numbers of plannings are handed in.

Silence counts from the planning at which a time was heard, not from when a task reported it: a
batch that takes long makes nobody silent. What was reported to an earlier process counts from when
it was written. A query that ends by itself (`availableNow`) waits for nobody: there, silence is
what was silence when it began, or was never heard of; how long its batches take changes nothing.

A silent partition gets a mark at the end of its log. It is read up to the mark if

- a report reaches it, or there is nothing before it; or
- two plannings have gone by, and no batch is bounded: Spark asks all sources for their ends in one
  go, in an order that is not known; so the batch planned next after the mark was made reads up to
  it, and its reports are there when the one after that is planned; or
- a later planning led to no batch, and no source holds rows back: none had anything left; or
- whoever asked the brokers has found nothing but ends of transactions before the mark.

Where more has come since, it is marked and read again before the partition is idle; but if there
was no event time in that either, the next rows are not waited for: a device whose clock is broken
must not stop the clock of all others.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

from headwater.streams.time.fold import Place, Progress

Partitions = Mapping[Place, Progress | None]

_NOTHING_SEEN = Progress(None, None, 0)
_PLANNINGS_UNTIL_READ = 2
_PASSES_UNTIL_MUTE = 2


class Log(NamedTuple):
    """The first offset of a partition, and the one behind its last readable record."""

    start: int
    end: int


class Mark(NamedTuple):
    """What has to be read before a partition may be called idle.

    Attributes:
        start: What is before it need not be read.
        end: Where the log ended.
        planning: When that was.
        passes: How many marks were read before without an event time.
    """

    start: int
    end: int
    planning: int
    passes: int = 0


class Plannings:
    """Counts how often Spark has planned a batch, and when that was in vain.

    Spark commits a batch when it plans the next one. So after the first commit, a planning without
    a commit behind it led to no batch: no source had anything to read.

    Attributes:
        number: That of this planning, from 1 on.
        quiet: That of the last one that is known to have led to no batch; 0 for none.
    """

    def __init__(self) -> None:
        """Begin before the first."""
        self.number = 0
        self.quiet = 0
        self._has_committed: bool | None = None

    def begin(self) -> None:
        """Take note that Spark plans."""
        if self._has_committed is False:
            self.quiet = self.number
        elif self._has_committed:
            self._has_committed = False
        self.number += 1

    def commit(self) -> None:
        """Take note that Spark has planned a batch behind another."""
        self._has_committed = True


class _Heard(NamedTuple):
    """When an event time was last reported, and when that was heard of."""

    timed_ms: int | None
    heard_ms: int


class Idleness:
    """Remembers since when partitions are silent, and what of them was to be read."""

    def __init__(
        self, idle_ms: int | None, began_ms: int, *, bounded: bool, held: bool = False
    ) -> None:
        """Begin to watch.

        Args:
            idle_ms: For how long a partition has to be silent; None: it never is idle.
            began_ms: When this process began.
            bounded: Whether a batch may leave something unread.
            held: Whether there may be no batch although there is something to read.
        """
        self._idle_ms = idle_ms
        self._began_ms = began_ms
        self._bounded = bounded or held
        self._held = held
        self._hurried_ms: int | None = None
        self._heard: dict[Place, _Heard] = {}
        self._marks: dict[Place, Mark] = {}

    def hurry(self, logs: Mapping[Place, Log], now_ms: int) -> None:
        """Take note that the query ends when it has read what is there now."""
        self._hurried_ms = now_ms
        self._marks = {place: Mark(*log, planning=0) for place, log in logs.items()}

    def silent(self, partitions: Partitions, now_ms: int) -> set[Place]:
        """Return the partitions that may be idle, if all that they have was read."""
        self._listen(partitions, now_ms)
        if self._idle_ms is None:
            return set()
        found = {place for place in partitions if self._is_silent(place, self._idle_ms, now_ms)}
        self._marks = {place: mark for place, mark in self._marks.items() if place in found}
        return found

    def _listen(self, partitions: Partitions, now_ms: int) -> None:
        before, self._heard = self._heard, {}
        for place, progress in partitions.items():
            timed_ms = None if progress is None else progress.timed_ms
            known = before.get(place)
            if known is not None and known.timed_ms == timed_ms:
                self._heard[place] = known
            elif timed_ms is not None and timed_ms < self._began_ms:
                self._heard[place] = _Heard(timed_ms, timed_ms)
            else:
                self._heard[place] = _Heard(timed_ms, now_ms)

    def _is_silent(self, place: Place, idle_ms: int, now_ms: int) -> bool:
        heard = self._heard[place]
        if self._hurried_ms is not None:
            return heard.timed_ms is None or self._hurried_ms - heard.timed_ms >= idle_ms
        return now_ms - heard.heard_ms >= idle_ms

    def idle(
        self, logs: Mapping[Place, Log], partitions: Partitions, plannings: Plannings
    ) -> set[Place]:
        """Return those of the silent partitions that are idle.

        Args:
            logs: What there is to read of each silent partition now.
            partitions: How far each partition has come.
            plannings: How often Spark has planned.
        """
        found = set()
        for place, log in logs.items():
            mark = self._marks.setdefault(place, Mark(*log, plannings.number))
            progress = partitions.get(place) or _NOTHING_SEEN
            if self._is_read(mark, progress, plannings):
                if self._passed(place, mark, log, plannings.number):
                    found.add(place)
            elif mark.passes >= _PASSES_UNTIL_MUTE:
                found.add(place)
        return found

    def unread(self, idle: Container[Place], partitions: Partitions) -> dict[Place, Log]:
        """Return what is not known to be read of silent partitions that are not idle."""
        found = {}
        for place, mark in self._marks.items():
            position = (partitions.get(place) or _NOTHING_SEEN).position
            if place not in idle:
                found[place] = Log(max(mark.start, position), mark.end)
        return found

    def prove(self, place: Place) -> None:
        """Take note that there is nothing to be read before the mark."""
        mark = self._marks[place]
        self._marks[place] = mark._replace(start=mark.end)

    def _is_read(self, mark: Mark, progress: Progress, plannings: Plannings) -> bool:
        return (
            mark.start >= mark.end
            or progress.position >= mark.end
            or (not self._held and plannings.quiet > mark.planning)
            or (not self._bounded and plannings.number >= mark.planning + _PLANNINGS_UNTIL_READ)
        )

    def _passed(self, place: Place, mark: Mark, log: Log, planning: int) -> bool:
        """Go on to the log's end of now; return whether the partition is idle."""
        if log.end <= mark.end:
            self._marks[place] = mark._replace(start=mark.end)
            return True
        passes = mark.passes + 1
        self._marks[place] = Mark(mark.end, log.end, planning, passes)
        return passes >= _PASSES_UNTIL_MUTE
