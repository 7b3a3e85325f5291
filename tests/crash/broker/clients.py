"""Clients that write and read until the broker is gone.

This file alone decides what they send, and what they note of it in the ledger. Each lives through a
round on a thread of its own and remembers what it is owed for the next one: the dice of a round say
what it does, the machine says how far it gets.
"""

import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError as ForeignError
from confluent_kafka import Message, Producer

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.group import GroupConsumer
from tests.crash.broker.promises import SHRINKING, TRIMMED, Ledger, Place
from tests.crash.broker.wire import (
    TIMEOUT_S,
    Fetched,
    connect,
    fetch,
    init_producer_id,
    receive_produce,
    send_produce,
)

ACKS_ALL = -1
# What every producer may have under way: Kafka's limit for idempotent ones.
_IN_FLIGHT_MAX = 5
_GONE_WITHIN_S = 10.0


@dataclass
class Scene:
    """One round, as its clients see it.

    Attributes:
        address: Where the broker is.
        seed: What the clients' dice are made from.
        stop: Set when nothing new should be begun.
        gone: Set when the process has ended.
    """

    address: tuple[str, int]
    seed: str
    stop: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def bootstrap(self) -> str:
        """The address as clients are given it."""
        return f"{self.address[0]}:{self.address[1]}"


