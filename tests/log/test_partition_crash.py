"""A fixed workload, and every way in which the disk can fail it.

Strategy: the workload creates a partition, fills several segments, commits, checkpoints, trims,
lets retention work, stops, starts in a new epoch and goes on. The power is cut after every single
operation, with several outcomes each; and every single operation fails once, with a full disk and
with a broken one.

Invariants: what was acknowledged is there, byte for byte; what is there is a prefix of what was
written; searches and producers agree with it; and what recovery shows survives the next crash.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headwater.base.errors import StorageError
from headwater.base.record.batch import parse_header
from headwater.base.record.records import iterate
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk, Operation, PowerCut
from tests.log.helpers import NOW_MS, append, make_batch, open_log, read_batches

CONFIG = TopicConfig(
    index_interval_bytes=100,
    segment_index_bytes=60,
    retention_ms=60_000,
    file_delete_delay_ms=1_000,
)
SEEDS = range(4)


class DiskFailedError(Exception):
    """The log has failed for good, as it should here; the process would end."""


@dataclass
class Workload:
    """One run, and what was told to whoever waited for it."""

    disk: MemoryDisk
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_MS))
    written: list[bytes] = field(default_factory=list)
    acknowledged_offset: int = 0
    log_start_offset: int = 0
    recovery_point: int = 0
    recorded_start: int = 0
    sequence: int = 0
    log: PartitionLog | None = None

    def open(self, disk: MemoryDisk, *, clean: bool, leader_epoch: int) -> PartitionLog:
        return open_log(
            disk,
            config=CONFIG,
            clock=self.clock,
            leader_epoch=leader_epoch,
            recovery_point=self.recovery_point,
            log_start_offset=self.recorded_start,
            clean=clean,
        )

    def run(self) -> None:
        log = self.log = self.open(self.disk, clean=True, leader_epoch=0)
        for number in range(14):
            self.append(log, number)
            if number % 3 != 1:
                self.commit(log)
            if number in {4, 9}:
                self.checkpoint(log)
        self.log_start_offset = log.trim(log.high_watermark // 2)
        self.checkpoint(log)
        self.retain(log, passed_ms=57_000)
        for number in range(14, 20):
            self.append(log, number)
            self.commit(log)
        clean = self.close(log)
        log = self.log = self.open(self.disk, clean=clean, leader_epoch=1)
        for number in range(20, 28):
            self.append(log, number)
            self.commit(log)
        # Everything but the last is too old now, then all of it.
        self.retain(log, passed_ms=59_000)
        self.append(log, 28)
        self.commit(log)
        self.retain(log, passed_ms=70_000)
        self.append(log, 29)
        self.commit(log)
        self.close(log)

    def append(self, log: PartitionLog, number: int) -> None:
        batch = make_batch(
            [b"%d.%d" % (number, part) * 5 for part in range(number % 3 + 1)],
            timestamps=[self.clock.now_ms() + 10 * number - 95 * (number % 4 == 1)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=self.sequence,
        )
        # The bytes may reach the disk before the call returns.
        header = parse_header(batch)
        stamped = bytearray(batch)
        stamped[:8] = log.log_end_offset.to_bytes(8, "big")
        stamped[12:16] = log.leader_epoch.to_bytes(4, "big")
        self.written.append(bytes(stamped))
        try:
            appended = append(log, batch)
        except StorageError:
            if log.failed:
                raise DiskFailedError from None
            # A full disk that has room again.
            appended = append(log, batch)
        assert not appended.duplicate
        assert bytes(batch) == bytes(stamped)
        self.sequence += header.record_count
        self.clock.advance(100)

    def commit(self, log: PartitionLog) -> None:
        try:
            for item in log.begin_commit():
                item.sync()
        except OSError as error:
            log.fail(str(error))
            raise DiskFailedError from error
        log.end_commit()
        self.acknowledged_offset = log.high_watermark

    def checkpoint(self, log: PartitionLog) -> None:
        self.recovery_point = self.or_fail(log, log.checkpoint)
        self.recorded_start = log.log_start_offset

    def retain(self, log: PartitionLog, passed_ms: int) -> None:
        self.clock.advance(passed_ms)
        now_ms = self.clock.now_ms()
        # Segments go one by one; which of them is known when the call returns.
        self.log_start_offset = log.high_watermark
        self.or_fail(log, lambda: log.remove_expired(now_ms))
        self.log_start_offset = log.log_start_offset
        self.or_fail(log, lambda: log.purge_deleted(now_ms))

    def close(self, log: PartitionLog) -> bool:
        try:
            log.close()
        except StorageError:
            if log.failed:
                raise DiskFailedError from None
            return False
        self.acknowledged_offset = log.log_end_offset
        return True

    @staticmethod
    def or_fail(log: PartitionLog, action: Callable[[], int | None]) -> int:
        try:
            return action() or 0
        except StorageError as error:
            if log.failed:
                raise DiskFailedError from error
            return action() or 0

    def check(self, disk: MemoryDisk) -> PartitionLog:
        """Open what a crash has left, and hold it against what was told."""
        log = self.open(disk, clean=False, leader_epoch=9)
        assert self.recorded_start <= log.log_start_offset
        assert log.log_end_offset >= self.acknowledged_offset
        assert log.high_watermark == log.log_end_offset
        found = [batch for _, batch in read_batches(log)]
        ends = {parse_header(batch).next_offset: batch for batch in self.written}
        assert all(batch in self.written for batch in found)
        expected = [
            batch
            for batch in self.written
            if self.log_start_offset < parse_header(batch).next_offset <= log.log_end_offset
        ]
        assert found[len(found) - len(expected) :] == expected
        assert log.log_end_offset == 0 or log.log_end_offset in ends
        self.check_search(log, found)
        self.check_producer(log)
        return log

    @staticmethod
    def check_search(log: PartitionLog, found: list[bytes]) -> None:
        records = [r for batch in found for r in iterate(batch) if r.offset >= log.log_start_offset]
        for timestamp in {record.timestamp for record in records}:
            first = next(record for record in records if record.timestamp >= timestamp)
            answer = log.offset_for_timestamp(timestamp, upto_offset=log.log_end_offset)
            assert answer is not None
            assert (answer.offset, answer.timestamp) == (first.offset, first.timestamp)

    def check_producer(self, log: PartitionLog) -> None:
        """The last batch that survived, sent again, is known: also when retention removed it."""
        survived = [b for b in self.written if parse_header(b).next_offset <= log.log_end_offset]
        if survived:
            again = append(log, bytearray(survived[-1]))
            assert again.duplicate
            assert again.base_offset == parse_header(survived[-1]).base_offset


def count_operations() -> int:
    disk = MemoryDisk()
    Workload(disk).run()
    return disk.operations


OPERATIONS = count_operations()


def test_the_workload_is_of_a_useful_size() -> None:
    assert 150 < OPERATIONS < 500


def test_a_power_cut_after_any_operation_loses_nothing_acknowledged() -> None:
    disk = MemoryDisk()
    workload = Workload(disk)
    cuts = 0

    def cut(operation: Operation) -> None:
        nonlocal cuts
        cuts += 1
        nothing = disk.after_power_cut(0, keep="nothing")
        shown = workload.check(nothing).log_end_offset
        assert workload.check(nothing.after_power_cut(0, keep="nothing")).log_end_offset == shown
        for seed in SEEDS:
            found = disk.after_power_cut(operation.number * 1000 + seed)
            shown = workload.check(found).log_end_offset
            again = found.after_power_cut(0, keep="nothing")
            assert workload.check(again).log_end_offset == shown

    disk.after_operation = cut
    workload.run()

    assert cuts == OPERATIONS


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["disk full", "disk broken"])
def test_a_failure_of_any_operation_loses_nothing_acknowledged(number: int) -> None:
    for operation in range(1, OPERATIONS + 1):
        disk = MemoryDisk()
        disk.fail_at(operation, OSError(number, "injected"))
        workload = Workload(disk)
        try:
            workload.run()
        except DiskFailedError:
            log = workload.log
            assert log is not None
            with pytest.raises(StorageError):
                append(log, make_batch())
        workload.check(disk.after_power_cut(operation, keep="nothing"))
        workload.check(disk.after_power_cut(operation))


def test_retention_during_a_commit_loses_no_producer() -> None:
    """The commit under way has the snapshot; what it was made from goes before it ends."""
    disk = MemoryDisk()
    workload = Workload(disk)
    log = workload.open(disk, clean=True, leader_epoch=0)
    number = 0
    while len(log._segments) < 3:
        workload.commit(log)
        workload.append(log, number)
        number += 1
    # The high watermark stands at the start of the newest segment, whose commit is not through.
    assert log.high_watermark == log._segments[-1].base_offset
    log.begin_commit()
    workload.retain(log, passed_ms=120_000)
    assert log.log_start_offset == log._segments[-1].base_offset

    workload.check(disk.after_power_cut(0, keep="nothing"))


def test_recovery_that_is_cut_short_is_repeated_by_the_next() -> None:
    disk = MemoryDisk()
    workload = Workload(disk)
    disk.cut_power_at(OPERATIONS * 2 // 3)
    with pytest.raises(PowerCut):
        workload.run()
    crashed = disk.after_power_cut(seed=5)
    complete = crashed.after_power_cut(0)
    end = workload.check(complete).log_end_offset

    for operation in range(1, complete.operations):
        attempt = crashed.after_power_cut(0)
        attempt.cut_power_at(operation)
        with pytest.raises(PowerCut):
            workload.open(attempt, clean=False, leader_epoch=9)
        assert workload.check(attempt.after_power_cut(operation)).log_end_offset == end
