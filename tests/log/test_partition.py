"""A partition log: appending, rolling and reading."""

import contextlib
import errno
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk, RealFile
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import check_crc, parse_header
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import (
    NOW_MS,
    SMALL,
    append,
    append_value,
    base_offsets,
    commit,
    make_batch,
    open_log,
    read_batches,
    read_values,
)

HOUR_MS = 3_600_000


def code_of(log: PartitionLog, batch: bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        append(log, batch)
    return caught.value.code


def names(disk: MemoryDisk) -> list[str]:
    return disk.list_directory("/t-0")


# Creating.


def test_nothing_is_created_before_the_first_append() -> None:
    disk = MemoryDisk()
    log = open_log(disk)

    assert disk.operations == 0
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 0, 0)
    assert log.read(0, 100, upto_offset=0, at_least_one=True) is None
    assert not log.dirty()
    assert log.checkpoint() == 0
    log.close()
    assert disk.operations == 0


def test_a_log_without_files_goes_on_where_it_was() -> None:
    log = open_log(MemoryDisk(), recovery_point=7, log_start_offset=5)

    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert append_value(log, b"v").base_offset == 7


def test_the_first_append_makes_all_files() -> None:
    disk = MemoryDisk()
    log = open_log(disk, leader_epoch=3)
    append_value(log, b"v")
    commit(log)

    assert names(disk) == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    content = disk.open_for_reading("/t-0/partition.metadata").read(100, 0)
    assert content == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"


def test_creation_on_a_full_disk_can_be_repeated() -> None:
    refused = 0
    for operation in range(1, 10):
        disk = MemoryDisk()
        log = open_log(disk)
        disk.fail_at(operation, OSError(errno.ENOSPC, "no space"))
        batch = make_batch([b"v"])
        with contextlib.suppress(StorageError):
            append(log, batch)
        disk._faults.clear()
        if log.log_end_offset == 0:
            refused += 1
            assert not log.failed
            append(log, batch)
        commit(log)
        found = disk.after_power_cut(0, keep="nothing")
        assert read_values(open_log(found)) == [(0, b"v")]
    assert refused == 7


# Appending.


def test_offset_and_epoch_are_stamped_into_the_batch() -> None:
    log = open_log(MemoryDisk(), leader_epoch=5)
    append_value(log, b"first")
    batch = make_batch([b"a", b"b", b"c"])
    appended = append(log, batch)

    assert appended[:2] == (1, 3)
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch) == (1, 5)
    assert check_crc(batch, 0, len(batch))
    assert appended.log_append_time_ms == -1
    assert read_batches(log)[1][1] == bytes(batch)


def test_a_memoryview_is_appended_too() -> None:
    log = open_log(MemoryDisk())
    whole = bytearray(b"request") + make_batch([b"v"])
    view = memoryview(whole)[7:]
    log.append(view, parse_header(view))

    assert read_values(log) == [(0, b"v")]


def test_log_append_time_replaces_the_records_own() -> None:
    clock = ManualClock(NOW_MS)
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    log = open_log(MemoryDisk(), config=config, clock=clock)
    batch = make_batch([b"v", b"w"], timestamps=[5])
    appended = append(log, batch)

    assert appended.log_append_time_ms == NOW_MS
    header = parse_header(batch)
    assert (header.max_timestamp, header.timestamp_type) == (NOW_MS, 1)
    assert check_crc(batch, 0, len(batch))
    found = log.offset_for_timestamp(NOW_MS - 10, upto_offset=2)
    assert found is not None
    assert found[:2] == (0, NOW_MS)


