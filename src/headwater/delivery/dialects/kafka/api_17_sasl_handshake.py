"""SaslHandshake: v0-1.

Behaviour:
* Nobody is authenticated here. A client that wants to be is told so at once, ILLEGAL_SASL_STATE and
  no mechanism, as at a listener of Kafka without SASL; it would otherwise try again and again.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 17
VERSIONS = (0, 1)


def handle(call: Call, request: messages.SaslHandshakeRequest) -> None:
    """Say that there is no mechanism."""
    del request
    call.reply(messages.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
