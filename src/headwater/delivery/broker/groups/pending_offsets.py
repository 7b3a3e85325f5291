"""Offsets that transactions have committed and whose end is not known yet.

This file alone keeps what each producer has pending in step with what each group waits for. It
decides nothing: `committing` puts offsets in and applies or drops them when their marker is there.

As soon as a record is written it stands here, in the order of the log; nobody is shown it, so it
need not be durable. What is held is what the open transactions hold: a later commit of a producer
takes the place of its earlier one, and with the marker all of it is gone.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from headwater.delivery.broker.groups.committed_offset import CommittedOffset
from headwater.delivery.broker.topics import PartitionKey


class PendingKey(NamedTuple):
    """What a pending offset is about."""

    group_id: str
    partition: PartitionKey


class PendingOffsets:
    """By partition of the offsets topic and producer, and by group."""

    def __init__(self) -> None:
        self._by_writer: dict[tuple[int, int], dict[PendingKey, CommittedOffset]] = {}
        self._writers: dict[str, dict[PartitionKey, set[tuple[int, int]]]] = {}

    def __len__(self) -> int:
        """Count the pending offsets."""
        return sum(len(offsets) for offsets in self._by_writer.values())

    def put(
        self, place: int, producer_id: int, key: PendingKey, committed: CommittedOffset
    ) -> None:
        """Note an offset written into partition ``place`` of the offsets topic."""
        writer = (place, producer_id)
        self._by_writer.setdefault(writer, {})[key] = committed
        group = self._writers.setdefault(key.group_id, {})
        group.setdefault(key.partition, set()).add(writer)

    def take(self, place: int, producer_id: int) -> Mapping[PendingKey, CommittedOffset]:
        """Take out all that a producer has pending in one partition of the offsets topic."""
        writer = (place, producer_id)
        offsets = self._by_writer.pop(writer, {})
        for key in offsets:
            self._forget_writer(key, writer)
        return offsets

    def drop(self, group_id: str, partition: PartitionKey) -> None:
        """A tombstone was written: no transaction brings the offset back."""
        for writer in tuple(self._writers.get(group_id, {}).get(partition, ())):
            key = PendingKey(group_id, partition)
            offsets = self._by_writer[writer]
            del offsets[key]
            if not offsets:
                del self._by_writer[writer]
            self._forget_writer(key, writer)

    def is_pending(self, group_id: str, partition: PartitionKey) -> bool:
        """Whether a transaction has committed an offset there and not ended."""
        group = self._writers.get(group_id)
        return group is not None and partition in group

    def of_group(self, group_id: str) -> Collection[PartitionKey]:
        """Return the partitions for which a group waits for the end of a transaction."""
        return self._writers.get(group_id, {}).keys()

    def groups(self) -> tuple[str, ...]:
        """Return the groups that wait for the end of a transaction."""
        return tuple(self._writers)

    def all(self) -> list[tuple[PendingKey, CommittedOffset]]:
        """Return everything that is pending."""
        return [item for offsets in self._by_writer.values() for item in offsets.items()]

    def _forget_writer(self, key: PendingKey, writer: tuple[int, int]) -> None:
        group = self._writers[key.group_id]
        writers = group[key.partition]
        writers.discard(writer)
        if not writers:
            del group[key.partition]
            if not group:
                del self._writers[key.group_id]
