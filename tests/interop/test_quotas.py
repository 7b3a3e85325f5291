"""Real clients that are faster than their quota: they wait, are told so, and lose nothing.

Our own broker measures over a few seconds only, so that the tests do not wait for long.
"""

import asyncio
import time
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headwater.delivery.client.connection import Connection
from headwater.delivery.wire.kafka import messages
from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import Clients
from tests.interop.records import Record, an_hour_ago_ms

WAIT_S = 60.0
# What is allowed in two seconds may come at once, and in Kafka in ten: less than is sent.
RATE, KAFKAS_RATE = 150_000, 50_000
VALUE_BYTES = 10_000
RECORDS = 60


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedBroker]:
    """Give a broker that forgets after three seconds."""
    with EmbeddedBroker(settings={"quota.window.num": "3"}) as broker:
        yield broker


def limit(address: str, client_id: str, **values: float) -> None:
    request = messages.AlterClientQuotasRequest
    entry = request.EntryData(
        [request.EntityData("client-id", client_id)],
        [request.OpData(key, value, remove=False) for key, value in values.items()],
    )
    host, _, port = address.rpartition(":")
    with Connection(host, int(port)) as connection:
        (answer,) = connection.call(request([entry])).entries
        assert answer.error_code == 0
        described = messages.DescribeClientQuotasRequest
        exact = described.ComponentData("client-id", 0, client_id)
        while not connection.call(described([exact])).entries:
            time.sleep(0.01)


def create(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)


def values() -> list[bytes]:
    return [str(index).encode().ljust(VALUE_BYTES, b".") for index in range(RECORDS)]


def produce(address: str, topic: str, **more: object) -> int:
    settings = {"bootstrap.servers": address, "batch.size": 2 * VALUE_BYTES, **more}
    producer = confluent_kafka.Producer(settings)
    delivered: list[object] = []
    for value in values():
        producer.produce(topic, value, callback=lambda error, _: delivered.append(error))
    producer.flush(WAIT_S)
    return delivered.count(None)


def consume(address: str, topic: str, **more: object) -> list[bytes]:
    settings = {
        "bootstrap.servers": address,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 100_000,
        **more,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    received: list[bytes] = []
    end_s = time.monotonic() + WAIT_S
    while len(received) < RECORDS and time.monotonic() < end_s:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            received.append(message.value() or b"")
    consumer.close()
    return received


def produce_too_fast(address: str, name: str, rate: int) -> None:
    create(address, name)
    limit(address, name, producer_byte_rate=rate)
    told: list[ThrottleEvent] = []
    settings = {"client.id": name, "throttle_cb": told.append}
    assert produce(address, name, **settings) == RECORDS
    assert max(event.throttle_time for event in told) > 0.1


def test_librdkafka_is_told_and_waits(own_broker: EmbeddedBroker, name: str) -> None:
    address = own_broker.bootstrap_servers
    produce_too_fast(address, name, RATE)
    limit(address, name, consumer_byte_rate=RATE)
    told: list[ThrottleEvent] = []
    settings = {"client.id": name, "throttle_cb": told.append}
    assert consume(address, name, **settings) == values()
    assert max(event.throttle_time for event in told) > 0.1
    # Whoever has another name is as quick as ever.
    told.clear()
    settings |= {"client.id": f"quick-{name}", "group.id": "quick"}
    assert consume(address, name, **settings) == values()
    assert told == []


@pytest.mark.peer
def test_librdkafka_is_told_by_apache_kafka(apache_kafka: str, name: str) -> None:
    produce_too_fast(apache_kafka, name, KAFKAS_RATE)


def test_kafka_python_is_told_and_waits(own_broker: EmbeddedBroker, name: str) -> None:
    address = own_broker.bootstrap_servers
    create(address, name)
    limit(address, name, producer_byte_rate=RATE)
    producer = kafka.KafkaProducer(bootstrap_servers=address, client_id=name, acks="all")
    for future in [producer.send(name, value) for value in values()]:
        future.get(timeout=WAIT_S)
    times = [
        value
        for group in producer.metrics().values()
        for key, value in group.items()
        if "throttle-time-max" in key
    ]
    assert max(times) > 100
    producer.close()
    assert consume(address, name) == values()


def test_aiokafka_waits_beside_somebody_who_does_not(own_broker: EmbeddedBroker, name: str) -> None:
    address = own_broker.bootstrap_servers
    create(address, name)
    limit(address, name, producer_byte_rate=RATE)

    async def send(client_id: str) -> float:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, client_id=client_id, acks="all"
        )
        await producer.start()
        begun_s = time.monotonic()
        for future in [await producer.send(name, value) for value in [*values(), b"one more"]]:
            await future
        took_s = time.monotonic() - begun_s
        await producer.stop()
        return took_s

    async def both() -> tuple[float, float]:
        return await asyncio.gather(send(name), send(f"quick-{name}"))

    slow_s, quick_s = asyncio.run(both())
    assert slow_s > 0.2
    assert quick_s < slow_s


# How each client is given its name, and told to send batches of one or two records.
NAMED = {
    "kcat": lambda name: {"client.id": name, "batch.size": 2 * VALUE_BYTES},
    "kafkajs": lambda name: {"clientId": name, "batchRecords": 2},
    "java-3.9": lambda name: {"client.id": name, "batch.size": 2 * VALUE_BYTES},
    "java-2.8": lambda name: {"client.id": name, "batch.size": 2 * VALUE_BYTES},
}
FETCH_BYTES = 5 * VALUE_BYTES
# Two seconds' worth is free, and nobody waits for what the last answers tell: the last fetch, or
# as many batches as a client has under way at once. The rest takes its time. The clock of the
# broker's windows begins with the first record, so nothing is given away before it.
UNDER_WAY_BYTES = 5 * 2 * VALUE_BYTES
WAITED_S = (RECORDS * VALUE_BYTES - UNDER_WAY_BYTES) / RATE - 2.0


def said_or_seen(clients: Clients, client: str, kind: str, took_s: float) -> None:
    """Expect a throttle: of kcat, which tells nothing, that it took the time."""
    assert took_s >= WAITED_S
    if client != "kcat":
        assert clients[client].call("throttled")[kind] > 100


@pytest.mark.parametrize("client", list(NAMED))
def test_other_clients_wait(
    own_broker: EmbeddedBroker, clients: Clients, name: str, client: str
) -> None:
    address = own_broker.bootstrap_servers
    create(address, name)
    limit(address, name, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    at_ms = an_hour_ago_ms()
    sent = [Record(b"key", value, timestamp_ms=at_ms) for value in values()]
    settings = NAMED[client](name)
    speaker = clients[client]
    begun_s = time.monotonic()
    speaker.call(
        "produce",
        bootstrap=address,
        topic=name,
        records=[record.packed() for record in sent],
        settings=settings,
    )
    said_or_seen(clients, client, "produce", time.monotonic() - begun_s)
    del settings[list(settings)[1]]
    begun_s = time.monotonic()
    found = speaker.call(
        "consume",
        bootstrap=address,
        topics=[name],
        fetch_max_bytes=FETCH_BYTES,
        settings=settings,
    )
    said_or_seen(clients, client, "fetch", time.monotonic() - begun_s)
    assert [Record.unpacked(fields).value for fields in found[name]] == values()
