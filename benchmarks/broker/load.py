"""Raw load: ready-made requests over plain sockets, the same bytes for whoever answers.

This file alone decides how load is made. Requests are encoded before the clock starts, so that a
generator in Python is not what is measured: it tells how busy it was itself.
"""

import itertools
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from headwater.base.errors import RETRIABLE, ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.delivery.wire.kafka import framing, messages

_SIZE = struct.Struct(">i")
_PRODUCE = 0
# Produce by name, as most clients send it; both brokers serve it.
_PRODUCE_VERSION = 11
_FETCH_VERSION = 12
# Records of today: older ones would keep both brokers busy with retention.
_TIMESTAMP_MS = int(time.time() * 1000)
_RECEIVE_BYTES = 1 << 20
_LEADER_WITHIN_S = 30.0


class Load(NamedTuple):
    """What one run of load came to."""

    requests_per_s: float
    bytes_per_s: float
    p50_ms: float
    p99_ms: float
    generator_busy: float


def batch_of(records: int, value_bytes: int, seed: int = 0) -> bytearray:
    """Build a batch of records that are all different, of one size."""
    stem = bytes((seed + index) % 251 for index in range(value_bytes - 8))
    return build_batch(
        [
            Record(0, _TIMESTAMP_MS, None, struct.pack(">q", seed * 1_000_000 + index) + stem)
            for index in range(records)
        ]
    )


def produce_frame(topic: str, partition: int, batch: bytearray, acks: int = -1) -> bytes:
    """Encode a produce request of one batch."""
    data = messages.ProduceRequest.PartitionProduceData(partition, batch)
    request = messages.ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[messages.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    return b"".join(framing.encode_request(_PRODUCE, _PRODUCE_VERSION, 1, "load", request))


def fetch_frame(topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int) -> bytes:
    """Encode a fetch request of one partition."""
    asked = messages.FetchRequest.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    request = messages.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[messages.FetchRequest.FetchTopic(topic=topic, partitions=[asked])],
    )
    return b"".join(framing.encode_request(1, _FETCH_VERSION, 1, "load", request))


class _Line:
    """One connection with requests in flight, taking its frames in turn."""

    __slots__ = ("_frames", "part", "sent_at", "sent_bytes", "socket")

    def __init__(self, address: tuple[str, int], frames: Sequence[bytes]) -> None:
        self.socket = connect(address)
        self._frames = itertools.cycle(frames)
        self.part = b""
        self.sent_at: list[float] = []
        self.sent_bytes = 0

    def send(self, count: int, now: float) -> None:
        self.sent_at += [now] * count
        data = b"".join(itertools.islice(self._frames, count))
        self.sent_bytes += len(data)
        self.socket.setblocking(True)
        self.socket.sendall(data)
        self.socket.setblocking(False)


