"""Which open transactions have outlived their time-out.

This file alone decides how that is found without looking at all of them: a heap by deadline, whose
entries of transactions that have ended meanwhile are dropped when they come up, or all at once
when they outnumber the others. It knows no clock and aborts nothing.
"""

import heapq
from typing import Final

# Small enough to be rebuilt without notice, large enough that few transactions never are.
_DEAD_ENTRIES_MIN: Final = 1_000


class Deadlines:
    """The open transactions, by the time at which each must have ended."""

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Count the open transactions."""
        return len(self._deadlines)

    def set(self, transactional_id: str, deadline_ms: int) -> None:
        """A transaction is open, and must have ended by then."""
        if self._deadlines.get(transactional_id) == deadline_ms:
            return
        self._deadlines[transactional_id] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, transactional_id))
        if len(self._heap) > 2 * len(self._deadlines) + _DEAD_ENTRIES_MIN:
            self._heap = [(each_ms, each) for each, each_ms in self._deadlines.items()]
            heapq.heapify(self._heap)

    def clear(self, transactional_id: str) -> None:
        """The transaction has ended; harmless when there was none."""
        self._deadlines.pop(transactional_id, None)

    def overdue(self, now_ms: int, *, count_max: int) -> list[str]:
        """Return whose deadline has passed, the longest overdue first; they are still open."""
        # A set in order: two transactions of one id may have had the same deadline.
        found: dict[str, None] = {}
        while self._heap and self._heap[0][0] < now_ms and len(found) < count_max:
            deadline_ms, transactional_id = heapq.heappop(self._heap)
            if self._deadlines.get(transactional_id) == deadline_ms:
                found[transactional_id] = None
        for transactional_id in found:
            # Whoever could not be aborted now is found again.
            heapq.heappush(self._heap, (self._deadlines[transactional_id], transactional_id))
        return list(found)
