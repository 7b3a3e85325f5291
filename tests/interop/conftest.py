"""Brokers, clients and names for the interop tests."""

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import NEEDS, Clients, Speaker
from tests.interop.tools import Run, runner

# Inherited tests stand there; without this their asserts would tell nothing.
pytest.register_assert_rewrite("tests.interop.scenarios")

_HERE = Path(__file__).parent
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs more than `make setup` brings, so that `-m "not peer"` leaves it out."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.path.parent != _HERE:
            continue
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        named = {getattr(item.cls, "client", ""), *map(str, parameters)}
        if "kafka_tools" in item.path.name or "every_language" in item.name or named & set(NEEDS):
            item.add_marker(pytest.mark.peer)


@pytest.fixture(scope="session")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shared broker."""
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="session")
def broker(data_directory: Path) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of a worker; its topics start with three partitions."""
    settings = {"num.partitions": "3"}
    with EmbeddedBroker(data_directory=str(data_directory), settings=settings) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: EmbeddedBroker) -> str:
    """The address of the shared broker."""
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def strict_broker() -> Iterator[EmbeddedBroker]:
    """A broker that creates no topic on demand."""
    with EmbeddedBroker(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture(scope="session")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    """Every client by name."""
    all_clients = Clients(tmp_path_factory.mktemp("clients"))
    try:
        yield all_clients
    finally:
        all_clients.close()


@pytest.fixture
def speaker(request: pytest.FixtureRequest, clients: Clients) -> Speaker:
    """The client that the test's class is about."""
    name: str = request.cls.client
    return clients[name]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test has."""
    return f"t{next(_numbers)}-{uuid.uuid4().hex[:6]}"


@pytest.fixture(params=["headwater", "apache"])
def broker_kind(request: pytest.FixtureRequest) -> str:
    """Each broker in turn, for tests of tools that both must satisfy."""
    kind: str = request.param
    return kind


@pytest.fixture
def address(request: pytest.FixtureRequest, broker_kind: str) -> str:
    """The address of that broker."""
    fixture = {"headwater": "bootstrap", "apache": "apache_kafka"}[broker_kind]
    address: str = request.getfixturevalue(fixture)
    return address


@pytest.fixture
def run(clients: Clients, address: str) -> Run:
    """Run Kafka's tools against that broker."""
    return runner(clients, address)
