"""Requests that came while a transaction was ending.

This file alone decides how long they are held, and that they go on in the order in which they
came. An end takes one round of the disk, some tenths of a millisecond; a client that was told
CONCURRENT_TRANSACTIONS instead would come back after its back-off of 20 to 100 ms. What is held
too long, because a marker cannot be written, is told so after all.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from headwater.base.clock import Timer, Timers

Action = Callable[[], None]

# Far above a slow sync, far below the 30 s after which clients give up a request.
_HELD_MS_MAX: Final = 1_000
# What all that waits may take: copies of batches, beside the memory that requests may take, and
# for each request the objects that it was decoded into.
_HELD_BYTES_MAX: Final = 64 << 20
_REQUEST_BYTES: Final = 2_000


class _Held(NamedTuple):
    go_on: Action
    give_up: Action
    size: int


class Holding:
    """The requests that wait, by the transactional id that they wait for."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queues: dict[str, tuple[deque[_Held], Timer]] = {}
        self._held_bytes = 0

    def hold(self, transactional_id: str, go_on: Action, give_up: Action, *, size: int = 0) -> None:
        """Run ``go_on`` when the transaction has ended, or ``give_up`` if that takes too long."""
        size += _REQUEST_BYTES
        if self._held_bytes + size > _HELD_BYTES_MAX:
            give_up()
            return
        self._held_bytes += size
        found = self._queues.get(transactional_id)
        if found is None:
            timer = self._timers.after(_HELD_MS_MAX, partial(self._expire, transactional_id))
            found = self._queues[transactional_id] = (deque(), timer)
        found[0].append(_Held(go_on, give_up, size))

    def release(self, transactional_id: str) -> None:
        """The transaction has ended: let all go on, in their order."""
        _run_all(held.go_on for held in self._take(transactional_id))

    def _expire(self, transactional_id: str) -> None:
        _run_all(held.give_up for held in self._take(transactional_id))

    def _take(self, transactional_id: str) -> deque[_Held]:
        found = self._queues.pop(transactional_id, None)
        if found is None:
            return deque()
        queue, timer = found
        timer.cancel()
        self._held_bytes -= sum(held.size for held in queue)
        return queue


def _run_all(actions: Iterable[Action]) -> None:
    failure: Exception | None = None
    for action in actions:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - raised when all have had their turn
            failure = error
    if failure is not None:
        raise failure
