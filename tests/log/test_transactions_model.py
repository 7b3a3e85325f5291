"""Transactions in a partition against brute force, through restarts, crashes and retention.

Strategy: random operations on a disk in memory. The model is the list of all batches that were
appended, with what each means; it knows no index, no snapshot and no segment, and goes through the
whole list for every answer.

Invariants:

* The last stable offset is the high watermark, or the first offset of the oldest transaction whose
  marker is not below it; a crash that takes a marker opens its transaction again.
* The aborted transactions of a range are all that began before its end and whose marker is not
  before its start.
* A reader that follows the rules of Kafka's consumer is given exactly the committed records.
* Sequence numbers go on where they were, in the epoch that data or marker brought last; each of the
  last five batches of that epoch is known again, and opens no transaction.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.base.errors import KafkaError
from headwater.base.record.control import CONTROL_ABORT, control_type
from headwater.base.record.records import iterate
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.log.txn_index import AbortedTransaction
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import NOW_MS, append, commit, make_batch, open_log, read_batches

# A handful of batches fills a segment.
CONFIG = TopicConfig(
    index_interval_bytes=100,
    segment_index_bytes=36,
    retention_ms=20_000,
    file_delete_delay_ms=1_000,
)
PRODUCERS = 3


@dataclass(frozen=True)
class Batch:
    """One batch of the history; a marker says how it ended a transaction."""

    offset: int
    count: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    committed: bool | None = None


@dataclass
class Transaction:
    """A transaction as the history tells it."""

    producer: int
    first_offset: int
    marker_offset: int | None = None
    committed: bool = False


def transactions_of(history: list[Batch]) -> list[Transaction]:
    """Return all that the history tells of, oldest first."""
    found: list[Transaction] = []
    opened: dict[int, Transaction] = {}
    for batch in history:
        if batch.committed is not None:
            ended = opened.pop(batch.producer, None)
            if ended is not None:
                ended.marker_offset = batch.offset
                ended.committed = batch.committed
        elif batch.is_transactional and batch.producer not in opened:
            opened[batch.producer] = Transaction(batch.producer, batch.offset)
            found.append(opened[batch.producer])
    return found


def producer_of(history: list[Batch], producer: int) -> tuple[int, int, bool]:
    """Return epoch, next sequence number, and whether a transaction is open."""
    epoch = sequence = 0
    is_open = False
    for batch in history:
        if batch.producer == producer:
            if batch.epoch != epoch:
                epoch, sequence = batch.epoch, 0
            is_open = batch.is_transactional and batch.committed is None
            sequence += batch.count if batch.committed is None else 0
    return epoch, sequence, is_open


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.clock = ManualClock(NOW_MS)
        self.history: list[Batch] = []
        self.leader_epoch = 0
        self.recovery_point = 0
        self.recorded_start = 0
        self.stable_offset = 0

    @initialize()
    def start(self) -> None:
        self.reopen(clean=True)

    def reopen(self, *, clean: bool) -> None:
        self.log: PartitionLog = open_log(
            self.disk,
            config=CONFIG,
            clock=self.clock,
            leader_epoch=self.leader_epoch,
            recovery_point=self.recovery_point,
            log_start_offset=self.recorded_start,
            clean=clean,
        )
        self.leader_epoch += 1

    # What happens to it.

    @rule(
        producer=st.integers(0, PRODUCERS - 1),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        raise_epoch=st.sampled_from([False] * 9 + [True]),
    )
    def send(self, producer: int, count: int, is_transactional: bool, raise_epoch: bool) -> None:
        epoch, sequence, is_open = producer_of(self.history, producer)
        if raise_epoch:
            epoch, sequence = epoch + 1, 0
        is_transactional |= is_open
        offset = self.log.log_end_offset
        batch = make_batch(
            [b"%d" % (offset + part) for part in range(count)],
            timestamps=[self.clock.now_ms()],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        sent = bytearray(batch)
        assert not append(self.log, batch).duplicate
        self.history.append(Batch(offset, count, producer, epoch, sequence, is_transactional))
        again = append(self.log, sent)
        assert (again.duplicate, again.base_offset) == (True, offset)

    @rule(producer=st.integers(0, PRODUCERS - 1), back=st.integers(1, 5))
    def send_again(self, producer: int, back: int) -> None:
        epoch, _, _ = producer_of(self.history, producer)
        sent = [
            batch
            for batch in self.history
            if (batch.producer, batch.epoch, batch.committed) == (producer, epoch, None)
        ]
        back = min(back, len(sent))
        # Of what retention has removed, a restart knows the last batch only.
        if not sent or sent[-back].offset < self.log._segments[0].base_offset:
            return
        batch = make_batch(
            [b""] * sent[-back].count,
            timestamps=[self.clock.now_ms()],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sent[-back].sequence,
            is_transactional=sent[-back].is_transactional,
        )
        ends = [
            one.offset
            for one in self.history
            if one.producer == producer and one.committed is not None
        ]
        if sent[-back].is_transactional and any(end > sent[-back].offset for end in ends):
            with pytest.raises(KafkaError):
                append(self.log, batch)
            return
        appended = append(self.log, batch)
        assert (appended.duplicate, appended.base_offset) == (True, sent[-back].offset)

    @rule(size=st.integers(1, 60))
    def send_plainly(self, size: int) -> None:
        offset = self.log.log_end_offset
        append(self.log, make_batch([b"v" * size], timestamps=[self.clock.now_ms()]))
        self.history.append(Batch(offset, 1))

    @rule(
        producer=st.integers(0, PRODUCERS - 1),
        committed=st.booleans(),
        version=st.sampled_from([1, 2]),
    )
    def end(self, producer: int, committed: bool, version: int) -> None:
        epoch, _, _ = producer_of(self.history, producer)
        epoch += version == 2
        offset = self.log.log_end_offset
        self.log.append_marker(
            producer,
            epoch,
            committed=committed,
            coordinator_epoch=0,
            transaction_version=version,
        )
        self.history.append(Batch(offset, 1, producer, epoch, -1, True, committed))

    @rule(appended_meanwhile=st.booleans(), committed=st.booleans())
    def commit(self, appended_meanwhile: bool, committed: bool) -> None:
        items = self.log.begin_commit()
        if appended_meanwhile:
            self.end(0, committed, 1)
        for item in items:
            item.sync()
        self.log.end_commit()

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.checkpoint()
        self.recorded_start = self.log.log_start_offset

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        # Whoever asked for it is told only when it is written down.
        self.recorded_start = self.log.trim(start + round(part * (end - start)))

    @rule(passed_ms=st.integers(0, 15_000))
    def let_time_pass(self, passed_ms: int) -> None:
        self.clock.advance(passed_ms)
        self.log.remove_expired(self.clock.now_ms())
        self.log.purge_deleted(self.clock.now_ms())

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.recovery_point = self.log.log_end_offset
        self.recorded_start = self.log.log_start_offset
        self.reopen(clean=True)

    @rule(seed=st.integers(0, 1000), keeps_nothing=st.booleans())
    def crash(self, seed: int, keeps_nothing: bool) -> None:
        self.disk = self.disk.crash(seed, keep="nothing" if keeps_nothing else "some")
        self.reopen(clean=False)
        end = self.log.log_end_offset
        self.history = [batch for batch in self.history if batch.offset < end]

    @rule()
    def kill(self) -> None:
        """End the process, not the machine: the page cache survives."""
        self.reopen(clean=False)

    # What is true of it.

    @invariant()
    def the_last_stable_offset_is_right(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        unstable = [
            transaction.first_offset
            for transaction in transactions_of(self.history)
            if transaction.marker_offset is None or transaction.marker_offset >= log.high_watermark
        ]
        stable = max(min([log.high_watermark, *unstable]), log.log_start_offset)
        assert log.last_stable_offset == stable
        assert [(found.producer_id, found.first_offset) for found in log.open_transactions()] == [
            (transaction.producer, transaction.first_offset)
            for transaction in transactions_of(self.history)
            if transaction.marker_offset is None
        ]

    @invariant()
    def it_never_goes_back(self) -> None:
        if hasattr(self, "log"):
            assert self.log.last_stable_offset >= self.stable_offset
            self.stable_offset = self.log.last_stable_offset

    @rule(start=st.floats(0, 1), length=st.floats(0, 1))
    def list_aborted(self, start: float, length: float) -> None:
        log = self.log
        first = log.log_start_offset + round(start * (log.log_end_offset - log.log_start_offset))
        upto = first + round(length * (log.log_end_offset - first))
        expected = {
            AbortedTransaction(found.producer, found.first_offset)
            for found in transactions_of(self.history)
            if found.marker_offset is not None
            and not found.committed
            and found.marker_offset >= first
            and found.first_offset < upto
        }
        answer = log.aborted_transactions(first, upto)
        assert len(answer) == len(set(answer))
        assert set(answer) == expected

    @rule(start=st.floats(0, 1))
    def read_committed(self, start: float) -> None:
        log = self.log
        upto = log.last_stable_offset
        first = log.log_start_offset + round(start * (upto - log.log_start_offset))
        uncommitted = {
            offset
            for found in transactions_of(self.history)
            if not found.committed
            for batch in self.history
            if batch.producer == found.producer
            and found.first_offset <= batch.offset < (found.marker_offset or 1 << 62)
            for offset in range(batch.offset, batch.offset + batch.count)
        }
        expected = [
            offset
            for batch in self.history
            if batch.committed is None
            for offset in range(batch.offset, batch.offset + batch.count)
            if first <= offset < upto and offset not in uncommitted
        ]
        assert read_as_kafkas_consumer(log, first, upto) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            commit(self.log)
            self.log.close()


def read_as_kafkas_consumer(log: PartitionLog, first: int, upto: int) -> list[int]:
    """Return the offsets of the records that an application is given."""
    waiting = sorted(log.aborted_transactions(first, upto), key=lambda found: found.first_offset)
    aborted: set[int] = set()
    given: list[int] = []
    for header, content in read_batches(log, first, upto):
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted.add(waiting.pop(0).producer_id)
        if header.is_control:
            if control_type(iterate(content)[0]) == CONTROL_ABORT:
                aborted.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in aborted:
            given += [record.offset for record in iterate(content) if record.offset >= first]
    return given


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=80, stateful_step_count=50)
