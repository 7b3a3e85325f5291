"""Requests that wait for the end of a transaction."""

import pytest

from headwater.delivery.broker.transactions.holding import Holding
from headwater.testing.manual_clock import ManualClock


def test_they_go_on_in_their_order_and_may_wait_again() -> None:
    holding = Holding(ManualClock())
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        holding.hold("x", lambda: seen.append("third"), lambda: seen.append("gave up"))

    holding.hold("x", first, lambda: None)
    holding.hold("x", lambda: seen.append("second"), lambda: None)
    holding.hold("y", lambda: seen.append("other"), lambda: None)
    holding.release("x")
    assert seen == ["first", "second"]
    holding.release("x")
    assert seen == ["first", "second", "third"]


def test_what_waits_too_long_is_told_so() -> None:
    clock = ManualClock()
    holding = Holding(clock)
    seen: list[str] = []
    holding.hold("x", lambda: seen.append("went on"), lambda: seen.append("gave up"))

    clock.advance(999)
    assert seen == []
    clock.advance(2)
    assert seen == ["gave up"]
    holding.release("x")
    assert seen == ["gave up"]


@pytest.mark.parametrize("size, count_max", [(16 << 20, 3), (0, 33_554)])
def test_what_waits_takes_a_bounded_amount_of_memory(size: int, count_max: int) -> None:
    holding = Holding(ManualClock())
    seen: list[str] = []
    for _ in range(count_max + 1):
        holding.hold("x", lambda: seen.append("went on"), lambda: seen.append("no"), size=size)
    assert seen == ["no"]

    holding.release("x")
    assert seen == ["no"] + ["went on"] * count_max
    holding.hold("x", lambda: None, lambda: seen.append("no again"), size=60 << 20)
    assert seen[-1] == "went on", "there is room again"


def test_one_that_fails_keeps_nobody_else_waiting() -> None:
    holding = Holding(ManualClock())
    seen: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    holding.hold("x", fail, lambda: None)
    holding.hold("x", lambda: seen.append("second"), lambda: None)
    try:
        holding.release("x")
    except ZeroDivisionError:
        seen.append("raised")
    assert seen == ["second", "raised"]
