"""SaslAuthenticate: v0-2.

Behaviour:
* Whoever is connected may do everything already: ILLEGAL_SASL_STATE, as at a listener of Kafka
  without SASL.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 36
VERSIONS = (0, 2)


def handle(call: Call, request: messages.SaslAuthenticateRequest) -> None:
    """Refuse it."""
    del request
    message = "SaslAuthenticate request received after successful authentication"
    response = messages.SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message
    )
    call.reply(response)