class Client:
    """Somebody who uses the broker; ``live`` is one round of it."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.dice = random.Random()

    def run(self, scene: Scene) -> None:
        """Live until the broker is gone; anything else that ends it is a breach."""
        self.dice = random.Random(f"{scene.seed}/{self.name}")
        try:
            self.live(scene)
        except BrokerUnreachableError as error:
            # A connection may break when the broker dies, and only then.
            if not scene.gone.wait(_GONE_WITHIN_S):
                self.ledger.breach("unreachable", f"{self.name}: {error}")
        except Exception:  # noqa: BLE001 - whatever it is, the campaign must hear of it
            self.ledger.breach("unexpected", f"{self.name}: {traceback.format_exc()}")

    def live(self, scene: Scene) -> None:
        """Use the broker until it is gone or the scene stops."""
        raise AssertionError("a subclass lives")

    def pause(self, scene: Scene) -> None:
        """Do nothing for a few milliseconds, now and then."""
        if self.dice.random() < 0.3:
            scene.stop.wait(self.dice.random() * 0.01)

    def values(self, place: Place) -> list[bytes]:
        """Return some new values for a partition."""
        count = self.dice.randint(1, 6)
        return self.ledger.values(place, count, [self.dice.randint(0, 200) for _ in range(count)])


@dataclass
class Sent:
    """A produce request, kept until it is answered."""

    acks: int
    batches: dict[Place, bytes]
    values: dict[Place, list[bytes]]


class Writer(Client):
    """Sends batches, several requests at a time, and notes which were acknowledged."""

    def __init__(self, name: str, ledger: Ledger, places: Sequence[Place]) -> None:
        super().__init__(name, ledger)
        self._places = places
        self._unanswered: deque[Sent] = deque()

    def live(self, scene: Scene) -> None:
        """Send until the end."""
        with connect(scene.address, self.name) as connection:
            self.begin(connection)
            in_flight_max = self.dice.randint(1, _IN_FLIGHT_MAX)
            while not scene.stop.is_set():
                self._send(connection, self._compose())
                while len(self._unanswered) >= in_flight_max:
                    self._receive(connection)
                self.pause(scene)
            while self._unanswered:
                self._receive(connection)

    def begin(self, connection: Connection) -> None:
        """Forget what was not answered: it may be there or not."""
        self._unanswered.clear()

    def _compose(self) -> Sent:
        acks = self.acks()
        values = {
            place: self.values(place)
            for place in self.dice.sample(self._places, self.dice.randint(1, 3))
        }
        return Sent(acks, {place: self.batch(place, values[place]) for place in values}, values)

    def acks(self) -> int:
        """Choose how safe a request should be."""
        return self.dice.choice((ACKS_ALL, ACKS_ALL, ACKS_ALL, 1, 0))

    def batch(self, place: Place, values: list[bytes]) -> bytes:
        """Encode some values."""
        return self.encode(values)

    def may_refuse(self, place: Place, code: ErrorCode) -> bool:
        """Tell whether the broker is allowed to refuse a batch; it is not."""
        return False

    def encode(
        self, values: list[bytes], producer: tuple[int, int] = (-1, -1), sequence: int = -1
    ) -> bytes:
        """Encode some values with a compression of the day."""
        now_ms = time.time_ns() // 1_000_000
        return bytes(
            build_batch(
                [Record(0, now_ms, value[:8], value) for value in values],
                codec=self.dice.choice(list(Codec)),
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
            )
        )

    def _send(self, connection: Connection, sent: Sent) -> None:
        if sent.acks != 0:
            self._unanswered.append(sent)
        send_produce(connection, sent.acks, sent.batches)

    def _receive(self, connection: Connection) -> None:
        answers = list(receive_produce(connection))
        sent = self._unanswered.popleft()
        for place, answer in answers:
            if answer.error_code:
                code = ErrorCode(answer.error_code)
                if not self.may_refuse(place, code):
                    self.ledger.breach("refused", f"{self.name}: {place} answers {code.name}")
                continue
            durable = sent.acks == ACKS_ALL
            self.ledger.acknowledge(place, answer.base_offset, sent.values[place], durable=durable)
            self.ledger.show_start(place, answer.log_start_offset)


class IdempotentWriter(Writer):
    """Sends everything again that was not answered, until it is."""

    def __init__(self, name: str, ledger: Ledger, places: Sequence[Place]) -> None:
        super().__init__(name, ledger, places)
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Place, int] = {}
        self._last: Sent | None = None
        self._sends_again = False

    def begin(self, connection: Connection) -> None:
        """Send again what was not answered, or the last that was: neither may come twice."""
        if self._producer is None:
            self._unanswered.clear()
        elif not self._unanswered and self._last is not None:
            self._unanswered.append(self._last)
        self._sends_again = True
        for sent in self._unanswered:
            send_produce(connection, sent.acks, sent.batches)
        while self._unanswered:
            self._receive(connection)
        self._sends_again = False
        if self._producer is None or self.dice.random() < 0.1:
            self._producer = init_producer_id(connection)
            self.ledger.producer_id(self._producer[0])
            self._sequences.clear()
            self._last = None

    def acks(self) -> int:
        """Return the only choice that idempotent producers have."""
        return ACKS_ALL

    def batch(self, place: Place, values: list[bytes]) -> bytes:
        """Encode some values with the next sequence numbers."""
        assert self._producer is not None
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        return self.encode(values, self._producer, sequence)

    def may_refuse(self, place: Place, code: ErrorCode) -> bool:
        """Tell whether what would show the repetition may be gone; the producer starts anew."""
        may = (
            self._sends_again
            and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            and self.ledger.topics[place[0]].habit in {TRIMMED, SHRINKING}
        )
        if may:
            self._producer = None
            self.ledger.counts["forgotten"] += 1
        return may

    def _receive(self, connection: Connection) -> None:
        self._last = self._unanswered[0]
        super()._receive(connection)


class ForeignWriter(Client):
    """librdkafka's idempotent producer, which lives through all crashes of a directory."""

    def __init__(self, name: str, ledger: Ledger, places: Sequence[Place], bootstrap: str) -> None:
        super().__init__(name, ledger)
        self._places = places
        self._failed = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "error_cb": self._on_error,
                # It says what it thinks of broken connections; they are our doing.
                "log_level": 0,
            }
        )

    def live(self, scene: Scene) -> None:
        """Send and take answers until the end."""
        while not scene.stop.is_set() and not scene.gone.is_set() and not self._failed.is_set():
            if len(self._producer) < 200:
                for place in self.dice.sample(self._places, 1):
                    for value in self.values(place):
                        self._send(place, value)
            self._producer.poll(self.dice.random() * 0.02)

    def _send(self, place: Place, value: bytes) -> None:
        def delivered(error: ForeignError | None, message: Message) -> None:
            if error is not None:
                self._fail(f"{place}: not delivered: {error}")
                return
            offset = message.offset()
            assert offset is not None
            self.ledger.acknowledge(place, offset, [value], durable=True)

        self._producer.produce(place[0], value, partition=place[1], on_delivery=delivered)

    def finish(self) -> None:
        """Wait until everything is delivered: the broker is up and stays so."""
        left = self._producer.flush(TIMEOUT_S)
        if left and not self._failed.is_set():
            self._fail(f"{left} records are not delivered")

    def drop(self) -> None:
        """Forget everything that was not delivered."""
        self._failed.set()
        self._producer.purge()
        self._producer.flush(TIMEOUT_S)

    def _on_error(self, error: ForeignError) -> None:
        if error.fatal():
            self._fail(f"fatal: {error}")

    def _fail(self, what: str) -> None:
        if not self._failed.is_set():
            self._failed.set()
            self.ledger.breach("refused", f"{self.name}: {what}")


