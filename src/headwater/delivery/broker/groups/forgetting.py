"""Forgetting how far groups have read: deleting and expiring offsets; deleting groups.

This file alone judges OffsetDelete and DeleteGroups and decides when an offset has expired. An
offset that a transaction has pending is deleted with the others, and never expires.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.groups.committed_offset import NO_EXPIRY, CommittedOffset
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.needs import GroupSettings, KnownTopics, OffsetsLog
from headwater.delivery.broker.groups.offset_store import OffsetStore
from headwater.delivery.broker.groups.records import group_tombstone, offset_tombstone
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.topics import PartitionKey

_log = logging.getLogger(__name__)

_MINUTE_MS: Final = 60_000
# Tombstones per batch: keys of some hundred bytes stay far below the 1 MiB of a batch.
_CHUNK_MAX: Final = 1000


class Forgetting:
    """Deletes offsets that are not wanted, and forgets those that nobody needs any more."""

    def __init__(
        self,
        *,
        table: GroupTable,
        store: OffsetStore,
        log: OffsetsLog,
        topics: KnownTopics,
        settings: GroupSettings,
        clock: Clock,
    ) -> None:
        self._table = table
        self._store = store
        self._pending = store.pending
        self._log = log
        self._topics = topics
        self._settings = settings
        self._clock = clock

    # Deleting

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[PartitionKey],
        reply: Callable[[ErrorCode, Sequence[ErrorCode]], None],
    ) -> None:
        """Delete offsets that no member reads on from."""
        group = self._table.get(group_id)
        refusal = self._check_delete_offsets(group_id, group)
        if group is None or refusal:
            reply(refusal, ())
            return
        errors = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic) else ErrorCode.NONE
            for topic, _ in partitions
        ]
        known = self._all_of(group_id)
        doomed = [
            key for key, error in zip(partitions, errors, strict=True) if not error and key in known
        ]
        if not doomed:
            reply(ErrorCode.NONE, errors)
            return
        self._delete(group_id, doomed, lambda error: reply(error, () if error else errors))

    @staticmethod
    def _check_delete_offsets(group_id: str, group: Group | None) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            # Only consumers tell which topics they read.
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def delete_group(self, group_id: str, reply: Callable[[ErrorCode], None]) -> None:
        """Delete a group without members, with all its offsets."""
        group = self._table.get(group_id)
        if group is None:
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if group.state is not GroupState.EMPTY:
            reply(ErrorCode.NON_EMPTY_GROUP)
            return
        self._delete(group_id, sorted(self._all_of(group_id)), reply, group)

    def _all_of(self, group_id: str) -> set[PartitionKey]:
        """Return where the group has an offset: to be seen, on its way or in a transaction."""
        return {
            *self._store.of_group(group_id),
            *self._store.in_flight(group_id),
            *self._pending.of_group(group_id),
        }

    def _delete(
        self,
        group_id: str,
        doomed: Sequence[PartitionKey],
        reply: Callable[[ErrorCode], None],
        group: Group | None = None,
    ) -> None:
        """Delete offsets and, if it is given, their group; the group goes last."""
        chunks = [doomed[i : i + _CHUNK_MAX] for i in range(0, len(doomed), _CHUNK_MAX)] or [()]
        for number, chunk in enumerate(chunks, 1):
            entries = [offset_tombstone(group_id, key) for key in chunk]
            answer: Callable[[ErrorCode], None] = _ignore
            if number == len(chunks):
                answer = reply
                if group is not None:
                    entries.append(group_tombstone(group_id))
            try:
                self._log.append(group_id, entries)
            except KafkaError as error:
                reply(error_for_client(error))
                return
            for key in chunk:
                self._pending.drop(group_id, key)
            self._log.when_settled(group_id, partial(self._deleted, group_id, chunk, answer))
        if group is not None:
            # Whoever joins from now on founds a new group: its records stand behind the tombstone.
            self._table.remove(group)

    def _deleted(
        self, group_id: str, doomed: Sequence[PartitionKey], reply: Callable[[ErrorCode], None]
    ) -> None:
        for key in doomed:
            self._store.remove(group_id, key)
        group = self._table.get(group_id)
        if group is not None:
            # A commit that was on its way when its group was deleted may have brought it back.
            self._table.forget_if_void(group)
        reply(ErrorCode.NONE)

    def topic_deleted(self, topic: str) -> None:
        """Forget all offsets of a topic that is gone."""
        by_group: dict[str, dict[PartitionKey, None]] = {}
        for group_id, key in self._store.keys_of_topic(topic):
            by_group.setdefault(group_id, {})[key] = None
        for (group_id, key), _ in self._pending.all():
            if key[0] == topic:
                by_group.setdefault(group_id, {})[key] = None
        for group_id, keys in by_group.items():
            # At once: a topic created under the same name must not find them.
            for key in keys:
                self._store.remove(group_id, key)
            self.bury(group_id, tuple(keys))

    def forget_orphans(self) -> None:
        """Forget offsets whose topic was deleted without their knowing; used after loading."""
        orphans: dict[str, dict[PartitionKey, None]] = {}
        for group_id in self._store.groups():
            for key, committed in self._store.of_group(group_id).items():
                if self.is_orphan(key[0], committed):
                    orphans.setdefault(group_id, {})[key] = None
        for (group_id, key), committed in self._pending.all():
            if self.is_orphan(key[0], committed):
                orphans.setdefault(group_id, {})[key] = None
        for group_id, keys in orphans.items():
            for key in keys:
                self._store.remove(group_id, key)
            self.bury(group_id, tuple(keys))

    def is_orphan(self, topic: str, committed: CommittedOffset) -> bool:
        """Whether an offset belongs to a topic that is gone, be there another by its name."""
        topic_id = self._topics.topic_id(topic)
        if topic_id is None:
            return True
        # Records without a topic id come from Kafka or from commits with their own retention.
        return any(committed.topic_id) and committed.topic_id != topic_id

    def bury(self, group_id: str, keys: Sequence[PartitionKey]) -> None:
        """Write tombstones for offsets that are invisible already."""
        for key in keys:
            self._pending.drop(group_id, key)
        try:
            self._log.append(group_id, [offset_tombstone(group_id, key) for key in keys])
        except KafkaError as error:
            # The next start finds them again, and again that their topic is gone.
            _log.warning("group %s: offsets could not be deleted: %s", group_id, error.message)

    # Expiring

    def expire(self, groups: Iterable[Group]) -> None:
        """Delete what has outlived its retention, and empty groups with nothing left."""
        for group in groups:
            group_id = group.group_id
            if self._table.get(group_id) is not group:
                continue
            coming = {*self._store.in_flight(group_id), *self._pending.of_group(group_id)}
            offsets = self._store.of_group(group_id)
            expired = [
                key
                for key, committed in offsets.items()
                if key not in coming and self._has_expired(group, key[0], committed)
            ]
            ends = (
                group.state is GroupState.EMPTY
                and not group.pending_joins
                and not coming
                and len(expired) == len(offsets)
            )
            if expired or ends:
                _log.info("group %s: %d offsets expired", group_id, len(expired))
                self._delete(group_id, expired, _ignore, group if ends else None)

    def _has_expired(self, group: Group, topic: str, committed: CommittedOffset) -> bool:
        if group.is_subscribed_to(topic):
            return False
        if group.protocol_type is None:
            since_ms = committed.commit_timestamp_ms
        elif group.state is GroupState.EMPTY:
            since_ms = (
                committed.commit_timestamp_ms
                if group.state_timestamp_ms is None
                else group.state_timestamp_ms
            )
        elif (
            group.protocol_type == CONSUMER_PROTOCOL_TYPE
            and group.subscribed_topics is not None
            and group.state is GroupState.STABLE
        ):
            since_ms = committed.commit_timestamp_ms
        else:
            return False
        now_ms = self._clock.now_ms()
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - since_ms >= self._settings.offsets_retention_minutes * _MINUTE_MS


def _ignore(error: ErrorCode) -> None:
    if error:
        _log.warning("expired offsets could not be deleted: %s", error.name)
