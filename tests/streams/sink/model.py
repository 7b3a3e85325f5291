"""A broker with one transactional id, and drivers that can be stopped between any two calls.

This file alone decides what a coordinator, a log and Spark's checkpoint do in these tests. The
broker is the older transaction protocol of Kafka in miniature: each `begin` raises the epoch, ends
what is open, and refuses whoever is not the newest. The topic of markers holds real bytes, between
those of other queries, so that finding the right one is tested as well.

A driver's attempt is advanced one call at a time: `commit_batch` is run again from its beginning
with the answers it has had so far, makes one call more, and is left there.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.base.errors import ErrorCode, HeadwaterError
from headwater.base.record.batch import stamp, stamp_transaction
from headwater.base.record.control import EndTransactionMarker, build_end_transaction
from headwater.delivery.client.cluster import Place
from headwater.delivery.client.errors import ProducerFencedError
from headwater.streams.sink.commit import Attempt, Outcome, check_batch, commit_batch
from headwater.streams.sink.marker import (
    MARKER_PLACE,
    Marker,
    MarkerScan,
    Seen,
    marker_batch,
    marker_key,
)
from headwater.streams.sink.passed import Passed, Sink
from headwater.streams.sink.plan import Plan, make_plan

QUERY = "query"
KEY = marker_key(QUERY, "sink")
SINK = Sink("broker", QUERY, "sink")
OTHERS_KEY = marker_key("another query", "sink")
_OTHERS_PRODUCER = (7, 0)


class LostAnswerError(HeadwaterError):
    """The broker did not answer; whether it did what was asked is not known."""


class _PausedError(BaseException):
    """Leaves an attempt where it is."""


@dataclass
class Broker:
    """A coordinator, partitions of rows, and the topic of markers.

    Attributes:
        epoch: Of the producer that may write.
        last_epoch: From which it was raised at the request of that same producer.
    """

    producer_id: int = 40
    epoch: int = -1
    last_epoch: int = -1
    open: dict[Place, list[int]] | None = None
    committed: list[int] = field(default_factory=list)
    marker_log: bytearray = field(default_factory=bytearray)
    marker_end: int = 0
    _marker_open: bool = False
    _is_decided: bool = False
    _epoch_used: int = -1
    _others_open: bool = False

    def seen(self) -> Seen:
        """What is in the topic of markers, for whoever reads it now."""
        return MarkerScan().take(self.marker_log).seen(KEY)

    def init(self, producer: tuple[int, int] | None) -> tuple[int, int]:
        self.complete()
        if producer is None:
            self.end()
            self.epoch, self.last_epoch = self.epoch + 1, -1
        elif producer == (self.producer_id, self.epoch):
            self.end()
            self.epoch, self.last_epoch = self.epoch + 1, self.epoch
        elif producer != (self.producer_id, self.last_epoch):
            raise _fenced()
        return self.producer_id, self.epoch

    def write(self, producer: tuple[int, int], batches: Mapping[Place, Sequence[Any]]) -> None:
        self._check(producer)
        self.complete()
        if self._epoch_used == self.epoch:
            return  # sequence numbers begin anew with each epoch: it takes this for a repetition
        self.open = {} if self.open is None else self.open
        for place, given in batches.items():
            if place == MARKER_PLACE:
                for batch in given:
                    self._append_marker(batch, producer)
                self._marker_open = True
            else:
                self.open.setdefault(place, []).extend(row for batch in given for row in batch)

    def finish(self, producer: tuple[int, int]) -> None:
        """Decide to commit; partitions get to know of it with the next request, or by and by."""
        self._check(producer)
        self.committed += [row for rows in (self.open or {}).values() for row in rows]
        self.open, self._is_decided, self._epoch_used = None, True, self.epoch

    def complete(self) -> None:
        """Let the partitions know of a commit that was decided."""
        if self._is_decided and self._marker_open:
            self._append_end((self.producer_id, self.epoch), committed=True)
            self._marker_open = False
        self._is_decided = False

    def end(self) -> None:
        """Abort what is open."""
        self.complete()
        if self._marker_open:
            self._append_end((self.producer_id, self.epoch), committed=False)
        self.open, self._marker_open = None, False

    def time_out(self) -> None:
        """Abort what is open, and fence whoever opened it."""
        if self.open is not None:
            self.end()
            self.epoch, self.last_epoch = self.epoch + 1, -1

    def others_begin(self, number: int) -> None:
        """Let another query write a marker, which stays open."""
        marker = Marker(1000 + number, f"other-{number}", _OTHERS_PRODUCER)
        self._append_marker(marker_batch(OTHERS_KEY, marker, now_ms=0), _OTHERS_PRODUCER)
        self._others_open = True

    def others_end(self, *, committed: bool) -> None:
        if self._others_open:
            self._append_end(_OTHERS_PRODUCER, committed=committed)
        self._others_open = False

    def _check(self, producer: tuple[int, int]) -> None:
        if producer != (self.producer_id, self.epoch):
            raise _fenced()

    def _append_marker(self, batch: bytes, producer: tuple[int, int]) -> None:
        content = bytearray(batch)
        stamp_transaction(
            content, 0, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
        )
        self._append(content)

    def _append_end(self, producer: tuple[int, int], *, committed: bool) -> None:
        self._append(
            build_end_transaction(
                EndTransactionMarker(committed, 0),
                timestamp=0,
                producer_id=producer[0],
                producer_epoch=producer[1],
            )
        )

    def _append(self, content: bytearray) -> None:
        stamp(content, 0, self.marker_end, 0)
        self.marker_log += content
        self.marker_end += 1


def _fenced() -> ProducerFencedError:
    return ProducerFencedError(ErrorCode.PRODUCER_FENCED)


@dataclass
class Checkpoint:
    """What Spark keeps of a query: the input of each batch, and which batches are done.

    Attributes:
        plans: The input of each batch.
        done: The batches whose end was noted.
        times: When each batch was planned; no two plans have the same time.
        pattern: Which of the input becomes rows, over and over: what stands under a "-" does not,
            and a batch of nothing else is empty.
    """

    plans: dict[int, range] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    times: dict[int, int] = field(default_factory=dict)
    pattern: str = "x"
    _now: int = 0

    def rows(self, batch_id: int) -> list[int]:
        """Return the rows that come of a batch's input."""
        pattern = self.pattern
        return [each for each in self.plans[batch_id] if pattern[each % len(pattern)] != "-"]

    def rows_done(self) -> list[int]:
        """Return the rows of all batches that are done, in order."""
        return [row for batch_id in sorted(self.done) for row in self.rows(batch_id)]

    def plan(self, batch_id: int, rows: range) -> None:
        self._now += 1
        self.plans[batch_id], self.times[batch_id] = rows, self._now

    def set_back(self, batch_id: int) -> None:
        """Forget a batch and all after it, as a copy does that was made before it was planned."""
        for each in [known for known in self.plans if known >= batch_id]:
            del self.plans[each], self.times[each]
            self.done.discard(each)

    def next_batch(self) -> int:
        latest = max(self.plans, default=-1)
        return latest + 1 if latest in self.done or latest < 0 else latest


