"""What is written in the topic of reports, and how it is found there again.

This file alone decides the form of `__hw_time`'s records and which of them may go. It reads batches
that it is handed and asks no broker. There are two kinds:

    key      ["report", query id, name of the clock, topic, partition, first offset, last offset]
    value    {"version": 1, "time": the largest event time in microseconds, or null}

    key      ["clock", id of a time reader]
    value    {"version": 1, "query": the id of the query that it works for}

A report's key says which rows it is about, and so the same key always has the same value: whichever
of two records compaction keeps, and however late a task that was given up writes, nothing changes.
Of a partition only the report with the largest time and the one with the largest offset say
something; the time reader has the others removed. So one or two stay for ever.

The second kind tells a time reader, which Spark does not tell it, whose reports it has to fold.
"""

import contextlib
import json
from collections.abc import Container, Iterator
from typing import Any, Final, NamedTuple, Self

from headwater.base.record.batch import BatchHeader, TruncatedBatchError, scan
from headwater.base.record.records import Record, iterate
from headwater.base.record.varint import BytesLike
from headwater.streams.time.errors import TimeLogError
from headwater.streams.time.fold import Place, Progress, Report, advanced

TIME_TOPIC: Final = "__hw_time"
TIME_PLACE: Final = (TIME_TOPIC, 0)

_VERSION: Final = 1
_REPORT: Final = "report"
_CLOCK: Final = "clock"


class _Live(NamedTuple):
    """A report that is the largest of its partition in time or in offset."""

    key: bytes
    time_us: int | None
    last: int

    @property
    def by_time(self) -> tuple[bool, int, int]:
        return (self.time_us is not None, self.time_us or 0, self.last)

    @property
    def by_offset(self) -> tuple[int, bool, int]:
        return (self.last, self.time_us is not None, self.time_us or 0)


def report_record(query_id: str, name: str, place: Place, report: Report) -> Record:
    """Write down what a task has seen of one partition."""
    key = _text([_REPORT, query_id, name, *place, report.first, report.last])
    value = _text({"version": _VERSION, "time": report.time_us})
    return Record(0, report.at_ms, key, value)


def clock_record(clock_id: str, query_id: str, now_ms: int) -> Record:
    """Write down which query a time reader works for."""
    return Record(0, now_ms, _clock_key(clock_id), _text({"version": _VERSION, "query": query_id}))


class TimeScan:
    """Folds what the topic says of one clock, batch by batch from the start of the log.

    Attributes:
        next_offset: The offset to go on from.
        surpassed: Keys of records that may be removed.
    """

    def __init__(self, clock_id: str, name: str, *, query_id: str | None = None) -> None:
        """Begin at the start of the log.

        Args:
            clock_id: The id of the time reader.
            name: Which of a query's reports are its own.
            query_id: Whose reports they are, if that is known.
        """
        self.next_offset = 0
        self.surpassed: set[bytes] = set()
        self._clock_key = _clock_key(clock_id)
        self._name = name
        self._query_id = query_id
        self._own_prefix = b"" if query_id is None else _prefix(query_id, name)
        self._is_bound = False
        # As long as the query is not known, those of any that has a clock of this name.
        self._progress: dict[str, dict[Place, Progress]] = {}
        self._live: dict[tuple[str, Place], list[_Live]] = {}

    @property
    def query_id(self) -> str | None:
        """The query that the clock belongs to, as soon as it is known."""
        return self._query_id

    def progress(self) -> dict[Place, Progress]:
        """Return how far each partition has come that was reported."""
        return {} if self._query_id is None else dict(self._progress.get(self._query_id, {}))

    def start_again(self) -> None:
        """Read from the start of another log; what was known stays known."""
        self.next_offset = 0
        self.surpassed.clear()
        self._live.clear()

    def forget_partitions(self, gone: Container[Place]) -> None:
        """Let the reports of partitions go that do not exist any more."""
        for (query_id, place), live in list(self._live.items()):
            if place in gone:
                del self._live[query_id, place]
                self._progress.get(query_id, {}).pop(place, None)
                self.surpassed.update(each.key for each in live)

    def forget_clock(self) -> None:
        """Let the record go that told the query's id: it is remembered elsewhere now."""
        if self._is_bound:
            self._is_bound = False
            self.surpassed.add(self._clock_key)

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
        if key == self._clock_key:
            self._is_bound = True
            self._bind(str(_value(value)["query"]))
            return
        if not key.startswith(self._own_prefix):
            return
        said = _maybe_list(key)
        if said[:1] != [_REPORT] or said[2:3] != [self._name]:
            return
        try:
            _, query_id, _, topic, partition, first, last = said
            report = Report(_time_us(value), int(first), int(last), at_ms)
            place = (str(topic), int(partition))
        except (KeyError, ValueError, TypeError) as error:
            raise _not_ours(key) from error
        self._fold(str(query_id), place, key, report)

    def _fold(self, query_id: str, place: Place, key: bytes, report: Report) -> None:
        own = self._progress.setdefault(query_id, {})
        own[place] = advanced(own.get(place), report)
        new = _Live(key, report.time_us, report.last)
        live = self._live.setdefault((query_id, place), [])
        if any(each.key == key for each in live):
            return
        known = [*live, new]
        leading = {
            max(known, key=lambda each: each.by_time),
            max(known, key=lambda each: each.by_offset),
        }
        self.surpassed.discard(key)
        self.surpassed.update(each.key for each in known if each not in leading)
        self._live[query_id, place] = [each for each in known if each in leading]

    def _bind(self, query_id: str) -> None:
        self._query_id = query_id
        self._own_prefix = _prefix(query_id, self._name)
        self._progress = {query_id: self._progress.get(query_id, {})}
        self._live = {place: live for place, live in self._live.items() if place[0] == query_id}


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


def _clock_key(clock_id: str) -> bytes:
    return _text([_CLOCK, clock_id])


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
