"""A broker that is right by construction: legal histories for the checker to pass.

This file alone decides how such a history comes about. Every request takes effect at one moment
between asking and answer, answers get lost, producers are replaced, and what is open when all is
over is aborted: that is all a history may show, so what the checker finds in one is its own fault.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field

from tests.crash.txn.history import (
    Ask,
    Begin,
    Consume,
    End,
    Ended,
    Event,
    Failed,
    Final,
    FinalOffset,
    Init,
    Initialized,
    OffsetRead,
    Place,
    Read,
    Send,
    Sent,
)

OPEN = "open"
COMMITTED = "committed"
ABORTED = "aborted"
PLACES: tuple[Place, ...] = (("a", 0), ("a", 1), ("b", 0))
INPUT: Place = ("in", 0)
GROUP = "group"


@dataclass
class Work:
    """A transaction on its way."""

    name: str
    producer: str
    plain: bool = False
    state: str = OPEN
    first: dict[Place, int] = field(default_factory=dict)
    next_input: int | None = None


class Model:
    """Producers, readers and a log; each ``step`` is something that somebody does."""

    def __init__(self, dice: random.Random) -> None:
        self.history: list[Event] = []
        self._dice = dice
        # A value and whose it is; None: a marker.
        self._logs: dict[Place, list[tuple[str, Work] | None]] = {place: [] for place in PLACES}
        self._logs[INPUT] = []
        self._works: list[Work] = []
        self._current: dict[str, Work | None] = {}
        self._owner: dict[str, str] = {}
        self._retired: list[str] = []
        self._epochs: dict[str, int] = defaultdict(int)
        self._positions: dict[tuple[str, Place], int] = defaultdict(int)
        self._group_offset = -1
        self._values = 0

    def run(self, steps: int) -> list[Event]:
        """Live for some steps and look at what is left."""
        for transactional_id in ("t1", "t2", "t3"):
            self._init(transactional_id)
        for _ in range(steps):
            self._dice.choice(
                (self._work, self._work, self._work, self._process, self._read, self._disturb)
            )()
        for work in self._works:
            self._end(work, ABORTED)
        for place in self._logs:
            self.history.append(self._final(place))
        self.history.append(FinalOffset(GROUP, INPUT, self._group_offset))
        return self.history

    def _init(self, transactional_id: str) -> None:
        self._epochs[transactional_id] += 1
        epoch = self._epochs[transactional_id]
        name = f"{transactional_id}#{epoch}"
        self.history.append(Init(name, transactional_id))
        before = self._owner.get(transactional_id)
        if before is not None:
            work = self._current.pop(before)
            if work is not None:
                self._end(work, ABORTED)
            self._retired.append(before)
        self._owner[transactional_id] = name
        self._current[name] = None
        producer_id = int(transactional_id[1:])
        self.history.append(Initialized(name, transactional_id, producer_id, epoch))

    def _work(self) -> None:
        """Let a producer begin, write or end."""
        name = self._dice.choice(list(self._current))
        work = self._current[name]
        if work is None:
            self._begin(name)
        elif self._dice.random() < 0.7:
            self._write(work, self._dice.choice(PLACES))
        else:
            self._finish(work)

    def _begin(self, producer: str) -> Work:
        plain = self._dice.random() < 0.2
        work = Work(f"{producer}/{len(self._works)}", producer, plain)
        self._works.append(work)
        self._current[producer] = work
        self.history.append(Begin(work.name, producer, plain))
        return work

    def _write(self, work: Work, place: Place) -> None:
        value = f"v{self._values}"
        self._values += 1
        self.history.append(Send(work.name, place, value))
        log = self._logs[place]
        if self._dice.random() < 0.9:
            work.first.setdefault(place, len(log))
            log.append((value, work))
            if self._dice.random() < 0.9:
                self.history.append(Sent(work.name, place, value, len(log) - 1))

    def _finish(self, work: Work) -> None:
        self._current[work.producer] = None
        if work.plain:
            return
        commit = self._dice.random() < 0.7
        self.history.append(End(work.name, commit))
        fate = self._dice.random()
        if fate < 0.1:
            self._end(work, ABORTED)
            self.history.append(Failed(work.name))
        elif fate < 0.2:
            self._end(work, ABORTED)
        else:
            self._end(work, COMMITTED if commit else ABORTED)
            if self._dice.random() < 0.8:
                self.history.append(Ended(work.name, commit))

    def _end(self, work: Work, state: str) -> None:
        if work.state != OPEN or work.plain:
            return
        work.state = state
        for place in work.first:
            self._logs[place].append(None)
        if state == COMMITTED and work.next_input is not None:
            self._group_offset = work.next_input

    def _process(self) -> None:
        """Consume, transform, produce: one at a time, from where the group stands."""
        name = self._owner["t3"]
        log = self._logs[INPUT]
        if self._dice.random() < 0.5 or self._current[name] is not None:
            feeder = Work(f"feeder/{len(self._works)}", "feeder", plain=True)
            self._works.append(feeder)
            self.history.append(Begin(feeder.name, "feeder", plain=True))
            self._write(feeder, INPUT)
            return
        start = max(self._group_offset, 0)
        upto = min(len(log), start + self._dice.randint(1, 3))
        offsets = tuple(offset for offset in range(start, upto) if log[offset] is not None)
        if not offsets:
            return
        work = self._begin(name)
        work.plain = False
        self.history[-1] = Begin(work.name, name)
        self._write(work, ("b", 0))
        self.history.append(Consume(work.name, GROUP, INPUT, offsets, upto))
        work.next_input = upto
        self._finish(work)

    def _disturb(self) -> None:
        """Replace a producer, or let one that was replaced go on in vain."""
        if self._dice.random() < 0.6 or not self._retired:
            self._init(self._dice.choice(list(self._owner)))
            return
        producer = self._dice.choice(self._retired)
        work = Work(f"{producer}/{len(self._works)}", producer, state=ABORTED)
        self._works.append(work)
        self.history.append(Begin(work.name, producer))
        self.history.append(Send(work.name, PLACES[0], f"v{self._values}"))
        self._values += 1
        self.history.append(End(work.name, commit=True))
        if self._dice.random() < 0.5:
            self.history.append(Failed(work.name))

    def _read(self) -> None:
        reader = self._dice.choice(("r1", "r2"))
        self.history.append(Ask(reader))
        if self._dice.random() < 0.2:
            self.history.append(OffsetRead(reader, GROUP, INPUT, self._group_offset))
            return
        place = self._dice.choice(PLACES)
        committed = self._dice.random() < 0.8
        stable, end = self._stable(place), len(self._logs[place])
        start = min(self._positions[reader, place], stable)
        upto = self._dice.randint(start, stable if committed else end)
        records = self._entries(place, start, upto, committed=committed)
        self.history.append(Read(reader, place, start, upto, records, committed, stable, end))
        self._positions[reader, place] = upto if self._dice.random() < 0.8 else 0

    def _stable(self, place: Place) -> int:
        firsts = [w.first[place] for w in self._works if self._open(w) and place in w.first]
        return min(firsts, default=len(self._logs[place]))

    def _open(self, work: Work) -> bool:
        return work.state == OPEN and not work.plain

    def _entries(
        self, place: Place, start: int, upto: int, *, committed: bool
    ) -> tuple[tuple[int, str], ...]:
        return tuple(
            (offset, entry[0])
            for offset, entry in enumerate(self._logs[place][start:upto], start)
            if entry is not None
            and (not committed or entry[1].plain or entry[1].state == COMMITTED)
        )

    def _final(self, place: Place) -> Final:
        end = len(self._logs[place])
        return Final(
            place,
            self._entries(place, 0, end, committed=True),
            self._entries(place, 0, end, committed=False),
            self._stable(place),
            end,
        )
