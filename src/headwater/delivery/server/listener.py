"""The open port: who is connected, and what they share.

This file alone opens and ends connections; how many there may be is decided by the gate. What the
connections share (the receive buffer, request memory, the thread for slow reads) lives here; what
they say does not.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headwater.base.clock import Clock
from headwater.base.errors import HeadwaterError
from headwater.base.settings import BrokerSettings
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.server.buffers import RequestMemory
from headwater.delivery.server.connection import Connection
from headwater.delivery.server.dispatch import Dispatcher
from headwater.delivery.server.gate import WELCOME, Gate

_log = logging.getLogger(__name__)

# One receive buffer for all connections: a loop reads from one socket at a time. 128 KiB holds a
# burst of small requests; larger ones get a buffer of their own.
_SCRATCH_BYTES = 128 * 1024
# Accepted in one go before others get their turn.
_ACCEPT_MAX = 64
_SWEEP_INTERVAL_S = 5.0
# A request that stops in the middle for this long is given up, because its memory is held. Any
# byte starts the time anew.
_STALLED_MS = 30_000
# Wait before accepting again when descriptors have run out.
_ACCEPT_PAUSE_S = 0.1
# Refused connections that are held for a moment, so that they do not come back at once.
_HELD_MAX = 1_000


class Listener:
    """A listening socket with its connections."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        gate: Gate,
        clients_max: int,
        *,
        settings: BrokerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.executor = ThreadPoolExecutor(max_workers=2, thread_name_prefix="headwater-read")
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.memory = RequestMemory(settings.queued_max_request_bytes)
        self.request_bytes_max = settings.socket_request_max_bytes
        self.now_ms = clock.monotonic_ms
        self.dispatch: Callable[[Connection, memoryview], None] = dispatcher.dispatch
        self.encode: Callable[[Call, Any], list[Any]] = dispatcher.encode
        self._idle_ms = settings.connections_max_idle_ms
        self._gate = gate
        self._full = False
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        self._clients_max = clients_max
        self._out_of_descriptors = False
        self._accept_queue = settings.socket_listen_backlog_size
        self._connections: set[Connection] = set()
        # Dictionary as ordered set: whoever came first gets memory first.
        self._short_of_memory: dict[Connection, None] = {}
        # The one that may exceed the budget for the rest of its request.
        self._ahead: Connection | None = None
        self._to_flush: list[Connection] = []
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the address with the real port."""
        family, _, _, _, address = _resolve(host, port)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(self._accept_queue)
        except OSError as error:
            sock.close()
            raise _cannot_listen(host, port, error) from error
        sock.setblocking(False)
        self._socket = sock
        self.loop.add_reader(sock, self._accept)
        self._sweeper = self.loop.call_later(_SWEEP_INTERVAL_S, self._sweep)
        name = sock.getsockname()
        return name[0], name[1]

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def _accept(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPT_MAX):
            if self._gate.is_full:
                _log.info("nobody is accepted until somebody leaves: max.connections are here")
                self._full = True
                self.loop.remove_reader(self._socket)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if not self._out_of_descriptors:
                    _log.error("cannot accept connections: %s; raise the file limit", error)
                self._out_of_descriptors = True
                self._pause_accepting(_ACCEPT_PAUSE_S)
                return
            self._out_of_descriptors = False
            if len(self._connections) + len(self._held) >= self._clients_max:
                _log.warning(
                    "refusing %s: %d clients are connected, as many as the file limit allows; "
                    "raise it (ulimit -Hn)",
                    address,
                    self._clients_max,
                )
                sock.close()
                continue
            pause_ms = self._gate.pause_ms()
            self._let_through(sock, _plain(address[0]), address[1])
            if pause_ms:
                self._pause_accepting(pause_ms / 1000)
                return

    def _let_through(self, sock: socket.socket, host: str, port: int) -> None:
        sock.setblocking(False)
        close_after_ms = self._gate.enter(host)
        if close_after_ms == WELCOME:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.add(Connection(self, sock, host, port))
        elif close_after_ms and len(self._held) < _HELD_MAX:
            delay_s = close_after_ms / 1000
            self._held[sock] = self.loop.call_later(delay_s, self._close_held, sock)
        else:
            _log.warning("closing %s:%s: too many connections from this address", host, port)
            sock.close()

    def _close_held(self, sock: socket.socket) -> None:
        del self._held[sock]
        sock.close()

    def _pause_accepting(self, pause_s: float) -> None:
        assert self._socket is not None
        self.loop.remove_reader(self._socket)
        self.loop.call_later(pause_s, self._accept_again)

    def _accept_again(self) -> None:
        if self._socket is not None:
            self.loop.add_reader(self._socket, self._accept)

    def _sweep(self) -> None:
        self._sweeper = self.loop.call_later(_SWEEP_INTERVAL_S, self._sweep)
        now_ms = self.now_ms()
        for connection in tuple(self._connections):
            quiet_ms = now_ms - connection.active_ms
            if connection.owes_bytes and quiet_ms > _STALLED_MS:
                _log.warning("closing %s: its request stopped halfway", connection.host)
                connection.close()
            elif 0 < self._idle_ms < quiet_ms and not connection.waiting:
                connection.close()

    # --- for connections ------------------------------------------------------------------------

    def give_buffer_back(self, frame: memoryview) -> None:
        """Return a request's memory and let somebody in need have it."""
        buffer = frame.obj
        frame.release()
        assert isinstance(buffer, bytearray)
        self.memory.give_back(buffer)
        self._let_in()

    def wait_for_budget(self, connection: Connection) -> bool:
        """Tell whether the connection must wait; then ``budget_is_free`` will be called.

        One of them need not: if each held a part of a request, all would wait for each other.
        """
        if self._ahead is None or self._ahead is connection:
            self._ahead = connection
            return False
        self._short_of_memory[connection] = None
        return True

    def step_aside(self, connection: Connection) -> None:
        """The connection needs no more memory for now; another one may go ahead."""
        self._short_of_memory.pop(connection, None)
        if self._ahead is connection:
            self._ahead = None
        self._let_in()

    def _let_in(self) -> None:
        waiting = self._short_of_memory
        while waiting and (self._ahead is None or not self.memory.spent):
            connection = next(iter(waiting))
            del waiting[connection]
            if self.memory.spent:
                self._ahead = connection
            connection.budget_is_free()

    def flush_later(self, connection: Connection) -> None:
        """Flush at the end of this turn of the loop, together with others."""
        if not self._to_flush:
            self.loop.call_soon(self._flush_all)
        self._to_flush.append(connection)

    def _flush_all(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def call_from_thread(self, action: Callable[[], None]) -> None:
        """Run the action on the loop; silently nothing when the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(action)

    def forget(self, connection: Connection) -> None:
        """The connection has closed itself."""
        self._connections.discard(connection)
        self._gate.leave(connection.host.removeprefix("/"))
        self._accept_if_room()
        self.step_aside(connection)

    def configure(self, settings: BrokerSettings) -> None:
        """Take other bounds on connections."""
        self._gate.configure(settings)
        self._accept_if_room()

    def _accept_if_room(self) -> None:
        if self._full and not self._gate.is_full:
            self._full = False
            self._accept_again()

    # --- the end --------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Close the port; those who are in may still get their answers."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._socket is not None:
            self.loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for sock, closing in self._held.items():
            closing.cancel()
            sock.close()
        self._held.clear()
        for connection in tuple(self._connections):
            connection.stop_reading()

    def close(self) -> None:
        """Send what is answered, then drop everybody."""
        self.stop_accepting()
        self._flush_all()
        for connection in tuple(self._connections):
            connection.close()
        self.executor.shutdown(wait=False, cancel_futures=True)


def _resolve(host: str, port: int) -> tuple[Any, ...]:
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise HeadwaterError(
            f"cannot listen on {host!r}: {error.strerror}",
            hint="give an address of this machine: --listen 127.0.0.1:9092",
        ) from error
    # IPv4 first: librdkafka may try ::1 for localhost and would not find us there.
    return min(found, key=lambda entry: entry[0] != socket.AF_INET)


def _plain(host: str) -> str:
    """Return an address as people write it; a port for IPv6 gives IPv4 ones as ``::ffff:1.2.3.4``.

    Bounds and quotas of addresses would not find them otherwise.
    """
    return host.removeprefix("::ffff:") if "." in host else host


def _cannot_listen(host: str, port: int, error: OSError) -> HeadwaterError:
    if error.errno == errno.EADDRINUSE:
        return HeadwaterError(
            f"port {port} on {host} is taken by another process",
            hint=f"choose another port: --listen {host}:0 takes any free one",
        )
    return HeadwaterError(
        f"cannot listen on {host}:{port}: {error.strerror}",
        hint="give an address of this machine: --listen 127.0.0.1:9092",
    )
