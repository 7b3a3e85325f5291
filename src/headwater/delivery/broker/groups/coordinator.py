"""The group coordinator: where everything is found that clients and tools want of groups.

This file alone decides how its parts are put together, and how they are rebuilt from the log when
the broker starts. It judges no request itself: its parts do, and are asked directly.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Final

from headwater.base.chance import Chance
from headwater.base.clock import Clock, Timer, Timers
from headwater.base.errors import MalformedMessageError
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.groups.committed_offset import CommittedOffset
from headwater.delivery.broker.groups.committing import Committing
from headwater.delivery.broker.groups.forgetting import Forgetting
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.joining import Joining
from headwater.delivery.broker.groups.membership import Membership
from headwater.delivery.broker.groups.offset_store import OffsetStore
from headwater.delivery.broker.groups.offsets_topic import new_offsets_topic
from headwater.delivery.broker.groups.pending_offsets import PendingKey
from headwater.delivery.broker.groups.rebalancing import Rebalancing
from headwater.delivery.broker.groups.records import decode_entry
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.groups.values import GroupDescription
from headwater.delivery.broker.state_replay import Stored
from headwater.delivery.broker.state_topic import StateTopic
from headwater.delivery.broker.topics import PartitionKey, Topics

_log = logging.getLogger(__name__)

# Groups that are looked at in one go, and the pause before the next ones: 13 ms of work when all
# have expired, and 100,000 groups within half a minute.
_EXPIRED_AT_ONCE_MAX: Final = 500
_EXPIRY_PAUSE_MS: Final = 100


class _BrokerTopics:
    """The broker's topics, as the groups need to know them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def topic_id(self, topic: str) -> bytes | None:
        found = self._topics.get(topic)
        return found.topic_id if found is not None else None

    def has_partition(self, topic: str, partition: int) -> bool:
        return self._topics.partition(topic, partition) is not None


class Groups:
    """All consumer groups of this node.

    Attributes:
        joining: Lets members in.
        membership: Serves those that have joined, until they leave.
        committing: Takes offsets in, plainly or in transactions.
        forgetting: Deletes offsets and groups, and lets them expire.
        offsets: What is committed, and what transactions have pending.
    """

    def __init__(
        self,
        *,
        topics: Topics,
        settings: BrokerSettings,
        clock: Clock,
        timers: Timers,
        chance: Chance,
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._log = StateTopic(new_offsets_topic(settings), topics, clock)
        self.offsets = OffsetStore()
        self._table = GroupTable(clock, self.offsets)
        self._rebalancing = Rebalancing(
            table=self._table, log=self._log, settings=settings, clock=clock, timers=timers
        )
        self.joining = Joining(
            table=self._table,
            rebalancing=self._rebalancing,
            log=self._log,
            settings=settings,
            chance=chance,
        )
        self.membership = Membership(
            table=self._table, rebalancing=self._rebalancing, log=self._log
        )
        self.forgetting = Forgetting(
            table=self._table,
            store=self.offsets,
            log=self._log,
            topics=_BrokerTopics(topics),
            settings=settings,
            clock=clock,
        )
        self.committing = Committing(
            table=self._table,
            store=self.offsets,
            forgetting=self.forgetting,
            rebalancing=self._rebalancing,
            log=self._log,
            topics=_BrokerTopics(topics),
            settings=settings,
            clock=clock,
        )
        self._expiry_timer: Timer | None = None
        topics.when_deleted(self.forgetting.topic_deleted)

    # From start to stop

    def load(self) -> None:
        """Rebuild all groups and offsets from the log; every member gets a new session."""
        replay = self._log.replay()
        for entry in _decoded(replay.newest):
            match entry:
                case Group():
                    self._table.put(entry)
                case (group_id, partition, committed):
                    self.offsets.put(group_id, partition, committed)
        for (place, producer_id), written in replay.pending.items():
            for entry in _decoded(written):
                if not isinstance(entry, Group):
                    group_id, partition, committed = entry
                    key = PendingKey(group_id, partition)
                    self.offsets.pending.put(place, producer_id, key, committed)
        self.forgetting.forget_orphans()
        for group_id in (*self.offsets.groups(), *self.offsets.pending.groups()):
            self._table.get_or_create(group_id)
        for group in self._table:
            for member in group.members.values():
                self._rebalancing.heard_of(group, member)
            if len(group.members) > self._settings.group_max_size:
                self._rebalancing.prepare(group, "it has more members than are allowed now")
        _log.info("loaded %d groups", len(self._table))
        self._start_expiry_timer()

    def close(self) -> None:
        """Stop all timers; whoever waits is told to look for another coordinator."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for group in self._table:
            self._rebalancing.close(group)

    def _start_expiry_timer(self) -> None:
        self._expiry_timer = self._timers.after(
            self._settings.offsets_retention_check_interval_ms,
            lambda: self._expire(iter(self._table)),
        )

    def _expire(self, groups: Iterator[Group]) -> None:
        """Look through some groups, then through the next ones, so that others get their turn."""
        some = tuple(islice(groups, _EXPIRED_AT_ONCE_MAX))
        if length_hint(groups):
            self._expiry_timer = self._timers.after(_EXPIRY_PAUSE_MS, partial(self._expire, groups))
        else:
            self._start_expiry_timer()
        self.forgetting.expire(some)

    # Views

    def partition_of(self, group_id: str) -> int:
        """Return which partition of the offsets topic holds a group; it exists from then on."""
        return self._log.partition_of(group_id)

    def describe(self, group_id: str) -> GroupDescription | None:
        """Describe one group, None if there is no such group."""
        group = self._table.get(group_id)
        return group.describe() if group is not None else None

    def describe_all(self) -> list[GroupDescription]:
        """Describe all groups."""
        return [group.describe() for group in self._table]

    def listing(self) -> list[tuple[str, str, GroupState]]:
        """Return id, protocol type and state of all groups, without looking at their members."""
        return [(group.group_id, group.protocol_type or "", group.state) for group in self._table]


def _decoded(
    stored: Mapping[bytes, Stored],
) -> Iterator[Group | tuple[str, PartitionKey, CommittedOffset]]:
    for key, found in stored.items():
        try:
            entry = decode_entry(key, found.value)
        except MalformedMessageError as error:
            _log.warning("a record of the offsets topic was skipped: %s", error.message)
            continue
        if isinstance(entry, Group):
            yield entry
        elif entry is not None:
            group_id, partition, committed = entry
            yield group_id, partition, committed._replace(record=found.standing)
