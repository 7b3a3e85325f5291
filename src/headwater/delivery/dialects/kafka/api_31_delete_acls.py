"""DeleteAcls: v1-3.

Behaviour:
* There is nothing to delete: SECURITY_DISABLED, as a Kafka without an authorizer answers.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 31
VERSIONS = (1, 3)

_Result = messages.DeleteAclsResponse.DeleteAclsFilterResult


def handle(call: Call, request: messages.DeleteAclsRequest) -> None:
    """Refuse every filter."""
    refused = [
        _Result(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        for _ in request.filters
    ]
    call.reply(messages.DeleteAclsResponse(filter_results=refused))
