"""Questions about topics, configs, offsets and groups, on both brokers."""

import time

import pytest
from confluent_kafka import Consumer as ForeignConsumer

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.schema import Message
from headwater.delivery.client import admin
from headwater.delivery.client.admin import EARLIEST, LATEST, TOPIC_RESOURCE
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk
from tests.contracts.members import leave, stable, wait_for_coordinator
from tests.delivery.client.scripted_broker import ScriptedBroker, one_node

FIND_COORDINATOR, OFFSET_FETCH, METADATA = 10, 9, 3


def code_of(failure: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return failure.value.code


def test_a_topic_lives_and_dies(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name, partitions=2, configs={"retention.ms": "1000"})
    assert len(cluster.topic(name).partitions) == 2
    with pytest.raises(KafkaError) as twice:
        admin.create_topic(cluster, name)
    assert code_of(twice) == ErrorCode.TOPIC_ALREADY_EXISTS
    admin.add_partitions(cluster, name, 5)
    assert len(cluster.topic(name).partitions) == 5
    with pytest.raises(KafkaError) as fewer:
        admin.add_partitions(cluster, name, 3)
    assert code_of(fewer) == ErrorCode.INVALID_PARTITIONS
    admin.delete_topic(cluster, name)
    with pytest.raises(KafkaError) as gone:
        admin.delete_topic(cluster, name)
    assert code_of(gone) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in cluster.topics()


def test_checking_creates_nothing(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name, validate_only=True)
    assert name not in cluster.topics()
    with pytest.raises(KafkaError) as wrong:
        admin.create_topic(cluster, name, configs={"retention.ms": "soon"}, validate_only=True)
    assert code_of(wrong) == ErrorCode.INVALID_CONFIG


def test_configs(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)

    def value(key: str) -> str | None:
        configs = admin.describe_configs(cluster, TOPIC_RESOURCE, name)
        return next(config.value for config in configs if config.name == key)

    def await_value(expected: str | None) -> None:
        """Apache Kafka changes it a moment after it has said so."""
        deadline_s = time.monotonic() + 30
        while (found := value("retention.ms")) != expected:
            assert time.monotonic() < deadline_s, (found, expected)
            time.sleep(0.01)

    default = value("retention.ms")
    admin.alter_configs(cluster, TOPIC_RESOURCE, name, {"retention.ms": "1234"})
    await_value("1234")
    admin.alter_configs(cluster, TOPIC_RESOURCE, name, {"retention.ms": None})
    await_value(default)


def test_offsets_by_time(cluster: Cluster, name: str) -> None:
    # The records are years old: the default retention would delete them.
    admin.create_topic(cluster, name, configs={"retention.ms": "-1"})
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send(name, b"x", timestamp_ms=1_700_000_000_000 + number * 1000)
    place = (name, 0)

    def offset(timestamp_ms: int) -> int:
        return admin.list_offsets(cluster, {place: timestamp_ms})[place]

    assert offset(EARLIEST) == 0
    assert offset(LATEST) == 10
    assert offset(1_700_000_000_000) == 0
    assert offset(1_700_000_003_500) == 4
    # Behind the last record is the end, where the next one will be.
    assert offset(1_900_000_000_000) == 10


def test_records_are_removed(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name, partitions=2)
    with Producer(cluster) as producer:
        for number in range(20):
            producer.send(name, b"x", partition=number % 2)
    starts = admin.delete_records(cluster, {(name, 0): 4, (name, 1): -1})
    assert starts == {(name, 0): 4, (name, 1): 10}
    with pytest.raises(KafkaError) as beyond:
        admin.delete_records(cluster, {(name, 0): 11})
    assert code_of(beyond) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_sizes(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    assert admin.log_sizes(cluster).get((name, 0), 0) == 0
    with Producer(cluster) as producer:
        producer.send(name, bytes(5000))
    assert 5000 < admin.log_sizes(cluster)[name, 0] < 5200


def test_offsets_of_a_group_that_nobody_is_in(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name, partitions=2)
    assert admin.committed_offsets(cluster, name) == {}
    admin.commit_offsets(cluster, name, {(name, 0): 3, (name, 1): 4})
    assert admin.committed_offsets(cluster, name) == {(name, 0): 3, (name, 1): 4}
    assert admin.list_groups(cluster)[name] == "Empty"
    assert admin.describe_group(cluster, name).members == []
    admin.delete_group(cluster, name)
    assert name not in admin.list_groups(cluster)
    with pytest.raises(KafkaError) as gone:
        admin.describe_group(cluster, name)
    assert code_of(gone) == ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(KafkaError) as unknown:
        admin.delete_group(cluster, name)
    assert code_of(unknown) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_whose_assignment_cannot_be_read(
    cluster: Cluster, bootstrap: str, name: str
) -> None:
    """One such group must not hide all the others from whoever lists them."""
    host, _, port = bootstrap.rpartition(":")
    with Talk(host, int(port)) as talk:
        wait_for_coordinator(talk)
        member_id = stable(talk, name)
        (member,) = admin.describe_group(cluster, name).members
        assert (member.member_id, member.partitions) == (member_id, [])
        leave(talk, name, (member_id, None))


def test_members_of_a_group(cluster: Cluster, bootstrap: str, name: str) -> None:
    admin.create_topic(cluster, name, partitions=3)
    with_member(cluster, bootstrap, name, "classic")


@pytest.mark.peer
def test_members_of_a_group_of_the_newer_protocol(apache_kafka: str, name: str) -> None:
    """Groups of KIP-848 are described by another request; we find them all the same."""
    with Cluster(apache_kafka) as cluster:
        admin.create_topic(cluster, name, partitions=3)
        with_member(cluster, apache_kafka, name, "consumer")


def with_member(cluster: Cluster, bootstrap: str, name: str, protocol: str) -> None:
    """Let librdkafka join, and compare what it has with what we are told."""
    foreign = ForeignConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "client.id": "reader-1",
            "group.protocol": protocol,
        }
    )
    foreign.subscribe([name])
    deadline_s = time.monotonic() + 60
    try:
        while len(foreign.assignment()) < 3:
            foreign.poll(0.1)
            assert time.monotonic() < deadline_s
        info = admin.describe_group(cluster, name)
        while not (info.members and info.members[0].partitions):
            assert time.monotonic() < deadline_s
            info = admin.describe_group(cluster, name)
        (member,) = info.members
        assert info.state == "Stable"
        assert member.client_id == "reader-1"
        assert sorted(member.partitions) == [(name, number) for number in range(3)]
        with pytest.raises(KafkaError):
            admin.delete_group(cluster, name)
    finally:
        foreign.close()


def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    errors = iter([ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0])

    def script(key: int, version: int, request: object) -> Message:
        if key == METADATA:
            return one_node(broker.port, "t")
        if key == FIND_COORDINATOR:
            return messages.FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)
        return messages.OffsetFetchResponse(error_code=next(errors))

    with ScriptedBroker(script) as broker, Cluster(broker.address, timeout_s=10) as cluster:
        assert admin.committed_offsets(cluster, "g") == {}
        keys = [key for key, _ in broker.asked]
        assert keys.count(FIND_COORDINATOR) == 2
        assert keys.count(OFFSET_FETCH) == 3
