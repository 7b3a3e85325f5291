"""Time that stands still until a test moves it.

This file alone decides the order in which actions run in a test: by the moment they are due, then
by the order in which they were asked for.
"""

import heapq
import itertools
from collections.abc import Callable


class ManualTimer:
    """One action that is still to come."""

    def __init__(self, action: Callable[[], None]) -> None:
        """Hold the action until it has run or is cancelled."""
        self._action: Callable[[], None] | None = action

    @property
    def pending(self) -> bool:
        """Whether it will still run."""
        return self._action is not None

    def cancel(self) -> None:
        """Forget the action."""
        self._action = None

    def run(self) -> None:
        """Run the action, once, unless it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action()


class ManualClock:
    """A ``Clock`` and its ``Timers`` in one.

    Both readings start where the constructor says and move together; only ``set_calendar`` parts
    them, as an administrator who sets the host's clock does.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000_000) -> None:
        """Start at a fixed moment, so that runs are alike."""
        self._now_ms = float(now_ms)
        self._monotonic_ms = float(monotonic_ms)
        self._queue: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        """Return the calendar's time."""
        return int(self._now_ms)

    def monotonic_ms(self) -> int:
        """Return the time that never goes back."""
        return int(self._monotonic_ms)

    def after(self, delay_ms: float, action: Callable[[], None]) -> ManualTimer:
        """Run the action once ``advance`` has passed ``delay_ms`` from now."""
        timer = ManualTimer(action)
        due_ms = self._monotonic_ms + max(0.0, delay_ms)
        heapq.heappush(self._queue, (due_ms, next(self._order), timer))
        return timer

    def advance(self, duration_ms: float) -> None:
        """Let time pass, and run what falls due on the way, each action at its own moment."""
        assert duration_ms >= 0, "time never goes back; set_calendar moves the calendar"
        end_ms = self._monotonic_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._queue)
            self._move_to(due_ms)
            timer.run()
        self._move_to(end_ms)

    def advance_to_next_timer(self) -> bool:
        """Let time pass until the next action is due and run it; tell whether there was one."""
        while self._queue and not self._queue[0][2].pending:
            heapq.heappop(self._queue)
        if not self._queue:
            return False
        self.advance(max(0.0, self._queue[0][0] - self._monotonic_ms))
        return True

    @property
    def pending_timers(self) -> int:
        """How many actions are still to come."""
        return sum(timer.pending for _, _, timer in self._queue)

    def set_calendar(self, now_ms: int) -> None:
        """Set the calendar alone, forwards or back."""
        self._now_ms = float(now_ms)

    def _move_to(self, monotonic_ms: float) -> None:
        passed_ms = max(0.0, monotonic_ms - self._monotonic_ms)
        self._monotonic_ms += passed_ms
        self._now_ms += passed_ms