def test_a_repetition_is_answered_with_its_append_time() -> None:
    clock = ManualClock(NOW_MS)
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    log = open_log(MemoryDisk(), config=config, clock=clock)
    batch = make_batch([b"v"], producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, bytearray(batch))
    clock.advance(1000)
    again = append(log, batch)

    assert (again.duplicate, again.base_offset, again.log_append_time_ms) == (True, 0, NOW_MS)
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    "timestamp,allowed",
    [
        (NOW_MS + HOUR_MS, True),
        (NOW_MS + HOUR_MS + 1, False),
        (NOW_MS - 1000, True),
        (NOW_MS - 1001, False),
        (-1, True),
    ],
)
def test_timestamps_must_be_near_the_brokers_time(timestamp: int, allowed: bool) -> None:
    config = TopicConfig(message_timestamp_before_max_ms=1000)
    log = open_log(MemoryDisk(), config=config)
    batch = make_batch(timestamps=[timestamp])

    if allowed:
        append(log, batch)
    else:
        assert code_of(log, batch) == ErrorCode.INVALID_TIMESTAMP


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(MemoryDisk(), config=TopicConfig(segment_bytes=1 << 20))
    batch = make_batch([bytes(1 << 20)])

    assert code_of(log, batch) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


# Rolling.


def test_a_segment_rolls_when_the_next_batch_would_exceed_it() -> None:
    config = TopicConfig(segment_bytes=1 << 20)
    log = open_log(MemoryDisk(), config=config)
    size = len(make_batch([bytes(1000)]))
    fitting = (1 << 20) // size
    for _ in range(fitting + 1):
        append_value(log, bytes(1000))

    assert base_offsets(log) == [0, fitting]
    assert log.size_bytes() == size * (fitting + 1)


def test_a_segment_rolls_by_the_records_time() -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(MemoryDisk(), config=TopicConfig(segment_ms=1000), clock=clock)
    append_value(log, b"v", NOW_MS)
    clock.advance(5000)
    append_value(log, b"v", NOW_MS + 1000)
    append_value(log, b"v", NOW_MS + 1001)

    assert base_offsets(log) == [0, 2]


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(MemoryDisk(), config=TopicConfig(segment_ms=1000), clock=clock)
    append_value(log, b"v", -1)
    clock.advance(1000)
    append_value(log, b"v", -1)
    clock.advance(1)
    append_value(log, b"v", -1)

    assert base_offsets(log) == [0, 2]


def test_the_age_of_a_segment_survives_a_restart() -> None:
    disk = MemoryDisk()
    config = TopicConfig(segment_ms=1000)
    log = open_log(disk, config=config)
    append_value(log, b"v", NOW_MS)
    log.close()
    log = open_log(disk, config=config, clean=True)
    append_value(log, b"v", NOW_MS + 1001)

    assert base_offsets(log) == [0, 1]


def test_a_segment_rolls_before_an_offset_leaves_the_range_of_its_index() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")
    batch = make_batch([b"v"])
    header = parse_header(batch)
    # As compaction would leave it: two records that stand for two thousand million offsets.
    batch[23:27] = (2**31 - 2).to_bytes(4, "big")
    log.append(batch, header._replace(last_offset_delta=2**31 - 2))
    assert base_offsets(log) == [0]
    append_value(log, b"v")

    assert base_offsets(log) == [0, 2**31]


# Indexing.


@pytest.mark.parametrize("interval,indexed", [(199, [2, 4, 6]), (200, [3, 6]), (201, [3, 6])])
def test_a_batch_is_indexed_when_more_than_the_interval_lies_before_it(
    interval: int, indexed: list[int]
) -> None:
    """Apache Kafka compares with "greater than", which shows where batches fill it exactly."""
    log = open_log(MemoryDisk(), config=TopicConfig(index_interval_bytes=interval))
    size = len(make_batch([b""]))
    for number in range(8):
        batch = make_batch([bytes(100 - size)], timestamps=[NOW_MS + number])
        assert len(batch) == 100
        append(log, batch)

    index = log._segments[0].offset_index.encode()
    assert index == b"".join(struct.pack(">ii", at, 100 * at) for at in indexed)
    times = log._segments[0].time_index.encode()
    assert times == b"".join(struct.pack(">qi", NOW_MS + at, at) for at in indexed)


# Reading.


