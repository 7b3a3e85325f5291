"""The committed offsets that clients may see.

This file alone keeps the offsets of each group and of each partition in step. What is in here is
durable; what is still on its way to the disk is only counted, so that nothing is expired or
deleted behind its back.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from headwater.delivery.broker.groups.committed_offset import CommittedOffset
from headwater.delivery.broker.groups.pending_offsets import PendingOffsets
from headwater.delivery.broker.topics import PartitionKey


class OffsetStore:
    """Offsets by group, and by partition for those who want to know who lags behind.

    Attributes:
        pending: What open transactions have committed.
    """

    def __init__(self) -> None:
        self._by_group: dict[str, dict[PartitionKey, CommittedOffset]] = {}
        self._by_partition: dict[PartitionKey, dict[str, int]] = {}
        self._in_flight: dict[str, deque[tuple[PartitionKey, ...]]] = {}
        self.pending = PendingOffsets()

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return one offset."""
        offsets = self._by_group.get(group_id)
        return offsets.get((topic, partition)) if offsets is not None else None

    def of_group(self, group_id: str) -> Mapping[PartitionKey, CommittedOffset]:
        """Return all offsets of a group."""
        return self._by_group.get(group_id, {})

    def committed_offsets(self, topic: str, partition: int) -> Iterable[tuple[str, int]]:
        """Return group and offset of everyone who has committed for a partition."""
        return self._by_partition.get((topic, partition), {}).items()

    def has_group(self, group_id: str) -> bool:
        """Whether the group has offsets, durable or on their way or in a transaction."""
        return (
            group_id in self._by_group
            or group_id in self._in_flight
            or bool(self.pending.of_group(group_id))
        )

    def groups(self) -> tuple[str, ...]:
        """Return the groups that have offsets."""
        return tuple(self._by_group)

    def keys_of_topic(self, topic: str) -> list[tuple[str, PartitionKey]]:
        """Return group and partition of every offset of a topic."""
        return [
            (group_id, key)
            for key, groups in self._by_partition.items()
            if key[0] == topic
            for group_id in groups
        ]

    def put(self, group_id: str, key: PartitionKey, committed: CommittedOffset) -> None:
        """Make an offset visible."""
        self._by_group.setdefault(group_id, {})[key] = committed
        self._by_partition.setdefault(key, {})[group_id] = committed.offset

    def remove(self, group_id: str, key: PartitionKey) -> None:
        """Forget an offset; harmless when there is none."""
        offsets = self._by_group.get(group_id)
        if offsets is None or offsets.pop(key, None) is None:
            return
        if not offsets:
            del self._by_group[group_id]
        groups = self._by_partition[key]
        del groups[group_id]
        if not groups:
            del self._by_partition[key]

    def set_out(self, group_id: str, keys: tuple[PartitionKey, ...]) -> None:
        """Note a commit that is on its way to the disk."""
        self._in_flight.setdefault(group_id, deque()).append(keys)

    def arrived(self, group_id: str) -> None:
        """The oldest commit of the group that was on its way is durable, or was never written."""
        waiting = self._in_flight[group_id]
        waiting.popleft()
        if not waiting:
            del self._in_flight[group_id]

    def in_flight(self, group_id: str) -> set[PartitionKey]:
        """Return the partitions of a group for which a commit is on its way."""
        return {key for keys in self._in_flight.get(group_id, ()) for key in keys}
