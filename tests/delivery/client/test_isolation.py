"""Readers of committed data: what librdkafka would show, and not a record more."""

import random

import pytest
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import Producer as ForeignProducer
from confluent_kafka import TopicPartition

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Consumer, Message
from headwater.delivery.client.group import GroupConsumer
from tests.delivery.client.transactional import (
    COMMITTED,
    EVERYTHING,
    HIGH_WATERMARK,
    LAST_STABLE_OFFSET,
    Mixed,
    committed,
    transactional,
    wait_until_stable,
    write,
    write_everything,
)

FETCH_BYTES = [pytest.param(1, id="a batch per fetch"), pytest.param(50 << 20, id="all at once")]


@pytest.fixture
def mixed(cluster: Cluster, bootstrap: str, name: str) -> Mixed:
    """Give a topic with transactions of every outcome."""
    return write_everything(cluster, bootstrap, name)


def read_to(consumer: Consumer, topic: str, end: int) -> dict[int, str]:
    """Read until the position is there, by offset."""
    found: list[Message] = []
    while consumer.positions[topic, 0] < end:
        found += consumer.poll(5.0)
    return {message.offset: (message.value or b"").decode() for message in found}


def since(start: int, records: dict[int, str]) -> dict[int, str]:
    return {offset: value for offset, value in records.items() if offset >= start}


@pytest.mark.parametrize("fetch_bytes", FETCH_BYTES)
def test_committed_from_every_offset_on(cluster: Cluster, mixed: Mixed, fetch_bytes: int) -> None:
    """In fetches of one batch, an aborted transaction spans several of them."""
    topic = mixed.topic
    consumer = Consumer(cluster, read_committed=True, fetch_bytes=fetch_bytes)
    for start in range(LAST_STABLE_OFFSET):
        consumer.assign({(topic, 0): start})
        assert read_to(consumer, topic, LAST_STABLE_OFFSET) == since(start, COMMITTED)
    for start in range(LAST_STABLE_OFFSET, HIGH_WATERMARK + 1):
        consumer.assign({(topic, 0): start})
        assert consumer.poll(0.1) == []
        assert consumer.positions == {(topic, 0): start}


@pytest.mark.parametrize("fetch_bytes", FETCH_BYTES)
def test_uncommitted_from_every_offset_on(cluster: Cluster, mixed: Mixed, fetch_bytes: int) -> None:
    consumer = Consumer(cluster, fetch_bytes=fetch_bytes)
    for start in range(HIGH_WATERMARK):
        consumer.assign({(mixed.topic, 0): start})
        assert read_to(consumer, mixed.topic, HIGH_WATERMARK) == since(start, EVERYTHING)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_what_was_open_comes_with_its_end(cluster: Cluster, mixed: Mixed, outcome: str) -> None:
    consumer = Consumer(cluster, read_committed=True)
    consumer.assign({(mixed.topic, 0): LAST_STABLE_OFFSET})
    assert consumer.poll(0.1) == []
    expected = since(LAST_STABLE_OFFSET, EVERYTHING)
    if outcome == "commit":
        mixed.open_writer.commit_transaction(60)
    else:
        mixed.open_writer.abort_transaction(60)
        del expected[LAST_STABLE_OFFSET]
    assert read_to(consumer, mixed.topic, HIGH_WATERMARK + 1) == expected


def test_a_member_commits_over_what_it_is_not_shown(
    cluster: Cluster, bootstrap: str, name: str
) -> None:
    admin.create_topic(cluster, name)
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    write(producer, name, "never")
    producer.abort_transaction(60)
    wait_until_stable(cluster, name, 2)
    with GroupConsumer(cluster, name, [name], read_committed=True) as member:
        while member.positions != {(name, 0): 2}:
            assert member.poll() == []
        moved_before = member.has_moved
        member.commit()
        assert (moved_before, member.has_moved) == (True, False)
    assert admin.committed_offsets(cluster, name) == {(name, 0): 2}


def test_a_member_waits_for_offsets_that_a_transaction_commits(
    cluster: Cluster, bootstrap: str, name: str
) -> None:
    """Whoever reads committed data must not do again what is just being committed."""
    admin.create_topic(cluster, name)
    producer = transactional(bootstrap, name)
    for value in ("done", "to do"):
        producer.begin_transaction()
        write(producer, name, value)
        producer.commit_transaction(60)
    wait_until_stable(cluster, name, 4)
    worker = ForeignConsumer({"bootstrap.servers": bootstrap, "group.id": name})
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition(name, 0, 2)], worker.consumer_group_metadata(), 60
    )
    worker.close()
    with Cluster(bootstrap, timeout_s=0.5) as hasty:
        member = GroupConsumer(hasty, name, [name], read_committed=True)
        with pytest.raises(KafkaError) as unstable:
            member.poll()
        assert unstable.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        member.close()
    producer.commit_transaction(60)
    found: list[Message] = []
    with GroupConsumer(cluster, name, [name], read_committed=True) as member:
        while not found:
            found = member.poll()
    assert [message.value for message in found] == [b"to do"]


@pytest.mark.parametrize("read_committed", [True, False])
def test_a_member_that_begins_at_the_end(
    cluster: Cluster, mixed: Mixed, name: str, read_committed: bool
) -> None:
    with GroupConsumer(
        cluster, name, [mixed.topic], from_start=False, read_committed=read_committed
    ) as member:
        assert member.poll(0.0) == []
        end = LAST_STABLE_OFFSET if read_committed else HIGH_WATERMARK
        assert member.positions == {(mixed.topic, 0): end}
        assert not member.has_moved


@pytest.mark.parametrize("seed", range(3))
def test_any_history_is_read_as_librdkafka_reads_it(
    cluster: Cluster, bootstrap: str, name: str, seed: int
) -> None:
    """Writers take turns at random; ends come in any order; the last transactions stay open."""
    chance = random.Random(seed)
    admin.create_topic(cluster, name)
    plain = ForeignProducer({"bootstrap.servers": bootstrap})
    writers = [transactional(bootstrap, f"{name}-{number}") for number in range(3)]
    is_open = [False] * len(writers)
    for step in range(60):
        number = chance.randrange(len(writers) + 1)
        if number == len(writers):
            write(plain, name, f"{step}")
            continue
        writer = writers[number]
        if not is_open[number]:
            writer.begin_transaction()
            is_open[number] = True
        elif chance.random() < 0.4:
            is_open[number] = False
            if chance.random() < 0.5:
                writer.commit_transaction(60)
            else:
                writer.abort_transaction(60)
            continue
        write(writer, name, f"{step} {number}")
    place = (name, 0)
    stable = admin.list_offsets(cluster, {place: admin.LATEST}, read_committed=True)[place]
    expected = committed(bootstrap, name, stable)
    assert expected
    for fetch_bytes in (1, 300, 50 << 20):
        consumer = Consumer(cluster, read_committed=True, fetch_bytes=fetch_bytes)
        consumer.assign({place: 0})
        found = read_to(consumer, name, stable)
        assert {at: value for at, value in found.items() if at < stable} == expected
