"""What a client cannot do to others, however many transactions it opens and however long."""

import tracemalloc
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.crash.txn.actors import PLACES, read_answer
from tests.crash.txn.scripts import Finish, Identity, Step, Write, ask, fetch, initialize
from tests.crash.txn.simulation import Simulation

PLACE = PLACES[0]
TIMEOUT_MS = 60_000
MANY = 10_000
# As everywhere but in simulations, which roll after every few batches.
SEGMENTS = {"log.index.interval.bytes": "4096", "log.index.size.max.bytes": "10485760"}
MAX_TIMEOUT_MS = 15 * 60_000


class Desk(Simulation):
    """A simulation whose clients the test plays itself."""

    def __init__(self, **settings: str) -> None:
        ours = {name.replace("_", "."): value for name, value in settings.items()}
        super().__init__(1, None, {**SEGMENTS, **ours})
        self.start()

    def begin(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> Identity:
        """Get an id."""
        identity = Identity(transactional_id)
        answer = self._ask(initialize(identity, timeout_ms))
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        identity.producer_id, identity.epoch = answer.producer_id, answer.producer_epoch
        return identity

    def do(self, identity: Identity, step: Step, sequence: int = 0) -> Any:  # noqa: ANN401
        """Ask for a step of KIP-890's protocol; return the answer."""
        (asked,) = ask(identity, step, sequence, self.clock.now_ms(), new=True)
        return self._ask(asked)

    def write(self, identity: Identity, value: str, sequence: int = 0) -> ErrorCode:
        """Write a record."""
        step = Write(PLACE, (value,))
        return read_answer(step, self.do(identity, step, sequence))[0]

    def bounds(self) -> tuple[int, int]:
        """Return the last stable offset and the high watermark."""
        answer = self._ask(fetch({PLACE: 0}, committed=True, wait_ms=0))
        (topic,) = answer.responses
        (data,) = topic.partitions
        return data.last_stable_offset, data.high_watermark

    def wait(self, duration_ms: int, step_ms: int = 1_000) -> None:
        """Let time pass."""
        for _ in range(duration_ms // step_ms):
            self.clock.advance(step_ms)
            self._settle()

    @property
    def open_count(self) -> int:
        """How many transactions the coordinator has open."""
        assert self.broker is not None
        return self.broker.transactions.open_count


@pytest.mark.timeout(120)
def test_ten_thousand_open_transactions_cost_little_and_end() -> None:
    desk = Desk()
    for number in range(MANY):
        assert desk.write(desk.begin(f"id-{number}"), f"v{number}") == ErrorCode.NONE
    assert desk.open_count == MANY
    assert desk.bounds() == (0, MANY)
    # Others are served meanwhile.
    other = desk.begin("other")
    assert desk.write(other, "o") == ErrorCode.NONE
    assert desk.do(other, Finish(commit=True)).error_code == 0
    # They are aborted some at a time, so that others get their turn.
    desk.wait(TIMEOUT_MS + 5_000)
    assert desk.open_count == 0
    stable, end = desk.bounds()
    assert stable == end == 2 * MANY + 2


def test_an_open_transaction_takes_some_kilobytes() -> None:
    desk = Desk()
    desk.write(desk.begin("first"), "v")
    count = 500
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            desk.write(desk.begin(f"id-{number}"), f"v{number}")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The disk in memory is in it, with the records themselves and those of the coordinator.
    assert (after - before) / count < 8_000


def test_one_id_may_have_thousands_of_transactions_one_after_the_other() -> None:
    desk = Desk()
    identity = desk.begin("busy")
    count = MANY // 10
    for number in range(count):
        assert desk.write(identity, f"v{number}") == ErrorCode.NONE
        answer = desk.do(identity, Finish(commit=True))
        assert answer.error_code == 0
        identity.producer_id, identity.epoch = answer.producer_id, answer.producer_epoch
    assert desk.open_count == 0
    stable, end = desk.bounds()
    assert stable == end == 2 * count


def test_nobody_may_ask_for_longer_than_the_broker_allows() -> None:
    desk = Desk()
    request = messages.InitProducerIdRequest(
        transactional_id="slow", transaction_timeout_ms=MAX_TIMEOUT_MS + 1
    )
    answer = desk._ask((request, 4))
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    desk.begin("slow", timeout_ms=MAX_TIMEOUT_MS)


def test_a_transaction_that_is_held_open_ends_with_its_time_out() -> None:
    desk = Desk()
    slow = desk.begin("slow")
    assert desk.write(slow, "v0") == ErrorCode.NONE
    # Whoever goes on writing holds it open no longer than one who does nothing.
    for sequence in range(1, 6):
        desk.wait(TIMEOUT_MS // 6)
        assert desk.write(slow, f"v{sequence}", sequence) == ErrorCode.NONE
        assert desk.bounds()[0] == 0
    desk.wait(TIMEOUT_MS // 6 + 1_000)
    stable, end = desk.bounds()
    assert stable == end == 7
    assert desk.write(slow, "late", 6) == ErrorCode.INVALID_PRODUCER_EPOCH
    refused = ErrorCode(desk.do(slow, Finish(commit=True)).error_code)
    assert refused in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE}


def test_a_restart_does_not_begin_the_time_out_anew() -> None:
    desk = Desk()
    desk.write(desk.begin("slow"), "v0")
    desk.wait(TIMEOUT_MS * 3 // 4)
    later = desk.fork(1, "nothing")
    later.start()
    assert later.broker is not None
    later.clock.advance(TIMEOUT_MS // 4 + 1_000)
    later._settle()
    assert later.broker.transactions.open_count == 0


def test_ids_that_nobody_uses_any_more_are_forgotten() -> None:
    desk = Desk(
        transactional_id_expiration_ms="60000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10000",
    )
    for number in range(1_000):
        desk.begin(f"id-{number}")
    assert desk.broker is not None
    assert len(desk.broker.transactions) == 1_000
    desk.wait(50_000)
    assert len(desk.broker.transactions) == 1_000
    desk.wait(30_000)
    assert len(desk.broker.transactions) == 0
