"""Our client, against a broker of ours and against Apache Kafka."""

import secrets
from collections.abc import Iterator

import pytest

from headwater.delivery.client.cluster import Cluster
from headwater.testing.broker import EmbeddedBroker


@pytest.fixture(scope="session")
def client_broker() -> Iterator[EmbeddedBroker]:
    """Run one broker of ours for all tests of the client."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def ours(client_broker: EmbeddedBroker) -> str:
    """Give the address of a broker of ours."""
    return client_broker.bootstrap_servers


@pytest.fixture(params=["headwater", pytest.param("apache-kafka", marks=pytest.mark.peer)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Give the address of a broker: the same test runs against ours and Apache Kafka."""
    wanted = "ours" if request.param == "headwater" else "apache_kafka"
    address: str = request.getfixturevalue(wanted)
    return address


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    """Give a client of the broker."""
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def name() -> str:
    """Give a name that nobody else has."""
    return f"t-{secrets.token_hex(6)}"
