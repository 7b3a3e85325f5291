"""Who is asked for what, while the answers change."""

import socket

import pytest

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.base.schema import Message
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, parse_addresses
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.wire.kafka import messages
from tests.delivery.client.scripted_broker import ScriptedBroker, one_node

METADATA = 3
LIST_OFFSETS = 2


@pytest.mark.parametrize(
    "text, expected",
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2,c", [("a", 1), ("b", 2), ("c", 9092)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", "a:", ":9092", "a:b", "a:0", "a:99999", "a:1,,b:2"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(HeadwaterError, match="no broker address"):
        parse_addresses(text)


def test_any_address_that_answers_will_do(bootstrap: str, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dead = f"127.0.0.1:{server.getsockname()[1]}"
    with Cluster(f"{dead},{bootstrap}") as cluster:
        admin.create_topic(cluster, name, partitions=2)
        assert len(cluster.topic(name).partitions) == 2


def test_an_unknown_topic_names_the_next_step(cluster: Cluster, name: str) -> None:
    with pytest.raises(KafkaError, match="does not exist") as unknown:
        cluster.topic(name)
    assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert f"headwater topic create {name}" in unknown.value.hint
    assert name not in cluster.topics(), "asking has not created it"


def test_a_topic_can_be_created_by_naming_it(cluster: Cluster, name: str) -> None:
    assert cluster.topic(name, create=True).name == name


def test_an_unknown_partition(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    with pytest.raises(KafkaError, match="has no partition 7"):
        cluster.leader(name, 7)


def test_a_partition_without_a_leader_is_asked_for_again() -> None:
    """An election: at first nobody leads, then somebody does."""
    answers = iter([-1, -1, 1, 1])

    def script(key: int, version: int, request: object) -> Message:
        if key == METADATA:
            return one_node(broker.port, "t", leader=next(answers))
        response = messages.ListOffsetsResponse
        partition = response.ListOffsetsPartitionResponse(partition_index=0, offset=42)
        return response(topics=[response.ListOffsetsTopicResponse("t", [partition])])

    with ScriptedBroker(script) as broker, Cluster(broker.address, timeout_s=10) as cluster:
        assert admin.list_offsets(cluster, {("t", 0): admin.LATEST}) == {("t", 0): 42}
    assert next(answers) == 1


def test_a_leader_that_has_moved_is_looked_for_again() -> None:
    errors = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0])

    def script(key: int, version: int, request: object) -> Message:
        if key == METADATA:
            return one_node(broker.port, "t")
        response = messages.ListOffsetsResponse
        partition = response.ListOffsetsPartitionResponse(
            partition_index=0, offset=42, error_code=next(errors)
        )
        return response(topics=[response.ListOffsetsTopicResponse("t", [partition])])

    with ScriptedBroker(script) as broker, Cluster(broker.address, timeout_s=10) as cluster:
        assert admin.list_offsets(cluster, {("t", 0): admin.LATEST}) == {("t", 0): 42}
        # Each error made the client ask who leads by now.
        assert [key for key, _ in broker.asked].count(METADATA) == 3


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    def script(key: int, version: int, request: object) -> Message:
        if key == METADATA:
            return one_node(broker.port, "t")
        response = messages.ListOffsetsResponse
        partition = response.ListOffsetsPartitionResponse(
            partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        return response(topics=[response.ListOffsetsTopicResponse("t", [partition])])

    with ScriptedBroker(script) as broker, Cluster(broker.address, timeout_s=10) as cluster:
        with pytest.raises(KafkaError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
            admin.list_offsets(cluster, {("t", 0): admin.LATEST})
        assert [key for key, _ in broker.asked].count(LIST_OFFSETS) == 1


def test_an_error_that_should_pass_but_does_not_ends_at_the_time_out() -> None:
    def script(key: int, version: int, request: object) -> Message:
        return one_node(broker.port, "t", leader=-1)

    with ScriptedBroker(script) as broker, Cluster(broker.address, timeout_s=0.3) as cluster:
        with pytest.raises(KafkaError) as failed:
            admin.list_offsets(cluster, {("t", 0): admin.LATEST})
        assert failed.value.code == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_broker_that_left_the_cluster() -> None:
    with (
        ScriptedBroker(lambda *_: one_node(broker.port, "t")) as broker,
        Cluster(broker.address) as cluster,
        pytest.raises(BrokerUnreachableError, match="broker 9"),
    ):
        cluster.broker(9)
