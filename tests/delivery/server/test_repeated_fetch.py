"""A consumer that asks the same again and again hears of everything that happens meanwhile."""

from collections.abc import Iterator

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.producer import Producer
from headwater.delivery.wire.kafka import messages
from headwater.testing.broker import EmbeddedBroker

# Enough that the request is one that the connection remembers.
PARTITIONS = 200


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        with Cluster(running.bootstrap_servers) as cluster:
            admin.create_topic(cluster, "t", partitions=PARTITIONS)
        yield running


@pytest.fixture
def connection(broker: EmbeddedBroker) -> Iterator[Connection]:
    host, port = broker.bootstrap_servers.split(":")
    with Connection(host, int(port)) as opened:
        yield opened


def request(wait_ms: int = 20) -> messages.FetchRequest:
    partitions = [
        messages.FetchRequest.FetchPartition(
            partition=number, fetch_offset=0, partition_max_bytes=1 << 20
        )
        for number in range(PARTITIONS)
    ]
    return messages.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[messages.FetchRequest.FetchTopic(topic="t", partitions=partitions)],
    )


def fetch(connection: Connection, wait_ms: int = 20) -> dict[int, tuple[int, int, int]]:
    """Return the error, the high watermark and the bytes of every partition."""
    response = connection.call(request(wait_ms), version_max=12)
    return {
        each.partition_index: (each.error_code, each.high_watermark, len(each.records or b""))
        for each in response.responses[0].partitions
    }


def test_the_same_answer_while_nothing_happens(connection: Connection) -> None:
    first = fetch(connection)

    assert first == dict.fromkeys(range(PARTITIONS), (0, 0, 0))
    assert [fetch(connection) for _ in range(5)] == [first] * 5


def test_records_are_seen_by_the_next_of_the_same_requests(
    broker: EmbeddedBroker, connection: Connection
) -> None:
    for _ in range(3):
        fetch(connection)
    with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
        producer.send("t", b"new", partition=7)

    found = fetch(connection, wait_ms=20)

    assert found[7][:2] == (0, 1)
    assert found[7][2] > 0
    assert fetch(connection) == found


def test_a_record_wakes_a_request_that_was_repeated(
    broker: EmbeddedBroker, connection: Connection
) -> None:
    for _ in range(3):
        fetch(connection, wait_ms=1)
    connection.send(request(wait_ms=1), version_max=12)
    connection.receive()
    # The same bytes again, with a wait that only a record can end in time.
    fetch_long = request(wait_ms=60_000)
    connection.send(fetch_long, version_max=12)
    with Cluster(broker.bootstrap_servers) as cluster, Producer(cluster) as producer:
        producer.send("t", b"new", partition=3)

    answer = connection.receive(timeout_s=20)

    assert answer.responses[0].partitions[3].high_watermark == 1


def test_a_deleted_topic_is_noticed(broker: EmbeddedBroker, connection: Connection) -> None:
    for _ in range(3):
        fetch(connection)
    with Cluster(broker.bootstrap_servers) as cluster:
        admin.delete_topic(cluster, "t")

    assert {each[0] for each in fetch(connection).values()} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def test_deleted_records_are_noticed(broker: EmbeddedBroker, connection: Connection) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        with Producer(cluster) as producer:
            producer.send("t", b"old", partition=0)
        before = connection.call(request(), version_max=12)
        admin.delete_records(cluster, {("t", 0): 1})

        after = connection.call(request(), version_max=12)

    assert before.responses[0].partitions[0].log_start_offset == 0
    assert after.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
