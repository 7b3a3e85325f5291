"""Reads that come after the answer to acks=1 see what was answered."""

import errno
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.base.schema import Message
from headwater.delivery.broker.partition import Committable
from headwater.delivery.broker.promises import PATIENCE_MS
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka.messages import (
    DeleteRecordsRequest,
    FetchRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from tests.delivery.dialects.kafka.desk import Desk


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic("t", 2, {}), NewTopic("other", 1, {})])
    return desk


def answer_to(desk: Desk, call: Call) -> Any:  # noqa: ANN401 - its own class, or None
    return next((answer for answered, answer in desk.line.answers if answered is call), None)


def produce(desk: Desk, *, acks: int = 1, partition: int = 0) -> Call:
    batch = build_batch([Record(0, desk.clock.now_ms(), b"k", b"v")])
    data = ProduceRequest.PartitionProduceData(partition, batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return desk.begin(ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic]), 9)


def list_offset(timestamp: int, *, topic: str = "t", isolation_level: int = 0) -> Message:
    asked = ListOffsetsRequest.ListOffsetsPartition(0, timestamp=timestamp)
    topics = [ListOffsetsRequest.ListOffsetsTopic(topic, [asked])]
    return ListOffsetsRequest(isolation_level=isolation_level, topics=topics)


def fetch(*offsets: int, max_wait_ms: int = 0, topic: str = "t") -> Message:
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=999)
        for index, offset in enumerate(offsets)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=999,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=wanted)],
    )


def trim(offset: int) -> Message:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(0, offset)
    return DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic("t", [partition])])


READS = [
    (list_offset(-1), 7),
    (list_offset(-1, isolation_level=1), 7),
    (list_offset(-3), 7),
    (list_offset(0), 7),
    (trim(1), 2),
    (trim(-1), 2),
    (fetch(0), 12),
    (fetch(0, max_wait_ms=1), 12),
]


@pytest.mark.parametrize("read, version", READS)
def test_a_read_waits_for_what_was_answered(desk: Desk, read: Message, version: int) -> None:
    assert answer_to(desk, produce(desk)) is not None, "acks=1 waits for no sync"

    call = desk.begin(read, version)
    desk.clock.advance(5)
    assert answer_to(desk, call) is None
    desk.commits.run()

    assert answer_to(desk, call) is not None


@pytest.mark.parametrize("read, version", READS[:-1])
def test_a_read_waits_for_nothing_else(desk: Desk, read: Message, version: int) -> None:
    """Neither for records whose producer has no answer yet, nor for other partitions'."""
    produce(desk, acks=-1)
    produce(desk, acks=0)
    produce(desk, acks=1, partition=1)

    assert answer_to(desk, desk.begin(read, version)) is not None


def test_what_is_seen(desk: Desk) -> None:
    produce(desk)
    latest = desk.begin(list_offset(-1), 7)
    fetched = desk.begin(fetch(0), 12)
    trimmed = desk.begin(trim(1), 2)
    desk.commits.run()

    assert answer_to(desk, latest).topics[0].partitions[0].offset == 1
    (partition,) = answer_to(desk, fetched).responses[0].partitions
    assert (partition.high_watermark, len(partition.records) > 0) == (1, True)
    (result,) = answer_to(desk, trimmed).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 1)


def test_a_reader_may_go_on_behind_what_was_answered(desk: Desk) -> None:
    """Its offset lies above the high watermark for a moment, which is no error."""
    produce(desk)
    call = desk.begin(fetch(1), 12)
    desk.commits.run()

    (partition,) = answer_to(desk, call).responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 1)


def test_a_fetch_that_has_records_waits_for_no_more(desk: Desk) -> None:
    desk.append("t")
    produce(desk)
    produce(desk, partition=1)

    assert answer_to(desk, desk.begin(fetch(0, 0), 12)) is not None


