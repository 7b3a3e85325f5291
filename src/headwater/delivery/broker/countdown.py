"""One action that waits for several events.

This file alone decides when it runs: with the last of them.
"""

from collections.abc import Callable


class Countdown:
    """Runs an action when the last of several things has happened."""

    __slots__ = ("_action", "_left")

    def __init__(self, count: int, action: Callable[[], None]) -> None:
        """Wait for ``count`` things."""
        self._left = count
        self._action = action

    def one_more(self) -> None:
        """Wait for another thing, too."""
        self._left += 1

    def one_less(self) -> None:
        """One of them has happened."""
        self._left -= 1
        if not self._left:
            self._action()
