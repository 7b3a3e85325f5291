"""What is remembered of a sink's last transaction, and how it is found in a log again.

This file alone decides what a marker says, how it is written, and which of several counts. It
reads batches that it is handed and asks no broker.

A marker is one record of the topic `__hw_sink`, sent in the same transaction as the rows that it
speaks of, so it is committed if and only if they are:

    key      query id, "/", name of the sink
    value    JSON: version 1, batch, run, earlier (runs, oldest first), producer (id, epoch) and
             ends (by topic and partition, the offset behind the last record that was written)
             and, where it is known, plan (digest, and sources: where the batch ended in each)

A field may be added without a new version; readers skip what they do not know. A version that is
not 1 is an error, never a guess.

The topic is shared by all queries. A reader of committed records sees nothing behind the oldest
transaction that is open, whosoever's it is, and so might miss a marker of its own. Therefore the
log is read as it lies, and the ends of transactions that stand in it decide.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from headwater.base.record.batch import BatchHeader, TruncatedBatchError, scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.record.varint import BytesLike
from headwater.delivery.client.cluster import Place
from headwater.streams.sink.errors import MarkerError
from headwater.streams.sink.plan import Plan

MARKER_TOPIC = "__hw_sink"
MARKER_PLACE: Place = (MARKER_TOPIC, 0)
"""All markers are in partition 0: where a key is must not change when partitions are added."""

_VERSION = 1
# Every batch writes them once more. 16 KiB are the offsets of about 1,000 partitions.
_SOURCES_BYTES_MAX = 16 << 10
# A driver that was forgotten here could fence a newer one, no more: nothing is lost or doubled.
_EARLIER_MAX = 50


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of a query that was written, and by whom.

    Attributes:
        batch_id: Spark's number of the batch.
        run_id: The run of the query that wrote it, or has taken over since.
        producer: Producer id and epoch of that transaction.
        earlier: The runs before, oldest first; none of them may write again.
        ends: The offset behind the last record, for each partition of the batch.
        plan: The plan of the batch, where it is known.
    """

    batch_id: int
    run_id: str
    producer: tuple[int, int]
    earlier: tuple[str, ...] = ()
    ends: Mapping[Place, int] = field(default_factory=dict)
    plan: Plan | None = None

    def followed_by(
        self,
        *,
        batch_id: int,
        run_id: str,
        producer: tuple[int, int],
        ends: Mapping[Place, int],
        plan: Plan | None = None,
    ) -> "Marker":
        """Return the marker of a later batch, or of another run."""
        earlier = self.earlier
        if run_id != self.run_id:
            earlier = tuple(run for run in (*earlier, self.run_id) if run != run_id)
        return Marker(batch_id, run_id, producer, earlier[-_EARLIER_MAX:], ends, plan)

    def taken_over(self, *, run_id: str, producer: tuple[int, int]) -> "Marker":
        """Return the marker of the same batch in the hands of another run."""
        return self.followed_by(
            batch_id=self.batch_id,
            run_id=run_id,
            producer=producer,
            ends=self.ends,
            plan=self.plan,
        )


class Seen(NamedTuple):
    """What a log says of one sink.

    Attributes:
        committed: The last marker whose transaction is committed.
        undecided: That of a transaction of which the log does not say yet how it ends. It may have
            been decided: brokers acknowledge the end of a transaction before all its partitions
            have it.
    """

    committed: Marker | None
    undecided: Marker | None


def marker_key(query_id: str, sink_name: str) -> bytes:
    """Return the key under which a query's sink is remembered."""
    return f"{query_id}/{sink_name}".encode()


def encode_marker(marker: Marker) -> bytes:
    """Write the value of a marker's record."""
    ends: dict[str, dict[str, int]] = {}
    for (topic, number), end in sorted(marker.ends.items()):
        ends.setdefault(topic, {})[str(number)] = end
    said: dict[str, object] = {
        "version": _VERSION,
        "batch": marker.batch_id,
        "run": marker.run_id,
        "earlier": marker.earlier,
        "producer": {"id": marker.producer[0], "epoch": marker.producer[1]},
        "ends": ends,
    }
    if marker.plan is not None:
        sources = marker.plan.sources
        is_short = sum(map(len, sources)) <= _SOURCES_BYTES_MAX
        said["plan"] = {"digest": marker.plan.digest, "sources": sources if is_short else ()}
    return json.dumps(said, separators=(",", ":")).encode()


