"""Settings that a running broker takes are in force at once, and after a restart."""

import contextlib
from pathlib import Path

import pytest

from headwater.delivery.client.connection import Connection
from headwater.delivery.wire.kafka.messages import IncrementalAlterConfigsRequest
from headwater.testing.broker import EmbeddedBroker
from headwater.testing.memory_disk import MemoryDisk
from tests.delivery.dialects.kafka.desk import ask_over_socket
from tests.delivery.server.test_cleaning import clean_offset, create, produce, wait_for
from tests.delivery.server.test_gate import Visitors, is_answered, is_waiting

BROKER, SET = 4, 0


def request_for(name: str, value: str) -> IncrementalAlterConfigsRequest:
    request = IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name, SET, value)
    return request([request.AlterConfigsResource(BROKER, "1", [config])])


def change(address: str, name: str, value: str) -> None:
    (answer,) = ask_over_socket(address, request_for(name, value)).responses
    assert (answer.error_code, answer.error_message) == (0, None)


def test_more_connections_let_those_in_who_wait() -> None:
    with (
        EmbeddedBroker(settings={"max.connections": "2"}) as broker,
        contextlib.ExitStack() as stack,
        Connection("127.0.0.1", broker.node.port) as administrator,
    ):
        visitors = Visitors(broker, stack)
        assert is_answered(visitors.enter())
        late = visitors.enter()
        assert is_waiting(late)
        (answer,) = administrator.call(request_for("max.connections", "3")).responses
        assert answer.error_code == 0
        assert is_answered(late)


def test_the_bound_of_an_address(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(data_directory=str(tmp_path)) as broker,
        contextlib.ExitStack() as stack,
    ):
        visitors = Visitors(broker, stack)
        assert is_answered(visitors.enter("127.0.0.5"))
        change(broker.bootstrap_servers, "max.connections.per.ip.overrides", "127.0.0.5:1")
        assert not is_answered(visitors.enter("127.0.0.5"))
        assert is_answered(visitors.enter())
    with (
        EmbeddedBroker(data_directory=str(tmp_path)) as broker,
        contextlib.ExitStack() as stack,
    ):
        visitors = Visitors(broker, stack)
        assert is_answered(visitors.enter("127.0.0.5"))
        assert not is_answered(visitors.enter("127.0.0.5"))


def test_the_rate_of_new_connections() -> None:
    with EmbeddedBroker() as broker, contextlib.ExitStack() as stack:
        visitors = Visitors(broker, stack)
        change(broker.bootstrap_servers, "max.connection.creation.rate", "1")
        newcomers = [visitors.enter() for _ in range(20)]
        assert is_waiting(newcomers[-1])
        assert is_answered(newcomers[0])


def test_cleaners_come_and_go() -> None:
    with EmbeddedBroker(disk=MemoryDisk()) as broker:
        cleaning = broker.node.cleaning
        assert cleaning is not None
        counts = []
        for threads in ("2", "4", "2", "1"):
            change(broker.bootstrap_servers, "log.cleaner.threads", threads)
            counts.append(len(cleaning.cleaners))
    assert counts == [2, 4, 2, 1]


def test_compaction_begins_after_the_new_backoff(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "86400000"}
    with EmbeddedBroker(data_directory=str(tmp_path), settings=settings) as broker:
        address = broker.bootstrap_servers
        create(address)
        produce(address, 4)
        change(address, "log.cleaner.backoff.ms", "20")
        wait_for(lambda: clean_offset(tmp_path) > 0, "it is never cleaned")


@pytest.mark.parametrize("size", ["2097152", "4194304"])
def test_the_memory_of_a_pass(size: str) -> None:
    with EmbeddedBroker(disk=MemoryDisk()) as broker:
        change(broker.bootstrap_servers, "log.cleaner.dedupe.buffer.size", size)
        in_force = broker.node.broker.store.compaction.settings
    assert in_force.log_cleaner_dedupe_buffer_size == int(size)
