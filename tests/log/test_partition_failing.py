"""What a full or broken disk does to a partition log."""

import contextlib
import errno
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.base.errors import ErrorCode, StorageError
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import (
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
