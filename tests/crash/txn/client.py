"""Clients that are going to be killed: librdkafka's, each a process of its own.

This file alone decides what they do. Each notes what it is about to do and what became of it in a
journal that outlives it. SIGTERM lets it end what it has begun. One that finds itself replaced, or
its transaction ended by the broker, ends with ``REPLACED``.

    python -m tests.crash.txn.client '{"role": "writer", "name": ..., ...}'
"""

import json
import random
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as ForeignProducer

from tests.crash.txn.history import (
    Ask,
    Begin,
    Consume,
    End,
    Ended,
    Init,
    Initialized,
    Journal,
    Place,
    Read,
    Send,
    Sent,
)

TIMEOUT_MS = 6_000
REPLACED = 3
GROUP = "pumps"
TOPICS = {"a": 2, "b": 2, "in": 2}
_OUTPUTS: list[Place] = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
_INPUTS: list[Place] = [("in", 0), ("in", 1)]
# What a producer hears whose epoch is over. The last one comes to librdkafka when it gives records
# up whose partitions nobody got to know, and then aborts what for the broker never began. Any other
# error that ends a producer is a surprise.
_REPLACED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
    # An abort made it forget records that had reached the log: it has lost count; another begins.
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
}
# How long a call may take before the client looks whether it should end.
_PATIENCE_S = 1.0
_QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    # It says what it thinks of broken connections; they are our doing.
    "log_level": 0,
}


@dataclass(frozen=True)
class Orders:
    """What the process is told.

    Attributes:
        role: "writer", "feeder", "pump" or "reader".
        name: Its own, given to nobody else in this life.
        transactional_id: What it shares with those that come before and after it.
        bootstrap: Where the broker is.
        journal: Where it notes what happens.
        seed: What its dice are made from.
    """

    role: str
    name: str
    transactional_id: str
    bootstrap: str
    journal: str
    seed: str


def command(orders: Orders) -> list[str]:
    """Return what starts such a process."""
    return [sys.executable, "-m", "tests.crash.txn.client", json.dumps(asdict(orders))]


class ReplacedError(Exception):
    """Somebody else has the transactional id, or the broker gave the transaction up."""


class Writer:
    """Writes transactions, one after the other, and leaves some of them open for too long."""

    def __init__(self, orders: Orders, stop: threading.Event, places: list[Place]) -> None:
        self.name = orders.name
        self.journal = Journal(orders.journal)
        self.stop = stop
        self.dice = random.Random(orders.seed)
        self._places = places
        self._count = 0
        self._transactional_id = orders.transactional_id
        self._producer = ForeignProducer(
            {
                "bootstrap.servers": orders.bootstrap,
                "client.id": orders.name,
                "transactional.id": orders.transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                **_QUICK,
            }
        )

    def run(self) -> None:
        """Work until the end."""
        self.journal.append(Init(self.name, self._transactional_id))
        self._insist(self._producer.init_transactions)
        self.journal.append(Initialized(self.name, self._transactional_id))
        while not self.stop.is_set():
            self.work()

    def work(self) -> None:
        """Write one transaction."""
        name = self.begin()
        for number in range(self.dice.randint(1, 4)):
            self.write(name, self.dice.choice(self._places), f"{name}.{number}")
            if self.dice.random() < 0.3:
                self._wait_a_little()
        if self.dice.random() < 0.03:
            # Around the time-out: some come back in time, some too late.
            self.stop.wait(TIMEOUT_MS / 1000 * self.dice.uniform(0.1, 1.5))
        self.end(name, commit=self.dice.random() < 0.8)

    def _wait_a_little(self) -> None:
        """Let the producer work; what went wrong meanwhile is told here, or at the end again."""
        try:
            self._producer.poll(self.dice.random() * 0.01)
        except KafkaException as failure:
            _must_abort(failure)

    def begin(self) -> str:
        """Begin a transaction; return its name."""
        self._count += 1
        name = f"{self.name}/{self._count}"
        self.journal.append(Begin(name, self.name))
        self._producer.begin_transaction()
        return name

    def write(self, name: str, place: Place, value: str) -> None:
        """Send one record."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                self.journal.append(Sent(name, place, value, -1 if offset is None else offset))

        self.journal.append(Send(name, place, value))
        try:
            self._producer.produce(place[0], value, partition=place[1], on_delivery=delivered)
        except KafkaException as failure:
            # Of a fatal error only the end of the transaction names the reason.
            if failure.args[0].code() != KafkaError._FATAL:
                raise

    def end(self, name: str, *, commit: bool) -> bool:
        """Commit or abort; tell whether it was committed."""
        self.journal.append(End(name, commit))
        if commit and self._insist(self._producer.commit_transaction):
            self.journal.append(Ended(name, commit=True))
            return True
        if commit:
            self.journal.append(End(name, commit=False))
        while not self._insist(self._producer.abort_transaction):
            pass
        self.journal.append(Ended(name, commit=False))
        return False

    def send_offsets(self, positions: list[TopicPartition], metadata: Any) -> bool:  # noqa: ANN401
        """Make a group's offsets a part of the transaction; false: it has to be aborted."""
        return self._insist(
            lambda timeout_s: self._producer.send_offsets_to_transaction(
                positions, metadata, timeout_s
            )
        )

    def _insist(self, ask: Callable[[float], object]) -> bool:
        """Ask until there is an answer; false: the transaction has to be aborted.

        Raises:
            ReplacedError: Nothing more can come of it.
        """
        while True:
            try:
                ask(_PATIENCE_S)
            except KafkaException as failure:
                if _must_abort(failure):
                    return False
            else:
                return True


