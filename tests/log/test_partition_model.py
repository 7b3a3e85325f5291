"""A partition log against a list of batches, through appends, reads, trims, restarts and crashes.

Strategy: random operations on a disk in memory. The model is a plain list of the batches that were
appended, with the offset each got; it knows no segment, no index and no file.

Invariants:

* Reading gives exactly the batches appended, whole, in order, byte for byte.
* What a commit covered survives every crash; what survives is a prefix of what was appended.
* The log start never lies below what was last written down, nor above the high watermark.
* A repeated batch of the producer's last one is answered with its first offset, also after a crash.
* The first record not older than a timestamp is the one a scan of all records finds.
"""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, iterate
from headwater.base.settings import TopicConfig
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import NOW_MS, append, commit, make_batch, open_log, read_batches

CONFIG = TopicConfig(
    index_interval_bytes=100,
    segment_index_bytes=60,
    retention_ms=20_000,
    retention_bytes=3_000,
    file_delete_delay_ms=1_000,
)
PRODUCERS = 3


@dataclass(frozen=True)
class Written:
    """One batch as the log stamped it."""

    base_offset: int
    last_offset: int
    content: bytes

    def records(self) -> list[Record]:
        return iterate(self.content)


class PartitionLogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.clock = ManualClock(NOW_MS)
        self.epoch = 0
        self.history: list[Written] = []
        self.batches: list[Written] = []
        self.recovery_point = 0
        self.recorded_start = 0
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)
        self.last_sent: dict[int, tuple[bytes, int]] = {}

    @initialize()
    def start(self) -> None:
        self.reopen(clean=True)

    def reopen(self, *, clean: bool) -> None:
        self.log = open_log(
            self.disk,
            config=CONFIG,
            clock=self.clock,
            leader_epoch=self.epoch,
            recovery_point=self.recovery_point,
            log_start_offset=self.recorded_start,
            clean=clean,
        )
        self.epoch += 1

    def from_offset(self, offset: int) -> list[Written]:
        return [batch for batch in self.batches if batch.last_offset >= offset]

    # What happens to it.

    @rule(
        sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
        shift_ms=st.integers(-9_000, 3_000),
        codec=st.sampled_from([0, 0, 0, 1, 3, 4]),
        producer=st.integers(-1, PRODUCERS - 1),
    )
    def append(self, sizes: list[int], shift_ms: int, codec: int, producer: int) -> None:
        timestamps = [self.clock.now_ms() + shift_ms + 7 * n for n in range(len(sizes))]
        batch = make_batch(
            [bytes([size]) * size for size in sizes],
            timestamps=timestamps,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=self.sequences[producer] if producer >= 0 else -1,
        )
        sent = bytes(batch)
        before = self.log.log_end_offset
        appended = append(self.log, batch)

        assert (appended.base_offset, appended.duplicate) == (before, False)
        assert appended.last_offset == before + len(sizes) - 1 == self.log.log_end_offset - 1
        self.history.append(Written(before, appended.last_offset, bytes(batch)))
        self.batches.append(self.history[-1])
        if producer >= 0:
            self.sequences[producer] += len(sizes)
            self.last_sent[producer] = (sent, before)

    @rule(producer=st.integers(0, PRODUCERS - 1))
    def resend(self, producer: int) -> None:
        if producer in self.last_sent:
            sent, offset = self.last_sent[producer]
            before = self.log.log_end_offset
            appended = append(self.log, bytearray(sent))
            assert (appended.base_offset, appended.duplicate) == (offset, True)
            assert self.log.log_end_offset == before

    @rule(producer=st.integers(0, PRODUCERS - 1), gap=st.integers(1, 3))
    def send_out_of_order(self, producer: int, gap: int) -> None:
        if producer in self.last_sent:
            sequence = self.sequences[producer] + gap
            batch = make_batch(producer_id=producer, producer_epoch=0, base_sequence=sequence)
            with pytest.raises(KafkaError) as caught:
                append(self.log, batch)
            assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(appended_meanwhile=st.booleans())
    def commit(self, appended_meanwhile: bool) -> None:
        end = self.log.log_end_offset
        items = self.log.begin_commit()
        if appended_meanwhile:
            self.append([5, 5], 0, 0, -1)
        for item in items:
            item.sync()
        self.log.end_commit()
        assert self.log.high_watermark == self.log.synced_offset == end

    @rule()
    def checkpoint(self) -> None:
        self.recovery_point = self.log.checkpoint()
        assert self.recovery_point <= self.log.synced_offset
        self.recorded_start = self.log.log_start_offset

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        offset = start + round(part * (end - start))
        assert self.log.trim(offset) == offset
        assert self.log.trim(0) == offset
        with pytest.raises(KafkaError):
            self.log.trim(end + 1)

    @rule(keep_bytes=st.integers(0, 1500))
    def drop_oldest(self, keep_bytes: int) -> None:
        before = self.log.log_start_offset
        self.log.drop_oldest(keep_bytes)
        assert before <= self.log.log_start_offset <= self.log.high_watermark
        assert self.log.durable_bytes() <= keep_bytes

    @rule(passed_ms=st.integers(0, 15_000))
    def let_time_pass(self, passed_ms: int) -> None:
        self.clock.advance(passed_ms)
        now_ms = self.clock.now_ms()
        size = self.log.size_bytes()
        freed = self.log.remove_expired(now_ms)
        assert self.log.size_bytes() == size - freed
        self.log.purge_deleted(now_ms)

    @rule()
    def stop_and_start(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.close()
        self.recovery_point, self.recorded_start = end, start
        self.reopen(clean=True)
        assert (self.log.log_start_offset, self.log.log_end_offset) == (start, end)
        assert self.log.recovery.scanned_bytes == 0

    @rule(seed=st.integers(0, 1 << 32), keep=st.sampled_from(["nothing", "some"]))
    def crash(self, seed: int, keep: str) -> None:
        start, durable = self.log.log_start_offset, self.log.high_watermark
        self.disk = self.disk.crash(seed, keep="some" if keep == "some" else "nothing")
        self.reopen(clean=False)
        assert self.recorded_start <= self.log.log_start_offset <= start
        assert self.log.log_end_offset >= durable
        self.forget_what_was_lost(start)

    @rule()
    def kill(self) -> None:
        """End the process, not the machine: the page cache survives."""
        end = self.log.log_end_offset
        self.reopen(clean=False)
        assert self.log.log_end_offset == end
        self.forget_what_was_lost(self.log.log_start_offset)

    def forget_what_was_lost(self, old_start: int) -> None:
        end = self.log.log_end_offset
        kept = [batch for batch in self.history if batch.last_offset < end]
        assert end == (kept[-1].last_offset + 1 if kept else 0)
        self.history = kept
        found = {batch for _, batch in read_batches(self.log)}
        # Removed segments may come back, each by itself; what was not removed is all there.
        not_removed = {b.content for b in self.from_offset(old_start) if b.last_offset < end}
        assert not_removed <= found <= {batch.content for batch in kept}
        self.batches = [batch for batch in kept if batch.content in found]
        self.last_sent = {}
        for batch in kept:
            header = parse_header(batch.content)
            if header.producer_id >= 0:
                sent = bytearray(batch.content)
                sent[:8] = bytes(8)
                self.last_sent[header.producer_id] = (bytes(sent), batch.base_offset)
                self.sequences[header.producer_id] = header.last_sequence + 1
        for producer in set(self.sequences) - set(self.last_sent):
            self.sequences[producer] = 0

    # What is true of it.

    @precondition(lambda self: self.batches)
    @rule(
        part=st.floats(0, 1),
        upto=st.floats(0, 1),
        max_bytes=st.integers(0, 500),
        at_least_one=st.booleans(),
    )
    def read(self, part: float, upto: float, max_bytes: int, at_least_one: bool) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + round(part * (end - start))
        upto_offset = offset + round(upto * (end - offset))
        extent = self.log.read(
            offset, max_bytes, upto_offset=upto_offset, at_least_one=at_least_one
        )
        candidates = [b for b in self.from_offset(offset) if b.base_offset < upto_offset]
        content = extent.read() if extent is not None else b""
        whole = b"".join(b.content for b in candidates)
        assert whole.startswith(content)
        if len(content) > max_bytes:
            assert at_least_one
            assert content == candidates[0].content
        if not content and candidates and upto_offset > offset:
            assert not at_least_one
            assert len(candidates[0].content) > max_bytes
        if content and len(content) < len(whole):
            # Either the next batch did not fit, or the segment ends here.
            following = next(b for b in candidates if whole.index(b.content) >= len(content))
            assert len(content) + len(following.content) > max_bytes or following.base_offset in {
                s.base_offset for s in self.log._segments
            }

    @rule(shift_ms=st.integers(-30_000, 4_000))
    def search(self, shift_ms: int) -> None:
        timestamp = self.clock.now_ms() + shift_ms
        start, end = self.log.log_start_offset, self.log.high_watermark
        records = [
            record
            for batch in self.from_offset(start)
            for record in batch.records()
            if start <= record.offset < end
        ]
        expected = next((r for r in records if r.timestamp >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp, upto_offset=end)
        assert (found and found[:2]) == (expected and (expected.offset, expected.timestamp))

    @rule(offset=st.sampled_from([-1, 1]))
    def read_outside(self, offset: int) -> None:
        outside = self.log.log_start_offset - 1 if offset < 0 else self.log.log_end_offset + 1
        with pytest.raises(KafkaError) as caught:
            self.log.read(outside, 1, upto_offset=outside + 1, at_least_one=True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    @invariant()
    def watermarks_are_in_order(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
            assert log.bytes_from(log.log_end_offset) == 0

    def teardown(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            expected = [b.content for b in self.from_offset(log.log_start_offset)]
            assert [batch for _, batch in read_batches(log)] == expected
            commit(log)
            log.close()


TestPartitionLog = PartitionLogMachine.TestCase
TestPartitionLog.settings = settings(max_examples=60, stateful_step_count=60)
