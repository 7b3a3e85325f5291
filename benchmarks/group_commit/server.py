"""A small server that answers a request when its bytes are durable.

This file alone knows the frames. It must not know how a strategy makes bytes durable.

Request: length u32, id u32, partition i32, payload. Answer: length u32, id u32. A request for
partition -1 starts the counting anew; one for -2 is answered with the figures, as JSON.
"""

import asyncio
import json
import os
import selectors
import signal
import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from benchmarks.group_commit.strategies import STRATEGIES, Strategy

HEADER = struct.Struct("<IIi")
ANSWER = struct.Struct("<II")
PARTITION_RESET = -1
PARTITION_REPORT = -2
# About 15 us here of interpreted work, what decoding, checking and indexing one request takes.
_WORK_STEPS = 450
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def _work(steps: int) -> int:
    total = 0
    for step in range(steps):
        total += step
    return total


class TimedSelector(selectors.EpollSelector):
    """Notes the longest time between two waits: how long the loop was blocked."""

    def __init__(self) -> None:
        """Start with nothing noted."""
        super().__init__()
        self._woke_at = time.perf_counter()
        self.blocked_s_max = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the base class does."""
        blocked_s = time.perf_counter() - self._woke_at
        self.blocked_s_max = max(self.blocked_s_max, blocked_s)
        events = super().select(timeout)
        self._woke_at = time.perf_counter()
        return events


class Request:
    """One answer that waits for its bytes, and for the answers before it."""

    __slots__ = ("connection", "durable", "id")

    def __init__(self, connection: "Connection", id_: int) -> None:
        """Wait."""
        self.connection = connection
        self.id = id_
        self.durable = False


class Connection(asyncio.Protocol):
    """Reads frames, appends them, answers in order."""

    def __init__(self, server: "Server") -> None:
        """Serve one client."""
        self._server = server
        self._buffer = bytearray()
        self._waiting: deque[Request] = deque()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take every whole frame."""
        buffer = self._buffer
        buffer += data
        position, end = 0, len(buffer)
        append = self._server.strategy.append
        while end - position >= HEADER.size:
            length, id_, partition = HEADER.unpack_from(buffer, position)
            if end - position < length:
                break
            if partition < 0:
                self._control(partition)
            else:
                frame = bytes(memoryview(buffer)[position : position + length])
                zlib.crc32(frame)
                _work(_WORK_STEPS)
                request = Request(self, id_)
                self._waiting.append(request)
                append(partition, frame, request)
            position += length
        del buffer[:position]

    def _control(self, partition: int) -> None:
        if partition == PARTITION_RESET:
            self._server.reset()
        else:
            self._transport.write(json.dumps(self._server.report()).encode() + b"\n")

    def answer(self) -> None:
        """Send the answers that no earlier one holds back."""
        waiting = self._waiting
        answers = []
        while waiting and waiting[0].durable:
            answers.append(ANSWER.pack(ANSWER.size, waiting.popleft().id))
        if answers and not self._transport.is_closing():
            self._transport.write(b"".join(answers))


class Server:
    """One strategy, its connections and its figures."""

    strategy: Strategy

    def __init__(self, selector: TimedSelector) -> None:
        """Count from now."""
        self._selector = selector
        self._cpu_s = 0.0
        self._rounds = 0
        self._answers = 0

    def complete(self, requests: list[object]) -> None:
        """Answer the requests of a durable round."""
        connections: dict[Connection, None] = {}
        for request in requests:
            assert isinstance(request, Request)
            request.durable = True
            connections[request.connection] = None
        for connection in connections:
            connection.answer()
        self._rounds += 1
        self._answers += len(requests)

    def _cpu_now_s(self) -> float:
        own = time.process_time()
        for pid in self.strategy.helper_pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            own += (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
        return own

    def reset(self) -> None:
        """Forget the warm-up."""
        self._cpu_s = self._cpu_now_s()
        self._selector.blocked_s_max = 0.0
        self._rounds = self._answers = 0

    def report(self) -> dict[str, float]:
        """Return the figures since the last reset."""
        return {
            "cpu_s": self._cpu_now_s() - self._cpu_s,
            "blocked_s_max": self._selector.blocked_s_max,
            "rounds": self._rounds,
            "answers": self._answers,
        }


async def _serve(selector: TimedSelector, arguments: Sequence[str]) -> None:
    name, directory, partitions, delay_ms = arguments
    server = Server(selector)
    strategy = STRATEGIES[name]
    server.strategy = strategy(
        Path(directory), int(partitions), server.complete, float(delay_ms) / 1000
    )
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    listener = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0)
    sys.stdout.write(f"{listener.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await stopped.wait()
    listener.close()
    server.strategy.close()


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM: STRATEGY DIRECTORY PARTITIONS DELAY_MS."""
    selector = TimedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(_serve(selector, arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
