"""DescribeGroups: v0-6.

Behaviour:
* Members' metadata and the protocol's name are told only while the group is Stable; assignments
  are those of the last generation that was.
* A group that does not exist is in state Dead.

Version notes:
* v3: authorized operations (KIP-430). v4: group.instance.id.
* v6: a group that does not exist is GROUP_ID_NOT_FOUND (KIP-1043).
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 15
VERSIONS = (0, 6)

_FIRST_WITH_GROUP_ID_NOT_FOUND = 6
# Bit n stands for Kafka's ACL operation n; without an authorizer everything is allowed that can be
# done to a group: read (3), delete (6), describe (8), describe configs (10), alter configs (11).
GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

_Group = messages.DescribeGroupsResponse.DescribedGroup
_Member = messages.DescribeGroupsResponse.DescribedGroupMember


def handle(call: Call, request: messages.DescribeGroupsRequest) -> None:
    """Describe each group that was asked for."""
    groups = [_describe(call, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    call.reply(messages.DescribeGroupsResponse(groups=groups))


def _describe(call: Call, group_id: str) -> messages.DescribeGroupsResponse.DescribedGroup:
    group = call.broker.groups.describe(group_id)
    if group is None:
        missing = _Group(group_id=group_id, group_state=GroupState.DEAD)
        if call.version >= _FIRST_WITH_GROUP_ID_NOT_FOUND:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = f"Group {group_id} not found."
        return missing
    return _Group(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[_Member(*member) for member in group.members],
    )
