"""SyncGroup: v0-5.

Behaviour:
* The leader's request carries everybody's assignment; all are answered when it is durable.
* In a Stable group the assignment is answered at once.
* A rebalance that begins meanwhile answers REBALANCE_IN_PROGRESS.

Version notes:
* v3: group.instance.id (KIP-345).
* v5: protocol type and name must be given, and be the group's (KIP-559).
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.values import SyncRequest, SyncResult
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 14
VERSIONS = (0, 5)

_FIRST_WITH_PROTOCOL = 5


def handle(call: Call, request: messages.SyncGroupRequest) -> None:
    """Hand the member its assignment."""

    def reply(result: SyncResult) -> None:
        call.reply(
            messages.SyncGroupResponse(
                error_code=result.error,
                protocol_type=result.protocol_type,
                protocol_name=result.protocol_name,
                assignment=result.assignment,
            )
        )

    if call.version >= _FIRST_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        reply(SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    waiting = call.broker.groups.membership.sync(
        SyncRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={item.member_id: item.assignment for item in request.assignments},
        ),
        reply,
    )
    if not waiting.answered:
        call.on_cancel(waiting.abandon)
