"""IncrementalAlterConfigs: v0-1.

Behaviour:
* SET, DELETE, and on lists APPEND and SUBTRACT, each on one config; the others stay as they are.
  APPEND and SUBTRACT start from what holds, be it the topic's own or the broker's default.
* All changes of a resource are checked before one is made.
* On the broker, the defaults of topics and the settings that are marked dynamic can be changed
  while it runs, for this node or ("") for every node; they are in force at once. All other settings
  are read-only.
* It is carried out between two rounds of syncs, because a config may need syncs of its own.
* An operation that does not exist is INVALID_REQUEST; Kafka answers UNKNOWN_SERVER_ERROR.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.configs import Change, Operation
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.resources import alter, each_once, reply_between_rounds
from headwater.delivery.wire.kafka import messages

KEY = 44
VERSIONS = (0, 1)

_Result = messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


def handle(call: Call, request: messages.IncrementalAlterConfigsRequest) -> None:
    """Change single configs of each resource."""

    def change(index: int) -> None:
        asked = request.resources[index]
        alter(
            call.broker,
            asked.resource_type,
            asked.resource_name,
            [_change(config) for config in asked.configs],
            keep_others=True,
            validate_only=request.validate_only,
        )

    def answer(
        kind: int, name: str, code: ErrorCode, message: str | None
    ) -> messages.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse:
        return _Result(code, message, kind, name)

    resources = [(asked.resource_type, asked.resource_name) for asked in request.resources]

    reply_between_rounds(
        call,
        lambda: messages.IncrementalAlterConfigsResponse(
            responses=each_once(resources, change, answer)
        ),
    )


def _change(config: messages.IncrementalAlterConfigsRequest.AlterableConfig) -> Change:
    try:
        operation = Operation(config.config_operation)
    except ValueError:
        message = f"Unknown operation type {config.config_operation}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message) from None
    return Change(config.name, operation, config.value)
