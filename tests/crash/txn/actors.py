"""Clients that a simulation moves one request at a time.

This file alone decides what they do next and what they make of an answer. An actor holds no
connection and no callback, so a simulation can copy it together with a disk, and let the copies go
on after a crash. Its steps stand in ``scripts``; what it notes in ``history``.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from headwater.base.errors import ErrorCode
from tests.crash.txn.filtering import take
from tests.crash.txn.history import (
    Ask,
    Begin,
    Consume,
    End,
    Ended,
    Failed,
    Init,
    Initialized,
    Notes,
    OffsetRead,
    Place,
    Read,
    Send,
    Sent,
)
from tests.crash.txn.scripts import (
    Asked,
    Commit,
    Enlist,
    EnlistGroup,
    Finish,
    Identity,
    Step,
    Write,
    ask,
    compose,
    fetch,
    fetch_offset,
    initialize,
    produce,
    transform,
)

TIMEOUT_MS = 1_000
INPUT: Place = ("in", 0)
PLACES: list[Place] = [("a", 0), ("a", 1), ("b", 0), INPUT]
OUTPUT: Place = ("b", 0)
GROUP = "group"

RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # How Kafka tells older producers to wait until a transaction has ended.
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
FENCED = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
ABORTABLE = {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}


@dataclass
class Moment:
    """What an actor may know of the simulation when it acts.

    Attributes:
        refusals: Answers for which there was no reason: what the broker did wrong besides.
        patience: The errors after which a request may be repeated.
    """

    dice: random.Random
    history: Notes
    now_ms: int
    refusals: list[str]
    patience: frozenset[ErrorCode] = RETRIABLE


class Actor:
    """A client; one request at a time, or some that do not wait for each other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waits = False
        self.stopped = False

    def next(self, moment: Moment) -> list[Asked]:
        """Return what to ask now, if anything."""
        raise AssertionError("a subclass acts")

    def receive(self, moment: Moment, answers: list[Any]) -> None:
        """Take the answers, in the order of what was asked."""
        raise AssertionError("a subclass acts")

    def lose(self, moment: Moment) -> None:
        """The broker is gone, and the answer with it."""


@dataclass
class _Transaction:
    name: str
    begun_ms: int
    steps: list[Step] = field(default_factory=list)
    hangs_until_ms: int = 0
    commit_unanswered: bool = False


