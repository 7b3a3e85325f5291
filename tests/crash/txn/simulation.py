"""A broker, its disk and its clients in one thread, moved by dice.

This file alone decides in which order things happen: a client asks, a file is synced, time passes.
Requests go in as bytes and come out as bytes, the broker is the real one, the disk forgets what was
not synced, the clock stands still until it is moved. A seed gives the same run every time.
"""

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import starmap
from types import MappingProxyType
from typing import Any

from headwater.base.disk import Syncable
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.partition import Committable
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.registry import APIS
from headwater.delivery.wire.kafka import framing, messages
from headwater.log.compaction.cleaner import clean
from headwater.log.compaction.compaction import Compaction
from headwater.log.compaction.job import Job
from headwater.log.extent import FileRange
from headwater.log.store import LogStore
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import Keep, MemoryDisk
from headwater.testing.seeded_chance import SeededChance
from tests.crash.txn.actors import (
    GROUP,
    INPUT,
    PLACES,
    RETRIABLE,
    TIMEOUT_MS,
    Actor,
    Moment,
    PlainWriter,
    Processor,
    Producer,
    Reader,
    read_records,
)
from tests.crash.txn.checker import Anomaly, check
from tests.crash.txn.ending import read_final, read_final_offset
from tests.crash.txn.history import Ask, Event, Place
from tests.crash.txn.scripts import Asked, fetch

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "150",
    # An entry for every batch and room for some of them: a transaction may span segments.
    "log.index.interval.bytes": "50",
    "log.index.size.max.bytes": "100",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
}
COMPACTED = "b"
COMPACTION = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100",
    "min.cleanable.dirty.ratio": "0",
}
_Config = messages.CreateTopicsRequest.CreatableTopicConfig
_QUIET_MS = 4 * TIMEOUT_MS
_STEPS_MAX = 10_000


class Rounds:
    """A group commit whose syncs happen one by one, when the dice say so."""

    def __init__(self) -> None:
        self._next: dict[Committable, None] = {}
        self._current: list[Committable] = []
        self._files: list[Syncable] = []

    def add(self, item: Committable) -> None:
        """Let the item join the next round."""
        self._next[item] = None

    def between_rounds(self, action: Callable[[], None]) -> None:
        """Run the action when no round is under way."""
        assert not self._current, "no client of the simulation changes configs"
        action()

    @property
    def busy(self) -> bool:
        """Whether there is something to sync."""
        return bool(self._next or self._current)

    def step(self, dice: random.Random) -> None:
        """Begin a round, sync one of its files, or end it."""
        if self._files:
            self._files.pop(dice.randrange(len(self._files))).sync()
        elif self._current:
            ended, self._current = self._current, []
            for item in ended:
                item.end_commit()
        elif self._next:
            self._current, self._next = list(self._next), {}
            for item in self._current:
                self._files += [file for file in item.begin_commit() if file not in self._files]


class Desk:
    """The connection of one client."""

    def __init__(self, answered: Callable[[Any], None]) -> None:
        self.host = "/127.0.0.1"
        self._answered = answered

    def answer(self, call: Call, response: Any) -> None:  # noqa: ANN401 - any message class
        parts = framing.encode_response(call.header, response)
        contents = (part.read() if isinstance(part, FileRange) else bytes(part) for part in parts)
        frame = memoryview(b"".join(contents))[4:]
        self._answered(framing.decode_response(call.api_key, call.version, frame)[1])

    def close(self) -> None:
        raise AssertionError("the broker dropped a connection")

    def mute(self, delay_ms: int) -> None:
        raise AssertionError(f"a client is muted for {delay_ms} ms")