def test_a_read_in_the_middle_of_a_batch_gives_all_of_it() -> None:
    log = open_log(MemoryDisk())
    batch = make_batch([b"a", b"b", b"c"])
    append(log, batch)
    extent = log.read(2, 10, upto_offset=3, at_least_one=True)

    assert extent is not None
    assert extent.read() == bytes(batch)
    assert log.read(2, 10, upto_offset=3, at_least_one=False) is None
    assert log.read(3, 10, upto_offset=3, at_least_one=True) is None


def test_nothing_beyond_the_high_watermark_is_handed_out() -> None:
    log = open_log(MemoryDisk())
    for number in range(10):
        append_value(log, b"%d" % number)
        if number == 5:
            commit(log)

    assert log.high_watermark == 6
    extent = log.read(0, 10_000, upto_offset=log.high_watermark, at_least_one=True)
    assert extent is not None
    assert parse_header(extent.read()[-extent.length // 6 :]).last_offset == 5
    assert log.read(6, 10_000, upto_offset=log.high_watermark, at_least_one=True) is None


def test_a_disk_that_cannot_be_read_fails_the_read_alone() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(10):
        append_value(log, b"%d" % number)

    def broken(path: str) -> None:
        raise OSError(errno.EIO, "cannot read", path)

    disk.on_read = broken
    with pytest.raises(StorageError):
        log.read(3, 100, upto_offset=10, at_least_one=True)
    disk.on_read = None
    assert len(read_values(log)) == 10
    assert not log.failed


def test_a_reader_keeps_a_removed_segment_alive(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(RealDisk(), str(tmp_path / "t-0"), clock=clock)
    for number in range(40):
        append_value(log, b"%d" % number)
    commit(log)
    extent = log.read(0, 100_000, upto_offset=40, at_least_one=True)
    assert extent is not None
    content = extent.read()
    clock.advance(SMALL.retention_ms + 1)
    log.remove_expired(clock.now_ms())
    clock.advance(SMALL.file_delete_delay_ms)
    log.purge_deleted(clock.now_ms())

    assert not list((tmp_path / "t-0").glob("00000000000000000000*"))
    assert extent.read() == content
    assert os.pread(extent.fileno(), extent.length, extent.position) == content


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts handles by /proc")
def test_idle_handles_are_closed_and_opened_again(tmp_path: Path) -> None:
    log = open_log(RealDisk(), str(tmp_path / "t-0"))
    for number in range(60):
        append_value(log, b"%d" % number)
    commit(log)
    assert len(read_values(log)) == 60

    def open_handles() -> int:
        paths = list(Path("/proc/self/fd").iterdir())
        return sum(path.is_symlink() and path.readlink().is_relative_to(tmp_path) for path in paths)

    assert open_handles() > len(base_offsets(log))
    log.checkpoint()
    log.checkpoint()
    assert open_handles() == 0
    assert len(read_values(log)) == 60
    append_value(log, b"again")
    commit(log)
    assert len(read_values(log)) == 61


# Durability.


def test_closed_segments_are_committed_by_and_by_even_in_the_page_cache() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=replace(SMALL, flush_messages=1_000_000))
    for number in range(20):
        append_value(log, b"value %d" % number, NOW_MS + number)
    assert len(log.segments) > 2
    assert not log.commit_due()

    # A checkpoint finds files that may be lost, and cannot move the recovery point yet.
    assert log.checkpoint() == 0
    assert log.commit_due()
    commit(log)

    assert log.checkpoint() == 20
    assert not log.commit_due()


def test_a_log_that_has_hardly_grown_keeps_its_recovery_point() -> None:
    log = open_log(MemoryDisk(), config=TopicConfig())
    append_value(log, b"v" * 100)
    commit(log)

    assert log.checkpoint(worth_bytes=1_000) == 0
    for number in range(9):
        append_value(log, b"v" * 100, NOW_MS + number)
    commit(log)

    assert log.checkpoint(worth_bytes=1_000) == 10
    append_value(log, b"v" * 100)
    commit(log)
    assert log.checkpoint(worth_bytes=1_000) == 10
    assert log.checkpoint() == 11


def test_the_page_cache_is_enough_where_flush_messages_says_so() -> None:
    log = open_log(MemoryDisk(), config=TopicConfig(flush_messages=3))
    append_value(log, b"v")
    assert (log.high_watermark, log.synced_offset) == (1, 0)
    assert not log.commit_due()
    append(log, make_batch([b"v", b"w"]))
    assert log.commit_due()
    commit(log)
    assert log.synced_offset == 3
    assert not log.commit_due()


def test_flush_ms_asks_for_a_commit_too() -> None:
    clock = ManualClock(NOW_MS)
    config = TopicConfig(flush_messages=1_000_000, flush_ms=500)
    log = open_log(MemoryDisk(), config=config, clock=clock)
    append_value(log, b"v")
    clock.advance(499)
    assert not log.commit_due()
    clock.advance(1)
    assert log.commit_due()


def test_every_append_is_due_by_default() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")

    assert (log.high_watermark, log.commit_due()) == (0, True)


def test_turning_durability_off_shows_what_is_there() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")
    log.config = TopicConfig(flush_messages=10)
    assert log.high_watermark == 1
    log.config = TopicConfig()
    append_value(log, b"v")
    assert log.high_watermark == 1


def test_the_recovery_point_waits_for_the_indexes_of_a_closed_segment() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")
    commit(log)
    assert log.checkpoint() == 1
    while len(log._segments) == 1:
        commit(log)
        append_value(log, b"v")
    # The batches of the closed segment are durable, the index entries behind the first are not.
    assert log.synced_offset == log.log_end_offset - 1 > 1
    assert log.checkpoint() == 1
    items = log.begin_commit()
    assert log.checkpoint() == 1
    for item in items:
        item.sync()
    log.end_commit()
    assert log.checkpoint() == log.log_end_offset


def test_handles_stay_open_until_their_commit_ends(tmp_path: Path) -> None:
    """A syncer may have nothing but the number of a descriptor."""
    config = TopicConfig(segment_ms=1000)
    log = open_log(RealDisk(), str(tmp_path / "t-0"), config=config)
    append_value(log, b"v")
    commit(log)
    append_value(log, b"v")
    handed_over = log.begin_commit()
    numbers = [item.fileno() for item in handed_over if isinstance(item, RealFile)]
    files = [os.fstat(number).st_ino for number in numbers]
    del handed_over
    append_value(log, b"v", NOW_MS + 1001)
    log.checkpoint()
    log.checkpoint()
    assert base_offsets(log) == [0, 2]

    assert len(numbers) == 1
    assert [os.fstat(number).st_ino for number in numbers] == files
    log.end_commit()
    assert log.high_watermark == 2


# Asking.


def test_bytes_are_counted_from_the_batch_of_an_offset() -> None:
    log = open_log(MemoryDisk())
    sizes = []
    for number in range(20):
        batch = make_batch([b"x" * number, b"y"])
        append(log, batch)
        sizes.append(len(batch))

    for number in range(20):
        assert log.bytes_from(2 * number) == log.bytes_from(2 * number + 1) == sum(sizes[number:])
    assert log.bytes_from(40) == 0
    assert log.size_bytes() == sum(sizes)


def test_the_epochs_of_several_runs_are_told() -> None:
    disk = MemoryDisk()
    for epoch in (0, 1, 4):
        log = open_log(disk, leader_epoch=epoch)
        append_value(log, b"v")
        append_value(log, b"v")
        commit(log)

    assert [log.epoch_for_offset(offset) for offset in range(7)] == [0, 0, 1, 1, 4, 4, 4]
    assert [log.epoch_end_offset(epoch) for epoch in (0, 1, 2, 4, 5)] == [
        (0, 2),
        (1, 4),
        (1, 4),
        (4, 6),
        (-1, -1),
    ]
    log = open_log(disk, leader_epoch=7)
    assert log.epoch_end_offset(7) == (7, 6)
    assert log.epoch_end_offset(4) == (4, 6)
