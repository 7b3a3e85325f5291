"""Heartbeat: v0-4.

Behaviour:
* Prolongs the session. REBALANCE_IN_PROGRESS: join again. ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID:
  the group went on without the member. FENCED_INSTANCE_ID: another process took its place.

Version notes:
* v3: group.instance.id (KIP-345).
"""

from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 12
VERSIONS = (0, 4)


def handle(call: Call, request: messages.HeartbeatRequest) -> None:
    """Note that the member is alive."""
    error = call.broker.groups.membership.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    call.reply(messages.HeartbeatResponse(error_code=error))
