"""Whoever waits for a partition is told, whatever happens to the others who wait."""

import pytest

from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.topics import NewTopic
from tests.delivery.dialects.kafka.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def partition(desk: Desk) -> Partition:
    (topic,) = desk.broker.topics.create([NewTopic("t", 1, {})])
    return topic.partitions[0]


def append(partition: Partition) -> int:
    batch = build_batch([Record(0, 1_000, None, b"v")])
    return partition.append(batch, parse_header(batch)).last_offset


def stumble() -> None:
    raise ZeroDivisionError


def test_one_who_stumbles_keeps_nobody_else_waiting(desk: Desk, partition: Partition) -> None:
    told: list[str] = []
    offset = append(partition)
    partition.when_durable(offset, lambda: told.append("first"))
    partition.when_durable(offset, stumble)
    partition.when_durable(offset, lambda: told.append("last"))
    partition.watch(stumble)
    partition.watch(lambda: told.append("watcher"))

    with pytest.raises(ZeroDivisionError):
        desk.commits.run()

    assert told == ["first", "last", "watcher"]
