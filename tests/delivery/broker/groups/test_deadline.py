"""Deadlines that are moved far more often than they are reached."""

import pytest

from headwater.delivery.broker.groups.deadline import Deadline
from headwater.testing.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_runs_once_when_the_time_is_over(clock: ManualClock) -> None:
    ran: list[int] = []
    Deadline(clock, clock, lambda: ran.append(clock.monotonic_ms())).move(100)
    due_ms = clock.monotonic_ms() + 100

    clock.advance(1_000)

    assert ran == [due_ms]


def test_moving_it_on_needs_no_new_timer(clock: ManualClock) -> None:
    ran: list[int] = []
    deadline = Deadline(clock, clock, lambda: ran.append(1))

    deadline.move(100)
    for _ in range(50):
        clock.advance(10)
        deadline.move(100)
        assert clock.pending_timers == 1

    clock.advance(99)
    assert ran == []
    clock.advance(1)
    assert ran == [1]


def test_moving_it_nearer_counts_at_once(clock: ManualClock) -> None:
    ran: list[int] = []
    deadline = Deadline(clock, clock, lambda: ran.append(1))
    deadline.move(1_000)

    deadline.move(10)
    clock.advance(10)

    assert ran == [1]
    assert clock.pending_timers == 0


def test_it_can_be_given_up_and_set_again(clock: ManualClock) -> None:
    ran: list[int] = []
    deadline = Deadline(clock, clock, lambda: ran.append(1))
    deadline.move(10)
    deadline.cancel()
    clock.advance(100)
    assert ran == []

    deadline.move(10)
    clock.advance(10)

    assert ran == [1]