class Calls:
    """Both interfaces of the protocol; makes one call more than last time, then pauses.

    Attributes:
        fault: How the next call goes wrong: "before" it is made, or "after"; "" where it does not.
    """

    def __init__(self, broker: Broker, memory: dict[str, Marker], *, remembers: bool) -> None:
        self.fault = ""
        self._memory = memory
        self._remembers = remembers
        self.names: list[str] = []
        self._broker = broker
        self._answers: list[Callable[[], Any]] = []
        self._position = 0
        self._is_new = False
        self._pauses = True
        self._producer = (-1, -1)

    def rewind(self) -> None:
        self._position, self._is_new = 0, True

    def run_through(self) -> None:
        """Make all calls without a pause."""
        self._pauses = False

    def _call(self, name: str, act: Callable[[], Any]) -> Any:  # noqa: ANN401 - any answer
        if self._position == len(self._answers):
            if self._pauses and not self._is_new:
                raise _PausedError
            self._is_new = False
            self._answers.append(self._made(act))
            if name != "recall":
                self.names.append(name)
        self._position += 1
        return self._answers[self._position - 1]()

    def _made(self, act: Callable[[], Any]) -> Callable[[], Any]:
        fault, self.fault = self.fault, ""
        try:
            answer = None if fault == "before" else act()
        except HeadwaterError as error:
            return _raising(error)
        return _raising(LostAnswerError("no answer")) if fault else lambda: answer

    def read(self) -> Seen:
        found: Seen = self._call("read", self._broker.seen)
        return found

    def recall(self, run_id: str) -> Marker | None:
        found: Marker | None = self._call("recall", lambda: self._memory.pop(run_id, None))
        return found

    def remember(self, marker: Marker) -> None:
        if self._remembers:
            self._memory[marker.run_id] = marker

    def prepare(self) -> None:
        pass

    def batches(self, marker: Marker) -> Mapping[Place, Sequence[bytes]]:
        return {MARKER_PLACE: [marker_batch(KEY, marker, now_ms=0)]}

    @property
    def end_offsets(self) -> dict[Place, int]:
        ends: dict[Place, int] = self._call(
            "ends", lambda: dict.fromkeys(self._broker.open or {}, 1)
        )
        return ends

    def begin(self, producer: tuple[int, int] | None = None) -> tuple[int, int]:
        self._producer = self._call("begin", lambda: self._broker.init(producer))
        return self._producer

    def send(
        self,
        batches: Mapping[Place, Sequence[Any]],
        *,
        soon: Collection[Place] = (),
    ) -> None:
        self._call("send", lambda: self._broker.write(self._producer, batches))

    def commit(self) -> dict[Place, int]:
        self._call("commit", lambda: self._broker.finish(self._producer))
        return {}

    def abort(self) -> None:
        def act() -> None:
            if self._producer == (self._broker.producer_id, self._broker.epoch):
                self._broker.end()

        self._call("abort", act)


