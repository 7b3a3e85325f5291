"""How far each group has read: committing offsets, plainly or as part of a transaction.

This file alone judges OffsetCommit and TxnOffsetCommit and decides when an offset becomes visible:
a plain one when its record is durable, one of a transaction when the commit marker is. Nobody can
read what a crash or an abort could take back.

Where both kinds meet, the record furthest down the log counts: a plain commit behind the record of
a transaction wins, though the transaction commits later (`state_replay` says why). Where they stand
in different partitions, `state_homes` says which one counts.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.groups.committed_offset import NO_EXPIRY, CommittedOffset
from headwater.delivery.broker.groups.forgetting import Forgetting
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.needs import GroupSettings, KnownTopics, OffsetsLog
from headwater.delivery.broker.groups.offset_store import OffsetStore
from headwater.delivery.broker.groups.pending_offsets import PendingKey
from headwater.delivery.broker.groups.rebalancing import Rebalancing
from headwater.delivery.broker.groups.records import offset_entry
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.groups.values import CommitRequest, PartitionCommit
from headwater.delivery.broker.state_homes import outranks
from headwater.delivery.broker.state_replay import Standing
from headwater.delivery.broker.state_topic import ProducerKey
from headwater.delivery.broker.topics import PartitionKey

_log = logging.getLogger(__name__)

Reply = Callable[[Sequence[ErrorCode]], None]
Accepted = Sequence[tuple[PartitionKey, CommittedOffset]]


class Committing:
    """Takes offsets in."""

    def __init__(
        self,
        *,
        table: GroupTable,
        store: OffsetStore,
        forgetting: Forgetting,
        rebalancing: Rebalancing,
        log: OffsetsLog,
        topics: KnownTopics,
        settings: GroupSettings,
        clock: Clock,
    ) -> None:
        self._table = table
        self._store = store
        self._pending = store.pending
        self._forgetting = forgetting
        self._rebalancing = rebalancing
        self._log = log
        self._topics = topics
        self._settings = settings
        self._clock = clock

    # Plain commits

    def commit(self, request: CommitRequest, reply: Reply) -> None:
        """Store offsets; the answer has one error per partition, when all is durable."""
        group = self._table.get(request.group_id)
        errors, refusal = self._judge(request, _check_commit(group, request))
        if refusal or all(errors):
            reply(errors)
            return
        if group is not None and group.state in {
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        }:
            self._rebalancing.heard_of(group, group.members[request.member_id])
        group_id = request.group_id
        accepted = self._accept(request, errors)
        try:
            entries = [offset_entry(group_id, key, committed) for key, committed in accepted]
            first = self._log.append(group_id, entries)
        except KafkaError as error:
            reply(_all_refused(errors, error_for_client(error)))
            return
        self._store.set_out(group_id, tuple(key for key, _ in accepted))
        self._log.when_settled(
            group_id,
            partial(self._committed, group_id, _standing_from(first, accepted), reply, errors),
        )

    def _committed(
        self, group_id: str, accepted: Accepted, reply: Reply, errors: Sequence[ErrorCode]
    ) -> None:
        self._store.arrived(group_id)
        self._table.get_or_create(group_id)
        self._show(group_id, accepted)
        reply(errors)

    def when_stable(self, group_id: str, action: Callable[[], None]) -> None:
        """Run the action when every commit that was accepted so far can be read."""
        if self._store.in_flight(group_id):
            self._log.when_settled(group_id, action)
        else:
            action()

    # Transactions

    def commit_in_transaction(
        self, request: CommitRequest, producer: ProducerKey, reply: Reply
    ) -> None:
        """Store offsets that count when the transaction commits; answers when they are durable."""
        group = self._table.get(request.group_id)
        errors, refusal = self._judge(request, _check_transactional_commit(group, request))
        if refusal or all(errors):
            reply(errors)
            return
        group_id = request.group_id
        accepted = self._accept(request, errors)
        try:
            entries = [offset_entry(group_id, key, committed) for key, committed in accepted]
            first = self._log.append(group_id, entries, transaction=producer)
        except KafkaError as error:
            reply(_all_refused(errors, error_for_client(error)))
            return
        for key, committed in _standing_from(first, accepted):
            self._pending.put(
                first.partition, producer.producer_id, PendingKey(group_id, key), committed
            )
        self._table.get_or_create(group_id)
        self._log.when_settled(group_id, partial(reply, errors))

    def transaction_ended(
        self, producer_id: int, producer_epoch: int, partitions: Iterable[int], *, committed: bool
    ) -> None:
        """The markers in these partitions of the offsets topic are durable."""
        for place in partitions:
            _log.debug(
                "producer %d, epoch %d: %s in partition %d of the offsets topic",
                producer_id,
                producer_epoch,
                "committed" if committed else "aborted",
                place,
            )
            by_group: dict[str, list[tuple[PartitionKey, CommittedOffset]]] = {}
            for key, offset in self._pending.take(place, producer_id).items():
                by_group.setdefault(key.group_id, []).append((key.partition, offset))
            for group_id, offsets in by_group.items():
                if committed:
                    self._show(group_id, [each for each in offsets if self._counts(group_id, each)])
                group = self._table.get(group_id)
                if group is not None:
                    self._table.forget_if_void(group)

    def _counts(self, group_id: str, ended: tuple[PartitionKey, CommittedOffset]) -> bool:
        (topic, partition), offset = ended
        known = self._store.get(group_id, topic, partition)
        home = self._log.partition_of(group_id)
        return known is None or outranks(offset.record, known.record, home)

    # Both

    def _judge(
        self, request: CommitRequest, refusal: ErrorCode
    ) -> tuple[list[ErrorCode], ErrorCode]:
        """Return an error for each partition, and the one for which all are refused, if any."""
        errors = [
            ErrorCode.NONE
            if self._topics.has_partition(commit.topic, commit.partition)
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for commit in request.partitions
        ]
        if refusal:
            return _all_refused(errors, refusal), refusal
        return [
            error or self._check_metadata(commit)
            for error, commit in zip(errors, request.partitions, strict=True)
        ], ErrorCode.NONE

    def _check_metadata(self, commit: PartitionCommit) -> ErrorCode:
        if len(commit.metadata) > self._settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
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

    def _show(self, group_id: str, offsets: Accepted) -> None:
        """Make offsets visible, but for those whose topic is gone meanwhile."""
        orphans: list[PartitionKey] = []
        for key, committed in offsets:
            if self._forgetting.is_orphan(key[0], committed):
                orphans.append(key)
            else:
                self._store.put(group_id, key, committed)
        if orphans:
            self._forgetting.bury(group_id, orphans)


def _check_commit(group: Group | None, request: CommitRequest) -> ErrorCode:
    generation_id = request.generation_id
    if group is None:
        # Without a generation it is a consumer outside group management, or a tool.
        return ErrorCode.NONE if generation_id < 0 else request.missing_group_error
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if not _claims_membership(request):
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = _check_claim(group, request)
    if error:
        return error
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows of the generation but not of its assignment: what it commits
        # belongs to partitions that may be somebody else's by now.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _check_transactional_commit(group: Group | None, request: CommitRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    # Before KIP-447 a producer did not say for which member it speaks: its transaction, not its
    # generation, protects what it commits.
    return _check_claim(group, request) if _claims_membership(request) else ErrorCode.NONE


def _claims_membership(request: CommitRequest) -> bool:
    return (
        request.generation_id >= 0
        or bool(request.member_id)
        or request.group_instance_id is not None
    )


def _check_claim(group: Group, request: CommitRequest) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _all_refused(errors: Sequence[ErrorCode], refusal: ErrorCode) -> list[ErrorCode]:
    """Refuse the whole; what does not exist is told first, as in Kafka."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [error if error is unknown else refusal for error in errors]


def _standing_from(first: Standing, accepted: Accepted) -> Accepted:
    """Note with each offset where its own record stands."""
    return [
        (key, committed._replace(record=first._replace(offset=record_offset)))
        for record_offset, (key, committed) in enumerate(accepted, first.offset)
    ]
