"""Clients that have to wait: for how long, what they keep meanwhile, and what others notice."""

import asyncio
import socket
import struct
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.base.record.records import Record, build_batch
from headwater.delivery.broker.quotas import Alteration
from headwater.delivery.client.connection import Connection as Client
from headwater.delivery.server.buffers import RequestMemory
from headwater.delivery.server.connection import Connection
from headwater.delivery.server.throttle import Cost
from headwater.delivery.wire.kafka import apis, messages
from headwater.testing.broker import EmbeddedBroker
from tests.delivery.dialects.kafka.desk import Desk

VALUE_BYTES = 200_000
RATE = 10_000
FETCH = 1
# Later versions of Produce name topics by id.
NAMES_TOPICS = 12


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Give a broker that lets "slow" write 10 kB/s, and 100 kB at once."""
    with EmbeddedBroker(settings={"message.max.bytes": str(2 << 20)}) as running:
        limit(running, producer_byte_rate=RATE)
        yield running


def limit(broker: EmbeddedBroker, **values: float) -> None:
    request = messages.AlterClientQuotasRequest
    entry = request.EntryData(
        [request.EntityData("client-id", "slow")],
        [request.OpData(key, value, remove=False) for key, value in values.items()],
    )
    with connect(broker, "admin") as admin:
        (answer,) = admin.call(request([entry])).entries
    assert answer.error_code == 0


def connect(broker: EmbeddedBroker, client_id: str) -> Client:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return Client(host, int(port), client_id=client_id, timeout_s=30)


def produce_request(size: int, *, acks: int = -1) -> messages.ProduceRequest:
    batch = build_batch([Record(0, int(time.time() * 1000), None, bytes(size))])
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return messages.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def produce(client: Client, size: int) -> int:
    """Write so many bytes; return the throttle time."""
    answer = client.call(produce_request(size), version_max=NAMES_TOPICS)
    assert answer.responses[0].partition_responses[0].error_code == 0
    wait_ms: int = answer.throttle_time_ms
    return wait_ms


def create_topic(broker: EmbeddedBroker, **configs: str) -> None:
    request = messages.CreateTopicsRequest
    given = [
        request.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
    ]
    with connect(broker, "admin") as admin:
        topic = request.CreatableTopic("t", 1, 1, [], given)
        assert admin.call(request([topic], 10_000)).topics[0].error_code == 0


def test_what_was_sent_ahead_waits_as_well(broker: EmbeddedBroker) -> None:
    create_topic(broker)
    with connect(broker, "slow") as slow:
        for _ in range(3):
            slow.send(produce_request(60_000), version_max=NAMES_TOPICS)
        first, second = slow.receive(), slow.receive()
        answered_s = time.monotonic()
        assert first.throttle_time_ms == 0
        assert second.throttle_time_ms == pytest.approx(2_000, abs=200)
        # Not read, so not written: the third comes after the wait.
        third = slow.receive()
        assert time.monotonic() - answered_s > 1.8
        assert third.throttle_time_ms > 0


def test_others_are_served_while_one_waits(broker: EmbeddedBroker) -> None:
    create_topic(broker)
    with connect(broker, "slow") as slow, connect(broker, "quick") as quick:
        assert produce(slow, VALUE_BYTES) > 9_000
        slow.send(messages.MetadataRequest())
        begun_s = time.monotonic()
        for _ in range(20):
            assert produce(quick, VALUE_BYTES) == 0
        assert time.monotonic() - begun_s < 5


def test_of_a_quota_and_a_topic_that_pushes_back_the_longer_wait_counts(
    broker: EmbeddedBroker,
) -> None:
    create_topic(broker, headwater_overflow="backpressure", headwater_overflow_bytes="400000")
    with connect(broker, "slow") as slow, connect(broker, "quick") as quick:
        produce(quick, 150_000)
        # A quarter of what lies between half the bound and the bound: a quarter of a second.
        assert produce(quick, 100_000) == pytest.approx(250, abs=20)
        # Here half a second for the backlog, and nothing yet for the rate; then much for the rate.
        assert produce(slow, 50_000) == pytest.approx(500, abs=20)
        assert produce(slow, 80_000) == pytest.approx(3_000, abs=800)


def test_a_broker_ends_while_clients_wait(broker: EmbeddedBroker) -> None:
    create_topic(broker)
    with connect(broker, "slow") as slow:
        assert produce(slow, VALUE_BYTES) > 9_000
        begun_s = time.monotonic()
        broker.stop()
        assert time.monotonic() - begun_s < 5


# The pieces.


def stub_listener(loop: asyncio.AbstractEventLoop) -> Any:  # noqa: ANN401 - what a connection asks of it
    return SimpleNamespace(
        loop=loop,
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        now_ms=lambda: 0,
        executor=None,
        memory=RequestMemory(-1),
        scratch=memoryview(bytearray(1 << 16)),
        request_bytes_max=1 << 20,
        forget=lambda _: None,
        step_aside=lambda _: None,
    )


@pytest.mark.parametrize("waits_ms", [(50, 300), (300, 50)])
def test_the_longest_wait_counts(waits_ms: tuple[int, int]) -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            listener = stub_listener(loop)
            heard = loop.create_future()
            listener.dispatch = lambda _connection, frame: heard.set_result(bytes(frame))
            connection = Connection(listener, ours, "here", 0)
            theirs.sendall(struct.pack(">i", 8) + b"\0\x12......")
            begun_s = loop.time()
            for wait_ms in waits_ms:
                connection.mute(wait_ms)
            await asyncio.wait_for(heard, 10)
            took_s = loop.time() - begun_s
            connection.close()
            return took_s

    assert 0.29 < asyncio.run(run()) < 5


def test_a_connection_that_closes_forgets_its_wait() -> None:
    async def run() -> list[Any]:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            connection = Connection(stub_listener(loop), ours, "here", 0)
            connection.mute(3_600_000)
            connection.close()
            connection.mute(3_600_000)
            return [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_waits_in_the_middle_of_a_request_keeps_little_memory(when: str) -> None:
    small = struct.pack(">i", 8) + b"\0\x12......"
    begun = struct.pack(">i", 500_000) + bytes(100)

    async def run() -> int:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            listener = stub_listener(loop)
            connection = Connection(listener, ours, "here", 0)
            listener.dispatch = lambda *_: connection.mute(60_000) if when == "before" else None
            theirs.sendall(small + begun)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if when == "after":
                assert listener.memory.used_bytes >= 500_000
                connection.mute(60_000)
            used: int = listener.memory.used_bytes
            owing = [connection.owes_bytes]
            connection._unmute()
            owing.append(connection.owes_bytes)
            assert owing == [False, True]
            listener.give_buffer_back = lambda frame: listener.memory.give_back(frame.obj)
            connection.close()
            assert listener.memory.used_bytes == 0
            return used

    assert asyncio.run(run()) == 100


@pytest.mark.parametrize("told_ms, expected_ms", [(0, 10_000), (99_000, 99_000)])
def test_an_answer_tells_the_longest_wait(told_ms: int, expected_ms: int) -> None:
    quotas = Desk().broker.quotas
    change = Alteration({"client-id": "slow"}, [("producer_byte_rate", 1000.0)])
    quotas.alter([change], validate_only=False)
    cost = Cost(quotas, apis.PRODUCE, "slow", 20_000)
    response = messages.ProduceResponse(throttle_time_ms=told_ms)
    cost.handled()
    assert cost.answered(response) == 10_000
    assert response.throttle_time_ms == expected_ms
    assert Cost(quotas, FETCH, "slow", 20_000).answered(messages.FetchResponse()) == 0
    assert Cost(quotas, apis.PRODUCE, "slow", 20_000).answered(None) == 30_000
