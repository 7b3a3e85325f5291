"""What a full or broken disk does to a partition log."""

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.base.errors import ErrorCode, StorageError
from headwater.log.partition import PartitionLog
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import (
    NOW_MS,
    append,
    append_value,
    base_offsets,
    commit,
    make_batch,
    open_log,
    read_values,
)

HOUR_MS = 3_600_000


def test_a_full_disk_refuses_and_later_takes_again() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(3):
        append_value(log, b"%d" % number)
    commit(log)
    disk.capacity_bytes = disk.used_bytes() + 30
    for _ in range(3):
        with pytest.raises(StorageError, match="No space left"):
            append_value(log, b"too much")
    assert (log.failed, log.log_end_offset) == (False, 3)
    assert [value for _, value in read_values(log)] == [b"0", b"1", b"2"]
    log.trim(1)

    disk.capacity_bytes = None
    append_value(log, b"again")
    commit(log)
    found = open_log(disk.after_power_cut(0, keep="nothing"))
    assert [value for _, value in read_values(found)] == [b"0", b"1", b"2", b"again"]


def test_a_sequence_number_is_not_used_up_by_a_failed_append() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    batch = make_batch([b"v"], producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, bytearray(batch))
    batch = make_batch([b"w"], producer_id=1, producer_epoch=0, base_sequence=1)
    disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "no space"))
    with pytest.raises(StorageError):
        append(log, bytearray(batch))

    appended = append(log, batch)
    assert (appended.base_offset, appended.duplicate) == (1, False)


def test_a_broken_disk_is_final() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append_value(log, b"v")
    commit(log)
    disk.fail_at(disk.operations + 1, OSError(errno.EIO, "broken"))
    with pytest.raises(StorageError) as caught:
        append_value(log, b"w")
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failed

    with pytest.raises(StorageError):
        append_value(log, b"w")
    with pytest.raises(StorageError):
        log.close()
    assert read_values(log) == [(0, b"v")]
    assert log.checkpoint() <= log.synced_offset


def test_a_partial_batch_that_cannot_be_removed_is_final() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append_value(log, b"v")
    disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "no space"))
    disk.fail_at(disk.operations + 2, OSError(errno.EIO, "broken"))
    with pytest.raises(StorageError):
        append_value(log, b"w")

    assert log.failed


def test_a_failed_sync_is_final() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")
    log.begin_commit()
    log.fail("the disk did not take it")

    with pytest.raises(StorageError, match="did not take it"):
        append_value(log, b"w")
    assert log.high_watermark == 0


def test_a_roll_on_a_full_disk_keeps_the_indexes_in_memory() -> None:
    reference = open_log(MemoryDisk())
    append_value(reference, b"v")
    while len(reference._segments) == 1:
        append_value(reference, b"v")
    count = reference.log_end_offset
    for operation in range(1, 12):
        disk = MemoryDisk()
        log = open_log(disk)
        for _ in range(count - 1):
            append_value(log, b"v")
        commit(log)
        disk.fail_at(disk.operations + operation, OSError(errno.ENOSPC, "no space"))
        with contextlib.suppress(StorageError):
            append_value(log, b"v")
        disk._faults.clear()
        if log.log_end_offset < count:
            append_value(log, b"v")
        assert not log.failed
        assert base_offsets(log) == base_offsets(reference)
        commit(log)
        disk.capacity_bytes = disk.used_bytes()
        # Without room the indexes stay in memory, however often idle ones are let go.
        points = {log.checkpoint() for _ in range(3)}
        assert points <= {0, count}
        assert len(read_values(log)) == count
        disk.capacity_bytes = None
        assert log.checkpoint() == count
        for suffix in (".index", ".timeindex"):
            path = f"/t-0/00000000000000000000{suffix}"
            expected = reference._disk.open_for_reading(path)
            found = disk.after_power_cut(0, keep="nothing").open_for_reading(path)
            assert found.read(1000, 0) == expected.read(1000, 0) != b""


def unreadable_log() -> tuple[MemoryDisk, PartitionLog, bytes]:
    """Return a log that knows nothing by heart and cannot read, and a batch that it has."""
    disk = MemoryDisk()
    log = open_log(disk)
    batch = b""
    sequence = 0
    while len(log._segments) < 3:
        marker = log.append_marker(8, 0, committed=False, coordinator_epoch=0)
        batch = bytes(make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
        append(log, bytearray(batch))
        append(
            log,
            make_batch(
                producer_id=8, producer_epoch=0, base_sequence=sequence, is_transactional=True
            ),
        )
        sequence += 1
    commit(log)
    log.close()
    log = open_log(disk, recovery_point=log.log_end_offset, clean=True)
    for _ in range(2):
        log.checkpoint()
    assert marker.base_offset > 0

    def broken(path: str) -> None:
        raise OSError(errno.EIO, "broken", path)

    disk.on_read = broken
    return disk, log, batch


READS: dict[str, Callable[[PartitionLog], object]] = {
    "read": lambda log: log.read(1, 9, upto_offset=log.log_end_offset, at_least_one=True),
    "bytes_from": lambda log: log.bytes_from(1),
    "durable_bytes": lambda log: log.durable_bytes(),
    "drop_oldest": lambda log: log.drop_oldest(1),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(1, upto_offset=9),
    "max_timestamp": lambda log: log.max_timestamp(upto_offset=3),
    "oldest_timestamp_from": lambda log: log.oldest_timestamp_from(0),
    "aborted_transactions": lambda log: log.aborted_transactions(0, 9),
    "remove_expired": lambda log: log.remove_expired(NOW_MS),
}


@pytest.mark.parametrize("name", READS)
def test_a_file_that_cannot_be_read_is_told_and_not_final(name: str) -> None:
    disk, log, _ = unreadable_log()
    start = log.log_start_offset
    with pytest.raises(StorageError, match="cannot be read"):
        READS[name](log)
    assert (log.failed, log.log_start_offset) == (False, start)
    disk.on_read = None
    READS[name](log)


def test_a_repetition_that_cannot_be_looked_for_is_neither_taken_nor_refused() -> None:
    disk, log, batch = unreadable_log()
    # The snapshot has the last one; those before it have to be looked for.
    again = bytearray(batch)
    again[53:57] = (int.from_bytes(batch[53:57], "big") - 1).to_bytes(4, "big")
    end = log.log_end_offset
    with pytest.raises(StorageError, match="cannot be read"):
        append(log, bytearray(again))
    assert (log.log_end_offset, log.failed) == (end, False)
    disk.on_read = None
    assert append(log, bytearray(again)).duplicate


def test_an_abandoned_log_holds_its_files_until_the_commit_ends(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path / "t-0"))
    append_value(log, b"v")
    (tmp_path / "t-0").rename(tmp_path / "t-0.gone-delete")
    items = log.begin_commit()
    log.abandon()
    for item in items:
        item.sync()
    log.end_commit()

    assert log.high_watermark == 1
    assert len(log._segments) == 0
