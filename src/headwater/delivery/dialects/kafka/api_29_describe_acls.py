"""DescribeAcls: v1-3.

Behaviour:
* There is no authorizer and so there are no access control lists: SECURITY_DISABLED, as a Kafka
  without an authorizer answers.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 29
VERSIONS = (1, 3)


def handle(call: Call, request: messages.DescribeAclsRequest) -> None:
    """Say that there are none."""
    del request
    message = "No Authorizer is configured on the broker"
    response = messages.DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=message
    )
    call.reply(response)
