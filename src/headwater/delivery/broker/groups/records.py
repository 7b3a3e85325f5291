"""Groups and offsets as records of ``__consumer_offsets``.

This file alone decides which of Kafka's schemas, in which version, hold what: Kafka's own tools
and a later Kafka cluster read these records. It does not touch the log.

Written are GroupMetadataValue v3, as Kafka does, and OffsetCommitValue v4 with the topic's id, so
that an offset of a deleted topic is never taken for one of a new topic by the same name; offsets
that a client gave a retention of their own (OffsetCommit v2-4) need v1. Read is every version.
"""

import struct
from collections.abc import Mapping
from typing import Final

from headwater.base.errors import ErrorCode, KafkaError, MalformedMessageError
from headwater.base.schema import Message
from headwater.delivery.broker.formats.envelope import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_number,
)
from headwater.delivery.broker.formats.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headwater.delivery.broker.groups.committed_offset import NO_EXPIRY, CommittedOffset
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.member import Member
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import Protocol
from headwater.delivery.broker.state_topic import Entry
from headwater.delivery.broker.topics import PartitionKey

_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2

_GROUP_VERSION: Final = 3
_OFFSET_VERSION: Final = 4
_OFFSET_VERSION_WITH_EXPIRY: Final = 1

_NO_TIMESTAMP: Final = -1


def offset_entry(group_id: str, key: PartitionKey, committed: CommittedOffset) -> Entry:
    """Write down a committed offset.

    Raises:
        KafkaError: A name is too long.
    """
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    expires = committed.expire_timestamp_ms != NO_EXPIRY
    version = _OFFSET_VERSION_WITH_EXPIRY if expires else _OFFSET_VERSION
    return _entry(OffsetCommitKey(group_id, *key), value, version)


def offset_tombstone(group_id: str, key: PartitionKey) -> Entry:
    """Write down that there is no such offset any more."""
    return Entry(encode_key(OffsetCommitKey(group_id, *key)), None)


def group_entry(group: Group, assignments: Mapping[str, bytes] | None = None) -> Entry:
    """Write down a generation of a group, with an assignment that is not yet in force.

    Raises:
        KafkaError: A name is too long.
    """
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=(
                member.assignment if assignments is None else assignments.get(member.member_id, b"")
            ),
        )
        for member in group.members.values()
    ]
    timestamp_ms = group.state_timestamp_ms
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=_NO_TIMESTAMP if timestamp_ms is None else timestamp_ms,
        members=members,
    )
    return _entry(GroupMetadataKey(group.group_id), value, _GROUP_VERSION)


def group_tombstone(group_id: str) -> Entry:
    """Write down that there is no such group any more."""
    return Entry(encode_key(GroupMetadataKey(group_id)), None)


def decode_entry(
    key: bytes, value: bytes
) -> Group | tuple[str, PartitionKey, CommittedOffset] | None:
    """Read a record back: a group, or an offset with its group and partition.

    Returns:
        None for records of other kinds of groups, which this broker does not write.

    Raises:
        MalformedMessageError: The record is damaged or from the future.
    """
    match key_number(key):
        case n if n == _OFFSET_KEY:
            offset_key = decode_key(OffsetCommitKey, key)
            return _decode_offset(offset_key.group, (offset_key.topic, offset_key.partition), value)
        case n if n == _LEGACY_OFFSET_KEY:
            old_key = decode_key(LegacyOffsetCommitKey, key)
            return _decode_offset(old_key.group, (old_key.topic, old_key.partition), value)
        case n if n == _GROUP_KEY:
            return _decode_group(decode_key(GroupMetadataKey, key).group, value)
        case _:
            return None


def _entry(key: Message, value: Message, version: int) -> Entry:
    try:
        return Entry(encode_key(key), encode_value(value, version))
    except struct.error as error:
        # Requests of newer versions can carry longer strings than these records.
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Names of more than 32,767 bytes cannot be stored."
        ) from error


def _decode_offset(
    group_id: str, key: PartitionKey, data: bytes
) -> tuple[str, PartitionKey, CommittedOffset]:
    value = decode_value(OffsetCommitValue, data)
    committed = CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
    return group_id, key, committed


def _decode_group(group_id: str, data: bytes) -> Group:
    value = decode_value(GroupMetadataValue, data)
    timestamp_ms = value.current_state_timestamp
    group = Group(group_id, timestamp_ms)
    group.state_timestamp_ms = None if timestamp_ms == _NO_TIMESTAMP else timestamp_ms
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    if value.members:
        group.state = GroupState.STABLE
    for stored in value.members:
        member = Member(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=(
                stored.session_timeout
                if stored.rebalance_timeout == -1
                else stored.rebalance_timeout
            ),
            # Of all that it knew, only the protocol in use was written down.
            protocols=(Protocol(value.protocol or "", stored.subscription),),
            assignment=stored.assignment,
        )
        if member.member_id in group.members or (
            member.group_instance_id is not None
            and member.group_instance_id in group.static_members
        ):
            raise MalformedMessageError(f"group {group_id} has member {member.member_id} twice")
        group.add(member, value.protocol_type)
    if value.leader in group.members:
        group.leader_id = value.leader
    group.note_subscriptions()
    return group
