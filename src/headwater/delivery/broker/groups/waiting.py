"""Requests that are answered later.

This file alone decides that each is answered at most once, and that an answer for a client that
has gone away is dropped.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Waiting(Generic[Result]):
    """A request that a group holds back until it can be answered."""

    __slots__ = ("_reply", "_when_abandoned", "abandoned")

    def __init__(self, reply: Callable[[Result], None]) -> None:
        self._reply: Callable[[Result], None] | None = reply
        self._when_abandoned: Callable[[], None] | None = None
        self.abandoned = False

    @property
    def answered(self) -> bool:
        """Whether the answer was given."""
        return self._reply is None and not self.abandoned

    def answer(self, result: Result) -> None:
        """Answer; harmless when the client is gone."""
        reply, self._reply = self._reply, None
        self._when_abandoned = None
        if reply is not None:
            reply(result)

    def when_abandoned(self, action: Callable[[], None]) -> None:
        """Run the action if the client goes away before its answer."""
        self._when_abandoned = action

    def abandon(self) -> None:
        """The client is gone; nobody waits for this answer any more."""
        if self._reply is None:
            return
        self._reply = None
        self.abandoned = True
        action, self._when_abandoned = self._when_abandoned, None
        if action is not None:
            action()
