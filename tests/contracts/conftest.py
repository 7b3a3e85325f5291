"""The two brokers, and a connection to the one that a test runs against."""

from collections.abc import Iterator

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.contracts.kit import (
    APACHE_KAFKA,
    HEADWATER,
    Subject,
    Talk,
    Topic,
    create_topic,
    unique,
)
from tests.contracts.members import wait_for_coordinator
from tests.contracts.producers import OK, Client

# As Apache Kafka is started in tests.peers.kafka_server; the rest is Kafka's default on both.
_AS_THE_PEER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """Give a broker of ours with Kafka's settings."""
    with EmbeddedBroker(settings=_AS_THE_PEER) as broker:
        yield broker


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("embedded_broker", id=HEADWATER),
        pytest.param("apache_kafka", id=APACHE_KAFKA, marks=pytest.mark.peer),
    ],
)
def broker(request: pytest.FixtureRequest) -> Subject:
    """Give one broker after the other."""
    running = request.getfixturevalue(request.param)
    if isinstance(running, EmbeddedBroker):
        subject = Subject(HEADWATER, running.bootstrap_servers)
    else:
        subject = Subject(APACHE_KAFKA, running)
    with subject.connect() as connection:
        wait_for_coordinator(connection)
    return subject


@pytest.fixture
def talk(broker: Subject) -> Iterator[Talk]:
    """Give a connection of the test's own."""
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def topic(talk: Talk) -> Topic:
    """Give a new topic with one partition."""
    return create_topic(talk)


@pytest.fixture
def group() -> str:
    """Give the name of a group that nobody else has."""
    return unique("group")


@pytest.fixture
def client(talk: Talk) -> Client:
    """Give a producer with a transactional id of its own, initialized."""
    client = Client(talk)
    assert client.find() is OK
    assert client.init()[0] is OK
    return client
