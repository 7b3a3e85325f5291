"""A wire between client and broker that counts, and that can be cut.

This file alone decides what a test may do to a connection: count the requests of each API, look at
them, wait for one, or cut the connection when the broker has answered and the client has not heard
it. It changes no frame.
"""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

from headwater.testing.broker import EmbeddedBroker

PRODUCE = 0
FETCH = 1

_HEAD = struct.Struct(">hhi")  # api key, api version, correlation id
_SIZE = struct.Struct(">i")


class Proxy:
    """Listens beside a broker; whoever connects is connected through."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._counts: Counter[int] = Counter()
        self._cut_after: dict[int, set[int]] = {}
        self._cuts = 0
        self._watched: dict[int, Callable[[bytes], None]] = {}
        self._action: Callable[[], None] = lambda: None
        self._links: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False

    @property
    def bootstrap(self) -> str:
        """The address clients are given."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def cuts(self) -> int:
        """How many connections were cut on purpose."""
        return self._cuts

    def count(self, api_key: int) -> int:
        """How many requests of one API have passed."""
        with self._changed:
            return self._counts[api_key]

    def wait_for(self, api_key: int, count: int, patience_s: float = 30.0) -> None:
        """Wait until so many requests of one API have passed."""
        with self._changed:
            passed = self._changed.wait_for(lambda: self._counts[api_key] >= count, patience_s)
        assert passed, f"{self._counts} after {patience_s} s"

    def cut_after(
        self, api_key: int, *numbers: int, action: Callable[[], None] = lambda: None
    ) -> None:
        """Cut the connection instead of passing on the answers to these requests, from 1.

        Args:
            api_key: The API whose answers are lost.
            numbers: Which of its requests, counted over all connections.
            action: What else happens between the answer and the cut.
        """
        self._cut_after[api_key] = set(numbers)
        self._action = action

    def watch(self, api_key: int, look: Callable[[bytes], None]) -> None:
        """Have every request of one API looked at, without its size, before it is passed on."""
        self._watched[api_key] = look

    def advertise(self, broker: EmbeddedBroker) -> None:
        """Have the broker name this wire as itself."""
        broker.node.broker.advertised_port = self.port

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        """Cut everything and wait for every thread."""
        self._closed = True
        # A blocked accept does not notice that its socket is closed; a connection wakes it.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            pass
        # Only then is no connection in the making that would be missed.
        self._threads[0].join()
        with self._changed:
            links = list(self._links)
        for link in links:
            _cut(link)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, target: object, *arguments: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._closed:
                client.close()
                return
            try:
                broker = socket.create_connection(self._upstream)
            except OSError:
                client.close()
                continue
            for link in (client, broker):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._links |= {client, broker}
            to_lose: set[int] = set()
            self._start(self._pass_requests, client, broker, to_lose)
            self._start(self._pass_answers, client, broker, to_lose)

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, to_lose: set[int]
    ) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(client):
                api_key, _, correlation_id = _HEAD.unpack_from(frame, _SIZE.size)
                with self._changed:
                    self._counts[api_key] += 1
                    if self._counts[api_key] in self._cut_after.get(api_key, ()):
                        to_lose.add(correlation_id)
                    self._changed.notify_all()
                if api_key in self._watched:
                    self._watched[api_key](frame[_SIZE.size :])
                broker.sendall(frame)
        self._done(client, broker)

    def _pass_answers(
        self, client: socket.socket, broker: socket.socket, to_lose: set[int]
    ) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(broker):
                (correlation_id,) = _SIZE.unpack_from(frame, _SIZE.size)
                if correlation_id in to_lose:
                    self._cuts += 1
                    self._action()
                    break
                client.sendall(frame)
        self._done(client, broker)

    def _done(self, *links: socket.socket) -> None:
        for link in links:
            _cut(link)
        with self._changed:
            self._links -= set(links)


def _frames(link: socket.socket) -> Iterator[bytes]:
    with link.makefile("rb") as stream:
        while len(size := stream.read(_SIZE.size)) == _SIZE.size:
            yield size + stream.read(*_SIZE.unpack(size))


def _cut(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


@contextlib.contextmanager
def wire_to(broker: EmbeddedBroker) -> Iterator[Proxy]:
    """Send every client of a broker through a proxy: the broker names the proxy as itself."""
    with Proxy(broker) as proxy:
        proxy.advertise(broker)
        try:
            yield proxy
        finally:
            broker.node.broker.advertised_port = broker.node.port
