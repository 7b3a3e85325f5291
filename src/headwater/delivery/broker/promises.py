"""Records that were answered for before readers can see them.

This file alone decides how long a read waits for such records. `acks=1` is answered when a batch is
in the page cache, and readers see it when it is synced, some tenths of a millisecond later. Whoever
has that answer, or has heard of it from the producer, may ask for the end of the partition at once:
the read is then answered when the sync is through. Reads wait for nothing else, and not for what
is written after they began.

A sync that fails ends the wait too, and the broker. One that cannot be tried, because no file can
be opened for it, does neither: for as long as that lasts, each read waits for a bounded time and
then says that it cannot know yet.
"""

from collections.abc import Iterable
from typing import Final

from headwater.base.clock import Timer, Timers
from headwater.delivery.broker.partition import Action, Partition

PATIENCE_MS: Final = 3_000
"""How long a read waits at most. A sync takes tenths of a millisecond, 4 ms on a busy disk, and
seldom a second where others write much; clients give a request 30 s and more.
"""


class Wait:
    """A read that waits: it goes on or gives up, once, or is cancelled."""

    __slots__ = ("_action", "_left", "_otherwise", "_timer")

    def __init__(
        self, count: int, action: Action, *, timers: Timers, patience_ms: float, otherwise: Action
    ) -> None:
        """Wait for ``count`` partitions."""
        self._left = count
        self._action: Action | None = action
        self._otherwise = otherwise
        self._timer: Timer = timers.after(patience_ms, self._give_up)

    def one_less(self) -> None:
        """One of the partitions has kept what was promised."""
        self._left -= 1
        action = self._action
        if not self._left and action is not None:
            self.cancel()
            action()

    def _give_up(self) -> None:
        if self._action is not None:
            otherwise = self._otherwise
            self.cancel()
            otherwise()

    def cancel(self) -> None:
        """Nobody waits any more.

        Partitions may keep this object for long, so it lets go of the request.
        """
        self._timer.cancel()
        self._action = None
        self._otherwise = _nothing


class Promises:
    """What was answered for and is not visible yet, by partition."""

    def __init__(self, timers: Timers) -> None:
        """Nothing was promised yet; ``timers`` bound the waits."""
        self._timers = timers
        self._last_offsets: dict[Partition, int] = {}

    def make(self, partition: Partition, last_offset: int) -> None:
        """Note that a producer is told of records up to this offset."""
        known = self._last_offsets.get(partition, -1)
        if last_offset > known:
            self._last_offsets[partition] = last_offset

    @property
    def outstanding(self) -> bool:
        """Whether there may be records that cannot be seen yet."""
        return bool(self._last_offsets)

    def concern(self, partitions: Iterable[Partition]) -> bool:
        """Tell whether one of these partitions has records that cannot be seen yet."""
        if not self._last_offsets:
            return False
        self.forget_kept()
        return any(partition in self._last_offsets for partition in partitions)

    def cover(self, partition: Partition, offset: int) -> bool:
        """Tell whether an offset that readers do not know yet is one that a producer was told."""
        return offset <= self._last_offsets.get(partition, -1) + 1

    def when_kept(
        self,
        partitions: Iterable[Partition],
        action: Action,
        *,
        otherwise: Action,
        patience_ms: float = PATIENCE_MS,
    ) -> Wait | None:
        """Run the action when all that was promised of these partitions so far is visible.

        Args:
            partitions: Whose records the read is for.
            action: What goes on then.
            otherwise: What is done instead when that takes too long.
            patience_ms: How long that is.

        Returns:
            The wait, to be cancelled when nobody is there any more; None if the action has run.
        """
        last_offsets = self._last_offsets
        waits = {}
        if last_offsets:
            self.forget_kept()
            waits = {each: last_offsets[each] for each in partitions if each in last_offsets}
        if not waits:
            action()
            return None
        wait = Wait(
            len(waits), action, timers=self._timers, patience_ms=patience_ms, otherwise=otherwise
        )
        for partition, last_offset in waits.items():
            partition.when_durable(last_offset, wait.one_less, wait.one_less)
        return wait

    def forget_kept(self) -> None:
        """Forget what has become visible, and what never will because its topic is deleted."""
        kept = [
            partition
            for partition, last_offset in self._last_offsets.items()
            if partition.ended or partition.log.high_watermark > last_offset
        ]
        for partition in kept:
            del self._last_offsets[partition]


def _nothing() -> None:
    pass
