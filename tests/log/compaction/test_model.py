"""Random histories: what remains equals a model that knows nothing of segments or bytes.

The model keeps a list of batches with their records. After a pass it drops what the rules of
compaction say, record by record: superseded, aborted, keyless, tombstones by the horizon of their
batch. Everything else must be there, byte for byte, at its old offset, also after a restart that
trusts the files and after one that does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.record.records import Record
from headwater.log.compaction.offset_map import ENTRY_BYTES
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.compaction.helpers import (
    COMPACT,
    Pair,
    append_pairs,
    compact,
    hidden_offsets,
    records,
    roll,
)
from tests.log.helpers import NOW_MS, open_log

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"long" * 20, b""])
PAIRS = st.lists(
    st.tuples(KEYS | st.none(), st.binary(max_size=8) | st.none()), min_size=1, max_size=5
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), PAIRS, st.integers(0, 4)),
        st.tuples(st.just("idempotent"), PAIRS, st.integers(0, 4)),
        st.tuples(st.just("transactional"), PAIRS, st.integers(10, 12)),
        st.tuples(st.just("end"), st.booleans(), st.integers(10, 12)),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("clean"), st.sampled_from([2, 5, 1000]), st.none()),
        st.tuples(st.just("pass"), st.sampled_from([1, 500, 1_000]), st.none()),
        st.tuples(st.just("restart"), st.booleans(), st.none()),
    ),
    min_size=5,
    max_size=60,
)


@dataclass
class ModelBatch:
    records: list[Record]
    producer_id: int = -1
    aborted: bool = False
    horizon_ms: int | None = None


@dataclass
class Model:
    """What a compacted log should hold."""

    batches: list[ModelBatch] = field(default_factory=list)
    open: dict[int, list[ModelBatch]] = field(default_factory=dict)

    def clean(self, from_offset: int, upto_offset: int, now_ms: int) -> None:
        latest: dict[bytes, int] = {}
        for batch in self.batches:
            for record in batch.records:
                if (
                    record.key is not None
                    and not batch.aborted
                    and from_offset <= record.offset < upto_offset
                ):
                    latest[record.key] = record.offset
        for batch in self.batches:
            past = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            batch.records = [
                record
                for record in batch.records
                if record.offset >= upto_offset
                or not (
                    batch.aborted
                    or record.key is None
                    or latest.get(record.key, -1) > record.offset
                    or (record.value is None and past)
                )
            ]
            if batch.horizon_ms is None and any(
                record.value is None and record.offset < upto_offset for record in batch.records
            ):
                batch.horizon_ms = now_ms + COMPACT.delete_retention_ms


class History:
    """A log and its model, side by side."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = ManualClock(NOW_MS)
        self.log: PartitionLog = open_log(self.disk, config=COMPACT, clock=self.clock)
        self.model = Model()
        self.clean_offset = 0
        self.sequences: dict[int, int] = {}

    def append(self, pairs: list[Pair], *, codec: int = 0, producer_id: int = -1) -> None:
        base_offset = self.log.log_end_offset
        batch = ModelBatch(
            [
                Record(base_offset + number, NOW_MS + number, key, value)
                for number, (key, value) in enumerate(pairs)
            ],
            producer_id,
        )
        producer = (-1, -1, -1)
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(pairs)
            producer = (producer_id, 0, sequence)
        transactional = producer_id >= 10
        if transactional:
            self.model.open.setdefault(producer_id, []).append(batch)
        append_pairs(self.log, pairs, codec=codec, producer=producer, transactional=transactional)
        self.model.batches.append(batch)

    def end(self, producer_id: int, *, committed: bool) -> None:
        batches = self.model.open.pop(producer_id, None)
        if batches is None:
            return
        self.log.append_marker(producer_id, 0, committed=committed, coordinator_epoch=0)
        for batch in batches:
            batch.aborted = not committed

    def clean(self, keys: int) -> None:
        roll(self.log)
        now_ms = self.clock.now_ms()
        reached = compact(
            self.disk,
            self.log,
            clean_offset=self.clean_offset,
            now_ms=now_ms,
            buffer_bytes=keys * ENTRY_BYTES,
        )
        if reached > self.clean_offset:
            self.model.clean(self.clean_offset, reached, now_ms)
            self.clean_offset = reached
            # As in Kafka, what was aborted goes with the segment that is written anew, though the
            # pass has not come so far; which segments these are the model does not know.
            there = {record.offset for record in records(self.log)}
            for batch in self.model.batches:
                if batch.aborted:
                    batch.records = [each for each in batch.records if each.offset in there]

    def restart(self, *, clean: bool) -> None:
        end_offset, sequences = self.log.log_end_offset, self.last_sequences()
        transactions = self.log.open_transactions()
        if clean:
            self.log.close()
        else:
            roll(self.log)
        self.disk = self.disk.restart()
        self.log = open_log(self.disk, config=COMPACT, clock=self.clock, clean=clean)
        assert self.log.log_end_offset == end_offset
        assert self.last_sequences() == sequences
        assert [found[:3] for found in self.log.open_transactions()] == [
            known[:3] for known in transactions
        ]

    def last_sequences(self) -> dict[int, int]:
        return {
            producer_id: producer.last_sequence
            for producer_id, producer in self.log.producers.items()
        }

    def check(self) -> None:
        expected = [record for batch in self.model.batches for record in batch.records]
        assert [tuple(record) for record in records(self.log)] == [
            tuple(record) for record in expected if record.offset >= 0
        ]
        undecided = {offset for batches in self.model.open.values() for offset in offsets(batches)}
        aborted = offsets(batch for batch in self.model.batches if batch.aborted)
        assert set(hidden_offsets(self.log)) - undecided == set(aborted)


def offsets(batches: Iterable[ModelBatch]) -> list[int]:
    return [record.offset for batch in batches for record in batch.records]


@settings(max_examples=300, deadline=None)
@given(OPERATIONS)
def test_what_remains_equals_the_model(operations: list[tuple[str, object, object]]) -> None:
    history = History()
    for kind, first, second in operations:
        if kind == "plain":
            history.append(first, codec=second)  # type: ignore[arg-type]
        elif kind in {"idempotent", "transactional"}:
            history.append(first, producer_id=second)  # type: ignore[arg-type]
        elif kind == "end":
            history.end(second, committed=bool(first))  # type: ignore[arg-type]
        elif kind == "roll":
            roll(history.log)
        elif kind == "clean":
            history.clean(first)  # type: ignore[arg-type]
        elif kind == "pass":
            history.clock.advance(first)  # type: ignore[arg-type]
        else:
            history.restart(clean=bool(first))
        history.check()
