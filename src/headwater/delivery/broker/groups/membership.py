"""What members ask once they have joined: their assignment, whether all is well, to leave.

This file alone judges SyncGroup, Heartbeat and LeaveGroup. The phases that follow from them are
`rebalancing`'s.
"""

from collections.abc import Callable, Sequence
from functools import partial

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.needs import OffsetsLog
from headwater.delivery.broker.groups.rebalancing import Rebalancing, assignment_result
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.groups.values import (
    UNKNOWN_MEMBER_ID,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from headwater.delivery.broker.groups.waiting import Waiting


class Membership:
    """Answers SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, *, table: GroupTable, rebalancing: Rebalancing, log: OffsetsLog) -> None:
        self._table = table
        self._rebalancing = rebalancing
        self._log = log

    def sync(
        self, request: SyncRequest, reply: Callable[[SyncResult], None]
    ) -> Waiting[SyncResult]:
        """Hand a member its assignment, when there is one; the leader's request brings it."""
        waiting = Waiting(reply)
        group = self._table.get(request.group_id)
        error = self._check_sync(group, request)
        if group is None or error:
            waiting.answer(SyncResult(error=error))
            return waiting
        member = group.members[request.member_id]
        if group.state is GroupState.STABLE:
            self._rebalancing.has_synced(group, member)
            waiting.answer(assignment_result(group, member))
            return waiting
        self._rebalancing.await_sync(group, member, waiting)
        self._rebalancing.has_synced(group, member)
        if group.leader_id == member.member_id:
            self._rebalancing.store_assignment(group, dict(request.assignments))
        return waiting

    @staticmethod
    def _check_sync(group: Group | None, request: SyncRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Prolong a member's session and tell it whether it has to join again."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self._table.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, group_instance_id)
        if error:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalancing.heard_of(group, group.members[member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self,
        group_id: str,
        leaving: Sequence[LeavingMember],
        reply: Callable[[ErrorCode, Sequence[ErrorCode]], None],
    ) -> None:
        """Let members go; the answer has an error for the whole and one for each of them."""
        if not group_id:
            reply(ErrorCode.INVALID_GROUP_ID, ())
            return
        group = self._table.get(group_id)
        if group is None:
            reply(ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving))
            return
        count = len(group.members)
        errors = [self._leave_one(group, member) for member in leaving]
        left = count - len(group.members)
        if left and group.state is not GroupState.PREPARING_REBALANCE:
            self._rebalancing.prepare(group, f"{left} members left")
        else:
            self._rebalancing.maybe_complete_join(group)
        self._table.forget_if_void(group)
        self._log.when_settled(group_id, partial(reply, ErrorCode.NONE, errors))

    def _leave_one(self, group: Group, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator knows the instance, not who stands for it at the moment.
            current = group.static_members.get(leaving.group_instance_id or "")
            if leaving.group_instance_id is None or current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = current
        elif member_id in group.pending_joins:
            self._rebalancing.drop_pending_join(group, member_id)
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, leaving.group_instance_id)
            if error:
                return error
        self._rebalancing.remove_member(group, group.members[member_id])
        return ErrorCode.NONE


def _differs(said: str | None, actual: str | None) -> bool:
    """Before v5 a client does not say which protocol it thinks is in use."""
    return said is not None and actual is not None and said != actual