def _must_abort(failure: KafkaException) -> bool:
    """Tell whether a transaction has to be aborted; else the same may be asked again.

    Raises:
        ReplacedError: Nothing more can come of it.
    """
    error: KafkaError = failure.args[0]
    if error.fatal() and error.code() in _REPLACED:
        raise ReplacedError(str(error)) from failure
    if error.txn_requires_abort():
        return True
    if not error.retriable():
        raise failure
    return False


class Pump(Writer):
    """Consumes, transforms, produces: the offsets of its input are a part of each transaction."""

    def __init__(self, orders: Orders, stop: threading.Event) -> None:
        super().__init__(orders, stop, _OUTPUTS)
        self._orders = orders
        self._consumer = self._join()

    def _join(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._orders.bootstrap,
                "client.id": self.name,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 1_000,
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                **_QUICK,
            }
        )
        consumer.subscribe(["in"])
        return consumer

    def work(self) -> None:
        """Turn some input into output, once."""
        found = self._consumer.consume(self.dice.randint(1, 6), 0.1)
        inputs = [message for message in found if message.error() is None]
        if not inputs:
            return
        name = self.begin()
        offsets: dict[Place, list[int]] = {}
        for message in inputs:
            place, offset = _where(message)
            offsets.setdefault(place, []).append(offset)
            value = f"{name}<{place[1]}@{offset}"
            self.write(name, self.dice.choice(_OUTPUTS), value)
        for place, consumed in offsets.items():
            event = Consume(name, GROUP, place, tuple(consumed), consumed[-1] + 1)
            self.journal.append(event)
        positions = [TopicPartition(*place, each[-1] + 1) for place, each in offsets.items()]
        added = self.send_offsets(positions, self._consumer.consumer_group_metadata())
        if not self.end(name, commit=added):
            # Whoever is given the partitions now goes on where the group stands.
            self._consumer.close()
            self._consumer = self._join()


class Reader:
    """Reads what is committed, from the start."""

    def __init__(self, orders: Orders, stop: threading.Event) -> None:
        self._name = orders.name
        self._stop = stop
        self._journal = Journal(orders.journal)
        self._positions = dict.fromkeys([*_OUTPUTS, *_INPUTS], 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": orders.bootstrap,
                "client.id": orders.name,
                "group.id": orders.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                **_QUICK,
            }
        )
        self._consumer.assign([TopicPartition(*place, 0) for place in self._positions])

    def run(self) -> None:
        """Read until the end."""
        while not self._stop.is_set():
            self._journal.append(Ask(self._name))
            found: dict[Place, list[tuple[int, str]]] = {}
            for message in self._consumer.consume(200, 0.1):
                if message.error() is None:
                    place, offset = _where(message)
                    value = (message.value() or b"").decode()
                    found.setdefault(place, []).append((offset, value))
            for place, entries in found.items():
                start, self._positions[place] = self._positions[place], entries[-1][0] + 1
                upto = self._positions[place]
                self._journal.append(Read(self._name, place, start, upto, tuple(entries)))


def _where(message: Message) -> tuple[Place, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return (topic, partition), offset


def main(orders: Orders) -> int:
    """Do as ordered."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        match orders.role:
            case "writer":
                Writer(orders, stop, [*_OUTPUTS, *_INPUTS]).run()
            case "feeder":
                Writer(orders, stop, _INPUTS).run()
            case "pump":
                Pump(orders, stop).run()
            case "reader":
                Reader(orders, stop).run()
    except ReplacedError:
        return REPLACED
    return 0


if __name__ == "__main__":
    sys.exit(main(Orders(**json.loads(sys.argv[1]))))
