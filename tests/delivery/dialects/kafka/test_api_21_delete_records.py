"""DeleteRecords: where the log starts, now and after a crash."""

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


def test_when_the_disk_is_full_nobody_is_told_of_a_success(desk: Desk) -> None:
    desk.disk.fail_at(desk.disk.operations + 1, OSError(28, "No space left on device"))
    assert trim(desk, "a", (0, 3), (1, 5)) == [
        (0, -1, ErrorCode.KAFKA_STORAGE_ERROR),
        (1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]
