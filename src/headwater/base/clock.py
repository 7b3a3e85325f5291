"""Time, as something that is handed in.

This file alone touches the machine's clocks. Everything that decides by time takes a ``Clock``
or ``Timers`` as an argument, so that a test can move time and a failure can be replayed.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two readings of time: the calendar's, and one that never goes back."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC; may jump when the host's clock is set."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some fixed point; never goes back."""
        ...


class Timer(Protocol):
    """One action that is still to come."""

    def cancel(self) -> None:
        """Forget the action; harmless when it has run already."""
        ...


class Timers(Protocol):
    """Runs actions later, on the same thread as everything else."""

    def after(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        """Run the action once, no sooner than ``delay_ms`` from now."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the monotonic clock in milliseconds."""
        return time.monotonic_ns() // 1_000_000
