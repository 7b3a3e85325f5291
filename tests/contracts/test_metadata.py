"""Metadata, v0-13: who leads what, and which topics come into being by being asked for."""

from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from headwater.testing.broker import EmbeddedBroker
from tests.contracts.kit import (
    HEADWATER,
    Subject,
    Talk,
    Topic,
    code,
    create_topic,
    missing_topic,
    topic_configs,
    unique,
    wait_until_ready,
)
from tests.contracts.test_topics import delete_by_name, wait_until_gone

VERSIONS = range(14)
NO_ID = bytes(16)
NOT_ASKED = -(2**31)
NODE_ID = 1
# One bit per ACL operation that can be done to a topic, and to the cluster.
TOPIC_OPERATIONS = 3576
CLUSTER_OPERATIONS = 8096

Asked = messages.MetadataRequest.MetadataRequestTopic


def ask(
    talk: Talk, version: int, *names: str, create: bool = False, **more: bool
) -> messages.MetadataResponse:
    request = messages.MetadataRequest([Asked(NO_ID, name) for name in names], create, **more)
    # Before v4 a client cannot forbid that topics are created.
    request.allow_auto_topic_creation = create or version < 4
    answer: messages.MetadataResponse = talk.ask(request, version)
    return answer


def by_id(talk: Talk, version: int, *asked: Any) -> list[tuple[ErrorCode, str | None, bytes]]:  # noqa: ANN401 - Asked
    request = messages.MetadataRequest(list(asked), allow_auto_topic_creation=False)
    return [(code(each), each.name, each.topic_id) for each in talk.ask(request, version).topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_describes_the_node(broker: Subject, talk: Talk, version: int) -> None:
    topic = create_topic(talk)
    answer = ask(talk, version, topic.name)

    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port, node.rack) == (
        NODE_ID,
        broker.host,
        broker.port,
        None,
    )
    assert answer.controller_id == (NODE_ID if version >= 1 else -1)
    assert bool(answer.cluster_id) is (version >= 2)
    assert answer.cluster_authorized_operations == NOT_ASKED
    assert (answer.throttle_time_ms, code(answer)) == (0, ErrorCode.NONE)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_describes_a_topic(talk: Talk, version: int) -> None:
    topic = create_topic(talk, partitions=2)
    (answer,) = ask(talk, version, topic.name).topics

    assert (code(answer), answer.name, answer.is_internal) == (ErrorCode.NONE, topic.name, False)
    assert answer.topic_id == (topic.topic_id if version >= 10 else NO_ID)
    assert answer.topic_authorized_operations == NOT_ASKED
    epoch = 0 if version >= 7 else -1
    described = sorted(
        (
            each.partition_index,
            code(each),
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in answer.partitions
    )
    assert described == [
        (index, ErrorCode.NONE, NODE_ID, epoch, (NODE_ID,), (NODE_ID,), ()) for index in (0, 1)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_or_none(talk: Talk, topic: Topic, version: int) -> None:
    empty = talk.ask(messages.MetadataRequest([]), version)

    # In v0 there was no null: no topics meant all.
    assert bool(empty.topics) is (version == 0)
    everything = empty if version == 0 else talk.ask(messages.MetadataRequest(None), version)
    assert topic.name in {each.name for each in everything.topics}
    assert len(everything.brokers) == len(empty.brokers) == 1


@pytest.mark.parametrize("version", range(4, 14))
def test_a_topic_that_may_not_be_created(talk: Talk, version: int) -> None:
    name = missing_topic().name
    for _ in range(2):
        (answer,) = ask(talk, version, name).topics

        assert (code(answer), answer.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        assert (answer.topic_id, answer.partitions, answer.is_internal) == (NO_ID, [], False)


@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
def test_a_topic_comes_into_being_by_being_asked_for(talk: Talk, version: int) -> None:
    name = unique("auto")
    (first,) = ask(talk, version, name, create=True).topics
    wait_until_ready(talk, name, 1)
    (second,) = ask(talk, version, name, create=True).topics

    assert (code(first), first.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert (code(second), len(second.partitions)) == (ErrorCode.NONE, 1)


def test_many_topics_come_into_being_at_once(talk: Talk) -> None:
    names = [unique("auto") for _ in range(20)]
    answer = ask(talk, 12, *names, "a b", create=True)
    for name in names:
        wait_until_ready(talk, name, 1)

    told = {each.name: code(each) for each in answer.topics}
    unknown = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert told == {**unknown, "a b": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_whoever_has_deleted_a_topic_is_told_that_it_is_gone(talk: Talk, topic: Topic) -> None:
    """Though it allows the topic to be created; Kafka usually has it back some moments later."""
    (deleted,) = delete_by_name(talk, topic.name, version=6)
    assert code(deleted) is ErrorCode.NONE
    wait_until_gone(talk, topic)

    (answer,) = ask(talk, 12, topic.name, create=True).topics

    assert (code(answer), answer.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a,b", "x" * 250])
@pytest.mark.parametrize("version, create", [(0, True), (4, True), (4, False), (13, False)])
def test_illegal_names(talk: Talk, name: str, version: int, create: bool) -> None:
    (answer,) = ask(talk, version, name, create=create).topics

    assert (code(answer), answer.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    assert (answer.topic_id, answer.partitions) == (NO_ID, [])


def test_names_are_answered_in_order_and_once(talk: Talk, topic: Topic) -> None:
    missing = missing_topic().name

    answer = ask(talk, 12, topic.name, topic.name, missing, "a b")

    assert [(each.name, code(each)) for each in answer.topics] == [
        (topic.name, ErrorCode.NONE),
        (missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


@pytest.mark.parametrize("version", [8, 9, 10, 11, 13])
def test_authorized_operations(talk: Talk, topic: Topic, version: int) -> None:
    # The cluster's are told by DescribeCluster instead since v11.
    cluster = {"include_cluster_authorized_operations": True} if version <= 10 else {}

    answer = ask(talk, version, topic.name, include_topic_authorized_operations=True, **cluster)

    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    expected = CLUSTER_OPERATIONS if version <= 10 else NOT_ASKED
    assert answer.cluster_authorized_operations == expected


def test_the_offsets_topic_has_its_shape_whoever_creates_it(talk: Talk) -> None:
    ask(talk, 8, "__consumer_offsets", create=True)
    wait_until_ready(talk, "__consumer_offsets", 4)
    answer = ask(talk, 12, "__consumer_offsets", "__no_such_topic")

    assert [(each.name, code(each), each.is_internal) for each in answer.topics] == [
        ("__consumer_offsets", ErrorCode.NONE, True),
        ("__no_such_topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]
    assert len(answer.topics[0].partitions) == 4
    assert topic_configs(talk, "__consumer_offsets", "cleanup.policy", "segment.bytes") == {
        "cleanup.policy": "compact",
        "segment.bytes": str(100 << 20),
    }


def test_other_internal_topics_are_not_created_by_us() -> None:
    with EmbeddedBroker() as ours, Subject(HEADWATER, ours.bootstrap_servers).connect() as talk:
        offsets, transactions, shares = ask(
            talk, 8, "__consumer_offsets", "__transaction_state", "__share_group_state", create=True
        ).topics

        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (code(offsets), offsets.is_internal) == (unknown, True)
        assert (code(transactions), transactions.is_internal) == (unknown, True)
        for name in ("__consumer_offsets", "__transaction_state"):
            assert topic_configs(talk, name)["cleanup.policy"] == "compact"
        assert (code(shares), shares.is_internal) == (unknown, True)


# Topics by id


@pytest.mark.parametrize("version", [12, 13])
def test_by_id(talk: Talk, topic: Topic, version: int) -> None:
    missing = missing_topic().topic_id

    answers = by_id(talk, version, Asked(topic.topic_id, None), Asked(missing, None))

    # In which order ids are answered is not part of the contract.
    assert set(answers) == {
        (ErrorCode.NONE, topic.name, topic.topic_id),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, missing),
    }


@pytest.mark.parametrize("version", [12, 13])
def test_the_id_counts_where_a_name_is_given_too(talk: Talk, topic: Topic, version: int) -> None:
    missing = missing_topic().topic_id

    assert by_id(talk, version, Asked(topic.topic_id, "another-name")) == [
        (ErrorCode.NONE, topic.name, topic.topic_id)
    ]
    assert by_id(talk, version, Asked(missing, topic.name)) == [
        (ErrorCode.UNKNOWN_TOPIC_ID, None, missing)
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_cannot_be_asked_for_before_v12(talk: Talk, topic: Topic, version: int) -> None:
    for asked in (
        Asked(topic.topic_id, None),
        Asked(missing_topic().topic_id, None),
        Asked(topic.topic_id, topic.name),
        Asked(NO_ID, None),
    ):
        expected = (ErrorCode.INVALID_REQUEST, asked.name or "", asked.topic_id)
        assert by_id(talk, version, asked) == [expected]
    beside = by_id(talk, version, Asked(NO_ID, topic.name), Asked(topic.topic_id, None))
    assert {error for error, _, _ in beside} == {ErrorCode.INVALID_REQUEST}


def test_neither_a_name_nor_an_id(broker: Subject, talk: Talk) -> None:
    ((error, _, _),) = by_id(talk, 12, Asked(NO_ID, None))

    assert error is broker.expected("metadata of nothing")
