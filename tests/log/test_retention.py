"""Retention: which segments go, by which rule, and what becomes of their files."""

from dataclasses import replace

import pytest

from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import (
    NOW_MS,
    append,
    append_value,
    commit,
    make_batch,
    open_log,
    read_values,
)

KEEP = TopicConfig(
    index_interval_bytes=100, segment_index_bytes=60, retention_ms=-1, file_delete_delay_ms=1000
)
COUNT = 40
DAY_MS = 86_400_000


def filled(config: TopicConfig = KEEP, *, disk: MemoryDisk | None = None) -> PartitionLog:
    log = open_log(disk or MemoryDisk(), config=KEEP, clock=ManualClock(NOW_MS))
    for number in range(COUNT):
        append_value(log, b"value %02d" % number, NOW_MS + number)
    commit(log)
    log.config = config
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments]


def test_nothing_goes_while_nothing_asks_for_it() -> None:
    log = filled()
    before = bases(log)

    assert log.remove_expired(NOW_MS * 2) == 0
    assert bases(log) == before


def test_segments_go_when_their_last_record_is_too_old() -> None:
    log = filled(replace(KEEP, retention_ms=1000))
    first_bytes = log._segments[0].size
    second, third = bases(log)[1:3]

    # The newest record of the second segment is one millisecond older than the third's first.
    assert log.remove_expired(NOW_MS + third - 1 + 1000) == first_bytes
    assert log.log_start_offset == second
    log.remove_expired(NOW_MS + third + 1000)
    assert log.log_start_offset == third == bases(log)[0]
    assert read_values(log)[0] == (third, b"value %02d" % third)


def test_an_active_segment_that_is_too_old_is_closed_and_goes_too() -> None:
    log = filled(replace(KEEP, retention_ms=1000))
    log.remove_expired(NOW_MS + COUNT + 1000)

    assert (log.log_start_offset, log.log_end_offset, log.size_bytes()) == (COUNT, COUNT, 0)
    assert bases(log) == [COUNT]
    assert append_value(log, b"next").base_offset == COUNT
    assert log.remove_expired(NOW_MS + COUNT + 1000) == 0


def test_an_empty_log_is_not_rolled_for_ever() -> None:
    disk = MemoryDisk()
    log = filled(replace(KEEP, retention_ms=1000), disk=disk)
    log.remove_expired(NOW_MS + COUNT + 1000)
    operations = disk.operations
    log.remove_expired(NOW_MS * 2)

    assert disk.operations == operations
    assert bases(log) == [COUNT]


def test_segments_without_timestamps_age_from_when_they_were_seen() -> None:
    config = replace(KEEP, retention_ms=1000)
    log = open_log(MemoryDisk(), config=config, clock=ManualClock(NOW_MS))
    append_value(log, b"v", -1)
    commit(log)

    assert log.remove_expired(NOW_MS + 1000) == 0
    assert log.remove_expired(NOW_MS + 1001) > 0


@pytest.mark.parametrize("segments_kept", [1, 2, 3])
def test_the_oldest_go_while_what_is_left_has_retention_bytes(segments_kept: int) -> None:
    log = filled()
    sizes = [segment.size for segment in log._segments]
    starts = bases(log)
    bound = sum(sizes[-segments_kept:])
    log.config = replace(KEEP, retention_bytes=bound)
    log.remove_expired(NOW_MS)
    assert log.size_bytes() == bound
    assert log.log_start_offset == starts[-segments_kept]

    log = filled(replace(KEEP, retention_bytes=bound + 1))
    log.remove_expired(NOW_MS)
    assert log.log_start_offset == starts[-segments_kept - 1]


def test_what_lies_below_the_log_start_goes_whatever_the_policy() -> None:
    for policy in ("delete", "compact"):
        log = filled(replace(KEEP, cleanup_policy=policy, retention_ms=1, retention_bytes=-1))
        third = bases(log)[2]
        log.config = replace(KEEP, cleanup_policy=policy)
        log.trim(third - 1)
        log.remove_expired(NOW_MS)
        assert bases(log)[1] == third
        log.trim(third)
        log.remove_expired(NOW_MS)
        assert bases(log)[0] == third


def test_a_trim_to_the_end_keeps_the_active_segment() -> None:
    log = filled()
    last = bases(log)[-1]
    log.trim(COUNT)
    log.remove_expired(NOW_MS)

    assert bases(log) == [last]
    assert log.read(COUNT, 1, upto_offset=COUNT, at_least_one=True) is None


