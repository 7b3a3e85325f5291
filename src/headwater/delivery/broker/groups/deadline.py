"""A moment by which something must have happened, moved far more often than it is reached.

This file alone decides how a moving deadline uses timers. Every heartbeat moves a deadline; a new
timer for each would fill the queue of timers with cancelled ones. So a timer that comes too early
asks for the rest of the time instead.
"""

from collections.abc import Callable

from headwater.base.clock import Clock, Timer, Timers


class Deadline:
    """Runs an action unless it is moved or cancelled in time."""

    __slots__ = ("_action", "_clock", "_due_ms", "_timer", "_timer_due_ms", "_timers")

    def __init__(self, clock: Clock, timers: Timers, action: Callable[[], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._action = action
        self._due_ms = 0
        self._timer: Timer | None = None
        self._timer_due_ms = 0

    def move(self, delay_ms: int) -> None:
        """Set the deadline to ``delay_ms`` from now."""
        self._due_ms = self._clock.monotonic_ms() + delay_ms
        if self._timer is not None:
            if self._timer_due_ms <= self._due_ms:
                return
            self._timer.cancel()
        self._start(delay_ms)

    def cancel(self) -> None:
        """Give the deadline up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, delay_ms: int) -> None:
        self._timer_due_ms = self._due_ms
        self._timer = self._timers.after(delay_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        left_ms = self._due_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._start(left_ms)
        else:
            self._action()
