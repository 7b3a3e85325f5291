"""The rules of transactional ids against a model that only remembers who was told what."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.transactions import decisions
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.broker.transactions.states import (
    BY_LABEL,
    PREDECESSORS,
    TransactionState,
)
from headwater.delivery.broker.transactions.transaction import NO_PRODUCER_ID, Transaction
from headwater.log.producers import EPOCH_MAX

LAST_EPOCH = EPOCH_MAX - 1
KEY = ("t", 0)
VERSIONS = st.sampled_from([0, 2])


def refused(ask: Callable[[], object]) -> ErrorCode | None:
    """Return the code with which a request is refused, None if it is granted."""
    try:
        ask()
    except KafkaError as error:
        return error.code
    return None


def transaction(
    *, epoch: int = 0, state: TransactionState = TransactionState.EMPTY, version: int = 2
) -> Transaction:
    """Make an id in some state."""
    return Transaction(
        transactional_id="x",
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1,
        updated_ms=0,
        state=state,
        client_version=version,
        partitions=frozenset({KEY}) if state is TransactionState.ONGOING else frozenset(),
        started_ms=5,
        previous_producer_id=7,
    )


class Coordinator(RuleBasedStateMachine):
    """One transactional id, asked by the producer that it belongs to and by older ones."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.next_id = 100
        # The model: who the present producer is, who was before it, what its transaction reached.
        self.old: list[Producer] = []
        self.open: set[tuple[str, int]] | None = None
        self.outcomes: list[bool] = []

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    @initialize(epoch=st.sampled_from([0, 5, LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH]))
    def begin(self, epoch: int) -> None:
        self.state = transaction(epoch=epoch)
        self.me = Producer(7, epoch)

    def become(self, granted: Transaction) -> None:
        assert granted.state in PREDECESSORS
        assert self.state.state in PREDECESSORS[granted.state]
        self.state = granted

    def replace(self, me: Producer) -> None:
        if me != self.me:
            assert me not in self.old, "nobody gets what somebody had"
            self.old.append(self.me)
            self.me = me

    def finish(self) -> None:
        """Write the markers."""
        assert self.state.state.is_ending
        self.become(self.state.completed(now_ms=self.now_ms))
        assert not self.state.partitions
        assert self.state.next_producer_id == NO_PRODUCER_ID

    @rule(ms=st.integers(1, 1000))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: self.me.producer_epoch < EPOCH_MAX)
    @rule(partition=st.integers(0, 3), version=VERSIONS)
    def enlist(self, partition: int, version: int) -> None:
        key = ("t", partition)
        granted = decisions.judge_enlist(
            self.state, self.me, {key}, client_version=version, now_ms=self.now_ms
        )
        assert (granted is None) == (self.open is not None and key in self.open)
        if granted is not None:
            began = self.state.started_ms if self.open is not None else self.now_ms
            self.become(granted)
            assert self.state.started_ms == began
        self.open = (self.open or set()) | {key}
        assert self.state.partitions == self.open

    @precondition(lambda self: self.me.producer_epoch < EPOCH_MAX)
    @rule(commit=st.booleans(), version=VERSIONS)
    def end(self, commit: bool, version: int) -> None:
        before = self.state
        granted: list[Transaction | None] = []

        def ask() -> None:
            granted.append(
                decisions.judge_end(
                    self.state,
                    self.me,
                    commit=commit,
                    client_version=version,
                    new_producer_id=self.new_id,
                    now_ms=self.now_ms,
                )
            )

        error = refused(ask)
        if self.open is None:
            if error is ErrorCode.INVALID_TXN_STATE:
                return
            assert error is None
            if granted[0] is None:
                assert version == 0, "only the older protocol cannot tell a repetition"
                assert before.is_commit == commit
                return
            assert version == 2, "only the newer protocol aborts nothing"
            assert not commit
        else:
            assert error is None
            self.outcomes.append(commit)
        assert granted[0] is not None
        self.become(granted[0])
        assert self.state.is_commit == commit
        self.hold_everything()
        asked = self.me
        self.finish()
        self.open = None
        self.replace(Producer(self.state.producer_id, self.state.producer_epoch))
        assert (asked != self.me) == (version == 2)
        if version:
            self.repeat(asked, commit=commit)

    def hold_everything(self) -> None:
        """Nothing is decided while markers are written, whoever asks."""
        for ask in (
            lambda: decisions.judge_enlist(
                self.state, self.me, {KEY}, client_version=2, now_ms=self.now_ms
            ),
            lambda: decisions.check_enlisted(self.state, self.me, KEY),
            lambda: decisions.judge_end(
                self.state,
                self.me,
                commit=True,
                client_version=2,
                new_producer_id=self.new_id,
                now_ms=self.now_ms,
            ),
        ):
            assert refused(ask) is ErrorCode.CONCURRENT_TRANSACTIONS

    def repeat(self, asked: Producer, *, commit: bool) -> None:
        """A client that did not hear the answer asks again: it gets the same one."""

        def again(*, commit: bool) -> object:
            return decisions.judge_end(
                self.state,
                asked,
                commit=commit,
                client_version=2,
                new_producer_id=self.new_id,
                now_ms=self.now_ms,
            )

        assert again(commit=commit) is None
        assert refused(lambda: again(commit=not commit)) is ErrorCode.INVALID_TXN_STATE

    @precondition(lambda self: self.open is not None)
    @rule(version=VERSIONS)
    def time_out(self, version: int) -> None:
        self.become(
            decisions.judge_fence(
                self.state,
                server_version=version,
                new_producer_id=self.new_id,
                now_ms=self.now_ms,
            )
        )
        assert not self.state.is_commit
        self.finish()
        self.outcomes.append(False)
        self.open = None
        self.replace(Producer(self.state.producer_id, self.state.producer_epoch))

    @precondition(lambda self: self.open is None)
    @rule(known=st.booleans())
    def initialize_again(self, known: bool) -> None:
        expected = self.me if known else None
        decisions.check_takeover(self.state, expected)
        self.become(
            decisions.judge_init(
                self.state,
                expected,
                timeout_ms=60_000,
                new_producer_id=self.new_id,
                now_ms=self.now_ms,
            )
        )
        self.replace(Producer(self.state.producer_id, self.state.producer_epoch))

    @invariant()
    def nobody_who_was_replaced_can_write(self) -> None:
        for producer in self.old:
            ask = partial(decisions.judge_enlist, client_version=2, now_ms=self.now_ms)
            error = refused(partial(ask, self.state, producer, {KEY}))
            same = producer.producer_id == self.me.producer_id
            assert error is (
                ErrorCode.PRODUCER_FENCED if same else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            )


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = hypothesis_settings(max_examples=100, stateful_step_count=20)


