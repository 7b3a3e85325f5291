"""Requests that are larger together than the memory for them: slow, but all are answered."""

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.server.buffers import RequestMemory
from headwater.delivery.wire.kafka import apis, framing, messages
from headwater.testing.broker import EmbeddedBroker

BUDGET_BYTES = 4_000_000
VALUE_BYTES = 2_500_000
CLIENTS = 8


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "socket.request.max.bytes": str(BUDGET_BYTES),
        "queued.max.request.bytes": str(BUDGET_BYTES),
        "message.max.bytes": str(BUDGET_BYTES),
    }
    with EmbeddedBroker(settings=settings) as running:
        with Cluster(running.bootstrap_servers) as cluster:
            admin.create_topic(cluster, "t", partitions=1)
        yield running


def produce_request(value_bytes: int = VALUE_BYTES) -> messages.ProduceRequest:
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(value_bytes))])
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return messages.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


def connect(broker: EmbeddedBroker, client_id: str = "tester") -> Connection:
    host, port = broker.bootstrap_servers.split(":")
    return Connection(host, int(port), client_id=client_id, timeout_s=10)


def receive_produced(connection: Connection) -> messages.ProduceResponse:
    (size,) = struct.unpack(">i", connection._receive_exactly(4))
    answer = connection._receive_exactly(size)
    _, response = framing.decode_response(apis.PRODUCE, 9, answer)
    assert isinstance(response, messages.ProduceResponse)
    return response


def limit_bytes(connection: Connection, client_id: str, *, rate: float) -> None:
    request = messages.AlterClientQuotasRequest
    entry = request.EntryData(
        [request.EntityData("client-id", client_id)],
        [request.OpData("producer_byte_rate", rate, remove=False)],
    )
    (answer,) = connection.call(request([entry])).entries
    assert answer.error_code == ErrorCode.NONE


def wait_until_spent(broker: EmbeddedBroker) -> None:
    deadline = time.monotonic() + 10
    while not broker.node.request_memory.spent and time.monotonic() < deadline:
        time.sleep(0.01)
    assert broker.node.request_memory.spent


def test_requests_that_each_hold_a_part_do_not_wait_for_each_other_for_ever(
    broker: EmbeddedBroker,
) -> None:
    frame = b"".join(framing.encode_request(apis.PRODUCE, 9, 7, "tester", produce_request()))
    codes: list[int] = []
    connections = [connect(broker) for _ in range(CLIENTS)]
    try:
        for connection in connections:
            connection._socket.sendall(frame[:1_100_000])
        wait_until_spent(broker)

        def finish(connection: Connection) -> None:
            sock = connection._socket
            sock.sendall(frame[1_100_000:])
            response = receive_produced(connection)
            codes.append(response.responses[0].partition_responses[0].error_code)

        threads = [threading.Thread(target=finish, args=(each,)) for each in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for connection in connections:
            connection.close()

    assert codes == [ErrorCode.NONE] * CLIENTS


def test_clients_that_vanish_while_they_wait_for_memory_give_theirs_back(
    broker: EmbeddedBroker,
) -> None:
    frame = b"".join(framing.encode_request(apis.PRODUCE, 9, 7, "tester", produce_request()))
    connections = [connect(broker) for _ in range(CLIENTS)]
    try:
        for connection in connections:
            connection._socket.sendall(frame[:1_100_000])
        wait_until_spent(broker)
    finally:
        for connection in connections:
            connection.close()
    deadline = time.monotonic() + 10
    while broker.node.request_memory.used_bytes and time.monotonic() < deadline:
        time.sleep(0.01)

    assert broker.node.request_memory.used_bytes == 0


def test_whoever_is_muted_does_not_keep_memory_from_others(broker: EmbeddedBroker) -> None:
    frame = b"".join(framing.encode_request(apis.PRODUCE, 9, 7, "tester", produce_request()))
    with connect(broker) as first, connect(broker) as second, connect(broker, "slow") as slow:
        limit_bytes(first, "slow", rate=50)
        for quick in (first, second):
            quick._socket.sendall(frame[:1_100_000])
        wait_until_spent(broker)
        # Its first request costs it half a minute, and the next one has begun.
        begun = b"".join(framing.encode_request(apis.PRODUCE, 9, 7, "slow", produce_request(2_000)))
        slow._socket.sendall(begun + frame[:1_100_000])
        assert receive_produced(slow).throttle_time_ms > 25_000
        for quick in (first, second):
            quick._socket.sendall(frame[1_100_000:])
        for quick in (first, second):
            answer = receive_produced(quick)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_buffer_that_somebody_still_looks_at_can_grow() -> None:
    memory = RequestMemory(-1)
    buffer = memory.take(10)
    buffer[:] = b"0123456789"
    view = memoryview(buffer)

    grown = memory.grow(buffer, 20)

    assert (bytes(grown[:10]), len(grown), memory.used_bytes) == (b"0123456789", 20, 20)
    assert bytes(view) == b"0123456789"
    assert memory.grow(grown, 30) is grown


@st.composite
def moves(draw: st.DrawFn) -> list[tuple[str, int]]:
    kinds = st.sampled_from(["take", "grow", "trim", "give back"])
    sizes = st.one_of(st.integers(1, 9_000_000), st.sampled_from([1 << 16, 1 << 20, 1 << 22]))
    return draw(st.lists(st.tuples(kinds, sizes), max_size=60))


@given(moves(), st.sampled_from([-1, 5_000_000, 20_000_000]))
def test_what_is_held_stays_within_the_budget(moves: list[tuple[str, int]], limit: int) -> None:
    memory = RequestMemory(limit)
    held: list[bytearray] = []
    for kind, size in moves:
        if kind == "take" and not memory.spent:
            held.append(memory.take(size))
            assert len(held[-1]) >= size
        elif held:
            buffer = held.pop(size % len(held))
            if kind == "grow":
                held.append(memory.grow(buffer, len(buffer) + size))
            elif kind == "trim":
                memory.trim(buffer, size % (len(buffer) + 1))
                held.append(buffer)
            else:
                memory.give_back(buffer)
        pooled = [buffer for buffers in memory._pool.values() for buffer in buffers]
        assert memory.used_bytes == sum(map(len, held))
        assert memory.pooled_bytes == sum(map(len, pooled))
        if limit > 0:
            assert memory.pooled_bytes <= max(0, limit - memory.used_bytes)


def test_what_somebody_looks_at_is_not_trimmed() -> None:
    memory = RequestMemory(-1)
    buffer = memory.take(10)
    with memoryview(buffer):
        memory.trim(buffer, 4)
    assert (len(buffer), memory.used_bytes) == (10, 10)
    memory.trim(buffer, 4)
    assert (len(buffer), memory.used_bytes) == (4, 4)