def test_a_compacted_topic_loses_nothing_by_age_or_size() -> None:
    log = filled(replace(KEEP, cleanup_policy="compact", retention_ms=1, retention_bytes=0))

    assert log.remove_expired(NOW_MS * 2) == 0


def test_nothing_that_is_not_durable_goes() -> None:
    log = open_log(MemoryDisk(), config=KEEP, clock=ManualClock(NOW_MS))
    for number in range(COUNT):
        append_value(log, b"value %02d" % number, NOW_MS + number)
        if number == 20:
            commit(log)
    log.config = replace(KEEP, retention_ms=1)
    log.remove_expired(NOW_MS * 2)

    assert 0 < log.log_start_offset <= 21 == log.high_watermark


def test_files_wait_under_another_name_and_then_go() -> None:
    disk = MemoryDisk()
    log = filled(replace(KEEP, retention_ms=1000), disk=disk)
    log.remove_expired(NOW_MS + COUNT + 1000)
    waiting = [name for name in disk.list_directory("/t-0") if name.endswith(".deleted")]
    assert len([name for name in waiting if ".log" in name]) > 2
    due_ms = NOW_MS + COUNT + 1000 + 1000
    log.purge_deleted(due_ms - 1)
    assert disk.list_directory("/t-0")[0].endswith(".deleted")
    log.purge_deleted(due_ms)

    assert not [name for name in disk.list_directory("/t-0") if name.endswith(".deleted")]


def test_a_silent_producer_is_forgotten() -> None:
    log = filled()
    log.producer_id_expiration_ms = 500
    append(log, make_batch([b"v"], producer_id=1, producer_epoch=0, base_sequence=0))
    log.remove_expired(NOW_MS + 499)
    assert log.producers.get(1) is not None
    log.remove_expired(NOW_MS + 500)
    assert log.producers.get(1) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_producer_of_old_records_is_not_forgotten_at_once(*, restarted: bool) -> None:
    disk, clock = MemoryDisk(), ManualClock(NOW_MS)
    log = open_log(disk, config=KEEP, clock=clock)
    old = make_batch(
        timestamps=[NOW_MS - 30 * DAY_MS], producer_id=1, producer_epoch=0, base_sequence=0
    )
    append(log, bytearray(old))
    commit(log)
    if restarted:
        log = open_log(disk.crash(0, keep="nothing"), config=KEEP, clock=clock)
    log.remove_expired(NOW_MS)
    assert append(log, bytearray(old)).duplicate

    log.remove_expired(NOW_MS + log.producer_id_expiration_ms)
    assert log.producers.get(1) is None


def test_a_producer_of_records_from_the_future_is_forgotten_some_day() -> None:
    config = replace(KEEP, message_timestamp_after_max_ms=NOW_MS)
    log = open_log(MemoryDisk(), config=config)
    append(log, make_batch(timestamps=[2 * NOW_MS], producer_id=1, producer_epoch=0))
    log.remove_expired(NOW_MS + log.producer_id_expiration_ms)
    assert log.producers.get(1) is None


def test_dropping_the_oldest_keeps_whole_batches_within_the_bound() -> None:
    log = filled()
    batch = log.size_bytes() // COUNT
    log.drop_oldest(10 * batch)
    assert log.log_start_offset == COUNT - 10
    log.drop_oldest(10 * batch - 1)
    assert log.log_start_offset == COUNT - 9
    log.drop_oldest(10 * batch)
    assert log.log_start_offset == COUNT - 9
    log.drop_oldest(0)
    assert log.log_start_offset == COUNT
    log.remove_expired(NOW_MS)
    assert len(bases(log)) == 1


def test_what_is_not_durable_is_not_dropped() -> None:
    log = open_log(MemoryDisk(), config=KEEP)
    append_value(log, b"v")
    commit(log)
    append_value(log, b"w")
    log.drop_oldest(0)

    assert log.log_start_offset == 1


def test_the_time_by_which_an_offset_expires_is_its_segments() -> None:
    log = filled()
    for base, following in zip(bases(log), [*bases(log)[1:], COUNT], strict=True):
        assert log.oldest_timestamp_from(base) == NOW_MS + following - 1
        assert log.oldest_timestamp_from(following - 1) == NOW_MS + following - 1
