"""CreateAcls: v1-3.

Behaviour:
* An entry that nobody enforces is refused: SECURITY_DISABLED, as a Kafka without an authorizer
  answers.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 30
VERSIONS = (1, 3)

_Result = messages.CreateAclsResponse.AclCreationResult


def handle(call: Call, request: messages.CreateAclsRequest) -> None:
    """Refuse every entry."""
    refused = [
        _Result(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        for _ in request.creations
    ]
    call.reply(messages.CreateAclsResponse(results=refused))
