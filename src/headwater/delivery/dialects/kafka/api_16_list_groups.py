"""ListGroups: v0-5.

Behaviour:
* Lists every group, also those that only have offsets.

Version notes:
* v4: states and a filter for them (KIP-518). v5: types and a filter for them (KIP-848); filters
  do not care for upper or lower case.
"""

from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 16
VERSIONS = (0, 5)

_CLASSIC = "classic"

_Group = messages.ListGroupsResponse.ListedGroup


def handle(call: Call, request: messages.ListGroupsRequest) -> None:
    """List the groups that pass the filters."""
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    listed = []
    if not types or _CLASSIC in types:
        listed = [
            _Group(group_id, protocol_type, state, _CLASSIC)
            for group_id, protocol_type, state in call.broker.groups.listing()
            if not states or state.lower() in states
        ]
    call.reply(messages.ListGroupsResponse(groups=listed))
