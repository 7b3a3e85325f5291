"""Consume, transform, produce, exactly once: records and offsets in one transaction.

A worker reads numbers, writes their doubles, and commits how far it has read in the same
transaction. It aborts, dies and is replaced on the way, and the broker is started again; in the
end every number has been doubled once, in order, and the group has read all of them.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # a name it does not export
    AdminClient,
    NewTopic,
)

from headwater.testing.broker import EmbeddedBroker

NUMBERS = 120
BATCH = 7
PARTITIONS = 2
PATIENCE_S = 60.0
# So few that each of them, and the pause that follows it, is met in every run.
MISHAPS = ("abort", "die before the commit", "die without a word", "restart", "replace")


class Broker:
    """A broker that a test may start again, if it is ours."""

    def __init__(self, running: EmbeddedBroker | str) -> None:
        self._running = running

    @property
    def bootstrap(self) -> str:
        running = self._running
        return running if isinstance(running, str) else running.bootstrap_servers

    def restart(self) -> None:
        if isinstance(self._running, EmbeddedBroker):
            self._running.stop()
            self._running.start()


@pytest.fixture
def our_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_directory=str(tmp_path), settings={"num.partitions": "2"}) as running:
        yield running


@pytest.fixture(
    params=[
        pytest.param("our_broker", id="headwater"),
        pytest.param("apache_kafka", id="apache-kafka", marks=pytest.mark.peer),
    ]
)
def broker(request: pytest.FixtureRequest) -> Broker:
    return Broker(request.getfixturevalue(request.param))


class Worker:
    """One life of the worker; whoever has the same name and comes later replaces it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._target = f"{name}-out"
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "linger.ms": 0,
                # librdkafka 2.16 forgets the only broker when it is down, and then goes on asking
                # what it has forgotten for the group's coordinator, for ever.
                "metadata.recovery.strategy": "none",
            }
        )
        self._producer.init_transactions(PATIENCE_S)
        self._consumer.subscribe([f"{name}-in"])

    def work(self, *, mishap: str | None = None) -> bool:
        """Do one batch; tell whether there was anything to do."""
        messages = self._read()
        if not messages:
            return False
        self._producer.begin_transaction()
        for message in messages:
            partition = message.partition()
            assert partition is not None
            self._producer.produce(self._target, _doubled(message), partition=partition)
        if mishap == "die without a word":
            # The broker learns of it when the next one comes.
            self._consumer.close()
            return True
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
            PATIENCE_S,
        )
        if mishap == "abort":
            self._producer.abort_transaction(PATIENCE_S)
            self._rewind()
        elif mishap != "die before the commit":
            self._producer.commit_transaction(PATIENCE_S)
        return True

    def close(self) -> None:
        self._consumer.close()

    def _read(self) -> list[Message]:
        messages = self._consumer.consume(BATCH, timeout=1.0)
        return [message for message in messages if message.error() is None]

    def _rewind(self) -> None:
        for place in self._consumer.committed(self._consumer.assignment(), PATIENCE_S):
            if place.offset < 0:
                place.offset = OFFSET_BEGINNING
            self._consumer.seek(place)


def _doubled(message: Message) -> bytes:
    value = message.value()
    assert value is not None
    return b"%d" % (2 * int(value))


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    for future in created.values():
        future.result(PATIENCE_S)


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(NUMBERS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def read_all(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """All committed values by partition, to the end of each."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        partition, value = message.partition(), message.value()
        if message.error() is not None:
            ended.add(partition)
        else:
            assert partition is not None
            assert value is not None
            found[partition].append(int(value))
    consumer.close()
    return found


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
    found = [place.offset for place in consumer.committed(places, PATIENCE_S)]
    consumer.close()
    return found


def test_every_number_is_doubled_once(broker: Broker, name: str) -> None:
    create(broker.bootstrap, f"{name}-in", f"{name}-out")
    fill(broker.bootstrap, f"{name}-in")
    chance = random.Random(4)
    mishaps = [*MISHAPS, *chance.sample(MISHAPS, 2)]
    worker = Worker(broker.bootstrap, name)

    while worker.work() or mishaps:
        if not mishaps:
            continue
        mishap = mishaps.pop()
        worker.work(mishap=mishap)
        if mishap == "restart":
            broker.restart()
        elif mishap != "abort":
            worker.close()
            worker = Worker(broker.bootstrap, name)
    worker.close()

    expected = {
        each: [2 * number for number in range(each, NUMBERS, PARTITIONS)]
        for each in range(PARTITIONS)
    }
    assert read_all(broker.bootstrap, f"{name}-out") == expected
    ends = [NUMBERS // PARTITIONS] * PARTITIONS
    assert committed(broker.bootstrap, name, f"{name}-in") == ends
