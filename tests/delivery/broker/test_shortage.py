"""A disk without room: what may go goes soon, writers are told, and the log is not flooded."""

import logging

import pytest

from headwater.base.errors import ErrorCode, StorageError
from headwater.base.record.records import Record, build_batch
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import ProduceRequest
from tests.delivery.dialects.kafka.desk import Desk

VALUE_BYTES = 400_000
KEPT_BYTES = 1_000_000


def full_desk(retention_bytes: int = KEPT_BYTES) -> Desk:
    """Return a broker whose disk has no room, though its topic may hold more than it must keep."""
    desk = Desk()
    configs = {"segment.bytes": "1048576", "retention.bytes": str(retention_bytes)}
    desk.broker.topics.create([NewTopic("t", 1, configs)])
    desk.append("t", count=10, size=VALUE_BYTES)
    desk.disk.capacity_bytes = desk.disk.used_bytes()
    return desk


def produce(desk: Desk) -> ErrorCode:
    batch = build_batch([Record(0, desk.clock.now_ms(), None, bytes(VALUE_BYTES))])
    data = ProduceRequest.PartitionProduceData(0, batch)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    ((answer,),) = [topic.partition_responses for topic in desk.ask(request, 12).responses]
    return ErrorCode(answer.error_code)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "are refused" in record.message]


def test_a_refused_write_makes_room_for_the_next() -> None:
    desk = full_desk()
    assert produce(desk) == ErrorCode.KAFKA_STORAGE_ERROR
    # The next retention check is minutes away, and removed files wait a minute more as a rule.
    desk.clock.advance(1_000)
    assert produce(desk) == ErrorCode.NONE
    assert desk.disk.used_bytes() < KEPT_BYTES + 3 * VALUE_BYTES


def test_a_write_that_is_not_refused_removes_nothing_early() -> None:
    desk = full_desk()
    desk.disk.capacity_bytes = None
    assert produce(desk) == ErrorCode.NONE
    desk.clock.advance(10_000)
    assert desk.disk.used_bytes() > 10 * VALUE_BYTES


def test_a_disk_that_stays_full_is_complained_of_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = full_desk(retention_bytes=-1)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert produce(desk) == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(complaints(caplog)) == 1
        desk.clock.advance(9_999)
        assert produce(desk) == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(complaints(caplog)) == 1
        desk.clock.advance(1)
        assert produce(desk) == ErrorCode.KAFKA_STORAGE_ERROR

    told = complaints(caplog)
    assert len(told) == 2
    assert "t-0" in told[0]
    assert "No space left" in told[0]
    assert "retention" in told[0], "it says what to do"


def starts(desk: Desk) -> bool:
    try:
        desk.start()
    except StorageError as error:
        return "No space left" not in error.message
    return True


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a crash"])
def test_a_start_without_room_harms_nothing(*, clean: bool) -> None:
    """However little room there is: it starts, or says why not, and the next start has it all."""
    refused = 0
    for spare_bytes in (0, 20, 60, 100, 200, 400, 1_000, 4_000):
        desk = Desk()
        desk.broker.topics.create([NewTopic("t", 2, {})])
        desk.append("t", count=20, size=5_000)
        if clean:
            desk.broker.store.close()
        for spare in (spare_bytes, None):
            desk.disk = desk.disk.restart() if clean else desk.disk.crash(0, keep="nothing")
            room = None if spare is None else desk.disk.used_bytes() + spare
            desk.disk.capacity_bytes = room
            started = starts(desk)
            assert started or room is not None
            refused += not started
        partition = desk.broker.topics.partition("t", 0)
        assert partition is not None
        assert partition.log.high_watermark == 20
        assert produce(desk) == ErrorCode.NONE
    assert refused > 0
