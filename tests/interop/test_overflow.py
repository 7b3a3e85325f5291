"""Real producers against a topic that pushes back or drops, with a consumer that is slow.

The consumer begins to read only when the broker has refused something, so every producer here has
been told NOT_ENOUGH_REPLICAS and has had to send again by itself.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headwater.delivery.broker import overflow
from headwater.testing.broker import EmbeddedBroker

RECORDS = 300
VALUE_BYTES = 1_000
BOUND_BYTES = 100_000
WAIT_S = 60.0


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    # The delays alone would keep a short test below the bound; here the refusals are the subject.
    monkeypatch.setattr(overflow, "DELAY_MS_MAX", 5)
    with EmbeddedBroker() as broker:
        yield broker


def create(broker: EmbeddedBroker, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    configs = {"headwater.overflow": policy, "headwater.overflow.bytes": str(BOUND_BYTES)}
    admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(WAIT_S)


def values() -> list[bytes]:
    return [str(index).encode().ljust(VALUE_BYTES, b".") for index in range(RECORDS)]


def with_confluent(*, idempotent: bool) -> Callable[[str], int]:
    def produce(bootstrap: str) -> int:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "max.in.flight.requests.per.connection": 5 if idempotent else 1,
                "batch.size": 16_384,
            }
        )
        delivered: list[object] = []
        for value in values():
            producer.produce("t", value, callback=lambda error, _: delivered.append(error))
        producer.flush(WAIT_S)
        return delivered.count(None)

    return produce


def with_transactions(bootstrap: str) -> int:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "x", "batch.size": 16_384}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    delivered: list[object] = []
    for value in values():
        producer.produce("t", value, callback=lambda error, _: delivered.append(error))
    producer.commit_transaction(WAIT_S)
    return delivered.count(None)


def with_kafka_python(bootstrap: str) -> int:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = [producer.send("t", value) for value in values()]
    for future in sent:
        future.get(timeout=WAIT_S)
    producer.close()
    return len(sent)


def with_aiokafka(bootstrap: str) -> int:
    async def produce() -> int:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
        await producer.start()
        sent = [await producer.send("t", value) for value in values()]
        await asyncio.gather(*sent)
        await producer.stop()
        return len(sent)

    return asyncio.run(produce())


def consume(
    bootstrap: str, until: Callable[[list[bytes]], bool], *, commit_every: int = 10
) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "slow",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # A transaction larger than the bound ends only if it is read before.
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.subscribe(["t"])
    received: list[bytes] = []
    end_s = time.monotonic() + WAIT_S
    while not until(received):
        assert time.monotonic() < end_s, f"{len(received)} records, and no more come"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            received.append(message.value() or b"")
            if len(received) % commit_every == 0:
                consumer.commit(asynchronous=False)
    consumer.close()
    return received


def wait_for_a_refusal(broker: EmbeddedBroker) -> None:
    counters = broker.node.broker.overflow.counters
    end_s = time.monotonic() + WAIT_S
    while ("t", 0) not in counters or not counters["t", 0].refused:
        assert time.monotonic() < end_s, "nothing was refused"
        time.sleep(0.01)


# Without idempotence librdkafka has its next request ready while one is in flight, and sends it
# before it sends a refused one again: nothing but order is lost.
@pytest.mark.parametrize(
    "produce, keeps_order",
    [
        pytest.param(with_confluent(idempotent=True), True, id="confluent-idempotent"),
        pytest.param(with_confluent(idempotent=False), False, id="confluent"),
        pytest.param(with_transactions, True, id="confluent-transactional"),
        pytest.param(with_kafka_python, True, id="kafka-python"),
        pytest.param(with_aiokafka, True, id="aiokafka"),
    ],
)
def test_every_producer_waits_until_the_slow_consumer_has_caught_up(
    broker: EmbeddedBroker, produce: Callable[[str], int], keeps_order: bool
) -> None:
    create(broker, "backpressure")
    outcome: dict[str, Any] = {}

    def run() -> None:
        outcome["delivered"] = produce(broker.bootstrap_servers)

    producer = threading.Thread(target=run)
    producer.start()
    wait_for_a_refusal(broker)
    received = consume(broker.bootstrap_servers, lambda got: len(got) >= RECORDS)
    producer.join(WAIT_S)

    assert outcome == {"delivered": RECORDS}
    assert sorted(received) == sorted(values()), "nothing lost, nothing twice"
    if keeps_order:
        assert received == values(), "nothing out of order"


@pytest.mark.parametrize("transactional", [False, True])
def test_a_refused_first_batch_is_in_the_log_when_it_is_reported_as_delivered(
    broker: EmbeddedBroker, transactional: bool
) -> None:
    """The small batches after it would pass, and be the first of a producer nobody knows."""
    create(broker, "backpressure")
    filling = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    filling.produce("t", b"filling".ljust(BOUND_BYTES * 6 // 10))
    filling.flush(WAIT_S)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "batch.num.messages": 1,
            "enable.idempotence": True,
        }
        | ({"transactional.id": "x"} if transactional else {})
    )
    if transactional:
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
    sent = [b"large".ljust(BOUND_BYTES * 6 // 10), b"1", b"2", b"3"]
    delivered: list[tuple[object, bytes | None]] = []
    for value in sent:
        producer.produce(
            "t", value, callback=lambda error, message: delivered.append((error, message.value()))
        )
    wait_for_a_refusal(broker)
    received: list[bytes] = []
    reader = threading.Thread(
        target=lambda: received.extend(
            consume(broker.bootstrap_servers, lambda got: len(got) > len(sent), commit_every=1)
        )
    )
    reader.start()
    if transactional:
        producer.commit_transaction(WAIT_S)
    else:
        producer.flush(WAIT_S)
    reader.join(WAIT_S)
    assert delivered == [(None, value) for value in sent]
    assert received[1:] == sent


def test_a_slow_consumer_of_a_dropping_topic_gets_the_newest(broker: EmbeddedBroker) -> None:
    create(broker, "drop")
    assert with_confluent(idempotent=True)(broker.bootstrap_servers) == RECORDS
    received = consume(broker.bootstrap_servers, lambda got: values()[-1] in got)

    assert received == values()[-len(received) :]
    assert sum(map(len, received)) <= BOUND_BYTES
    dropped = broker.node.broker.overflow.counters["t", 0].dropped_records
    assert dropped == RECORDS - len(received) > 0