class Simulation:
    """One run; ``fork`` is what it would be if the power went now.

    Attributes:
        history: What the clients did and saw.
        refusals: What they were refused without reason.
        patience: The errors after which they repeat a request.
    """

    def __init__(
        self,
        seed: int,
        disk: MemoryDisk | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.settings = {**SETTINGS, **settings}
        self.dice = random.Random(seed)
        self.disk = disk or MemoryDisk()
        self.clock = ManualClock()
        self.history: list[Event] = []
        self.refusals: list[str] = []
        self.patience = RETRIABLE
        self.actors = cast()
        self.rounds = Rounds()
        self._cleaning: Iterator[None] | None = None
        self.broker: Broker | None = None

    # Starting and ending.

    def start(self) -> None:
        """Open the broker on what the disk has."""
        settings = BrokerSettings.parse(self.settings)
        chance = SeededChance(self.dice.getrandbits(32))
        self.rounds = Rounds()
        store = LogStore.open(
            self.disk,
            "/data",
            settings=settings,
            topic_defaults=settings.topic_defaults(),
            clock=self.clock,
            chance=chance,
        )
        self.broker = Broker(
            store,
            settings=settings,
            clock=self.clock,
            timers=self.clock,
            chance=chance,
            commits=self.rounds,
        )
        self.broker.advertised_host, self.broker.advertised_port = "127.0.0.1", 9092
        self.broker.start()
        missing = [place for place in PLACES if place[0] not in self.broker.store.topics]
        if missing:
            self._create_topics({topic for topic, _ in missing})

    def fork(self, seed: int, keep: Keep) -> "Simulation":
        """Return the same clients with what a power cut leaves of the disk."""
        return self._followed_by(self.disk.after_power_cut(seed, keep=keep), seed)

    def stop(self) -> "Simulation":
        """Stop the broker in order; return the same clients with what it leaves."""
        assert self.broker is not None
        self.broker.groups.close()
        self._settle()
        self.broker.store.close()
        return self._followed_by(self.disk.restart(), self.dice.getrandbits(32))

    def _followed_by(self, disk: MemoryDisk, seed: int) -> "Simulation":
        other = Simulation(seed, disk, self.settings)
        other.disk.lie = self.disk.lie
        other.clock = ManualClock(self.clock.now_ms(), self.clock.monotonic_ms())
        other.history = list(self.history)
        other.refusals = list(self.refusals)
        other.actors = copy.deepcopy(self.actors)
        other.lose_connections()
        return other

    def look(self) -> None:
        """Let somebody read everything at once, whatever is still on its way to the disk."""
        for committed in (True, False):
            positions: dict[Place, int] = dict.fromkeys(PLACES, -1)
            found = dict.fromkeys(PLACES, 0)
            while found != positions:
                positions.update(found)
                self.history.append(Ask("look"))
                asked = fetch(positions, committed=committed, wait_ms=0)
                self._send(asked, partial(self._looked, found, committed=committed))

    def _looked(
        self,
        positions: dict[Place, int],
        answer: Any,  # noqa: ANN401 - a FetchResponse
        *,
        committed: bool,
    ) -> None:
        found = read_records(self._moment(), "look", answer, positions, committed=committed)
        positions.update({place: position for place, _, position in found})

    def lose_connections(self) -> None:
        """Let every client find that the broker is gone."""
        for actor in self.actors:
            actor.lose(self._moment())
            actor.waits = False

    def run(self, steps: int) -> None:
        """Let some things happen."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Let one thing happen."""
        fate = self.dice.random()
        if fate < 0.5:
            self._let_somebody_ask()
        elif fate < 0.93:
            self.rounds.step(self.dice)
        elif fate < 0.96:
            self._clean()
        else:
            self.clock.advance(self.dice.choice((1, 5, 20, TIMEOUT_MS // 4)))

    def _clean(self) -> None:
        """Go on with a pass of compaction, or begin one where there is anything to do."""
        assert self.broker is not None
        compaction = self.broker.store.compaction
        if self._cleaning is None:
            job = compaction.next_job(self.clock.now_ms())
            if job is None:
                return
            self._cleaning = self._pass(compaction, job)
        if next(self._cleaning, "done") == "done":
            self._cleaning = None

    def _pass(self, compaction: Compaction, job: Job) -> Iterator[None]:
        try:
            cleaned = yield from clean(self.disk, job)
        except OSError as error:
            compaction.give_up(job, str(error))
            return
        yield from compaction.put_in_place(job, cleaned, self.clock.now_ms())

    def _let_somebody_ask(self) -> None:
        idle = [actor for actor in self.actors if not actor.waits]
        if idle:
            actor = self.dice.choice(idle)
            asked = actor.next(self._moment())
            actor.waits = bool(asked)
            answers: list[Any] = [None] * len(asked)
            for index, each in enumerate(asked):
                self._send(each, partial(self._answered, actor, answers, index))

    def _answered(self, actor: Actor, answers: list[Any], index: int, answer: Any) -> None:  # noqa: ANN401
        assert actor.waits, f"{actor.name} is answered twice"
        answers[index] = answer
        if None not in answers:
            actor.waits = False
            actor.receive(self._moment(), answers)

    def _moment(self) -> Moment:
        return Moment(self.dice, self.history, self.clock.now_ms(), self.refusals, self.patience)

    def _send(self, asked: Asked, answered: Callable[[Any], None]) -> None:
        assert self.broker is not None
        request, version = asked
        key = _KEYS[type(request).__name__]
        # Writable, like the server's: an append stamps offset and epoch in place.
        parts = framing.encode_request(key, version, 7, "simulation", request)
        header, decoded = framing.decode_request(memoryview(bytearray().join(parts))[4:])
        APIS[key].handle(Call(self.broker, Desk(answered), header), decoded)

    # Looking at what is left.

    def finish(self) -> list[Anomaly]:
        """Let all clients go away, wait until nothing is open, and judge."""
        for actor in self.actors:
            actor.stopped = True
        for _ in range(_QUIET_MS // 100):
            self._settle()
            self.clock.advance(100)
        self._settle()
        self.history += [
            read_final(self._ask, place, compacted=place[0] == COMPACTED) for place in PLACES
        ]
        self.history.append(read_final_offset(self._ask, GROUP, INPUT))
        refused = [Anomaly("refused", description) for description in self.refusals]
        return check(self.history) + refused

    def _settle(self) -> None:
        for _ in range(_STEPS_MAX):
            if not self.rounds.busy:
                return
            self.rounds.step(self.dice)
        raise AssertionError("the broker never comes to rest")

    def _create_topics(self, names: Iterable[str]) -> None:
        new = messages.CreateTopicsRequest.CreatableTopic
        topics = [
            new(name, 1 + max(partition for topic, partition in PLACES if topic == name), 1)
            for name in sorted(names)
        ]
        for topic in topics:
            if topic.name == COMPACTED:
                topic.configs = list(starmap(_Config, COMPACTION.items()))
        answer = self._ask((messages.CreateTopicsRequest(topics=topics, timeout_ms=1000), 5))
        assert all(topic.error_code == 0 for topic in answer.topics)

    def _ask(self, asked: Asked) -> Any:  # noqa: ANN401 - any message class
        answers: list[Any] = []
        self._send(asked, answers.append)
        self._settle()
        (answer,) = answers
        return answer


def cast() -> list[Actor]:
    """Return who takes part: either protocol, two who share an id, two who share their input."""
    return [
        Producer("old", "old", new=False, shared=False),
        Producer("new", "new", new=True, shared=False),
        Producer("twin-1", "twins", new=False, shared=True),
        Producer("twin-2", "twins", new=True, shared=True),
        Processor("pump-1", "pump", new=True, shared=True),
        Processor("pump-2", "pump", new=False, shared=True),
        PlainWriter("plain"),
        Reader("reader-1", committed=True),
        Reader("reader-2", committed=True),
        Reader("peeper", committed=False),
    ]


_KEYS = {
    "".join(
        word.capitalize() for word in vars(module)["__name__"].rpartition(".")[2].split("_")[2:]
    )
    + "Request": key
    for key, module in APIS.items()
}
