"""Records that were answered for before readers can see them.

This file alone decides how long a read waits for such records. `acks=1` is answered when a batch is
in the page cache, and readers see it when it is synced, some tenths of a millisecond later. Whoever
has that answer, or has heard of it from the producer, may ask for the end of the partition at once:
the read is then answered when the sync is through. Reads wait for nothing else, and nothing that
comes after them.

A sync that fails ends the wait too, and the broker.
"""

from collections.abc import Iterable

from headwater.delivery.broker.countdown import Countdown
from headwater.delivery.broker.partition import Action, Partition


class Promises:
    """What was answered for and is not visible yet, by partition."""

    def __init__(self) -> None:
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

    def when_kept(self, partitions: Iterable[Partition], action: Action) -> None:
        """Run the action when all that was promised of these partitions so far is visible."""
        if not self._last_offsets:
            action()
            return
        last_offsets = self._last_offsets
        waits = {each: last_offsets[each] for each in partitions if each in last_offsets}
        countdown = Countdown(1 + len(waits), action)
        for partition, last_offset in waits.items():
            partition.when_durable(last_offset, countdown.one_less, countdown.one_less)
        countdown.one_less()

    def forget_kept(self) -> None:
        """Forget what has become visible."""
        kept = [
            partition
            for partition, last_offset in self._last_offsets.items()
            if partition.log.high_watermark > last_offset
        ]
        for partition in kept:
            del self._last_offsets[partition]
