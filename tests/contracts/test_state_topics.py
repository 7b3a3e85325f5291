"""What clients may do to the topics that hold the broker's own state.

Each broker is started for this file alone: Apache Kafka lets these topics be changed and deleted.
"""

from collections.abc import Iterator

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.contracts.kit import (
    APACHE_KAFKA,
    HEADWATER,
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    produce,
    wait_until_ready,
)
from tests.contracts.producers import OK, Client
from tests.contracts.test_reassignments import reassign
from tests.contracts.test_topics import delete_by_name, grow, trim
from tests.peers.kafka_server import running_kafka

NONE = ErrorCode.NONE
INTERNAL = ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.fixture(
    scope="module",
    params=[HEADWATER, pytest.param(APACHE_KAFKA, marks=pytest.mark.peer)],
)
def broker(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Give one broker after the other, each fresh."""
    if request.param == HEADWATER:
        settings = {
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
        }
        with EmbeddedBroker(settings=settings) as ours:
            yield Subject(HEADWATER, ours.bootstrap_servers)
    else:
        peers.require("kafka")
        with running_kafka(heap="512M") as kafka:
            yield Subject(APACHE_KAFKA, kafka.bootstrap)


@pytest.fixture(params=["__consumer_offsets", "__transaction_state"])
def state_topic(talk: Talk, request: pytest.FixtureRequest) -> Topic:
    """Give one topic after the other; a client that finds its coordinator brings it about."""
    name = str(request.param)
    client = Client(talk)
    assert client.find() is OK
    assert client.init()[0] is OK
    asked = messages.MetadataRequest.MetadataRequestTopic(name=name)
    talk.ask(messages.MetadataRequest(topics=[asked], allow_auto_topic_creation=True), 8)
    wait_until_ready(talk, name, 4)
    (told,) = talk.ask(messages.MetadataRequest(topics=[asked]), 12).topics
    return Topic(name, told.topic_id)


def test_nobody_writes_to_it(talk: Talk, state_topic: Topic) -> None:
    assert code(produce(talk, state_topic, batch_of(b"a"))) is INTERNAL


def test_nobody_trims_it(talk: Talk, state_topic: Topic) -> None:
    assert trim(talk, state_topic.name, 0) == (INTERNAL, -1)
    assert trim(talk, state_topic.name, -1) == (INTERNAL, -1)


def test_it_stays_on_its_node(talk: Talk, state_topic: Topic) -> None:
    name = state_topic.name

    assert reassign(talk, (name, [(0, [1])])) == [(name, [(0, NONE, None)])]
    ((_, ((_, error, _),)),) = reassign(talk, (name, [(0, [2])]))
    assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_its_growth(broker: Subject, talk: Talk, state_topic: Topic) -> None:
    expected = broker.expected("create partitions: the broker's own state")

    assert grow(talk, state_topic.name, 4)[0] is ErrorCode.INVALID_PARTITIONS
    assert grow(talk, state_topic.name, 5, validate_only=True)[0] is expected
    assert grow(talk, state_topic.name, 5)[0] is expected


def test_its_deletion(broker: Subject, talk: Talk, state_topic: Topic) -> None:
    (answer,) = delete_by_name(talk, state_topic.name, version=6)

    assert code(answer) is broker.expected("delete topics: the broker's own state")