class Producer(Actor):
    """Writes transactions, one after the other.

    Args:
        name: Its own.
        transactional_id: The one that it asks for.
        new: Whether it speaks the protocol of KIP-890.
        shared: Whether others ask for the same id, so that any moment may see it replaced.
    """

    def __init__(self, name: str, transactional_id: str, *, new: bool, shared: bool) -> None:
        super().__init__(name)
        self._new = new
        self._shared = shared
        self._incarnations = 0
        self._count = 0
        self._identity = Identity(transactional_id)
        self._sequences: dict[Place, int] = defaultdict(int)
        self._initialized = False
        self._asked_for_id = False
        self._rests_until_ms = 0
        self._noted: Step | None = None
        self._transaction: _Transaction | None = None

    @property
    def producer(self) -> str:
        """The name of the producer that it is now."""
        return f"{self.name}#{self._incarnations}"

    @property
    def transactional_id(self) -> str:
        """The id that it shares."""
        return self._identity.transactional_id

    def next(self, moment: Moment) -> list[Asked]:
        """Go on with the transaction, or begin another."""
        if moment.now_ms < self._rests_until_ms:
            return []
        if not self._initialized:
            return [self._initialize(moment)]
        if self._transaction is None:
            return self.begin(moment)
        if moment.now_ms < self._transaction.hangs_until_ms:
            return []
        return self._ask(moment, self._transaction.steps[0])

    def _initialize(self, moment: Moment) -> Asked:
        if not self._asked_for_id:
            self._asked_for_id = True
            self._incarnations += 1
            moment.history.append(Init(self.producer, self.transactional_id))
        return initialize(self._identity, TIMEOUT_MS)

    def begin(self, moment: Moment) -> list[Asked]:
        """Begin the next transaction."""
        if self.stopped:
            return []
        name = self.new_name()
        commit = moment.dice.random() < 0.75
        steps = compose(moment.dice, name, PLACES, new=self._new, commit=commit)
        self.start(moment, name, steps)
        return self._ask(moment, steps[0])

    def new_name(self) -> str:
        """Return the name of the next transaction."""
        self._count += 1
        return f"{self.producer}/{self._count}"

    def start(self, moment: Moment, name: str, steps: list[Step]) -> None:
        """Begin a transaction."""
        moment.history.append(Begin(name, self.producer))
        self._transaction = _Transaction(name, moment.now_ms, steps)

    def _ask(self, moment: Moment, step: Step) -> list[Asked]:
        transaction = self._transaction
        assert transaction is not None
        if self._noted is not step:
            self._noted = step
            match step:
                case Write(place, values):
                    moment.history.extend(Send(transaction.name, place, value) for value in values)
                case Commit(group, place, offsets, upto):
                    event = Consume(transaction.name, group, place, offsets, upto)
                    moment.history.append(event)
                case Finish(commit):
                    moment.history.append(End(transaction.name, commit))
        sequence = self._sequences[step.place] if isinstance(step, Write) else 0
        return ask(self._identity, step, sequence, moment.now_ms, new=self._new)

    def receive(self, moment: Moment, answers: list[Any]) -> None:
        """Take the answers to a step."""
        if not self._initialized:
            self._take_identity(moment, answers[0])
            return
        transaction = self._transaction
        assert transaction is not None
        step = transaction.steps[0]
        read = [read_answer(step, answer) for answer in answers]
        errors = [error for error, _ in read if error != ErrorCode.NONE]
        if not errors:
            self._advance(moment, transaction, step, [offset for _, offset in read])
            if isinstance(step, Finish):
                self._finish(moment, transaction, step, answers[0])
        elif not moment.patience.intersection(errors):
            # Where one has to be sent again, those behind it are out of order, and sent again too.
            self._refused(moment, transaction, step, errors[0])

    def _take_identity(self, moment: Moment, answer: Any) -> None:  # noqa: ANN401
        error = ErrorCode(answer.error_code)
        if error == ErrorCode.NONE:
            self._initialized = True
            self._sequences.clear()
            self._identity.producer_id = answer.producer_id
            self._identity.epoch = answer.producer_epoch
            who = (self.producer, self.transactional_id)
            event = Initialized(*who, answer.producer_id, answer.producer_epoch)
            moment.history.append(event)
        elif error not in moment.patience:
            moment.refusals.append(f"{self.producer}: InitProducerId answers {error.name}")

    def _advance(
        self, moment: Moment, transaction: _Transaction, step: Step, offsets: list[int]
    ) -> None:
        transaction.steps.pop(0)
        if isinstance(step, Write):
            self._sequences[step.place] += len(step.values)
            moment.history.extend(
                Sent(transaction.name, step.place, value, offset + index)
                for values, offset in zip(step.batches(), offsets, strict=True)
                for index, value in enumerate(values)
            )
            if moment.dice.random() < 0.08:
                # Around the time-out: some come back in time, some find themselves replaced.
                wait_ms = moment.dice.randint(TIMEOUT_MS // 2, 2 * TIMEOUT_MS)
                transaction.hangs_until_ms = moment.now_ms + wait_ms

    def _finish(
        self,
        moment: Moment,
        transaction: _Transaction,
        step: Finish,
        answer: Any,  # noqa: ANN401
    ) -> None:
        moment.history.append(Ended(transaction.name, step.commit))
        self._transaction = None
        if self._new:
            if (answer.producer_id, answer.producer_epoch) == (-1, -1):
                moment.refusals.append(f"{self.producer}: EndTxn gives no epoch")
            self._identity.producer_id = answer.producer_id
            self._identity.epoch = answer.producer_epoch
            self._sequences.clear()
        self.ended(committed=step.commit)

    def ended(self, *, committed: bool) -> None:
        """The transaction is over."""

    def _refused(
        self, moment: Moment, transaction: _Transaction, step: Step, error: ErrorCode
    ) -> None:
        timed_out = moment.now_ms - transaction.begun_ms >= TIMEOUT_MS
        if error not in FENCED | ABORTABLE or not (self._shared or timed_out):
            moment.refusals.append(f"{transaction.name}: {step} answers {error.name}")
        asked = isinstance(step, Finish)
        if asked and not transaction.commit_unanswered:
            moment.history.append(Failed(transaction.name))
        if error in ABORTABLE and not asked:
            transaction.steps = [Finish(commit=False)]
        else:
            self._rests_until_ms = moment.now_ms + moment.dice.randint(0, TIMEOUT_MS // 2)
            self._start_over()

    def _start_over(self) -> None:
        self._initialized = self._asked_for_id = False
        self._transaction = None
        self._identity = Identity(self.transactional_id)
        self.ended(committed=False)

    def lose(self, moment: Moment) -> None:
        """Ask again, or die and come back as another."""
        if self.waits and self._transaction is not None and self._initialized:
            step = self._transaction.steps[0]
            self._transaction.commit_unanswered |= isinstance(step, Finish)
        if moment.dice.random() < 0.3:
            self._start_over()


class Processor(Producer):
    """Consumes, transforms and produces; goes on where the group stands."""

    def __init__(self, name: str, transactional_id: str, *, new: bool, shared: bool) -> None:
        super().__init__(name, transactional_id, new=new, shared=shared)
        self._position: int | None = None
        self._asks = ""

    def begin(self, moment: Moment) -> list[Asked]:
        """Find out where the group stands, then look for input."""
        if self.stopped:
            return []
        if self._position is None:
            self._asks = "offset"
            moment.history.append(Ask(self.producer))
            return [fetch_offset(GROUP, INPUT)]
        self._asks = "input"
        moment.history.append(Ask(self.producer))
        return [fetch({INPUT: self._position}, committed=True, wait_ms=0)]

    def receive(self, moment: Moment, answers: list[Any]) -> None:
        """Take the answers to a step, or begin with what was read."""
        answer = answers[0]
        asks, self._asks = self._asks, ""
        if asks == "offset":
            offset = read_offset(moment, self.producer, answer, GROUP, INPUT)
            if offset is not None:
                self._position = max(offset, 0)
        elif asks == "input":
            ((_, entries, position),) = read_records(
                moment, self.producer, answer, {INPUT: self._position or 0}, committed=True
            )
            self._position = position
            if entries:
                name = self.new_name()
                steps = transform(name, GROUP, INPUT, entries[:3], OUTPUT, new=self._new)
                self._position = entries[:3][-1][0] + 1
                self.start(moment, name, steps)
        else:
            super().receive(moment, answers)

    def ended(self, *, committed: bool) -> None:
        """Go back to where the group stands unless it stands here."""
        if not committed:
            self._position = None

    def lose(self, moment: Moment) -> None:
        """What was asked besides a transaction is asked again."""
        if self._asks:
            self._asks = ""
            return
        super().lose(moment)


class PlainWriter(Actor):
    """Writes records outside of transactions; what was not answered is let be."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._count = 0
        self._write: tuple[str, Write] | None = None

    def next(self, moment: Moment) -> list[Asked]:
        """Write something, now and then."""
        if self.stopped or moment.dice.random() < 0.6:
            return []
        self._count += 1
        name = f"{self.name}/{self._count}"
        write = Write(moment.dice.choice(PLACES), (f"{name}.0",))
        self._write = (name, write)
        moment.history.append(Begin(name, self.name, plain=True))
        moment.history.append(Send(name, write.place, write.values[0]))
        return [(produce(Identity(""), write.place, write.values, -1, moment.now_ms), 12)]

    def receive(self, moment: Moment, answers: list[Any]) -> None:
        """Note that it is there."""
        assert self._write is not None
        name, write = self._write
        error, offset = read_answer(write, answers[0])
        if error == ErrorCode.NONE:
            moment.history.append(Sent(name, write.place, write.values[0], offset))
        elif error not in moment.patience:
            moment.refusals.append(f"{name} answers {error.name}")


class Reader(Actor):
    """Reads everything, in either isolation, and now and then where the group stands."""

    def __init__(self, name: str, *, committed: bool) -> None:
        super().__init__(name)
        self._committed = committed
        self._positions = dict.fromkeys(PLACES, 0)
        self._asked: dict[Place, int] | None = None

    def next(self, moment: Moment) -> list[Asked]:
        """Read on, or from the start again."""
        if self.stopped:
            return []
        moment.history.append(Ask(self.name))
        if moment.dice.random() < 0.2:
            self._asked = None
            return [fetch_offset(GROUP, INPUT)]
        if moment.dice.random() < 0.1:
            self._positions[moment.dice.choice(PLACES)] = 0
        self._asked = dict(self._positions)
        wait_ms = moment.dice.choice((0, 0, 20))
        return [fetch(self._asked, committed=self._committed, wait_ms=wait_ms)]

    def receive(self, moment: Moment, answers: list[Any]) -> None:
        """Note what there is to see."""
        answer = answers[0]
        if self._asked is None:
            read_offset(moment, self.name, answer, GROUP, INPUT)
            return
        read = read_records(moment, self.name, answer, self._asked, committed=self._committed)
        for place, _, position in read:
            self._positions[place] = position


def read_answer(step: Step, answer: Any) -> tuple[ErrorCode, int]:  # noqa: ANN401
    """Return the error of an answer, and the offset of a write."""
    match step:
        case Enlist():
            (topic,) = answer.results_by_topic_v3_and_below
            (partition,) = topic.results_by_partition
            return ErrorCode(partition.partition_error_code), -1
        case Write():
            (topic,) = answer.responses
            (partition,) = topic.partition_responses
            return ErrorCode(partition.error_code), partition.base_offset
        case Commit():
            (topic,) = answer.topics
            (partition,) = topic.partitions
            return ErrorCode(partition.error_code), -1
        case EnlistGroup() | Finish():
            return ErrorCode(answer.error_code), -1


def read_offset(
    moment: Moment,
    reader: str,
    answer: Any,  # noqa: ANN401 - an OffsetFetchResponse
    group: str,
    place: Place,
) -> int | None:
    """Note a group's offset; None where it is not stable."""
    error = ErrorCode(answer.error_code)
    if error == ErrorCode.NONE:
        (topic,) = answer.topics
        (partition,) = topic.partitions
        error = ErrorCode(partition.error_code)
        if error == ErrorCode.NONE:
            offset: int = partition.committed_offset
            moment.history.append(OffsetRead(reader, group, place, offset))
            return offset
    if error not in moment.patience:
        moment.refusals.append(f"{reader}: OffsetFetch answers {error.name}")
    return None


def read_records(
    moment: Moment,
    reader: str,
    answer: Any,  # noqa: ANN401 - a FetchResponse
    asked: dict[Place, int],
    *,
    committed: bool,
) -> list[tuple[Place, tuple[tuple[int, str], ...], int]]:
    """Note what a fetch shows; return it, with where to go on, by partition."""
    found = []
    for topic in answer.responses:
        for data in topic.partitions:
            place = (topic.topic, data.partition_index)
            if data.error_code:
                error = ErrorCode(data.error_code).name
                moment.refusals.append(f"{reader}: {place} at {asked[place]} answers {error}")
                continue
            aborted = [
                (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
            ]
            entries, position = take(
                bytes(data.records or b""), asked[place], aborted if committed else None
            )
            bounds = (data.last_stable_offset, data.high_watermark)
            event = Read(reader, place, asked[place], position, entries, committed, *bounds)
            moment.history.append(event)
            found.append((place, entries, position))
    return found
