"""The command line, called as a function, against a broker of ours or Apache Kafka."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.delivery.client.cluster import Cluster
from headwater.testing.broker import EmbeddedBroker
from tests.cli.runner import Runner


@pytest.fixture(scope="session")
def cli_broker() -> Iterator[EmbeddedBroker]:
    """Run one broker of ours for all tests of the command line."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def ours(cli_broker: EmbeddedBroker) -> str:
    """Give the address of a broker of ours."""
    return cli_broker.bootstrap_servers


@pytest.fixture(
    params=["headwater", pytest.param("apache-kafka", marks=pytest.mark.peer)],
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Give the address of a broker: the same test runs against ours and Apache Kafka."""
    wanted = "ours" if request.param == "headwater" else "apache_kafka"
    address: str = request.getfixturevalue(wanted)
    return address


@pytest.fixture
def cli(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Give the command line, pointed at the broker, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", bootstrap)
    return Runner(monkeypatch, tmp_path)


@pytest.fixture
def lone_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Give the command line in an empty folder, with no broker anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_BOOTSTRAP", raising=False)
    return Runner(monkeypatch, tmp_path)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    """Give a client of the same broker."""
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def name() -> str:
    """Give a name that nobody else has."""
    return f"t-{secrets.token_hex(6)}"
