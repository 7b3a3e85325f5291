"""The consumer: exactly the records that are there, from exactly the offset that was asked for."""

import threading
import time

import pytest
from confluent_kafka import Producer as ForeignProducer

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.codecs import Codec
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Consumer, Message
from headwater.delivery.client.producer import Producer


def read(consumer: Consumer, count: int) -> list[Message]:
    """Poll until there are so many."""
    found: list[Message] = []
    while len(found) < count:
        found += consumer.poll(5.0)
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_has_written(
    cluster: Cluster, bootstrap: str, name: str, compression: str
) -> None:
    admin.create_topic(cluster, name)
    producer = ForeignProducer({"bootstrap.servers": bootstrap, "compression.type": compression})
    for number in range(500):
        producer.produce(
            name,
            f"value {number}",
            key=None if number % 2 else f"key {number}",
            headers=[("n", str(number).encode())],
            timestamp=1_700_000_000_000 + number,
        )
    assert producer.flush(30) == 0
    consumer = Consumer(cluster)
    consumer.assign({(name, 0): 0})
    found = read(consumer, 500)
    for number, message in enumerate(found):
        assert message == Message(
            name,
            0,
            number,
            1_700_000_000_000 + number,
            0,
            None if number % 2 else f"key {number}".encode(),
            f"value {number}".encode(),
            [("n", str(number).encode())],
        )
    assert consumer.positions == {(name, 0): 500}
    assert consumer.high_watermarks == {(name, 0): 500}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_offset_in_the_middle_of_a_batch(cluster: Cluster, name: str, codec: Codec) -> None:
    admin.create_topic(cluster, name)
    with Producer(cluster, codec=codec) as producer:
        for number in range(100):
            producer.send(name, b"%d" % number)
    consumer = Consumer(cluster)
    consumer.assign({(name, 0): 42})
    assert [message.offset for message in read(consumer, 58)] == list(range(42, 100))
    consumer.seek((name, 0), 99)
    assert [message.value for message in read(consumer, 1)] == [b"99"]


def test_an_answer_that_is_cut_at_its_limit(cluster: Cluster, name: str) -> None:
    """Whole batches only, and always at least one, however small the limit."""
    admin.create_topic(cluster, name)
    producer = Producer(cluster)
    for number in range(10):
        producer.send(name, b"%d" % number + bytes(10_000))
        producer.flush()
    for limit_bytes in (1, 15_000, 25_000):
        consumer = Consumer(cluster, fetch_bytes=limit_bytes)
        consumer.assign({(name, 0): 0})
        assert [message.offset for message in read(consumer, 10)] == list(range(10))


def test_several_partitions_and_topics(cluster: Cluster, name: str) -> None:
    places = [(f"{name}-{topic}", number) for topic in "ab" for number in range(3)]
    with Producer(cluster) as producer:
        for topic in "ab":
            admin.create_topic(cluster, f"{name}-{topic}", partitions=3)
        for topic, number in places:
            for index in range(10):
                producer.send(topic, f"{topic} {number} {index}".encode(), partition=number)
    consumer = Consumer(cluster)
    consumer.assign(dict.fromkeys(places, 0))
    found = read(consumer, 60)
    for topic, number in places:
        share = [each.value for each in found if (each.topic, each.partition) == (topic, number)]
        assert share == [f"{topic} {number} {index}".encode() for index in range(10)]


def test_an_empty_poll_waits_no_longer_than_told(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    consumer = Consumer(cluster)
    consumer.assign({(name, 0): 0})
    assert consumer.poll(0.0) == []
    assert consumer.poll(0.2) == []


def test_a_poll_ends_when_something_comes(cluster: Cluster, bootstrap: str, name: str) -> None:
    admin.create_topic(cluster, name)
    consumer = Consumer(cluster)
    consumer.assign({(name, 0): 0})

    def write() -> None:
        with Cluster(bootstrap) as other, Producer(other) as producer:
            producer.send(name, b"x")

    thread = threading.Timer(0.2, write)
    thread.start()
    begun_s = time.monotonic()
    # A broker that does not yet know that it leads the new partition ends a poll early.
    while not (found := consumer.poll(200.0)):
        pass
    thread.join()
    assert [message.value for message in found] == [b"x"]
    assert time.monotonic() - begun_s < 100, "only the record can have ended it"


def test_an_offset_that_is_gone(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    with Producer(cluster) as producer:
        for _ in range(10):
            producer.send(name, b"x")
    admin.delete_records(cluster, {(name, 0): 5})
    consumer = Consumer(cluster)
    for offset in (2, 11):
        consumer.assign({(name, 0): offset})
        with pytest.raises(KafkaError, match=f"{name}-0 at offset {offset}") as gone:
            consumer.poll(1.0)
        assert gone.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_beside_an_error_are_not_lost(cluster: Cluster, name: str) -> None:
    """One partition's place is gone; what its neighbours sent beside the news arrives."""
    admin.create_topic(cluster, name, partitions=3)
    with Producer(cluster) as producer:
        for number in range(30):
            producer.send(name, b"x", partition=number % 3)
    admin.delete_records(cluster, {(name, 1): 5})
    consumer = Consumer(cluster)
    consumer.assign({(name, number): 0 for number in range(3)})
    found: list[Message] = []
    with pytest.raises(KafkaError, match=f"{name}-1 at offset 0"):
        collect(consumer, found)
    consumer.seek((name, 1), 5)
    while len(found) < 25:
        found += consumer.poll(5.0)
    places = sorted((message.partition, message.offset) for message in found)
    assert places == [
        (partition, offset)
        for partition in range(3)
        for offset in range(5 if partition == 1 else 0, 10)
    ]


def collect(consumer: Consumer, found: list[Message]) -> None:
    while True:
        found += consumer.poll(5.0)


@pytest.mark.peer
def test_transactions_of_apache_kafka(apache_kafka: str, name: str) -> None:
    """Read committed leaves out what was aborted; control records are never shown."""
    with Cluster(apache_kafka) as cluster:
        admin.create_topic(cluster, name)
        producer = ForeignProducer({"bootstrap.servers": apache_kafka, "transactional.id": name})
        producer.init_transactions(60)
        for number in range(6):
            producer.begin_transaction()
            for part in "ab":
                producer.produce(name, f"{number}-{part}")
                producer.flush(30)
            if number % 2:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
        everything = [f"{number}-{part}".encode() for number in range(6) for part in "ab"]
        committed = [value for value in everything if int(value[:1]) % 2 == 0]
        for read_committed, expected in ((False, everything), (True, committed)):
            consumer = Consumer(cluster, read_committed=read_committed)
            consumer.assign({(name, 0): 0})
            found = read(consumer, len(expected))
            assert [message.value for message in found] == expected
            # Two records and a marker each: behind the last marker is the end.
            while consumer.positions[name, 0] < 18:
                assert consumer.poll(1.0) == []
