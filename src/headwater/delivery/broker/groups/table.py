"""All groups by id.

This file alone decides when a group begins to exist and when it is forgotten.
"""

from collections.abc import Iterator

from headwater.base.clock import Clock
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.offset_store import OffsetStore
from headwater.delivery.broker.groups.states import GroupState


class GroupTable:
    """The groups that exist."""

    def __init__(self, clock: Clock, offsets: OffsetStore) -> None:
        self._clock = clock
        self._offsets = offsets
        self._groups: dict[str, Group] = {}

    def get(self, group_id: str) -> Group | None:
        """Return a group if it exists."""
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        """Return a group, empty if it did not exist."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, self._clock.now_ms())
        return group

    def put(self, group: Group) -> None:
        """Add a group that was read from the log."""
        self._groups[group.group_id] = group

    def remove(self, group: Group) -> None:
        """Bury a group: whoever still holds it finds it Dead."""
        for deadline in group.pending_joins.values():
            deadline.cancel()
        group.pending_joins.clear()
        group.transition(GroupState.DEAD, self._clock.now_ms())
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def forget_if_void(self, group: Group) -> None:
        """Drop a group of which nothing came, so that stray requests leave nothing behind."""
        if group.is_void() and not self._offsets.has_group(group.group_id):
            self.remove(group)

    def __iter__(self) -> Iterator[Group]:
        """Go through all groups; the table may change meanwhile."""
        return iter(tuple(self._groups.values()))

    def __len__(self) -> int:
        """Count the groups."""
        return len(self._groups)