# Epochs that are used up


@pytest.mark.parametrize("commit", [True, False])
def test_the_last_epoch_ends_with_another_producer_id(*, commit: bool) -> None:
    worn_out = transaction(epoch=LAST_EPOCH, state=TransactionState.ONGOING)

    ending = decisions.judge_end(
        worn_out,
        Producer(7, LAST_EPOCH),
        commit=commit,
        client_version=2,
        new_producer_id=lambda: 8,
        now_ms=1,
    )

    assert ending is not None
    assert (ending.producer_id, ending.producer_epoch) == (7, EPOCH_MAX), "what markers carry"
    assert ending.next_producer_id == 8
    done = ending.completed(now_ms=2)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (8, 0, 7)

    def again(epoch: int) -> object:
        return decisions.judge_end(
            done,
            Producer(7, epoch),
            commit=commit,
            client_version=2,
            new_producer_id=lambda: 9,
            now_ms=3,
        )

    assert again(LAST_EPOCH) is None, "the client did not hear the answer"
    assert refused(lambda: again(LAST_EPOCH - 1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("known", [True, False])
def test_a_new_producer_at_the_last_epoch_gets_another_id(*, known: bool) -> None:
    expected = Producer(7, LAST_EPOCH) if known else None

    given = decisions.judge_init(
        transaction(epoch=LAST_EPOCH),
        expected,
        timeout_ms=1,
        new_producer_id=lambda: 8,
        now_ms=1,
    )

    assert (given.producer_id, given.producer_epoch) == (8, 0)
    if expected is not None:
        decisions.check_takeover(given, expected)
        again = decisions.judge_init(
            given, expected, timeout_ms=1, new_producer_id=lambda: 9, now_ms=2
        )
        assert (again.producer_id, again.producer_epoch) == (8, 0), "the same answer again"


@pytest.mark.parametrize("version, expected", [(2, (8, 0)), (0, (7, EPOCH_MAX))])
def test_a_time_out_at_the_last_epoch(version: int, expected: tuple[int, int]) -> None:
    worn_out = transaction(epoch=LAST_EPOCH, state=TransactionState.ONGOING)

    ending = decisions.judge_fence(
        worn_out, server_version=version, new_producer_id=lambda: 8, now_ms=1
    )

    assert ending.producer_epoch == EPOCH_MAX
    done = ending.completed(now_ms=2)
    assert (done.producer_id, done.producer_epoch) == expected
    given = decisions.judge_init(done, None, timeout_ms=1, new_producer_id=lambda: 9, now_ms=3)
    assert (given.producer_id, given.producer_epoch) == ((8, 1) if version else (9, 0))


# Names and numbers


def test_states_have_kafkas_names_and_numbers() -> None:
    assert {state.label: int(state) for state in TransactionState} == {
        "Empty": 0,
        "Ongoing": 1,
        "PrepareCommit": 2,
        "PrepareAbort": 3,
        "CompleteCommit": 4,
        "CompleteAbort": 5,
        "Dead": 6,
        "PrepareEpochFence": 7,
    }
    assert all(state.label in BY_LABEL for state in TransactionState)
    assert set(PREDECESSORS) == set(TransactionState)


def test_an_id_that_is_unknown() -> None:
    me = Producer(7, 0)
    asks: list[Callable[[], object]] = [
        lambda: decisions.judge_enlist(None, me, {KEY}, client_version=2, now_ms=0),
        lambda: decisions.check_enlisted(None, me, KEY),
        lambda: decisions.judge_end(
            None, me, commit=True, client_version=2, new_producer_id=lambda: 1, now_ms=0
        ),
    ]
    assert {refused(ask) for ask in asks} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
