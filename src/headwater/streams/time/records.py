"""What is written in the topic of reports, and how it is found there again.

This file alone decides the form of `__hw_time`'s records and which of them may go. It reads batches
that it is handed and asks no broker.

    key      ["report", query id, name of the clock, topic, partition, first offset, last offset]
    value    {"version": 1, "time": the largest event time in microseconds}

A report's key says which rows it is about, and so the same key always has the same value: whichever
of two records compaction keeps, and however late a task that was given up writes, nothing changes.

A copy of a checkpoint has the query's id as well, and a checkpoint may be restored to what it was a
week ago. So the query's id does not decide whether a report counts. What decides is whether this
checkpoint has read the rows; a report of rows that it has not read waits until it has.

Of a partition only the report with the largest time and the one with the largest offset say
something; the time reader has the others removed. So one or two stay for ever. A checkpoint that
was restored may miss one that was removed since; then a larger time is among the rows that it is
about to read again, and until then its watermark is too low, never too high.

Earlier releases wrote reports without a time (null), of which nothing follows; a second kind of
record, `["clock", id]`, which nothing reads any more; and names that ended in a number.
"""

import contextlib
import json
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from headwater.base.record.batch import BatchHeader, TruncatedBatchError, scan
from headwater.base.record.records import Record, iterate
from headwater.base.record.varint import BytesLike
from headwater.streams.time.errors import TimeLogError
from headwater.streams.time.fold import Place, Progress, Report, merged

TIME_TOPIC: Final = "__hw_time"
TIME_PLACE: Final = (TIME_TOPIC, 0)

_VERSION: Final = 1
_REPORT: Final = "report"
_CLOCK: Final = "clock"


class _Live(NamedTuple):
    """A report that is the largest of its partition in time or in offset."""

    key: bytes
    time_us: int
    last: int

    @property
    def by_time(self) -> tuple[int, int]:
        return (self.time_us, self.last)

    @property
    def by_offset(self) -> tuple[int, int]:
        return (self.last, self.time_us)


class Names(NamedTuple):
    """Under which names the reports of one clock are found.

    Attributes:
        own: The name that tasks use now.
        before: The one that they used when the checkpoint was last written; None where the
            checkpoint is of a release that did not keep it.
    """

    own: str
    before: str | None

    def takes(self, name: str) -> bool:
        """Return whether reports of this name are the clock's."""
        if name in {self.own, self.before}:
            return True
        rule, _, number = name.rpartition("/")
        return self.before is None and number.isdigit() and rule == self.own.rpartition("/")[0]


def report_record(query_id: str, name: str, place: Place, report: Report) -> Record:
    """Write down what a task has seen of one partition."""
    key = _text([_REPORT, query_id, name, *place, report.first, report.last])
    value = _text({"version": _VERSION, "time": report.time_us})
    return Record(0, report.at_ms, key, value)


