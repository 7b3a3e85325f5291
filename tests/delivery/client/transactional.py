"""Topics with transactions of every outcome, written by librdkafka.

This file alone decides what is committed, aborted or open in them, and at which offsets. Who reads
them, and how, is the tests' business.
"""

import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster

EVERYTHING = {
    0: "a0 aborted",
    1: "b0",
    2: "plain0",
    3: "a1 aborted",
    # 4: the marker of a's abort
    5: "b1",
    # 6: the marker of b's commit
    7: "a2",
    # 8: the marker of a's commit
    9: "plain1",
    10: "b2 open",
    11: "plain2 behind what is open",
}
LAST_STABLE_OFFSET = 10
HIGH_WATERMARK = 12
COMMITTED = {
    offset: value
    for offset, value in EVERYTHING.items()
    if offset < LAST_STABLE_OFFSET and "aborted" not in value
}


class Mixed(NamedTuple):
    """A topic of one partition that holds `EVERYTHING`, and who has a transaction open in it."""

    topic: str
    open_writer: Producer


def transactional(bootstrap: str, name: str) -> Producer:
    """Return a producer that may begin a transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    return producer


def write(producer: Producer, topic: str, value: str, partition: int = 0) -> None:
    """Write a record as a batch of its own."""
    producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def wait_until_stable(cluster: Cluster, topic: str, offset: int, partition: int = 0) -> None:
    """Wait for markers: Apache Kafka writes them after it has said that all is done."""
    place = (topic, partition)
    deadline_s = time.monotonic() + 30
    while True:
        asked = {place: admin.LATEST}
        if admin.list_offsets(cluster, asked, read_committed=True)[place] >= offset:
            return
        assert time.monotonic() < deadline_s, f"offset {offset} has not become stable"
        time.sleep(0.01)


def committed(bootstrap: str, topic: str, end: int, *, partition: int = 0) -> dict[int, str]:
    """Read what librdkafka shows to readers of committed data below an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: dict[int, str] = {}
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return {at: value for at, value in found.items() if at < end}
            found[message.offset() or 0] = (message.value() or b"").decode()
    finally:
        consumer.close()


def write_everything(cluster: Cluster, bootstrap: str, topic: str) -> Mixed:
    """Create the topic and fill it."""
    admin.create_topic(cluster, topic)
    a, b = (transactional(bootstrap, f"{topic}-{letter}") for letter in "ab")
    plain = Producer({"bootstrap.servers": bootstrap})
    a.begin_transaction()
    b.begin_transaction()
    for producer, offset in ((a, 0), (b, 1), (plain, 2), (a, 3)):
        write(producer, topic, EVERYTHING[offset])
    a.abort_transaction(60)
    # What b has open holds the last stable offset; only the marker's own place tells that it came.
    _wait_for_end(cluster, topic, 5)
    write(b, topic, EVERYTHING[5])
    b.commit_transaction(60)
    wait_until_stable(cluster, topic, 7)
    a.begin_transaction()
    write(a, topic, EVERYTHING[7])
    a.commit_transaction(60)
    wait_until_stable(cluster, topic, 9)
    write(plain, topic, EVERYTHING[9])
    b.begin_transaction()
    write(b, topic, EVERYTHING[10])
    write(plain, topic, EVERYTHING[11])
    return Mixed(topic, b)


def _wait_for_end(cluster: Cluster, topic: str, offset: int) -> None:
    deadline_s = time.monotonic() + 30
    while admin.list_offsets(cluster, {(topic, 0): admin.LATEST})[topic, 0] < offset:
        assert time.monotonic() < deadline_s, f"the marker before {offset} has not come"
        time.sleep(0.01)
