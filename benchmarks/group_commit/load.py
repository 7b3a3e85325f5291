"""The load generator: connections with a fixed number of requests in flight, closed loop.

This file alone measures latency. It must not know the strategy that the server runs.
"""

import json
import random
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence

from benchmarks.group_commit.server import ANSWER, HEADER, PARTITION_REPORT, PARTITION_RESET

FRAME_BYTES = 200
_WARM_UP_S = 0.25
_PAYLOAD = random.Random(1).randbytes(FRAME_BYTES - HEADER.size)


class Client:
    """One connection; checks that answers come in the order of its requests."""

    def __init__(self, port: int, partitions: int, seed: int) -> None:
        """Connect."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._sent_at: deque[float] = deque()
        self._sent = 0
        self._answered = 0
        chosen = random.Random(seed)
        self._choices = [chosen.randrange(partitions) for _ in range(4096)]

    def send(self, count: int) -> None:
        """Send `count` requests with one call."""
        frames = []
        for id_ in range(self._sent, self._sent + count):
            frames.append(HEADER.pack(FRAME_BYTES, id_, self._choices[id_ % 4096]))
            frames.append(_PAYLOAD)
        self._sent += count
        self._sent_at.extend([time.perf_counter()] * count)
        self.socket.sendall(b"".join(frames))

    def receive(self, latencies_s: list[float]) -> int:
        """Take the answers that have come, note their latencies, return how many."""
        self._buffer += self.socket.recv(65536)
        now = time.perf_counter()
        count = len(self._buffer) // ANSWER.size
        for place in range(count):
            _, id_ = ANSWER.unpack_from(self._buffer, place * ANSWER.size)
            if id_ != self._answered:
                message = f"answer {id_} came in the place of {self._answered}"
                raise RuntimeError(message)
            self._answered += 1
            latencies_s.append(now - self._sent_at.popleft())
        del self._buffer[: count * ANSWER.size]
        return count


def _control(port: int, partition: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as link:
        link.sendall(HEADER.pack(HEADER.size, 0, partition))
        link.shutdown(socket.SHUT_WR)
        return link.makefile("rb").readline()


def run(port: int, partitions: int, shape: tuple[int, int], seconds: float) -> dict[str, float]:
    """Load the server with `shape` = (connections, requests in flight on each)."""
    connections, in_flight = shape
    clients = [Client(port, partitions, seed) for seed in range(connections)]
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.send(in_flight)
    latencies_s: list[float] = []
    answered = 0

    def drive(until: float) -> None:
        nonlocal answered
        while time.perf_counter() < until:
            for key, _ in selector.select(1.0):
                client = key.data
                count = client.receive(latencies_s)
                answered += count
                if count:
                    client.send(count)

    drive(time.perf_counter() + _WARM_UP_S)
    latencies_s.clear()
    _control(port, PARTITION_RESET)
    started_at, cpu_s = time.perf_counter(), time.process_time()
    drive(started_at + seconds)
    elapsed_s = time.perf_counter() - started_at
    busy = (time.process_time() - cpu_s) / elapsed_s
    figures = json.loads(_control(port, PARTITION_REPORT))
    latencies_s.sort()
    count = len(latencies_s)
    return {
        "requests_per_s": count / elapsed_s,
        "p50_ms": latencies_s[count // 2] * 1000 if count else float("inf"),
        "p99_ms": latencies_s[count * 99 // 100] * 1000 if count else float("inf"),
        "cpu_s_per_10k": figures["cpu_s"] / max(1, figures["answers"]) * 10_000,
        "blocked_ms_max": figures["blocked_s_max"] * 1000,
        "requests_per_round": figures["answers"] / max(1, figures["rounds"]),
        "generator_busy": busy,
        "acknowledged": answered,
    }


def main(arguments: Sequence[str]) -> None:
    """Print the figures as JSON: PORT PARTITIONS CONNECTIONS IN_FLIGHT SECONDS."""
    port, partitions, connections, in_flight = (int(argument) for argument in arguments[:4])
    result = run(port, partitions, (connections, in_flight), float(arguments[4]))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
