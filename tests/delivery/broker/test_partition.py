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


def test_those_who_ask_the_disk_are_told_by_the_disk(desk: Desk) -> None:
    configs = {"flush.messages": "1000000"}
    (topic,) = desk.broker.topics.create([NewTopic("lazy", 1, configs)])
    partition = topic.partitions[0]
    told: list[str] = []
    offset = append(partition)
    partition.when_durable(offset, lambda: told.append("readers"))
    partition.when_synced(offset, stumble)
    partition.when_synced(offset, lambda: told.append("disk"))
    assert told == ["readers"]
    desk.commits.run()
    assert told == ["readers"], "nobody asked for a sync"

    partition.request_commit()
    with pytest.raises(ZeroDivisionError):
        desk.commits.run()

    assert told == ["readers", "disk"]
    partition.when_synced(offset, lambda: told.append("at once"))
    assert told == ["readers", "disk", "at once"]


def test_a_marker_is_synced_whatever_the_topic_says(desk: Desk) -> None:
    configs = {"flush.messages": "1000000"}
    (topic,) = desk.broker.topics.create([NewTopic("lazy", 1, configs)])
    partition = topic.partitions[0]
    told: list[str] = []
    appended = partition.append_marker(
        1, 0, committed=True, coordinator_epoch=0, transaction_version=0
    )
    partition.when_synced(appended.last_offset, lambda: told.append("disk"))
    assert told == []

    desk.commits.run()
    assert told == ["disk"]