def test_a_repeated_batch_is_waited_for_as_the_first(desk: Desk) -> None:
    batch = build_batch(
        [Record(0, desk.clock.now_ms(), b"k", b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
    )
    for _ in range(2):
        data = ProduceRequest.PartitionProduceData(0, bytearray(batch))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        desk.begin(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 9)
    call = desk.begin(list_offset(-1), 7)
    assert answer_to(desk, call) is None
    desk.commits.run()

    assert answer_to(desk, call).topics[0].partitions[0].offset == 1


def test_where_the_log_starts_is_told_at_once(desk: Desk) -> None:
    produce(desk)

    assert answer_to(desk, desk.begin(list_offset(-2), 7)) is not None


def test_a_failed_disk_keeps_no_read_waiting(desk: Desk) -> None:
    produce(desk)
    calls = [desk.begin(read, version) for read, version in READS]

    desk.broker.topics.fail("the disk is gone")
    desk.clock.advance(5)

    assert all(answer_to(desk, call) is not None for call in calls)


def test_a_deleted_topic_keeps_no_read_waiting(desk: Desk) -> None:
    produce(desk)
    calls = [desk.begin(read, version) for read, version in READS]

    desk.broker.topics.delete("t")
    desk.commits.run()

    assert all(answer_to(desk, call) is not None for call in calls)


# When no file can be opened for the sync


def stuck(desk: Desk) -> None:
    """Make a promise that cannot be kept for the time being."""

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files", path)

    produce(desk)
    desk.disk.on_open = refuse
    commit(desk.commits._dirty.pop())


def commit(item: Committable) -> None:
    for file in item.begin_commit():
        file.sync()
    item.end_commit()


def test_a_fetch_is_answered_though_nothing_can_be_synced(desk: Desk) -> None:
    stuck(desk)
    calls = [desk.begin(fetch(offset, max_wait_ms=500), 12) for offset in (0, 1)]
    desk.clock.advance(500)
    assert [answer_to(desk, call) for call in calls] == [None, None]
    desk.clock.advance(PATIENCE_MS)

    for call in calls:
        (partition,) = answer_to(desk, call).responses[0].partitions
        assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 0)
        assert len(partition.records) == 0
    desk.disk.on_open = lambda _: None
    desk.commits.run()
    assert len([call for call, _ in desk.line.answers if call in calls]) == 2, "once"


def test_a_partition_that_cannot_be_synced_keeps_no_record_of_another_waiting(desk: Desk) -> None:
    stuck(desk)
    call = desk.begin(fetch(0, 0, max_wait_ms=8_000), 12)
    desk.clock.advance(1_000)
    assert answer_to(desk, call) is None
    desk.disk.on_open = lambda _: None
    desk.append_unsynced("t", 1)
    topic = desk.broker.topics.get("t")
    assert topic is not None
    partitions = topic.partitions
    commit(partitions[1])

    first, second = answer_to(desk, call).responses[0].partitions
    assert (first.error_code, len(first.records)) == (ErrorCode.NONE, 0)
    assert (second.error_code, len(second.records) > 0) == (ErrorCode.NONE, True)
    assert not any(each._watchers for each in partitions)
    desk.clock.advance(8_000 + PATIENCE_MS)
    assert len([each for each, _ in desk.line.answers if each is call]) == 1, "once"


def test_what_was_promised_of_a_deleted_topic_is_forgotten(desk: Desk) -> None:
    stuck(desk)
    desk.disk.on_open = lambda _: None
    desk.broker.topics.delete("t")
    desk.broker.promises.forget_kept()

    assert not desk.broker.promises.outstanding


def test_a_fetch_that_waits_for_a_sync_is_answered_when_the_topic_is_deleted(desk: Desk) -> None:
    stuck(desk)
    desk.disk.on_open = lambda _: None
    call = desk.begin(fetch(0, max_wait_ms=8_000), 12)
    assert answer_to(desk, call) is None
    desk.broker.topics.delete("t")

    (partition,) = answer_to(desk, call).responses[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_has_waited_for_a_sync_waits_for_records_only_as_long_as_is_left(
    desk: Desk,
) -> None:
    produce(desk)
    call = desk.begin(fetch(1, max_wait_ms=10_000), 12)
    desk.clock.advance(8_000)
    desk.commits.run()
    assert answer_to(desk, call) is None

    desk.clock.advance(2_000)
    (partition,) = answer_to(desk, call).responses[0].partitions
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.NONE, 1)


def test_an_offset_that_nobody_was_told_is_out_of_range_all_the_same(desk: Desk) -> None:
    stuck(desk)
    call = desk.begin(fetch(2), 12)
    desk.clock.advance(PATIENCE_MS)

    (partition,) = answer_to(desk, call).responses[0].partitions
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    "read, version, error",
    [
        (list_offset(-1), 4, ErrorCode.LEADER_NOT_AVAILABLE),
        (list_offset(-1), 5, ErrorCode.OFFSET_NOT_AVAILABLE),
        (list_offset(0), 11, ErrorCode.OFFSET_NOT_AVAILABLE),
        (trim(1), 2, ErrorCode.REQUEST_TIMED_OUT),
        (trim(-1), 2, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_other_reads_say_that_they_cannot_know(
    desk: Desk, read: Message, version: int, error: ErrorCode
) -> None:
    stuck(desk)
    call = desk.begin(read, version)
    desk.clock.advance(PATIENCE_MS - 1)
    assert answer_to(desk, call) is None
    desk.clock.advance(1)

    (partition,) = answer_to(desk, call).topics[0].partitions
    assert partition.error_code == error
    log = desk.broker.store.topics["t"].partitions[0]
    assert (log.log_start_offset, log.high_watermark) == (0, 0)


@pytest.mark.parametrize("read, version", READS)
def test_who_has_gone_leaves_nothing_behind(desk: Desk, read: Message, version: int) -> None:
    produce(desk)
    call = desk.begin(read, version)
    call.cancel()
    desk.commits.run()
    desk.clock.advance(PATIENCE_MS + 1_000)

    partition = desk.broker.topics.partition("t", 0)
    assert partition is not None
    assert not partition._watchers
    assert answer_to(desk, call) is None


def test_what_is_to_run_for_a_client_that_has_gone_runs_at_once(desk: Desk) -> None:
    call = desk.begin(fetch(0, max_wait_ms=60_000), 12)
    call.cancel()
    ended: list[bool] = []
    call.on_cancel(lambda: ended.append(True))

    assert ended == [True]
