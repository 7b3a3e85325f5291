"""A broker without a server: requests go in as bytes, answers come out as messages.

The desk runs the real broker over a disk in memory and a clock that stands still. Every request is
encoded, decoded, handled, and its answer encoded and decoded again, so that a test that passes has
also shown that the answer fits the version. ``ask_over_socket`` asks any Kafka broker the same.
"""

import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch
from headwater.base.schema import Message
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.partition import Committable
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.registry import APIS, Api
from headwater.delivery.wire.kafka import framing
from headwater.log.store import LogStore
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from headwater.testing.seeded_chance import SeededChance


class WaitingCommits:
    """A group commit that happens when the test says so."""

    def __init__(self) -> None:
        self._dirty: list[Committable] = []

    def add(self, item: Committable) -> None:
        self._dirty.append(item)

    def between_rounds(self, action: Callable[[], None]) -> None:
        action()

    def run(self) -> None:
        while self._dirty:
            item = self._dirty.pop(0)
            for file in item.begin_commit():
                file.sync()
            item.end_commit()


class Line:
    """A connection that keeps what it is told."""

    def __init__(self) -> None:
        self.host = "/127.0.0.1"
        self.answers: list[tuple[Call, Any]] = []
        self.muted_ms = 0
        self.closed = False

    def answer(self, call: Call, response: Any) -> None:  # noqa: ANN401 - any message
        self.answers.append((call, response))

    def close(self) -> None:
        self.closed = True

    def mute(self, delay_ms: int) -> None:
        self.muted_ms = delay_ms


class Desk:
    """One broker and whoever asks it."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, disk: MemoryDisk | None = None
    ) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = ManualClock()
        self.commits = WaitingCommits()
        self.settings = BrokerSettings.parse(
            {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
        )
        self.line = Line()
        self.broker = self._open()

    def _open(self) -> Broker:
        chance = SeededChance()
        store = LogStore.open(
            self.disk,
            "/data",
            settings=self.settings,
            topic_defaults=self.settings.topic_defaults(),
            clock=self.clock,
            chance=chance,
        )
        broker = Broker(
            store,
            settings=self.settings,
            clock=self.clock,
            timers=self.clock,
            chance=chance,
            commits=self.commits,
        )
        broker.advertised_host, broker.advertised_port = "127.0.0.1", 9092
        broker.start()
        return broker

    def crash(self) -> None:
        """Let the machine die and start again with what was synced."""
        self.disk = self.disk.crash(0, keep="nothing")
        self.start()

    def start(self) -> None:
        """Start again with what is on the disk."""
        self.commits = WaitingCommits()
        self.broker = self._open()

    def ask(self, request: Message, version: int | None = None, *, client_id: str = "desk") -> Any:  # noqa: ANN401 - its own class
        """Send a request and return its answer."""
        call = self.begin(request, version, client_id=client_id)
        self.commits.run()
        (response,) = [answer for answered, answer in self.line.answers if answered is call]
        parts = framing.encode_response(call.header, response)
        frame = memoryview(b"".join(bytes(part) for part in parts))[4:]
        correlation_id, message = framing.decode_response(call.api_key, call.version, frame)
        assert correlation_id == 7
        return message

    def begin(
        self, request: Message, version: int | None = None, *, client_id: str = "desk"
    ) -> Call:
        """Send a request; its answer may be in the line, or come later."""
        key, version = _key_and_version(request, version)
        # Writable, like the server's: an append stamps offset and epoch in place.
        parts = framing.encode_request(key, version, 7, client_id, request)
        frame = memoryview(bytearray().join(parts))[4:]
        header, decoded = framing.decode_request(frame)
        call = Call(self.broker, self.line, header)
        APIS[key].handle(call, decoded)
        return call

    def append(self, topic: str, partition: int = 0, *, count: int = 1, size: int = 100) -> None:
        """Append batches of one record each, durable."""
        for _ in range(count):
            self.append_unsynced(topic, partition, size=size)
            self.commits.run()

    def append_unsynced(self, topic: str, partition: int = 0, *, size: int = 100) -> None:
        """Append a batch of one record that nobody can see yet."""
        found = self.broker.topics.partition(topic, partition)
        assert found is not None
        batch = build_batch([Record(0, self.clock.now_ms(), b"key", b"v" * size)])
        found.append(batch, parse_header(batch, 0))


def ask_over_socket(bootstrap: str, request: Message, version: int | None = None) -> Any:  # noqa: ANN401 - its own class
    """Send a request to a broker, be it ours or Apache Kafka, and return its answer."""
    key, version = _key_and_version(request, version)
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        for part in framing.encode_request(key, version, 7, "desk", request):
            connection.sendall(part)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        frame = memoryview(_receive(connection, size))
    correlation_id, message = framing.decode_response(key, version, frame)
    assert correlation_id == 7
    return message


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed without an answer")
        received += chunk
    return bytes(received)


def _key_and_version(request: Message, version: int | None) -> tuple[int, int]:
    name = type(request).__name__.removesuffix("Request")
    key = next(key for key, module in APIS.items() if _camel(module) == name)
    return key, APIS[key].VERSIONS[1] if version is None else version


def _camel(module: Api) -> str:
    words = vars(module)["__name__"].rpartition(".")[2].split("_")[2:]
    return "".join(word.capitalize() for word in words)
