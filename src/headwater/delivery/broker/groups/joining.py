"""Who may join a group, and as whom.

This file alone judges JoinGroup. The phases that a join sets in motion are `rebalancing`'s.
"""

import logging
import uuid
from collections.abc import Callable
from functools import partial
from typing import Final

from headwater.base.chance import Chance, random_uuid
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.member import Member
from headwater.delivery.broker.groups.needs import GroupSettings, OffsetsLog
from headwater.delivery.broker.groups.rebalancing import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    Rebalancing,
    generation_result,
)
from headwater.delivery.broker.groups.records import group_entry
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.groups.values import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    SyncResult,
)
from headwater.delivery.broker.groups.waiting import Waiting

_log = logging.getLogger(__name__)

# A member id repeats the client's own name. A protocol string ends at 32,767 bytes, so a name of
# that length, which a client may have, must be cut: 255 is what a file system allows for a name.
_NAME_IN_MEMBER_ID_CHARS_MAX: Final = 255


class Joining:
    """Answers JoinGroup."""

    def __init__(
        self,
        *,
        table: GroupTable,
        rebalancing: Rebalancing,
        log: OffsetsLog,
        settings: GroupSettings,
        chance: Chance,
    ) -> None:
        self._table = table
        self._rebalancing = rebalancing
        self._log = log
        self._settings = settings
        self._chance = chance

    def join(
        self, request: JoinRequest, reply: Callable[[JoinResult], None]
    ) -> Waiting[JoinResult]:
        """Let a consumer in, or say why not; most answers come when the join phase ends."""
        waiting = Waiting(reply)
        error = self._check_request(request)
        if error:
            waiting.answer(JoinResult(error=error, member_id=request.member_id))
            return waiting
        is_new = request.member_id == UNKNOWN_MEMBER_ID
        group = (
            self._table.get_or_create(request.group_id)
            if is_new
            else self._table.get(request.group_id)
        )
        if group is None:
            waiting.answer(
                JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
            )
        elif not self._has_room(group, request.member_id):
            self._turn_away(group, request.member_id)
            waiting.answer(JoinResult(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, request.protocols):
            self._table.forget_if_void(group)
            waiting.answer(
                JoinResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
            )
        elif is_new:
            self._join_as_stranger(group, request, waiting)
        else:
            self._join_as_acquaintance(group, request, waiting)
        return waiting

    def _check_request(self, request: JoinRequest) -> ErrorCode:
        settings = self._settings
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _has_room(self, group: Group, member_id: str) -> bool:
        size_max = self._settings.group_max_size
        member = group.members.get(member_id)
        if len(group.members) < size_max or group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            # First come, first served: a group above a lowered bound shrinks to it.
            if member is not None and member.join is not None:
                return True
            rejoined = sum(other.join is not None for other in group.members.values())
            return rejoined < size_max
        return member is not None

    def _turn_away(self, group: Group, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalancing.remove_member(group, member)
        elif member_id in group.pending_joins:
            self._rebalancing.drop_pending_join(group, member_id)
        self._rebalancing.maybe_complete_join(group)

    # Without a member id

    def _join_as_stranger(
        self, group: Group, request: JoinRequest, waiting: Waiting[JoinResult]
    ) -> None:
        if request.group_instance_id is not None:
            member_id = self._new_member_id(request.group_instance_id)
            current = group.static_members.get(request.group_instance_id)
            if current is None:
                self._add(group, request, member_id, waiting)
            else:
                self._replace(group, group.members[current], request, member_id, waiting)
            return
        member_id = self._new_member_id(request.client_id)
        if request.member_id_required:
            self._rebalancing.expect_join(group, member_id, request.session_timeout_ms)
            waiting.answer(JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        else:
            self._add(group, request, member_id, waiting)

    def _new_member_id(self, name: str) -> str:
        suffix = uuid.UUID(bytes=random_uuid(self._chance))
        return f"{name[:_NAME_IN_MEMBER_ID_CHARS_MAX]}-{suffix}"

    def _add(
        self,
        group: Group,
        request: JoinRequest,
        member_id: str,
        waiting: Waiting[JoinResult],
    ) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        self._rebalancing.start_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalancing.await_join(group, member, waiting)
        self._rebalancing.prepare_or_complete(
            group, f"{member_id} joins ({request.reason or 'no reason given'})"
        )

    def _replace(
        self,
        group: Group,
        member: Member,
        request: JoinRequest,
        member_id: str,
        waiting: Waiting[JoinResult],
    ) -> None:
        """Let a restarted static member take its own place back.

        In a Stable group that costs nobody a rebalance, unless the group's protocol would change.
        """
        _log.info(
            "group %s: instance %s is now %s, was %s",
            group.group_id,
            request.group_instance_id,
            member_id,
            member.member_id,
        )
        former = _Former(group, member)
        self._fence(member)
        group.rename(member, member_id)
        self._update(group, member, request)
        self._rebalancing.heard_of(group, member)
        if group.state is GroupState.STABLE and (group.select_protocol() == group.protocol_name):
            self._store_replacement(group, member, request, former, waiting)
            return
        self._rebalancing.await_join(group, member, waiting)
        self._rebalancing.prepare_or_complete(
            group, f"instance {request.group_instance_id} joins again"
        )

    @staticmethod
    def _fence(member: Member) -> None:
        join, member.join = member.join, None
        sync, member.sync = member.sync, None
        if join is not None:
            join.answer(JoinResult(error=ErrorCode.FENCED_INSTANCE_ID, member_id=member.member_id))
        if sync is not None:
            sync.answer(SyncResult(error=ErrorCode.FENCED_INSTANCE_ID))

    def _store_replacement(
        self,
        group: Group,
        member: Member,
        request: JoinRequest,
        former: "_Former",
        waiting: Waiting[JoinResult],
    ) -> None:
        result = generation_result(group, member, skip_assignment=request.can_skip_assignment)
        if not request.can_skip_assignment:
            # The client would assign if it were told that it leads; naming the id that it had
            # before makes it a follower, which asks for the assignment that is in force.
            result = JoinResult(
                member_id=result.member_id,
                generation_id=result.generation_id,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                leader=former.leader_id or "",
            )
        try:
            self._log.append(group.group_id, [group_entry(group)], partial(waiting.answer, result))
        except KafkaError as error:
            former.restore(group, member)
            self._rebalancing.heard_of(group, member)
            waiting.answer(JoinResult(error=error_for_client(error)))

    # With a member id

    def _join_as_acquaintance(
        self, group: Group, request: JoinRequest, waiting: Waiting[JoinResult]
    ) -> None:
        if request.member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # Such ids are given to dynamic members only.
                waiting.answer(
                    JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
                )
                return
            self._rebalancing.drop_pending_join(group, request.member_id)
            self._add(group, request, request.member_id, waiting)
            return
        error = group.check_member(request.member_id, request.group_instance_id)
        if error:
            waiting.answer(JoinResult(error=error, member_id=request.member_id))
            return
        member = group.members[request.member_id]
        if self._tells_nothing_new(group, member, request):
            waiting.answer(generation_result(group, member))
            return
        self._update(group, member, request)
        self._rebalancing.await_join(group, member, waiting)
        self._rebalancing.prepare_or_complete(
            group, f"{member.member_id} joins again ({request.reason or 'no reason given'})"
        )

    @staticmethod
    def _tells_nothing_new(group: Group, member: Member, request: JoinRequest) -> bool:
        """Whether the generation that the member is in can just be told again."""
        if member.protocols != request.protocols:
            return False
        if group.state is GroupState.COMPLETING_REBALANCE:
            # It may not have got the answer to its first join.
            return True
        # The leader joins again when something outside the group, such as the number of
        # partitions, asks for a new assignment.
        return group.state is GroupState.STABLE and group.leader_id != member.member_id

    @staticmethod
    def _update(group: Group, member: Member, request: JoinRequest) -> None:
        group.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host


class _Former:
    """A static member before it was replaced, in case the replacement cannot be stored."""

    def __init__(self, group: Group, member: Member) -> None:
        self.leader_id = group.leader_id
        self._member_id = member.member_id
        self._protocols = member.protocols
        self._session_timeout_ms = member.session_timeout_ms
        self._rebalance_timeout_ms = member.rebalance_timeout_ms
        self._client_id = member.client_id
        self._client_host = member.client_host

    def restore(self, group: Group, member: Member) -> None:
        """Undo the replacement."""
        group.rename(member, self._member_id)
        group.set_protocols(member, self._protocols)
        member.session_timeout_ms = self._session_timeout_ms
        member.rebalance_timeout_ms = self._rebalance_timeout_ms
        member.client_id = self._client_id
        member.client_host = self._client_host
