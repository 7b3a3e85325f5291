"""The protocol of the sink's driver, under every interleaving that the dice find.

Invariants: no row is ever committed twice; every row of a batch that Spark holds for done is
committed; a run that has been taken over never writes again and says so by name; and whatever has
happened, a driver that is left alone brings the query to its end. Where the checkpoint was set back
while no driver ran, it may be refused instead, by name.
"""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwater.streams.sink.commit import Attempt, Outcome, commit_batch
from headwater.streams.sink.errors import CheckpointBehindError, OlderDriverError
from headwater.streams.sink.plan import make_plan
from tests.streams.sink.model import Broker, Calls, Checkpoint, Driver

_STEPS_TO_THE_END = 200
# Batches span up to five, so that some are full, some empty, and some both when planned again.
_PATTERNS = st.text("x-", min_size=1, max_size=16).filter(lambda text: "x" in text)


class Drivers(RuleBasedStateMachine):
    """Any number of drivers on one checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.checkpoint = Checkpoint()
        self.drivers: list[Driver] = []
        self.replaced: set[str] = set()
        self.was_set_back = False
        self.dice = random.Random(0)

    @property
    def alive(self) -> list[Driver]:
        return [driver for driver in self.drivers if driver.alive]

    @initialize(pattern=_PATTERNS)
    def begin(self, pattern: str) -> None:
        self.checkpoint.pattern = pattern

    @rule(seed=st.integers(0, 2**16))
    def roll(self, seed: int) -> None:
        self.dice = random.Random(seed)

    @precondition(lambda self: len(self.alive) < 3)
    @rule(remembers=st.booleans(), another_process=st.sampled_from([0.0, 0.5]))
    def start(self, remembers: bool, another_process: float) -> None:
        self.drivers.append(
            Driver(
                len(self.drivers),
                self.broker,
                self.checkpoint,
                remembers=remembers,
                another_process=another_process,
            )
        )

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 2), times=st.integers(1, 12))
    def step(self, which: int, times: int) -> None:
        for _ in range(times):
            self._step(self.alive[which % len(self.alive)] if self.alive else None)

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 2), fault=st.sampled_from(["before", "after"]))
    def step_with_fault(self, which: int, fault: str) -> None:
        self._step(self.alive[which % len(self.alive)], fault)

    @precondition(lambda self: self.alive)
    @rule(which=st.integers(0, 2))
    def kill(self, which: int) -> None:
        self.alive[which % len(self.alive)].alive = False

    @precondition(lambda self: not self.alive and self.checkpoint.plans)
    @rule(batches=st.integers(1, 6))
    def set_back(self, batches: int) -> None:
        self.checkpoint.set_back(max(self.checkpoint.plans) + 1 - batches)
        self.was_set_back = True

    @rule()
    def time_out(self) -> None:
        self.broker.time_out()

    @rule()
    def complete(self) -> None:
        self.broker.complete()

    @rule(number=st.integers(0, 5))
    def others_begin(self, number: int) -> None:
        self.broker.others_begin(number)

    @rule(committed=st.booleans())
    def others_end(self, committed: bool) -> None:
        self.broker.others_end(committed=committed)

    def _step(self, driver: Driver | None, fault: str = "") -> None:
        if driver is None:
            return
        seen_through = len(driver.outcomes)
        driver.step(self.dice, fault=fault)
        if len(driver.outcomes) > seen_through:
            assert driver.run_id not in self.replaced, "one that was taken over has gone on"
        marker = self.broker.seen().committed
        if marker is not None:
            self.replaced |= set(marker.earlier)

    @invariant()
    def nothing_is_doubled(self) -> None:
        assert len(set(self.broker.committed)) == len(self.broker.committed)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert set(self.checkpoint.rows_done()) <= set(self.broker.committed)

    def teardown(self) -> None:
        last = Driver(len(self.drivers), self.broker, self.checkpoint)
        for _ in range(_STEPS_TO_THE_END):
            last.step(self.dice)
            if not last.alive or len(last.outcomes) == 4:
                break
        if self.was_set_back and isinstance(last.error, CheckpointBehindError):
            self.nothing_is_doubled()
            self.nothing_is_lost()
            return
        assert last.error is None, "one that is left alone could not go on"
        for driver in self.alive:
            while driver.alive and driver.last_calls[-1:] != ["commit"]:
                driver.step(self.dice)
        self.nothing_is_doubled()
        self.nothing_is_lost()
        written = self.checkpoint.rows_done()
        assert sorted(self.broker.committed)[: len(written)] == written


TestDrivers = Drivers.TestCase
TestDrivers.settings = settings(max_examples=300, stateful_step_count=40)


def _driver(broker: Broker, checkpoint: Checkpoint, number: int = 0) -> Driver:
    return Driver(number, broker, checkpoint)


def _until(driver: Driver, dice: random.Random, outcomes: int) -> None:
    while driver.alive and len(driver.outcomes) < outcomes:
        driver.step(dice)


@pytest.mark.parametrize("fault", ["", "before", "after"])
@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("batches_before", [0, 2])
def test_a_crash_at_any_call_is_made_good_by_the_next_run(
    batches_before: int, call: int, fault: str
) -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(1)
    first = _driver(broker, checkpoint)
    _until(first, dice, batches_before)
    for _ in range(3 + call):
        first.step(dice)
    if fault and first.alive:
        first.step(dice, fault=fault)
    first.alive = False
    second = _driver(broker, checkpoint, 1)

    _until(second, dice, 3)

    assert second.error is None
    assert sorted(broker.committed) == list(range(len(broker.committed)))


def test_the_older_of_two_drivers_stops_and_says_so() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(2)
    older = _driver(broker, checkpoint)
    _until(older, dice, 1)
    while 1 not in checkpoint.plans:
        older.step(dice)
    newer = _driver(broker, checkpoint, 1)
    _until(newer, dice, 2)

    _until(older, dice, 2)
    _until(newer, dice, 3)

    assert isinstance(older.error, OlderDriverError)
    assert older.last_calls == ["read"]
    assert newer.outcomes == [Outcome.WRITTEN] * 3
    assert sorted(broker.committed) == list(range(len(broker.committed)))


def test_a_driver_that_is_overtaken_while_it_sends_does_not_commit() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(3)
    older = _driver(broker, checkpoint)
    while older.last_calls.count("send") < 1:
        older.step(dice)
    newer = _driver(broker, checkpoint, 1)
    _until(newer, dice, 1)

    _until(older, dice, 1)

    assert isinstance(older.error, OlderDriverError)
    assert newer.outcomes == [Outcome.WRITTEN]
    assert sorted(broker.committed) == list(checkpoint.plans[0])


def test_a_checkpoint_that_was_set_back_is_refused() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(4)
    first = _driver(broker, checkpoint)
    _until(first, dice, 3)
    checkpoint.set_back(1)
    checkpoint.done.clear()
    again = _driver(broker, checkpoint, 1)

    _until(again, dice, 1)

    assert isinstance(again.error, CheckpointBehindError)
    assert "new checkpointLocation" in again.error.hint


def test_a_last_batch_that_is_planned_again_is_refused_and_fences_no_other_driver() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(9)
    first = _driver(broker, checkpoint)
    _until(first, dice, 3)
    broker.complete()
    written, epoch = list(broker.committed), broker.epoch
    checkpoint.set_back(2)
    again = _driver(broker, checkpoint, 1)

    _until(again, dice, 1)

    assert isinstance(again.error, CheckpointBehindError)
    assert "batch 2 of query query was planned again" in again.error.message
    assert again.last_calls == ["read"]
    assert (broker.committed, broker.epoch) == (written, epoch)


def test_a_plan_whose_transaction_was_given_up_does_not_stand_in_the_way() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(10)
    first = _driver(broker, checkpoint)
    while first.last_calls.count("send") < 2:
        first.step(dice)
    first.alive = False
    checkpoint.set_back(0)
    again = _driver(broker, checkpoint, 1)

    _until(again, dice, 1)

    assert again.outcomes == [Outcome.WRITTEN]
    assert sorted(broker.committed) == list(checkpoint.plans[0])


@settings(max_examples=400)
@given(
    pattern=_PATTERNS,
    before=st.integers(1, 8),
    back=st.integers(1, 8),
    remembers=st.booleans(),
    another_process=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**16),
)
def test_a_checkpoint_that_was_set_back_is_refused_or_makes_no_difference(
    pattern: str, before: int, back: int, remembers: bool, another_process: float, seed: int
) -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(pattern=pattern), random.Random(seed)
    first = Driver(0, broker, checkpoint, remembers=remembers, another_process=another_process)
    _until(first, dice, before)
    first.step(dice)
    first.alive = False
    written = list(broker.committed)
    checkpoint.set_back(max(checkpoint.plans) + 1 - back)
    again = Driver(1, broker, checkpoint, remembers=remembers, another_process=another_process)

    _until(again, dice, 12)

    if again.error is None:
        again.step(dice)
        assert sorted(broker.committed) == checkpoint.rows_done()
    else:
        assert isinstance(again.error, CheckpointBehindError)
        assert broker.committed == written


def _planned_again(sizes_then: list[int], sizes_now: list[int], pattern: str) -> Driver:
    """Run batches of so many inputs, set the checkpoint back to its beginning, and run others."""
    broker, checkpoint, dice = Broker(), Checkpoint(pattern=pattern), random.Random(11)
    first, again = _driver(broker, checkpoint), _driver(broker, checkpoint, 1)
    for driver, sizes in ((first, sizes_then), (again, sizes_now)):
        checkpoint.set_back(0)
        driver.sizes = list(sizes)
        _until(driver, dice, len(sizes))
        broker.complete()
    assert len(set(broker.committed)) == len(broker.committed)
    return again


def test_an_empty_batch_in_the_place_of_one_that_was_written_is_refused() -> None:
    again = _planned_again([4], [2, 2], "--xx")

    assert isinstance(again.error, CheckpointBehindError)
    assert "batch 0 of query query was planned again" in again.error.message
    assert again.last_calls == ["read"]


def test_empty_batches_on_the_way_to_the_one_that_was_written_are_refused() -> None:
    again = _planned_again([2, 2, 2], [1, 1, 1, 1, 2], "----xx")

    assert isinstance(again.error, CheckpointBehindError)
    assert "batch 0 of query query was to be written, but batch 2" in again.error.message


def test_empty_batches_may_be_planned_again_where_nothing_was_written() -> None:
    again = _planned_again([1, 1, 1], [2, 1, 3], "----xx")

    assert again.error is None
    assert again.outcomes == [Outcome.WRITTEN] * 3


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_empty_batch_learns_what_became_of_another_plan_that_is_undecided(
    is_committed: bool,
) -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(pattern="--xx"), random.Random(12)
    first = _driver(broker, checkpoint)
    first.sizes = [4]
    while broker.seen().undecided is None:
        first.step(dice)
    if is_committed:
        _until(first, dice, 1)
    first.alive = False
    checkpoint.set_back(0)
    again = _driver(broker, checkpoint, 1)
    again.sizes = [2, 2]

    _until(again, dice, 2)

    assert isinstance(again.error, CheckpointBehindError) is is_committed
    assert sorted(broker.committed) == [2, 3]


def test_empty_batches_behind_the_first_ask_nobody() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(pattern="-"), random.Random(13)
    driver = _driver(broker, checkpoint)
    _until(driver, dice, 1)
    assert driver.last_calls == ["read"]

    for batches in range(2, 6):
        _until(driver, dice, batches)
        assert driver.last_calls == []


@pytest.mark.parametrize("known", ["neither", "before", "now"])
def test_where_a_plan_is_not_known_the_number_of_the_batch_decides(known: str) -> None:
    broker = Broker()
    plan = make_plan(b"v1\n{}\n{}")
    before = Attempt("query", "run-0", 0, plan=plan if known == "before" else None)
    now = Attempt("query", "run-1", 0, plan=plan if known == "now" else None)
    for attempt in (before, now):
        calls = Calls(broker, {}, remembers=False)
        calls.run_through()

        rows: list[Any] = [[1]]
        outcome = commit_batch(attempt, [{("out", 0): rows}], markers=calls, transactor=calls)
        broker.complete()

    assert outcome is Outcome.WRITTEN_BEFORE
    assert broker.committed == [1]


def test_a_driver_that_is_overtaken_behind_its_first_look_does_not_begin() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(5)
    older = _driver(broker, checkpoint)
    _until(older, dice, 1)
    while 1 not in checkpoint.plans or older.last_calls != ["read"]:
        older.step(dice)
    newer = _driver(broker, checkpoint, 1)
    _until(newer, dice, 1)

    _until(older, dice, 2)

    assert isinstance(older.error, OlderDriverError)
    assert sorted(broker.committed) == list(range(len(broker.committed)))


def test_a_driver_that_remembers_its_last_batch_does_not_read_but_is_refused_all_the_same() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(8)
    older = Driver(0, broker, checkpoint, remembers=True)
    _until(older, dice, 2)
    assert "read" not in older.last_calls
    while 2 not in checkpoint.plans:
        older.step(dice)
    newer = _driver(broker, checkpoint, 1)
    _until(newer, dice, 1)

    _until(older, dice, 3)

    assert isinstance(older.error, OlderDriverError)
    assert sorted(broker.committed) == list(range(len(broker.committed)))


def test_processes_that_commit_in_turn_do_not_trust_old_memories() -> None:
    """To a broker the second last epoch looks like a request that comes again."""
    for seed in range(20):
        broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(seed)
        driver = Driver(0, broker, checkpoint, remembers=True, another_process=0.5)

        _until(driver, dice, 8)

        assert driver.error is None
        assert sorted(broker.committed) == list(range(checkpoint.plans[7].stop))


def test_a_replay_that_writes_nothing_takes_over_all_the_same() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(6)
    older = _driver(broker, checkpoint)
    _until(older, dice, 1)
    newer = _driver(broker, checkpoint, 1)

    _until(newer, dice, 1)

    assert newer.outcomes == [Outcome.WRITTEN_BEFORE]
    broker.complete()
    marker = broker.seen().committed
    assert marker is not None
    assert (marker.run_id, marker.earlier) == (newer.run_id, (older.run_id,))
    assert broker.committed == [row for row in broker.committed if row in checkpoint.plans[0]]


def test_what_the_older_driver_commits_in_the_last_moment_is_seen() -> None:
    broker, checkpoint, dice = Broker(), Checkpoint(), random.Random(7)
    older = _driver(broker, checkpoint)
    while older.last_calls.count("send") < 2:
        older.step(dice)
    newer = _driver(broker, checkpoint, 1)
    while newer.last_calls != ["read"]:
        newer.step(dice)
    _until(older, dice, 1)

    _until(newer, dice, 1)

    assert newer.outcomes == [Outcome.WRITTEN_BEFORE]
    assert sorted(broker.committed) == list(checkpoint.plans[0])
