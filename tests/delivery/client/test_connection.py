"""One connection: versions, and everything a broker can do wrong."""

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from headwater.base.schema import Message
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    UnsupportedByBrokerError,
)
from headwater.delivery.wire.kafka import apis, messages
from tests.delivery.client.scripted_broker import ScriptedBroker

METADATA = 3
DESCRIBE_CLUSTER = 60


def empty_answer(key: int, version: int, request: object) -> Message:
    return messages.MetadataResponse(cluster_id=f"v{version}")


def connect(broker: ScriptedBroker, timeout_s: float = 10.0) -> Connection:
    return Connection("127.0.0.1", broker.port, timeout_s=timeout_s)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Give a port that accepts and then says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("offered, spoken", [((0, 5), 5), ((7, 99), None), ((4, 4), 4)])
def test_the_newest_version_that_both_speak(offered: tuple[int, int], spoken: int | None) -> None:
    newest = apis.APIS[METADATA].max_version if spoken is None else spoken
    with ScriptedBroker(empty_answer, {METADATA: offered}) as broker, connect(broker) as connection:
        connection.call(messages.MetadataRequest())
        assert broker.asked[-1] == (METADATA, newest)


def test_a_limit_of_the_caller_counts_too() -> None:
    with ScriptedBroker(empty_answer) as broker, connect(broker) as connection:
        connection.call(messages.MetadataRequest(), version_max=2)
        assert broker.asked[-1] == (METADATA, 2)


def test_what_the_broker_does_not_offer() -> None:
    with (
        ScriptedBroker(empty_answer, {METADATA: (100, 120)}) as broker,
        connect(broker) as connection,
    ):
        assert not connection.speaks(METADATA)
        assert not connection.speaks(DESCRIBE_CLUSTER)
        with pytest.raises(UnsupportedByBrokerError, match="does not offer Metadata"):
            connection.call(messages.MetadataRequest())


def test_answers_are_matched_in_order() -> None:
    with ScriptedBroker(empty_answer) as broker, connect(broker) as connection:
        for version in (1, 5, 9):
            connection.send(messages.MetadataRequest(), version_max=version)
        assert [connection.receive().cluster_id for _ in range(3)][1:] == ["v5", "v9"]


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}") as refused:
        Connection("127.0.0.1", port)
    assert "headwater up" in refused.value.hint


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"no-such-host\.invalid"):
        Connection("no-such-host.invalid", 9092)


def test_silence_is_a_time_out(silent_port: int) -> None:
    with pytest.raises(BrokerTimeoutError, match=r"did not answer within 0\.2 s"):
        Connection("127.0.0.1", silent_port, timeout_s=0.2)


def test_a_connection_that_is_closed_under_us() -> None:
    with ScriptedBroker(lambda *_: None) as broker, connect(broker) as connection:
        with pytest.raises(BrokerUnreachableError, match="broke"):
            connection.call(messages.MetadataRequest())
        assert connection.closed


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x08\x00\x00\x12\x34\x00\x00\x00\x00",
    ],
)
def test_an_answer_that_is_not_kafkas(answer: bytes) -> None:
    with ScriptedBroker(lambda *_: answer) as broker, connect(broker) as connection:
        with pytest.raises(BrokerUnreachableError):
            connection.call(messages.MetadataRequest(), version_max=0)
        assert connection.closed


def test_an_interrupted_call_leaves_nothing_half_read(silent_port: int) -> None:
    """Ctrl-C in the middle of an answer: the connection is given up, not reused."""
    received = threading.Event()

    def never(key: int, version: int, request: object) -> bytes:
        received.set()
        return b"\x00\x00\x00\x08\x00"

    def interrupt() -> None:
        received.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with ScriptedBroker(never) as broker, connect(broker) as connection:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            connection.call(messages.MetadataRequest())
        assert connection.closed
