"""DeleteRecords: where the log starts, now and after a crash."""

import itertools

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import DeleteRecordsRequest
from tests.delivery.dialects.kafka.desk import Desk

Topic = DeleteRecordsRequest.DeleteRecordsTopic
Partition = DeleteRecordsRequest.DeleteRecordsPartition


def trim(
    desk: Desk, name: str, *partitions: tuple[int, int], version: int | None = None
) -> list[tuple[int, int, ErrorCode]]:
    request = DeleteRecordsRequest(
        [Topic(name, [Partition(index, offset) for index, offset in partitions])]
    )
    (topic,) = desk.ask(request, version).topics
    assert topic.name == name
    return [
        (result.partition_index, result.low_watermark, ErrorCode(result.error_code))
        for result in topic.partitions
    ]


def log_start(desk: Desk, name: str, index: int = 0) -> int:
    partition = desk.broker.topics.partition(name, index)
    assert partition is not None
    return partition.log.log_start_offset


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create(
        [
            NewTopic("a", 2, {}),
            NewTopic("compacted", 1, {"cleanup.policy": "compact"}),
            NewTopic("both", 1, {"cleanup.policy": "compact,delete"}),
            NewTopic("__consumer_offsets", 1, {}),
        ]
    )
    for name in ("a", "compacted", "both"):
        desk.append(name, count=10)
    return desk


def test_the_log_start_never_goes_back(desk: Desk) -> None:
    assert trim(desk, "a", (0, 3)) == [(0, 3, ErrorCode.NONE)]
    assert trim(desk, "a", (0, 2)) == [(0, 3, ErrorCode.NONE)]
    assert trim(desk, "a", (0, -1)) == [(0, 10, ErrorCode.NONE)]
    assert trim(desk, "a", (0, 10)) == [(0, 10, ErrorCode.NONE)]
    assert trim(desk, "a", (1, -1)) == [(1, 0, ErrorCode.NONE)]


@pytest.mark.parametrize("version", range(3))
def test_what_was_answered_survives_a_crash(desk: Desk, version: int) -> None:
    trim(desk, "a", (0, 7), version=version)
    desk.crash()
    assert log_start(desk, "a") == 7


@pytest.mark.parametrize("offset", [11, 2**62, -2, -(2**62)])
def test_offsets_that_are_not_there(desk: Desk, offset: int) -> None:
    assert trim(desk, "a", (0, offset)) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert log_start(desk, "a") == 0


def test_nothing_above_the_high_watermark_can_be_deleted(desk: Desk) -> None:
    partition = desk.broker.topics.partition("a", 0)
    assert partition is not None
    desk.append_unsynced("a")
    assert partition.log.log_end_offset == 11
    assert trim(desk, "a", (0, 11)) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]


def test_topics_that_refuse(desk: Desk) -> None:
    assert trim(desk, "compacted", (0, 3)) == [(0, -1, ErrorCode.POLICY_VIOLATION)]
    assert trim(desk, "both", (0, 3)) == [(0, 3, ErrorCode.NONE)]
    assert trim(desk, "__consumer_offsets", (0, 0)) == [(0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert trim(desk, "none", (0, 0)) == [(0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_each_partition_is_answered_for_itself(desk: Desk) -> None:
    assert trim(desk, "a", (0, 99), (1, 0), (7, 0), (-1, 0)) == [
        (0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, 0, ErrorCode.NONE),
        (7, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_partition_named_twice_is_answered_once(desk: Desk) -> None:
    assert trim(desk, "a", (0, 3), (0, 4)) == [(0, 4, ErrorCode.NONE)]


NO_ROOM = OSError(28, "No space left on device")


def test_when_the_disk_is_full_nothing_has_happened(desk: Desk) -> None:
    """There is no whole segment that could go: the start is where it was, for readers too."""
    desk.disk.capacity_bytes = desk.disk.used_bytes()
    assert trim(desk, "a", (0, 3), (1, 5)) == [
        (0, -1, ErrorCode.KAFKA_STORAGE_ERROR),
        (1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
    assert log_start(desk, "a") == 0
    desk.clock.advance(10_000)
    assert log_start(desk, "a") == 0
    desk.disk.capacity_bytes = None
    assert trim(desk, "a", (0, 3)) == [(0, 3, ErrorCode.NONE)]
    desk.crash()
    assert log_start(desk, "a") == 3


def test_no_reader_sees_a_start_that_a_crash_would_undo() -> None:
    """Whichever operation finds no room: before and after a crash the log starts no earlier."""
    outcomes = []
    for number in itertools.count(1):
        desk = Desk()
        desk.broker.topics.create([NewTopic("a", 1, {})])
        desk.append("a", count=10)
        last = desk.disk.operations + number
        desk.disk.fail_at(last, NO_ROOM)
        ((_, _, code),) = trim(desk, "a", (0, 3))
        seen, operations = log_start(desk, "a"), desk.disk.operations
        assert seen == (3 if code == ErrorCode.NONE else 0)
        desk.crash()
        assert log_start(desk, "a") >= seen
        outcomes.append(code)
        if operations < last:
            break
    assert ErrorCode.NONE in outcomes
    assert len(outcomes) > 3


def test_a_full_disk_is_emptied_by_deleting_records() -> None:
    desk = Desk()
    desk.broker.topics.create([NewTopic("big", 1, {"segment.bytes": "1048576"})])
    desk.append("big", count=10, size=400_000)
    desk.disk.capacity_bytes = desk.disk.used_bytes()

    assert trim(desk, "big", (0, 7)) == [(0, 7, ErrorCode.NONE)]

    assert desk.disk.used_bytes() < 5 * 400_000, "the room is there at once"
    desk.append("big", size=400_000)
    desk.crash()
    assert log_start(desk, "big") == 7
