"""Producers stay known when the batches that tell of them are gone."""

import errno
import os
from collections.abc import Sequence

import pytest

from headwater.base.disk import Syncable
from headwater.base.errors import StorageError
from headwater.base.settings import TopicConfig
from headwater.log.names import SNAPSHOT
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
)

CONFIG = TopicConfig(
    index_interval_bytes=100, segment_index_bytes=60, retention_ms=-1, file_delete_delay_ms=0
)
SENT = make_batch([b"x" * 60], producer_id=7, producer_epoch=0, base_sequence=0)
FAR_FUTURE_MS = 1 << 62


def no_room_for_snapshots(path: str) -> None:
    if path.endswith(SNAPSHOT):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def no_descriptor_for_snapshots(path: str) -> None:
    if path.endswith(SNAPSHOT):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def room_for_all(_: str) -> None:
    pass


def roll(log: PartitionLog, times: int = 1) -> None:
    """Append until the next segments have begun, all of it durable."""
    wanted = len(base_offsets(log)) + times
    while len(base_offsets(log)) < wanted:
        append_value(log, b"y" * 60)
        commit(log)


def fill(log: PartitionLog) -> None:
    """Append until the next batch begins a segment."""
    assert log.segments.active is not None
    while not log.segments.active.indexes_full(CONFIG.segment_index_bytes):
        append_value(log, b"y" * 60)


def remove_first(log: PartitionLog) -> int:
    """Let the first segment go, as DeleteRecords does."""
    second = base_offsets(log)[1]
    log.trim(second)
    log.remove_expired(NOW_MS)
    return second


def is_known_after(disk: MemoryDisk, start: int, recovery_point: int) -> bool:
    log = open_log(disk, config=CONFIG, recovery_point=recovery_point, log_start_offset=start)
    return append(log, bytearray(SENT)).duplicate


@pytest.mark.parametrize("rolls", [1, 2, 3, 4, 7])
def test_a_producer_is_known_however_old_the_recovery_point_is(rolls: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))
    roll(log)
    recovery_point = log.checkpoint()
    roll(log, rolls)
    start = remove_first(log)

    for recovered in (disk.after_kill(), disk.after_power_cut(0, keep="nothing")):
        assert is_known_after(recovered, start, recovery_point)


@pytest.mark.parametrize("rolls", [3, 4, 9])
def test_the_newest_durable_snapshot_stays_while_segments_are_begun(rolls: int) -> None:
    """A slow commit makes the names durable of files that only the next one syncs."""
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))
    roll(log, 5)
    start = remove_first(log)
    recovery_point = log.checkpoint()
    items: Sequence[Syncable] = ()
    for number in range(rolls + 1):
        fill(log)
        append_value(log, b"y" * 60)
        items = items if number else log.begin_commit()
    for item in items:
        item.sync()
    assert is_known_after(disk.after_power_cut(0, keep="nothing"), start, recovery_point)

    log.end_commit()
    commit(log)
    roll(log)
    names = [name for name in disk.list_directory("/t-0") if name.endswith(SNAPSHOT)]
    assert len(names) == 3


@pytest.mark.parametrize("is_recovery_point_new", [False, True])
def test_producers_are_written_down_before_their_batches_go(*, is_recovery_point_new: bool) -> None:
    disk = MemoryDisk()
    disk.on_open = no_room_for_snapshots
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))
    roll(log)
    append_value(log, b"not yet durable")
    disk.on_open = room_for_all
    start = remove_first(log)
    assert base_offsets(log) == [start]

    recovery_point = log.synced_offset if is_recovery_point_new else 0
    assert is_known_after(disk.crash(0, keep="nothing"), start, recovery_point)


def test_what_was_the_active_segment_is_synced_before_a_snapshot_counts() -> None:
    """The round that was to sync it is under way when the next segment begins."""
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))
    roll(log)
    disk.remove(f"/t-0/{base_offsets(log)[1]:020d}{SNAPSHOT}")
    log._snapshots._offsets.clear()
    fill(log)
    log.begin_commit()
    disk.on_open = no_room_for_snapshots
    append_value(log, b"y" * 60)
    assert len(base_offsets(log)) == 3
    disk.on_open = room_for_all
    start = remove_first(log)

    assert is_known_after(disk.crash(0, keep="nothing"), start, 0)


def test_a_disk_that_is_full_becomes_free_without_a_snapshot() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))
    fill(log)
    commit(log)
    disk.capacity_bytes = disk.used_bytes() + 20
    with pytest.raises(StorageError, match="No space"):
        append_value(log, b"y" * 60)

    log.trim(log.high_watermark)
    assert log.remove_expired(NOW_MS) > 0
    log.purge_deleted(FAR_FUTURE_MS)
    append_value(log, b"y" * 60)
    # Now there is room for what could not be written down.
    log.remove_expired(NOW_MS)
    commit(log)
    assert is_known_after(disk.crash(0, keep="nothing"), log.log_start_offset, 0)


def test_batches_stay_while_there_is_no_descriptor_for_a_snapshot() -> None:
    """To remove them would free none, and what their producers send again would be taken as new."""
    disk = MemoryDisk()
    disk.on_open = no_descriptor_for_snapshots
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))
    roll(log)
    second = base_offsets(log)[1]
    log.trim(second)
    with pytest.raises(StorageError, match="old segments cannot be removed") as refused:
        log.remove_expired(NOW_MS)
    assert refused.value.passes
    assert base_offsets(log)[0] == 0

    disk.on_open = room_for_all
    assert log.remove_expired(NOW_MS) > 0
    assert is_known_after(disk.crash(0, keep="nothing"), second, 0)


@pytest.mark.parametrize("kept_bytes", [0, 10])
@pytest.mark.parametrize("is_left_behind", [False, True])
def test_a_torn_snapshot_does_not_count(*, kept_bytes: int, is_left_behind: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CONFIG)
    append(log, bytearray(SENT))

    def tear(path: str) -> None:
        if path.endswith(SNAPSHOT):
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            # The first operation creates the file, the second fills it.
            disk.fail_at(disk.operations + 2, full, keep_bytes=kept_bytes)
            if is_left_behind:
                disk.fail_at(disk.operations + 3, full)
            disk.on_open = room_for_all

    disk.on_open = tear
    roll(log)
    names = [name for name in disk.list_directory("/t-0") if name.endswith(SNAPSHOT)]
    assert bool(names) == is_left_behind

    disk = disk.after_kill()
    log = open_log(disk, config=CONFIG)
    start = remove_first(log)
    assert is_known_after(disk.crash(0, keep="nothing"), start, 0)
