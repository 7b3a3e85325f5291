"""LeaveGroup: v0-5.

Behaviour:
* The others rebalance at once. When nobody is left, the answer waits until that is durable.
* A static member can be removed by its group.instance.id alone, which is what tools do.

Version notes:
* v0-2: one member, its error is the error of the whole. v3: several, each with its own (KIP-345).
* v5: reason (KIP-800).
"""

from collections.abc import Sequence

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.values import LeavingMember
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 13
VERSIONS = (0, 5)

_FIRST_WITH_MEMBERS = 3

_Member = messages.LeaveGroupResponse.MemberResponse


def handle(call: Call, request: messages.LeaveGroupRequest) -> None:
    """Let the members go."""
    if call.version >= _FIRST_WITH_MEMBERS:
        leaving = [
            LeavingMember(member.member_id, member.group_instance_id, member.reason or "")
            for member in request.members
        ]
    else:
        leaving = [LeavingMember(request.member_id, None)]

    def reply(error: ErrorCode, errors: Sequence[ErrorCode]) -> None:
        if call.version < _FIRST_WITH_MEMBERS:
            response = messages.LeaveGroupResponse(error_code=error or errors[0])
        else:
            response = messages.LeaveGroupResponse(
                error_code=error,
                members=[
                    _Member(member.member_id, member.group_instance_id, code)
                    for member, code in zip(leaving, errors, strict=False)
                ],
            )
        call.reply(response)

    call.broker.groups.membership.leave(request.group_id, leaving, reply)
