"""FindCoordinator: v0-6.

Behaviour:
* The coordinator of every group and of every transactional id is this node.
* Key types that the version does not have are INVALID_REQUEST, and so are share-partition keys,
  because this broker keeps share state itself.

Version notes:
* v1: key types. v4: several keys at once (KIP-699). v6: share coordinators (KIP-932).
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 10
VERSIONS = (0, 6)

_FIRST_WITH_KEYS = 4
_GROUP = 0
_TRANSACTION = 1

_NOWHERE = (-1, "", -1)


def handle(call: Call, request: messages.FindCoordinatorRequest) -> None:
    """Point to ourselves, or say that nobody coordinates this."""
    error, message = _judge(request.key_type)
    if not error and call.version < _FIRST_WITH_KEYS:
        # Kafka repeats the name of the code here.
        message = error.name
    broker = call.broker
    where = _NOWHERE if error else (broker.node_id, broker.advertised_host, broker.advertised_port)
    node_id, host, port = where
    if call.version >= _FIRST_WITH_KEYS:
        response = messages.FindCoordinatorResponse(
            coordinators=[
                messages.FindCoordinatorResponse.Coordinator(
                    key, node_id, host, port, error, message
                )
                for key in request.coordinator_keys
            ]
        )
    else:
        response = messages.FindCoordinatorResponse(
            error_code=error, error_message=message, node_id=node_id, host=host, port=port
        )
    call.reply(response)


def _judge(key_type: int) -> tuple[ErrorCode, str]:
    if key_type in {_GROUP, _TRANSACTION}:
        return ErrorCode.NONE, ""
    return ErrorCode.INVALID_REQUEST, f"This broker has no coordinator of type {key_type}."
