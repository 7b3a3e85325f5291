"""How far each group has read: committing, deleting and expiring offsets; deleting groups.

This file alone judges OffsetCommit, OffsetDelete and DeleteGroups and decides when an offset has
expired. An offset becomes visible when its record is durable, never before: nobody can read what
a crash could take back.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.groups.append_errors import error_for_client
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.needs import GroupSettings, KnownTopics, OffsetsLog
from headwater.delivery.broker.groups.offset_store import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetStore,
    PartitionKey,
)
from headwater.delivery.broker.groups.rebalancing import Rebalancing
from headwater.delivery.broker.groups.records import (
    group_tombstone,
    offset_entry,
    offset_tombstone,
)
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.groups.values import CommitRequest, PartitionCommit

_log = logging.getLogger(__name__)

_MINUTE_MS: Final = 60_000
# Tombstones per batch: keys of some hundred bytes stay far below the 1 MiB of a batch.
_CHUNK_MAX: Final = 1000


class Offsets:
    """Answers requests about offsets, and forgets those that nobody needs any more."""

    def __init__(
        self,
        *,
        table: GroupTable,
        store: OffsetStore,
        rebalancing: Rebalancing,
        log: OffsetsLog,
        topics: KnownTopics,
        settings: GroupSettings,
        clock: Clock,
    ) -> None:
        self._table = table
        self._store = store
        self._rebalancing = rebalancing
        self._log = log
        self._topics = topics
        self._settings = settings
        self._clock = clock

    # Committing

    def commit(self, request: CommitRequest, reply: Callable[[Sequence[ErrorCode]], None]) -> None:
        """Store offsets; the answer has one error per partition, when all is durable."""
        errors = [self._check_partition(commit) for commit in request.partitions]
        if all(errors):
            reply(errors)
            return
        group = self._table.get(request.group_id)
        refusal = self._check_commit(group, request)
        if refusal:
            reply([error or refusal for error in errors])
            return
        if group is not None and group.state in {
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        }:
            self._rebalancing.heard_of(group, group.members[request.member_id])
        accepted = self._accept(request, errors)
        try:
            self._write(request.group_id, accepted, partial(reply, errors))
        except KafkaError as error:
            refusal = error_for_client(error)
            reply([earlier or refusal for earlier in errors])

    def _write(
        self,
        group_id: str,
        accepted: Sequence[tuple[PartitionKey, CommittedOffset]],
        reply: Callable[[], None],
    ) -> None:
        entries = [offset_entry(group_id, key, committed) for key, committed in accepted]
        self._store.set_out(group_id, tuple(key for key, _ in accepted))
        try:
            self._log.append(group_id, entries, partial(self._committed, group_id, accepted, reply))
        except KafkaError:
            self._store.withdrawn(group_id)
            raise

    def _check_partition(self, commit: PartitionCommit) -> ErrorCode:
        if not self._topics.has_partition(commit.topic, commit.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(commit.metadata) > self._settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    @staticmethod
    def _check_commit(group: Group | None, request: CommitRequest) -> ErrorCode:
        generation_id = request.generation_id
        if group is None:
            # Without a generation it is a consumer outside group management, or a tool.
            return ErrorCode.NONE if generation_id < 0 else request.missing_group_error
        if generation_id < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id >= 0 or request.member_id or request.group_instance_id is not None:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error:
                return error
            if generation_id != group.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        else:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The member knows of the generation but not of its assignment: what it commits
            # belongs to partitions that may be somebody else's by now.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _accept(
        self, request: CommitRequest, errors: Sequence[ErrorCode]
    ) -> list[tuple[PartitionKey, CommittedOffset]]:
        now_ms = self._clock.now_ms()
        expire_timestamp_ms = NO_EXPIRY
        if request.retention_ms != -1:
            expire_timestamp_ms = now_ms + request.retention_ms
        return [
            (
                (commit.topic, commit.partition),
                CommittedOffset(
                    commit.offset,
                    commit.leader_epoch,
                    commit.metadata,
                    now_ms,
                    expire_timestamp_ms,
                    self._topics.topic_id(commit.topic) or bytes(16),
                ),
            )
            for commit, error in zip(request.partitions, errors, strict=True)
            if not error
        ]

    def _committed(
        self,
        group_id: str,
        accepted: Sequence[tuple[PartitionKey, CommittedOffset]],
        reply: Callable[[], None],
    ) -> None:
        self._store.arrived(group_id)
        orphans: list[PartitionKey] = []
        for key, committed in accepted:
            if self._topics.topic_id(key[0]) == committed.topic_id:
                self._store.put(group_id, key, committed)
            else:
                orphans.append(key)
        self._table.get_or_create(group_id)
        if orphans:
            self._bury(group_id, orphans)
        reply()

    # Reading

    def when_stable(self, group_id: str, action: Callable[[], None]) -> None:
        """Run the action when every commit that was accepted so far can be read."""
        if self._store.in_flight(group_id):
            self._log.when_settled(group_id, action)
        else:
            action()

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
        known = self._store.of_group(group_id).keys() | self._store.in_flight(group_id)
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
        doomed = self._store.of_group(group_id).keys() | self._store.in_flight(group_id)
        self._delete(group_id, sorted(doomed), reply, group)

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
                self._log.append(group_id, entries, partial(self._deleted, group_id, chunk, answer))
            except KafkaError as error:
                reply(error_for_client(error))
                return
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
        by_group: dict[str, list[PartitionKey]] = {}
        for group_id, key in self._store.keys_of_topic(topic):
            by_group.setdefault(group_id, []).append(key)
        for group_id, keys in by_group.items():
            # At once: a topic created under the same name must not find them.
            for key in keys:
                self._store.remove(group_id, key)
            self._bury(group_id, keys)

    def forget_orphans(self) -> None:
        """Forget offsets whose topic was deleted without their knowing; used after loading."""
        for group_id in self._store.groups():
            orphans = [
                key
                for key, committed in self._store.of_group(group_id).items()
                if self._is_orphan(key[0], committed)
            ]
            for key in orphans:
                self._store.remove(group_id, key)
            if orphans:
                self._bury(group_id, orphans)

    def _is_orphan(self, topic: str, committed: CommittedOffset) -> bool:
        topic_id = self._topics.topic_id(topic)
        if topic_id is None:
            return True
        # Records without a topic id come from Kafka or from commits with their own retention.
        return any(committed.topic_id) and committed.topic_id != topic_id

    def _bury(self, group_id: str, keys: Sequence[PartitionKey]) -> None:
        """Write tombstones for offsets that are invisible already."""
        try:
            self._log.append(
                group_id, [offset_tombstone(group_id, key) for key in keys], _nothing_more
            )
        except KafkaError as error:
            # The next start finds them again, and again that their topic is gone.
            _log.warning("group %s: offsets could not be deleted: %s", group_id, error.message)

    # Expiring

    def expire(self) -> None:
        """Delete what has outlived its retention, and empty groups with nothing left."""
        for group in self._table:
            group_id = group.group_id
            in_flight = self._store.in_flight(group_id)
            offsets = self._store.of_group(group_id)
            expired = [
                key
                for key, committed in offsets.items()
                if key not in in_flight and self._has_expired(group, key[0], committed)
            ]
            ends = (
                group.state is GroupState.EMPTY
                and not group.pending_joins
                and not in_flight
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


def _nothing_more() -> None:
    pass