def connect(address: tuple[str, int]) -> socket.socket:
    """Connect as clients do."""
    sock = socket.create_connection(address)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def run_produce(
    address: tuple[str, int],
    frames: Sequence[Sequence[bytes]],
    *,
    in_flight: int,
    seconds: float,
) -> Load:
    """Keep produce requests in flight for a while, one connection per list of frames."""
    lines = [_Line(address, each) for each in frames]
    selector = selectors.DefaultSelector()
    for line in lines:
        selector.register(line.socket, selectors.EVENT_READ, line)
    for each in frames:
        check_produce(address, each[0])
    latencies: list[float] = []
    busy_before = time.process_time()
    start = now = time.perf_counter()
    for line in lines:
        line.send(in_flight, now)
    while now - start < seconds:
        for key, _ in selector.select(1):
            line = key.data
            done = _receive(line)
            now = time.perf_counter()
            latencies.extend(now - sent_at for sent_at in line.sent_at[:done])
            del line.sent_at[:done]
            line.send(done, now)
    elapsed = now - start
    busy = (time.process_time() - busy_before) / elapsed
    # What is still in flight is a few requests of thousands.
    payload = sum(line.sent_bytes for line in lines)
    for line in lines:
        line.socket.close()
    latencies.sort()
    count = len(latencies)
    return Load(
        count / elapsed,
        payload / elapsed,
        latencies[count // 2] * 1e3,
        latencies[count * 99 // 100] * 1e3,
        busy,
    )


def _receive(line: _Line) -> int:
    """Read what is there; return how many whole answers it completed."""
    data = line.part + line.socket.recv(_RECEIVE_BYTES)
    position = count = 0
    while len(data) - position >= 4:
        (size,) = _SIZE.unpack_from(data, position)
        if len(data) - position - 4 < size:
            break
        position += 4 + size
        count += 1
    line.part = data[position:]
    return count


def check_produce(address: tuple[str, int], frame: bytes) -> None:
    """Send one request and make sure that it is accepted: refusals are fast, too."""
    deadline = time.monotonic() + _LEADER_WITHIN_S
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    with connect(address) as sock:
        while time.monotonic() < deadline:
            sock.sendall(frame)
            _, response = framing.decode_response(_PRODUCE, _PRODUCE_VERSION, receive_frame(sock))
            code = ErrorCode(response.responses[0].partition_responses[0].error_code)
            if code == ErrorCode.NONE:
                return
            # Apache Kafka takes a moment to lead a topic that it has just created.
            assert code in RETRIABLE, f"the broker refuses the load: {code.name}"
            time.sleep(0.05)
    raise TimeoutError(f"the broker does not take the load: {code.name}")


def receive_frame(sock: socket.socket) -> bytearray:
    """Read one answer."""
    head = sock.recv(4, socket.MSG_WAITALL)
    (size,) = _SIZE.unpack(head)
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        received = sock.recv_into(view[filled:])
        assert received, "the broker closed the connection"
        filled += received
    return buffer


class _Reading:
    """A connection that reads one partition from its start, one fetch in flight."""

    __slots__ = ("buffer", "filled", "offset", "partition", "socket")

    def __init__(self, address: tuple[str, int], partition: int) -> None:
        self.socket = connect(address)
        self.partition = partition
        self.offset = 0
        self.buffer = bytearray(_RECEIVE_BYTES * 2)
        self.filled = 0


def run_fetch(
    address: tuple[str, int], topic: str, ends: Sequence[int], *, max_bytes: int = 1 << 20
) -> tuple[float, float]:
    """Read partitions 0.. from their start to their ends, one connection each.

    Returns:
        Bytes per second, and how busy the generator was.
    """
    selector = selectors.DefaultSelector()
    for partition in range(len(ends)):
        reading = _Reading(address, partition)
        selector.register(reading.socket, selectors.EVENT_READ, reading)
        reading.socket.sendall(fetch_frame(topic, partition, 0, max_bytes, 500))
    total = 0
    left = len(ends)
    busy_before = time.process_time()
    start = time.perf_counter()
    while left:
        for key, _ in selector.select(5):
            reading = key.data
            view = memoryview(reading.buffer)
            reading.filled += reading.socket.recv_into(view[reading.filled :])
            (size,) = _SIZE.unpack_from(reading.buffer)
            if reading.filled < size + 4:
                if size + 4 > len(reading.buffer):
                    view.release()
                    reading.buffer.extend(bytes(size + 4 - len(reading.buffer)))
                continue
            reading.filled = 0
            total += size
            reading.offset = _next_offset(view[4 : size + 4], reading.offset)
            if reading.offset >= ends[reading.partition]:
                selector.unregister(reading.socket)
                reading.socket.close()
                left -= 1
            else:
                reading.socket.sendall(
                    fetch_frame(topic, reading.partition, reading.offset, max_bytes, 500)
                )
    elapsed = time.perf_counter() - start
    return total / elapsed, (time.process_time() - busy_before) / elapsed


def _next_offset(frame: memoryview, offset: int) -> int:
    """Find where the answer ends by hopping over its batches."""
    _, response = framing.decode_response(1, _FETCH_VERSION, frame)
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code).name
    records = data.records
    position = 0
    while len(records) - position >= 61:
        base, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        (last_delta,) = struct.unpack_from(">i", records, position + 23)
        offset = base + last_delta + 1
        position += 12 + length
    return offset