def _raising(error: Exception) -> Callable[[], Any]:
    def answer() -> None:
        raise error

    return answer


class Driver:
    """One run of the query, from its start to its death.

    Attributes:
        run_id: Its name; later ones are newer.
        error: Of what it died, if not of a kill.
        outcomes: Of the batches it has seen through.
        sizes: How much input the next batches have that it plans; behind them the dice decide.
    """

    def __init__(
        self,
        number: int,
        broker: Broker,
        checkpoint: Checkpoint,
        *,
        remembers: bool = False,
        another_process: float = 0.0,
    ) -> None:
        self.number = number
        # Spark may use several processes in turn for the commits of one run.
        self._memories: list[dict[str, Marker]] = [{}, {}]
        self._passed = [Passed(), Passed()]
        self._process = 0
        self._remembers = remembers
        self._another_process = another_process
        self.run_id = f"run-{number}"
        self.error: Exception | None = None
        self.outcomes: list[Outcome] = []
        self.sizes: list[int] = []
        self.alive = True
        self._broker = broker
        self._checkpoint = checkpoint
        self._batch_id = checkpoint.next_batch()
        self._calls: Calls | None = None
        # Rows stand for finished batches: the protocol looks into none.
        self._rows: dict[Place, list[Any]] = {}
        self._made_plan: Plan | None = None
        self._is_written = False

    @property
    def last_calls(self) -> list[str]:
        return [] if self._calls is None else self._calls.names

    def step(self, dice: random.Random, *, fault: str = "") -> None:
        """Do the next thing: plan and run tasks, one call of the commit, or Spark's commit log."""
        if self._is_written:
            self._finish_batch()
        elif self._calls is None:
            self._plan(dice)
        else:
            self._advance(fault)

    def _plan(self, dice: random.Random) -> None:
        plans = self._checkpoint.plans
        if self._batch_id not in plans:
            start = plans[self._batch_id - 1].stop if self._batch_id else 0
            size = self.sizes.pop(0) if self.sizes else dice.randint(1, 5)
            self._checkpoint.plan(self._batch_id, range(start, start + size))
        elif self._batch_id in self._checkpoint.done or self.outcomes:
            # Somebody else has planned it: what Spark calls a concurrent update.
            return self._die(RuntimeError("concurrent update of the offset log"))
        self._made_plan = make_plan(b"v1\n%d\n" % self._checkpoint.times[self._batch_id])
        rows = self._checkpoint.rows(self._batch_id)
        dice.shuffle(rows)
        self._rows = {}
        for row in rows:
            batches = self._rows.setdefault(("out", dice.randint(0, 2)), [[]])
            if dice.random() < 0.3:
                batches.append([])
            batches[-1].append(row)
        self._process = int(dice.random() < self._another_process)
        memory = self._memories[self._process]
        self._calls = Calls(self._broker, memory, remembers=self._remembers)
        return None

    def _advance(self, fault: str) -> None:
        assert self._calls is not None
        self._calls.rewind()
        self._calls.fault = fault
        attempt = Attempt(QUERY, self.run_id, self._batch_id, plan=self._made_plan)
        try:
            outcome = self._commit(attempt, self._calls)
        except _PausedError:
            return
        except HeadwaterError as error:
            self._die(error)
            return
        self._passed[self._process].note(SINK, self.run_id, self._batch_id)
        self.outcomes.append(outcome)
        self._is_written = True

    def _commit(self, attempt: Attempt, calls: Calls) -> Outcome:
        """Do what the writer does: the protocol for rows, and a look where there are none."""
        if self._rows:
            parts = [{place: rows} for place, rows in self._rows.items()]
            return commit_batch(attempt, parts, markers=calls, transactor=calls)
        if not self._passed[self._process].covers(SINK, self.run_id, self._batch_id):
            check_batch(attempt, markers=calls, transactor=calls)
        return Outcome.WRITTEN

    def _finish_batch(self) -> None:
        if self._batch_id in self._checkpoint.done:
            self._die(RuntimeError("concurrent update of the commit log"))
            return
        self._checkpoint.done.add(self._batch_id)
        self._batch_id, self._calls, self._is_written = self._batch_id + 1, None, False

    def _die(self, error: Exception) -> None:
        self.error, self.alive = error, False