def decode_marker(value: BytesLike) -> Marker:
    """Read the value of a marker's record.

    Raises:
        MarkerError: It is none, or of another version.
    """
    try:
        said = json.loads(bytes(value))
        if said["version"] != _VERSION:
            raise MarkerError(
                f"a marker of version {said['version']} is in {MARKER_TOPIC}",
                hint="a newer Headwater has written it: use that one for this query",
            )
        return Marker(
            batch_id=int(said["batch"]),
            run_id=str(said["run"]),
            producer=(int(said["producer"]["id"]), int(said["producer"]["epoch"])),
            earlier=tuple(map(str, said["earlier"])),
            ends={
                (topic, int(number)): int(end)
                for topic, numbers in said["ends"].items()
                for number, end in numbers.items()
            },
            plan=_maybe_plan(said.get("plan")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MarkerError(
            f"a record of {MARKER_TOPIC} is no marker: {bytes(value[:80])!r}",
            hint=f"nobody but Headwater's sink may write to {MARKER_TOPIC}",
        ) from error


def _maybe_plan(said: Any) -> Plan | None:  # noqa: ANN401 - whatever JSON holds
    return None if said is None else Plan(str(said["digest"]), tuple(map(str, said["sources"])))


def marker_batch(key: bytes, marker: Marker, *, now_ms: int) -> bytes:
    """Write a marker as a finished batch of one record."""
    return bytes(build_batch([Record(0, now_ms, key, encode_marker(marker))]))


class MarkerScan:
    """Finds the markers that count, batch by batch from the start of the log.

    It keeps those of all sinks, so that a process that writes for many reads the log once, and can
    go on later from where it was: what it has seen is what the log said up to there.

    Attributes:
        next_offset: The offset to go on from.
    """

    def __init__(self, *, from_offset: int = 0) -> None:
        self.next_offset = from_offset
        self._found: dict[bytes, bytes] = {}
        self._open: dict[int, dict[bytes, bytes | None]] = {}

    def seen(self, key: bytes) -> Seen:
        """Return what the log says of a key, as far as it was read.

        Raises:
            MarkerError: A record of the key is no marker.
        """
        found, last = self._found.get(key), None
        for values in self._open.values():
            last = values.get(key, last)
        return Seen(
            None if found is None else decode_marker(found),
            None if last is None else decode_marker(last),
        )

    def keys(self, query_id: str) -> set[bytes]:
        """Return the keys of a query's sinks that have a marker, committed or not."""
        prefix = marker_key(query_id, "")
        known = set(self._found)
        for values in self._open.values():
            known |= {key for key, value in values.items() if value is not None}
        return {key for key in known if key.startswith(prefix)}

    def take(self, records: BytesLike) -> Self:
        """Go on with the batches that follow; the last may be cut off.

        Raises:
            CorruptRecordError: A batch is damaged.
        """
        for header, batch in _batches_from(self.next_offset, records):
            if header.is_control:
                self._end(header.producer_id, batch)
            else:
                self._read(header, batch)
            self.next_offset = header.next_offset
        return self

    def _read(self, header: BatchHeader, batch: list[Record]) -> None:
        for record in batch:
            key = bytes(record.key or b"")
            value = None if record.value is None else bytes(record.value)
            if header.is_transactional:
                self._open.setdefault(header.producer_id, {})[key] = value
            else:
                self._settle(key, value)

    def _end(self, producer_id: int, batch: list[Record]) -> None:
        # Compaction may leave the header of a control batch alone, when nothing before it is left.
        end = read_end_transaction(batch[0]) if batch else None
        if end is not None:
            for key, value in self._open.pop(producer_id, {}).items():
                if end.is_commit:
                    self._settle(key, value)

    def _settle(self, key: bytes, value: bytes | None) -> None:
        # A tombstone is how a person lets a query be forgotten.
        if value is None:
            self._found.pop(key, None)
        else:
            self._found[key] = value


def _batches_from(offset: int, records: BytesLike) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Yield the batches that hold something from the offset on; one that is cut off comes later."""
    with contextlib.suppress(TruncatedBatchError):
        for pos, header in scan(records):
            if header.last_offset >= offset:
                yield header, iterate(records, pos)
