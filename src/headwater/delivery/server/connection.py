"""One client: frames in, answers out, in order.

This file alone decides when a request is read, when it is handled and when its answer leaves. It
knows no API but one rule of the protocol: answers keep the order of their requests.

    socket -> frame -> [backlog] -> handler -> slot (answer awaited) -> outbox -> socket

Produce requests are pipelined: the next one is handled while the last still waits for its sync,
so that one sync can cover many. Any other request is handled alone, after all earlier answers are
given, as in Kafka. While a client has a backlog, does not read its answers, or is muted, nothing
more is read from it: what it may cost us is bounded, and its own socket pushes back.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from headwater.base.errors import MalformedMessageError
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.server.outbox import Outbox

if TYPE_CHECKING:
    from headwater.delivery.server.listener import Listener

_log = logging.getLogger(__name__)

_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4
# Api key, version and correlation id: the least that a request can be.
_FRAME_BYTES_MIN = 8
_PRODUCE = 0
# The first piece of memory that a large request gets; it doubles as the bytes arrive.
_FRAME_STEP_BYTES = 1 << 20
# What is read of a request while no memory is left for large ones.
_BITE_BYTES = 4 * 1024
# Answers that one connection may have waiting; clients default to 5 in flight, librdkafka allows
# a million, and memory per waiting answer is about a kilobyte.
_WAITING_MAX = 1_000


class Connection:
    """A socket with its frames, waiting calls and answers."""

    __slots__ = (
        "_backlog",
        "_blocking",
        "_closed",
        "_flush_due",
        "_frame",
        "_frame_filled",
        "_frame_size",
        "_listener",
        "_muted",
        "_outbox",
        "_reading",
        "_size_part",
        "_slots",
        "_socket",
        "_starved",
        "_unmuting",
        "_writing",
        "active_ms",
        "host",
        "port",
    )

    def __init__(self, listener: "Listener", sock: socket.socket, host: str, port: int) -> None:
        self._listener = listener
        self._socket = sock
        self.host = f"/{host}"
        self.port = port
        self.active_ms = listener.clock.monotonic_ms()
        self._slots: deque[Call] = deque()
        self._blocking = 0
        self._backlog: deque[memoryview] = deque()
        self._size_part = b""
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._frame_filled = 0
        self._outbox = Outbox(sock, listener.executor, self._range_is_warm)
        self._reading = False
        self._writing = False
        self._muted = False
        self._unmuting: asyncio.TimerHandle | None = None
        self._starved = False
        self._flush_due = False
        self._closed = False
        self._resume()

    # --- in -------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            if self._frame is None:
                self._receive_small()
            else:
                self._receive_frame()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _receive_small(self) -> None:
        """Read into the shared buffer and handle every whole frame in place, without a copy."""
        view = self._listener.scratch
        start = len(self._size_part)
        if start:
            view[:start] = self._size_part
        # When memory is spent small requests are still read whole, large ones wait after a bite.
        most = _BITE_BYTES if self._listener.memory.spent else len(view)
        received = self._socket.recv_into(view[start:most])
        if not received:
            self.close()
            return
        self.active_ms = self._listener.now_ms()
        end = start + received
        position = 0
        while end - position >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(view, position)
            if not self._acceptable(size):
                return
            position += _SIZE_BYTES
            if end - position < size:
                self._begin_frame(size, view[position:end])
                return
            self._take(view[position : position + size], owned=False)
            if self._closed:
                return
            position += size
        self._size_part = bytes(view[position:end])

    def _begin_frame(self, size: int, first_part: memoryview) -> None:
        self._size_part = b""
        memory = self._listener.memory
        # A size is only a claim: memory is given as the bytes arrive.
        waits = memory.spent or self._muted
        step = len(first_part) if waits else max(_FRAME_STEP_BYTES, len(first_part))
        self._frame = memory.take(min(size, step))
        self._frame_size = size
        self._frame_filled = len(first_part)
        self._frame[: len(first_part)] = first_part
        self._wait_for_budget()

    def _receive_frame(self) -> None:
        frame = self._frame
        assert frame is not None
        if self._frame_filled == len(frame):
            step = max(_FRAME_STEP_BYTES, 2 * len(frame))
            frame = self._listener.memory.grow(frame, min(step, self._frame_size))
            self._frame = frame
        with memoryview(frame) as view:
            received = self._socket.recv_into(view[self._frame_filled : self._frame_size])
        if not received:
            self.close()
            return
        self.active_ms = self._listener.now_ms()
        self._frame_filled += received
        if self._frame_filled == self._frame_size:
            self._frame = None
            self._listener.step_aside(self)
            self._take(memoryview(frame)[: self._frame_size], owned=True)
        elif self._frame_filled == len(frame):
            self._wait_for_budget()

    def _wait_for_budget(self) -> None:
        # Whoever is muted reads nothing: others go ahead, and it asks when its wait is over.
        if self._muted or not self._listener.memory.spent:
            return
        if self._listener.wait_for_budget(self):
            self._starved = True
            self._pause()

    def _acceptable(self, size: int) -> bool:
        if _FRAME_BYTES_MIN <= size <= self._listener.request_bytes_max:
            return True
        _log.warning(
            "closing %s:%s: it announced a request of %d bytes (allowed: %d to %d); not a Kafka "
            "client, or raise socket.request.max.bytes",
            self.host,
            self.port,
            size,
            _FRAME_BYTES_MIN,
            self._listener.request_bytes_max,
        )
        self.close()
        return False

    def _take(self, frame: memoryview, *, owned: bool) -> None:
        if not self._backlog and self._free_for(frame):
            self._handle(frame)
            if owned:
                self._listener.give_buffer_back(frame)
            return
        if not owned:
            buffer = self._listener.memory.take(len(frame))
            buffer[: len(frame)] = frame
            frame = memoryview(buffer)[: len(frame)]
        self._backlog.append(frame)
        self._pause()

    def _free_for(self, frame: memoryview) -> bool:
        """Tell whether the frame may be handled beside the answers that are still owed."""
        if self._outbox or self._muted:
            return False
        if not self._slots:
            return True
        return (
            not self._blocking
            and frame[0] == 0
            and frame[1] == _PRODUCE
            and len(self._slots) < _WAITING_MAX
        )

    def _handle(self, frame: memoryview) -> None:
        try:
            self._listener.dispatch(self, frame)
        except MalformedMessageError as error:
            _log.warning("closing %s:%s: %s", self.host, self.port, error.message)
            self.close()
        except Exception:  # noqa: BLE001 - a bug in one handler must not end the other clients
            _log.exception("closing %s:%s: a request could not be handled", self.host, self.port)
            self.close()

    def _work_off_backlog(self) -> None:
        backlog = self._backlog
        while backlog and not self._closed and self._free_for(backlog[0]):
            frame = backlog.popleft()
            self._handle(frame)
            self._listener.give_buffer_back(frame)
        if not backlog and not self._outbox:
            self._resume()

    # --- answers --------------------------------------------------------------------------------

    def add(self, call: Call) -> None:
        """Keep the call's place in the order of answers."""
        self._slots.append(call)
        if call.api_key != _PRODUCE:
            self._blocking += 1

    def answer(self, call: Call, response: Any) -> None:  # noqa: ANN401 - any message class
        """Encode the answer; it leaves when those before it have left."""
        if call.cost is not None:
            self._answer_at_a_cost(call, response)
        else:
            self._answer(call, response)

    def _answer_at_a_cost(self, call: Call, response: Any) -> None:  # noqa: ANN401 - as above
        wait_ms = call.cost.answered(response)
        if wait_ms:
            self.mute(wait_ms)
        self._answer(call, response)
        call.cost.sent()

    def _answer(self, call: Call, response: Any) -> None:  # noqa: ANN401 - as above
        try:
            call.parts = self._listener.encode(call, response) if response is not None else []
        except Exception:  # noqa: BLE001 - whoever answers many must get to the next
            _log.exception("closing %s:%s: an answer cannot be encoded", self.host, self.port)
            self.close()
            return
        slots = self._slots
        if slots and slots[0] is call:
            if len(slots) == 1:
                self._flush()
            elif not self._flush_due:
                # Others of this connection are probably answered in the same breath.
                self._flush_due = True
                self._listener.flush_later(self)

    def flush(self) -> None:
        """Send what was answered since the flush was asked for."""
        self._flush_due = False
        if not self._closed:
            self._flush()

    def _flush(self) -> None:
        slots = self._slots
        while slots and slots[0].parts is not None:
            call = slots.popleft()
            if call.api_key != _PRODUCE:
                self._blocking -= 1
            assert call.parts is not None
            self._outbox.extend(call.parts)
        self._send()

    def _send(self) -> None:
        if self._writing or self._closed:
            return
        try:
            full = self._outbox.send()
        except OSError:
            self.close()
            return
        if full:
            self._writing = True
            self._listener.loop.add_writer(self._socket, self._writable)
        if self._outbox:
            self._pause()
        elif self._backlog or not self._reading:
            self._listener.loop.call_soon(self._work_off_backlog)

    def _writable(self) -> None:
        self._writing = False
        self._listener.loop.remove_writer(self._socket)
        self.active_ms = self._listener.now_ms()
        self._send()

    def _range_is_warm(self) -> None:
        """Called by the thread that read the range; hop back to the loop."""
        self._listener.call_from_thread(self._send_warm)

    def _send_warm(self) -> None:
        self._outbox.warmed()
        self._send()

    # --- flow -----------------------------------------------------------------------------------

    def mute(self, delay_ms: int) -> None:
        """Read nothing for a while, whatever the client sends; the longest wait counts."""
        loop = self._listener.loop
        until_s = loop.time() + delay_ms / 1000
        unmuting = self._unmuting
        if self._closed or (self._muted and (unmuting is None or until_s <= unmuting.when())):
            return
        if unmuting is not None:
            unmuting.cancel()
        self._muted = True
        self._pause()
        self._unmuting = loop.call_at(until_s, self._unmute)
        if self._frame is not None:
            # Memory that waits for bytes which may not come for long is for others.
            self._listener.memory.trim(self._frame, self._frame_filled)
            self._starved = False
            self._listener.step_aside(self)

    def _unmute(self) -> None:
        self._unmuting = None
        self._muted = False
        # It could not go on with a request: its time to do so begins now.
        self.active_ms = self._listener.now_ms()
        if self._frame is not None:
            self._wait_for_budget()
        self._work_off_backlog()

    def _stay_muted(self) -> None:
        self._muted = True
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        self._pause()

    def budget_is_free(self) -> None:
        """There is room for more request bytes again."""
        self._starved = False
        self.active_ms = self._listener.now_ms()
        if not self._backlog and not self._outbox:
            self._resume()

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._listener.loop.remove_reader(self._socket)

    def _resume(self) -> None:
        if not (self._reading or self._closed or self._muted or self._starved):
            self._reading = True
            self._listener.loop.add_reader(self._socket, self._readable)

    @property
    def owes_bytes(self) -> bool:
        """Whether a request has begun, and it is for the client to go on."""
        waits_for_us = self._starved or self._muted
        return not waits_for_us and (self._frame is not None or bool(self._size_part))

    @property
    def waiting(self) -> int:
        """How many answers are still owed."""
        return len(self._slots)

    def stop_reading(self) -> None:
        """Take no more requests; those that are here are still answered."""
        self._stay_muted()

    def close(self) -> None:
        """End the connection and tell every waiting call."""
        if self._closed:
            return
        self._closed = True
        self._stay_muted()
        if self._writing:
            self._writing = False
            self._listener.loop.remove_writer(self._socket)
        self._socket.close()
        for call in self._slots:
            call.cancel()
        self._slots.clear()
        self._outbox.clear()
        if self._frame is not None:
            self._listener.give_buffer_back(memoryview(self._frame))
            self._frame = None
        for frame in self._backlog:
            self._listener.give_buffer_back(frame)
        self._backlog.clear()
        self._listener.forget(self)
