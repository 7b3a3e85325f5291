"""AlterClientQuotas: v0-1.

Behaviour:
* Each entity's changes are made together or not at all; they are on disk, and in force for every
  later request, when the answer is sent.
* An entity that stands in the request twice, or one with a key twice, is INVALID_REQUEST; as in
  Kafka the first mention of an entity is carried out all the same.
* What is not a quota of that kind of entity, not above 0, or a fraction where bytes or connections
  are counted, is INVALID_REQUEST. A quota that is not there can be removed.

Version notes:
* v1: flexible.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.quotas import Alteration
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 49
VERSIONS = (0, 1)

_Entry = messages.AlterClientQuotasResponse.EntryData
_Entity = messages.AlterClientQuotasResponse.EntityData


def handle(call: Call, request: messages.AlterClientQuotasRequest) -> None:
    """Change quotas and say for each entity what became of it."""
    alterations = [_alteration(entry) for entry in request.entries]
    response = messages.AlterClientQuotasResponse()
    try:
        results = call.broker.quotas.alter(alterations, validate_only=request.validate_only)
    except KafkaError as error:
        results = {tuple(each.entity.items()): error for each in alterations}
    for entity, refusal in results.items():
        response.entries.append(
            _Entry(
                ErrorCode.NONE if refusal is None else refusal.code,
                None if refusal is None else refusal.message,
                [_Entity(kind, name) for kind, name in entity],
            )
        )
    call.reply(response)


def _alteration(entry: messages.AlterClientQuotasRequest.EntryData) -> Alteration:
    return Alteration(
        {part.entity_type: part.entity_name for part in entry.entity},
        [(change.key, None if change.remove else change.value) for change in entry.ops],
    )
