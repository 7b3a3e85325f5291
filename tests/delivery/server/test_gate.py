"""Who gets in, and when: bounds on connections, with real sockets."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from headwater.base.clock import SystemClock
from headwater.base.settings import BrokerSettings
from headwater.delivery.server.lifecycle import start_node
from headwater.testing.broker import EmbeddedBroker
from headwater.testing.memory_disk import MemoryDisk
from headwater.testing.seeded_chance import SeededChance

# ApiVersions v0 without a client id.
HELLO = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class Visitors:
    """Connections to a broker, from any address of this machine."""

    def __init__(self, broker: EmbeddedBroker, stack: contextlib.ExitStack) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._address = (host, int(port))
        self._stack = stack

    def enter(self, source: str = "127.0.0.1") -> socket.socket:
        """Connect and say hello; nobody waits for the answer."""
        visitor = self._stack.enter_context(
            socket.create_connection(self._address, timeout=10, source_address=(source, 0))
        )
        with contextlib.suppress(OSError):
            visitor.sendall(HELLO)
        return visitor


def is_answered(visitor: socket.socket) -> bool:
    """Wait for the answer, or for the end of the connection."""
    try:
        return bool(visitor.recv(1))
    except ConnectionResetError:
        return False


def is_waiting(visitor: socket.socket) -> bool:
    visitor.settimeout(0.3)
    try:
        visitor.recv(1)
    except TimeoutError:
        return True
    finally:
        visitor.settimeout(10)
    return False


@pytest.fixture
def visitors(request: pytest.FixtureRequest) -> Iterator[Visitors]:
    """Give a broker with the settings of the test."""
    with EmbeddedBroker(settings=request.param) as broker, contextlib.ExitStack() as stack:
        yield Visitors(broker, stack)


@pytest.mark.parametrize("visitors", [{"max.connections": "2"}], indirect=True)
def test_above_max_connections_newcomers_wait_until_somebody_leaves(visitors: Visitors) -> None:
    first, second = visitors.enter(), visitors.enter()
    assert is_answered(first)
    assert is_answered(second)
    third, fourth = visitors.enter(), visitors.enter()
    assert is_waiting(third)
    first.close()
    assert is_answered(third)
    assert is_waiting(fourth)
    third.close()
    second.close()
    assert is_answered(fourth)


@pytest.mark.parametrize(
    "visitors",
    [{"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "127.0.0.5:1"}],
    indirect=True,
)
def test_above_the_bound_of_an_address_newcomers_are_closed(visitors: Visitors) -> None:
    inside = [visitors.enter(), visitors.enter()]
    assert all(map(is_answered, inside))
    assert not is_answered(visitors.enter())
    only = visitors.enter("127.0.0.5")
    assert is_answered(only)
    assert not is_answered(visitors.enter("127.0.0.5"))
    # Places are given back.
    inside[0].close()
    only.close()
    end_s = time.monotonic() + 10
    while not (is_answered(visitors.enter()) and is_answered(visitors.enter("127.0.0.5"))):
        assert time.monotonic() < end_s


def test_a_port_for_ipv6_knows_ipv4_addresses() -> None:
    async def run() -> list[bool]:
        settings = BrokerSettings.parse(
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:1"}
        )
        node = await start_node(
            disk=MemoryDisk(),
            data_directory="/data",
            settings=settings,
            clock=SystemClock(),
            chance=SeededChance(),
            listen=("::", 0),
        )
        with contextlib.ExitStack() as stack:
            streams = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(2)]
            answered = []
            for reader, writer in streams:
                stack.callback(writer.close)
                writer.write(HELLO)
                try:
                    answered.append(bool(await reader.read(1)))
                except ConnectionResetError:
                    answered.append(False)
            await node.stop()
        return answered

    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    assert asyncio.run(run()) == [True, False]


@pytest.mark.parametrize(
    "visitors", [{"max.connection.creation.rate": "10", "quota.window.num": "2"}], indirect=True
)
def test_above_the_rate_newcomers_wait(visitors: Visitors) -> None:
    begun_s = time.monotonic()
    everybody = [visitors.enter() for _ in range(20)]
    # A second's worth comes at once.
    assert all(map(is_answered, everybody))
    assert 0.8 < time.monotonic() - begun_s < 10
