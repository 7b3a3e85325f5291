"""Time moves when told, and everything due happens on the way."""

import pytest

from headwater.base.chance import random_uuid
from headwater.testing.manual_clock import ManualClock
from headwater.testing.seeded_chance import SeededChance


def test_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(now_ms=100, monotonic_ms=7)
    assert (clock.now_ms(), clock.monotonic_ms()) == (100, 7)
    clock.advance(50)

    assert (clock.now_ms(), clock.monotonic_ms()) == (150, 57)


def test_actions_run_in_order_each_at_its_moment() -> None:
    clock = ManualClock(monotonic_ms=0)
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic_ms()))

    clock.after(30, lambda: note("c"))
    clock.after(10, lambda: note("a"))
    clock.after(10, lambda: note("b"))
    clock.after(40, lambda: note("later"))
    clock.advance(30)

    assert seen == [("a", 10), ("b", 10), ("c", 30)]
    assert clock.pending_timers == 1


def test_an_action_may_ask_for_another() -> None:
    clock = ManualClock(monotonic_ms=0)
    seen: list[int] = []

    def again() -> None:
        seen.append(clock.monotonic_ms())
        clock.after(10, again)

    clock.after(10, again)
    clock.advance(35)

    assert seen == [10, 20, 30]


def test_a_cancelled_action_never_runs() -> None:
    clock = ManualClock()
    seen: list[str] = []
    timer = clock.after(10, lambda: seen.append("x"))
    timer.cancel()
    timer.cancel()
    clock.advance(100)

    assert seen == []
    assert clock.pending_timers == 0
    assert not clock.advance_to_next_timer()


def test_the_next_timer_is_found() -> None:
    clock = ManualClock(monotonic_ms=0)
    seen: list[str] = []
    clock.after(5, lambda: seen.append("cancelled")).cancel()
    clock.after(70, lambda: seen.append("x"))

    assert clock.advance_to_next_timer()
    assert seen == ["x"]
    assert clock.monotonic_ms() == 70


def test_the_calendar_may_jump_alone() -> None:
    clock = ManualClock(now_ms=100, monotonic_ms=7)
    clock.set_calendar(20)

    assert (clock.now_ms(), clock.monotonic_ms()) == (20, 7)
    with pytest.raises(AssertionError):
        clock.advance(-1)


def test_dice_are_repeatable() -> None:
    assert random_uuid(SeededChance(3)) == random_uuid(SeededChance(3))
    assert random_uuid(SeededChance(3)) != random_uuid(SeededChance(4))
    assert len(SeededChance().random_bytes(100)) == 100
