"""What is asked of a group and what it answers, as plain values.

This file alone decides the shape of these questions and answers; nothing here decides anything
else. Field names are Kafka's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.states import GroupState

NO_GENERATION = -1
UNKNOWN_MEMBER_ID = ""


class Protocol(NamedTuple):
    """A way of assigning partitions that a member knows, with what it says about itself in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A consumer wants to be, or to stay, a member.

    Attributes:
        member_id_required: The client understands MEMBER_ID_REQUIRED (KIP-394).
        can_skip_assignment: The client understands ``skip_assignment`` (KIP-814).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool
    can_skip_assignment: bool
    reason: str = ""


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answer to a join."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader's request carries everybody's."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member that leaves, or that an administrator removes by its instance id."""

    member_id: str
    group_instance_id: str | None
    reason: str = ""


class PartitionCommit(NamedTuple):
    """How far a group has read one partition."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A member, or a consumer outside group management, commits offsets.

    Attributes:
        retention_ms: How long the offsets are kept whatever the group does; -1 leaves it to the
            broker (OffsetCommit v2-4).
        missing_group_error: What a member of a group that does not exist is told.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    partitions: tuple[PartitionCommit, ...]
    retention_ms: int = -1
    missing_group_error: ErrorCode = ErrorCode.ILLEGAL_GENERATION


class MemberDescription(NamedTuple):
    """A member as tools see it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group as tools see it; members' metadata only while it is Stable, as in Kafka."""

    group_id: str
    state: GroupState
    generation_id: int
    protocol_type: str
    protocol_name: str
    leader: str
    members: tuple[MemberDescription, ...]