class TimeScan:
    """Folds what the topic says of one clock, batch by batch from the start of the log.

    Attributes:
        next_offset: The offset to go on from.
        surpassed: Keys of records that may be removed.
        counts: How many reports of each partition were folded.
    """

    def __init__(self, query_id: str, names: Names) -> None:
        """Begin at the start of the log."""
        self.next_offset = 0
        self.surpassed: set[bytes] = set()
        self.counts: dict[Place, int] = {}
        self._names = names
        self._own_prefix = _prefix(query_id)
        self._waiting: dict[tuple[str, Place], list[tuple[bytes, Report]]] = {}
        self._folded: dict[tuple[str, Place], Progress] = {}
        self._live: dict[Place, list[_Live]] = {}

    def progress(self) -> dict[Place, Progress]:
        """Return how far each partition has come, by the reports that were folded.

        Of several clocks of an earlier release it is not known which one this is: the slowest.
        """
        found: dict[Place, Progress] = {}
        for (name, place), progress in self._folded.items():
            if name != self._names.own:
                found[place] = min(progress, found.get(place, progress))
        for (name, place), progress in self._folded.items():
            if name == self._names.own:
                found[place] = merged(found.get(place), progress)
        return found

    def fold(self, positions: Mapping[Place, int]) -> None:
        """Take in the reports of rows that the query has read: those before its positions.

        What it reads from here on it reports under its own name, and no other counts any more.
        """
        for (name, place), reports in list(self._waiting.items()):
            position = positions.get(place, 0)
            left = [each for each in reports if each[1].last >= position]
            for key, report in reports:
                if report.last < position:
                    self._fold(name, place, key, report)
            if left and name == self._names.own:
                self._waiting[name, place] = left
            else:
                del self._waiting[name, place]
        self._names = Names(self._names.own, self._names.own)

    def start_again(self) -> None:
        """Read from the start of another log; what was known stays known."""
        self.next_offset = 0
        self.surpassed.clear()
        self._live.clear()

    def forget_partitions(self, gone: Container[Place]) -> None:
        """Let the reports of partitions go that do not exist any more."""
        for reports in (self._waiting, self._folded):
            for name, place in [each for each in reports if each[1] in gone]:
                del reports[name, place]
        for place in [each for each in self._live if each in gone]:
            self.surpassed.update(each.key for each in self._live.pop(place))

    def take(self, records: BytesLike) -> Self:
        """Go on with the batches that follow; the last may be cut off.

        Raises:
            TimeLogError: What should be a record of the clock is none.
            CorruptRecordError: A batch is damaged.
        """
        for header, batch in _batches_from(self.next_offset, records):
            for record in [] if header.is_control else batch:
                if record.value is not None and record.key is not None:
                    self._read(record.key, record.value, record.timestamp)
            self.next_offset = header.next_offset
        return self

    def _read(self, key: bytes, value: bytes, at_ms: int) -> None:
        if not key.startswith(self._own_prefix):
            return
        said = _maybe_list(key)
        try:
            _, _, name, topic, partition, first, last = said
            if not self._names.takes(str(name)):
                return
            report = Report(_time_us(value), int(first), int(last), at_ms)
            place = (str(topic), int(partition))
        except (KeyError, ValueError, TypeError) as error:
            raise _not_ours(key) from error
        if report.time_us is not None:
            self._waiting.setdefault((str(name), place), []).append((key, report))

    def _fold(self, name: str, place: Place, key: bytes, report: Report) -> None:
        assert report.time_us is not None
        progress = Progress(report.time_us, report.at_ms)
        self._folded[name, place] = merged(self._folded.get((name, place)), progress)
        self.counts[place] = self.counts.get(place, 0) + 1
        if name != self._names.own:
            return
        live = self._live.setdefault(place, [])
        if any(each.key == key for each in live):
            return
        known = [*live, _Live(key, report.time_us, report.last)]
        leading = {
            max(known, key=lambda each: each.by_time),
            max(known, key=lambda each: each.by_offset),
        }
        self.surpassed.discard(key)
        self.surpassed.update(each.key for each in known if each not in leading)
        self._live[place] = [each for each in known if each in leading]


class QueryScan:
    """Finds all that the topic says of one query, batch by batch from the start of the log.

    Attributes:
        next_offset: The offset to go on from.
        keys: Those that have a record.
    """

    def __init__(self, query_id: str) -> None:
        self.next_offset = 0
        self.keys: set[bytes] = set()
        self._query_id = query_id
        self._own_prefix = _prefix(query_id)

    def take(self, records: BytesLike) -> Self:
        """Go on with the batches that follow; the last may be cut off."""
        for header, batch in _batches_from(self.next_offset, records):
            for record in [] if header.is_control else batch:
                key = record.key or b""
                if record.value is None:
                    self.keys.discard(key)
                elif self._is_own(key, record.value):
                    self.keys.add(key)
            self.next_offset = header.next_offset
        return self

    def _is_own(self, key: bytes, value: bytes) -> bool:
        if key.startswith(self._own_prefix):
            return True
        is_clock = _maybe_list(key)[:1] == [_CLOCK]
        return is_clock and _value(value).get("query") == self._query_id


def _prefix(*names: str) -> bytes:
    """Return how the keys of all reports begin that have these names."""
    return _text([_REPORT, *names])[:-1] + b","


def _text(said: object) -> bytes:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def _maybe_list(key: bytes) -> list[Any]:
    """Read a key; what somebody else has written is an empty one."""
    try:
        said = json.loads(key)
    except ValueError:
        return []
    return said if isinstance(said, list) else []


def _time_us(value: bytes) -> int | None:
    time_us = _value(value)["time"]
    return None if time_us is None else int(time_us)


def _value(value: bytes) -> dict[str, Any]:
    try:
        said = json.loads(value)
        version = said["version"]
    except (ValueError, TypeError, KeyError) as error:
        raise _not_ours(value) from error
    if version != _VERSION:
        raise TimeLogError(
            f"a record of version {version} is in {TIME_TOPIC}",
            hint="a newer Headwater has written it: use that one for this query",
        )
    found: dict[str, Any] = said
    return found


def _not_ours(what: bytes) -> TimeLogError:
    return TimeLogError(
        f"a record of {TIME_TOPIC} is none of ours: {what[:80]!r}",
        hint=f"nobody but Headwater may write to {TIME_TOPIC}",
    )


def _batches_from(offset: int, records: BytesLike) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield the batches that hold something from the offset on; one that is cut off comes later."""
    with contextlib.suppress(TruncatedBatchError):
        for pos, header in scan(records):
            if header.last_offset >= offset:
                yield header, iterate(records, pos)
