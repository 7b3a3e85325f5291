"""DescribeClientQuotas: v0-1.

Behaviour:
* A filter has at most one part for each kind of entity: an exact name, the default, or any. An
  entity is told if it has every part; with ``strict`` only if it has no other. No parts at all
  find everything, or with ``strict`` nothing.
* A filter that contradicts itself is INVALID_REQUEST, an unknown kind UNSUPPORTED_VERSION.

Version notes:
* v1: flexible.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.quotas import Component
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 48
VERSIONS = (0, 1)

_Entry = messages.DescribeClientQuotasResponse.EntryData
_Entity = messages.DescribeClientQuotasResponse.EntityData
_Value = messages.DescribeClientQuotasResponse.ValueData


def handle(call: Call, request: messages.DescribeClientQuotasRequest) -> None:
    """Tell the quotas of whomever the filter finds."""
    components = [
        Component(part.entity_type, part.match_type, part.match) for part in request.components
    ]
    response = messages.DescribeClientQuotasResponse(error_message="", entries=None)
    try:
        found = call.broker.quotas.describe(components, strict=request.strict)
    except KafkaError as error:
        response.error_code = error.code
        response.error_message = error.message
    else:
        response.error_code = ErrorCode.NONE
        response.entries = [
            _Entry(
                [_Entity(kind, name) for kind, name in entity],
                [_Value(key, value) for key, value in values.items()],
            )
            for entity, values in found.items()
        ]
    call.reply(response)
