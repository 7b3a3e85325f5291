"""JoinGroup: v0-9.

Behaviour:
* Answers when the join phase ends: all members are back, or the rebalance time-out is over.
* The first members of a group wait for more, ``group.initial.rebalance.delay.ms`` at a time.
* A follower that joins a Stable group again with the same metadata is told its generation at once;
  the leader, or anybody with new metadata, starts a rebalance.
* A client that goes away while it waits stays a member until its session ends.

Version notes:
* v0: the session time-out is the rebalance time-out too. v1: rebalance time-out (KIP-62).
* v4: MEMBER_ID_REQUIRED for the first join (KIP-394). v5: group.instance.id (KIP-345).
* v7: protocol type; the protocol's name may be null. v8: reason (KIP-800).
* v9: skip_assignment for a static leader that is back (KIP-814).
"""

from headwater.delivery.broker.groups.values import JoinRequest, JoinResult, Protocol
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 11
VERSIONS = (0, 9)

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIP_ASSIGNMENT = 9

_Member = messages.JoinGroupResponse.JoinGroupResponseMember


def handle(call: Call, request: messages.JoinGroupRequest) -> None:
    """Let the client into the group."""

    def reply(result: JoinResult) -> None:
        call.reply(_response(call.version, result))

    waiting = call.broker.groups.joining.join(
        JoinRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=call.client_id or "",
            client_host=call.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms
                if call.version >= _FIRST_WITH_REBALANCE_TIMEOUT
                else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=tuple(
                Protocol(protocol.name, protocol.metadata) for protocol in request.protocols
            ),
            member_id_required=call.version >= _FIRST_WITH_MEMBER_ID_REQUIRED,
            can_skip_assignment=call.version >= _FIRST_WITH_SKIP_ASSIGNMENT,
            reason=request.reason or "",
        ),
        reply,
    )
    if not waiting.answered:
        call.on_cancel(waiting.abandon)


def _response(version: int, result: JoinResult) -> messages.JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _FIRST_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return messages.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[_Member(*member) for member in result.members],
    )
