"""A group: its members, its generation, its state.

This file alone keeps a group's parts consistent with each other: members and instance ids, votes
and protocols, leader and generation. It decides no request, knows no timer's length, sends no
answer.
"""

import logging

from headwater.base.clock import Timer
from headwater.base.errors import ErrorCode, MalformedMessageError
from headwater.delivery.broker.groups.deadline import Deadline
from headwater.delivery.broker.groups.member import Member
from headwater.delivery.broker.groups.states import PREDECESSORS, GroupState
from headwater.delivery.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from headwater.delivery.broker.groups.values import (
    GroupDescription,
    JoinedMember,
    MemberDescription,
    Protocol,
)

_log = logging.getLogger(__name__)


class Group:
    """One consumer group under the classic protocol.

    Attributes:
        state_timestamp_ms: When it came into its state; None if an old record did not say.
        members: By member id, in the order of joining.
        static_members: Member id by ``group.instance.id``.
        pending_joins: Ids that were given out and not yet joined with, with their expiry.
        pending_syncs: Members that have been told of the generation and not yet asked for their
            assignment.
        subscribed_topics: What the consumers read together; None when that is not known.
        new_member_added: A member came during the initial delay, which therefore is prolonged.
        storing_generation: The generation whose assignment is on its way to the disk.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms: int | None = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, Deadline] = {}
        self.pending_syncs: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.storing_generation: int | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self._supporters: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Group {self.group_id!r} {self.state} generation {self.generation_id}>"

    def transition(self, state: GroupState, now_ms: int) -> None:
        """Enter a state."""
        assert self.state in PREDECESSORS[state], f"{self!r} cannot become {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in; the first one decides what kind of group it is."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)

    def remove(self, member: Member) -> None:
        """Let a member go; another one becomes leader if it was the leader."""
        del self.members[member.member_id]
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        self.pending_syncs.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id: a new process took its place."""
        assert member.group_instance_id is not None
        # Rebuilt, so that the member keeps its place in the order of joining.
        self.members = {
            (member_id if key == member.member_id else key): value
            for key, value in self.members.items()
        }
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        self.pending_syncs.discard(member.member_id)
        self.static_members[member.group_instance_id] = member_id
        member.member_id = member_id

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Note that a member changed what it knows."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return what is wrong with a claim to be a certain member; NONE if nothing is."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def all_joined(self) -> bool:
        """Whether nobody is missing who could still (re)join."""
        return not self.pending_joins and all(
            member.join is not None for member in self.members.values()
        )

    def rebalance_timeout_ms(self) -> int:
        """Return the patience of the most patient member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_void(self) -> bool:
        """Whether nothing ever came of the group, so that it need not be remembered."""
        return (
            self.state is GroupState.EMPTY
            and self.generation_id == 0
            and self.protocol_type is None
            and not self.pending_joins
        )

    # Generations

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is among those that rejoined; False if nobody did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                _log.info("group %s: %s is the new leader", self.group_id, member.member_id)
                self.leader_id = member.member_id
                return True
        return False

    def next_generation(self, now_ms: int) -> None:
        """Close the join phase: agree on a protocol, or be empty."""
        self.generation_id += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition(GroupState.EMPTY, now_ms)
        self.note_subscriptions()

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a member with these protocols would find common ground with the others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self._supporters.get(protocol.name, 0) == len(self.members) for protocol in protocols
        )

    def select_protocol(self) -> str:
        """Count the members' votes among the protocols that all of them know."""
        count = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def note_subscriptions(self) -> None:
        """Work out which topics the members read together."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed_topics = None
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics |= subscribed_topics(member.metadata(self.protocol_name))
        except MalformedMessageError as error:
            _log.warning("group %s: topics unknown: %s", self.group_id, error.message)
            self.subscribed_topics = None
        else:
            self.subscribed_topics = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read the topic; consumers that cannot be understood might."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # Views

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return all members as the leader needs them."""
        return tuple(
            JoinedMember(
                member.member_id, member.group_instance_id, member.metadata(self.protocol_name)
            )
            for member in self.members.values()
        )

    def describe(self) -> GroupDescription:
        """Return the group as tools see it."""
        stable = self.state is GroupState.STABLE
        return GroupDescription(
            self.group_id,
            self.state,
            self.generation_id,
            self.protocol_type or "",
            (self.protocol_name or "") if stable else "",
            self.leader_id or "",
            tuple(
                MemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol_name) if stable else b"",
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )

    def _count_protocols(self, member: Member, change: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            count = self._supporters.get(name, 0) + change
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