class Reader(Client):
    """Reads everything, at the end and in the middle, and notes what it was shown."""

    def __init__(self, name: str, ledger: Ledger, places: Sequence[Place]) -> None:
        super().__init__(name, ledger)
        self._positions = dict.fromkeys(places, 0)

    def live(self, scene: Scene) -> None:
        """Read until the end."""
        with connect(scene.address, self.name) as connection:
            while not scene.stop.is_set():
                wait_ms = self.dice.randint(1, 30)
                known = {place: self.ledger.bounds(place) for place in self._positions}
                for fetched in fetch(connection, self._positions, wait_ms=wait_ms):
                    self._take(fetched, known[fetched.place])
                if self.dice.random() < 0.1:
                    place = self.dice.choice(list(self._positions))
                    self._positions[place] = self.dice.randint(0, self._positions[place])

    def _take(self, fetched: Fetched, known: tuple[int, int]) -> None:
        place = fetched.place
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = self.ledger.promise(place).start
            # Ours lies behind the end only where nothing was promised: a topic without syncs.
            self._positions[place] = start if self._positions[place] < start else 0
            return
        if fetched.error:
            self.ledger.breach("refused", f"{self.name}: {place} answers {fetched.error.name}")
            return
        bounds = (fetched.log_start_offset, fetched.high_watermark)
        self.ledger.expect(
            bounds[0] >= known[0] and bounds[1] >= known[1],
            "gone back",
            f"{place}: log start and high watermark were {known} and are {bounds}",
        )
        self.ledger.show_start(place, fetched.log_start_offset)
        self.ledger.show_end(place, fetched.high_watermark)
        for header, batch in fetched.batches():
            self.ledger.show(place, header, batch)
            self._positions[place] = max(self._positions[place], header.next_offset)


class Committer(Client):
    """Commits offsets for groups that nobody is in, and removes such groups."""

    def __init__(self, name: str, ledger: Ledger, places: Sequence[Place]) -> None:
        super().__init__(name, ledger)
        self._places = places
        self._next = 0

    def live(self, scene: Scene) -> None:
        """Commit until the end."""
        with Cluster(scene.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S) as cluster:
            while not scene.stop.is_set():
                group = f"{self.name}-{self.dice.randint(0, 3)}"
                if self.dice.random() < 0.03:
                    self._remove(cluster, group)
                else:
                    self._commit(cluster, group)
                self.pause(scene)

    def _commit(self, cluster: Cluster, group: str) -> None:
        offsets = {}
        for place in self.dice.sample(self._places, 2):
            self._next += 1
            offsets[place] = self._next
            self.ledger.attempt_offset(group, place, self._next)
        admin.commit_offsets(cluster, group, offsets)
        for place, offset in offsets.items():
            self.ledger.acknowledge_offset(group, place, offset)

    def _remove(self, cluster: Cluster, group: str) -> None:
        places = [place for owner, place in list(self.ledger.offsets) if owner == group]
        for place in places:
            self.ledger.attempt_offset(group, place, None)
        try:
            admin.delete_group(cluster, group)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        for place in places:
            self.ledger.acknowledge_offset(group, place, None)


class Member(Client):
    """Reads as a member of a group, commits what it has read."""

    def __init__(self, name: str, ledger: Ledger, group: str, topics: Sequence[str]) -> None:
        super().__init__(name, ledger)
        self._group = group
        self._topics = topics

    def live(self, scene: Scene) -> None:
        """Join, read and commit until the end."""
        with (
            Cluster(scene.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S) as cluster,
            # A static member takes its old place at once; a new one would wait for the session of
            # the one that went down with the broker.
            GroupConsumer(
                cluster,
                self._group,
                self._topics,
                instance_id=self.name,
                session_timeout_ms=3_000,
                rebalance_timeout_ms=1_000,
            ) as consumer,
        ):
            while not scene.stop.is_set():
                try:
                    consumer.poll(0.02)
                except KafkaError as error:
                    # A broker that stops sends away those who wait for the others of their group.
                    sent_away = error.code == ErrorCode.NOT_COORDINATOR
                    if sent_away and scene.gone.wait(_GONE_WITHIN_S):
                        return
                    raise
                positions = consumer._consumer.positions
                for place, offset in positions.items():
                    self.ledger.attempt_offset(self._group, place, offset)
                if not positions:
                    continue
                try:
                    consumer.commit()
                except KafkaError:
                    continue  # somebody came or left; the next poll joins again
                for place, offset in positions.items():
                    self.ledger.acknowledge_offset(self._group, place, offset)
