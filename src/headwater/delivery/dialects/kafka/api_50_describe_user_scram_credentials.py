"""DescribeUserScramCredentials: v0.

Behaviour:
* Nobody has credentials: the list of all is empty, and whoever is asked for is not found. Tools
  that list quotas of users ask for both.
"""

from collections import Counter

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 50
VERSIONS = (0, 0)

_Result = messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(call: Call, request: messages.DescribeUserScramCredentialsRequest) -> None:
    """Tell of none."""
    times = Counter(user.name for user in request.users or ())
    response = messages.DescribeUserScramCredentialsResponse(
        results=[_one(name, count) for name, count in times.items()]
    )
    call.reply(response)


def _one(
    name: str, count: int
) -> messages.DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult:
    if count > 1:
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
        return _Result(name, ErrorCode.DUPLICATE_RESOURCE, message)
    message = f"Attempt to describe a user credential that does not exist: {name}"
    return _Result(name, ErrorCode.RESOURCE_NOT_FOUND, message)
