"""ListOffsets on a disk that cannot be read; what it answers else is compared with Kafka."""

import errno
import logging

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import ListOffsetsRequest
from tests.delivery.dialects.kafka.desk import Desk

Partition = ListOffsetsRequest.ListOffsetsPartition

LATEST = -1


def test_a_partition_that_cannot_be_read_is_answered_for_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    desk.broker.topics.create([NewTopic("t", 3, {})])
    for index in range(3):
        desk.append("t", index, count=3)

    def fail(path: str) -> None:
        if "/t-1/" in path:
            raise OSError(errno.EMFILE, "Too many open files", path)

    desk.disk.on_read = fail
    moment_ms = desk.clock.now_ms()
    asked = [
        Partition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
        for index, timestamp in ((0, moment_ms), (1, moment_ms), (2, LATEST))
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic("t", asked)]
    )

    with caplog.at_level(logging.ERROR):
        (topic,) = desk.ask(request).topics

    assert [
        (answer.partition_index, answer.error_code, answer.offset) for answer in topic.partitions
    ] == [(0, ErrorCode.NONE, 0), (1, ErrorCode.KAFKA_STORAGE_ERROR, -1), (2, ErrorCode.NONE, 3)]
    assert "t-1 cannot be read: [Errno 24] Too many open files" in caplog.text
