"""DeleteGroups: v0-2.

Behaviour:
* A group with members is NON_EMPTY_GROUP, an unknown one GROUP_ID_NOT_FOUND; one that is named
  twice is answered once.
* Answers when the deletion of all of them, with their offsets, is durable.
"""

from functools import partial

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 42
VERSIONS = (0, 2)

_Result = messages.DeleteGroupsResponse.DeletableGroupResult


def handle(call: Call, request: messages.DeleteGroupsRequest) -> None:
    """Delete each group."""
    response = messages.DeleteGroupsResponse(
        results=[_Result(group_id) for group_id in dict.fromkeys(request.groups_names)]
    )
    missing = len(response.results) + 1

    def one_is_done(
        result: messages.DeleteGroupsResponse.DeletableGroupResult | None, error: ErrorCode
    ) -> None:
        nonlocal missing
        if result is not None:
            result.error_code = error
        missing -= 1
        if not missing:
            call.reply(response)

    for result in response.results:
        call.broker.groups.forgetting.delete_group(result.group_id, partial(one_is_done, result))
    # The one too many: without it a request for no group would never be answered.
    one_is_done(None, ErrorCode.NONE)
