"""AlterConfigs: v0-2.

Behaviour:
* Replaces all overrides of a resource: what is not in the request goes back to its default. Kafka
  advises against it since 2.3; IncrementalAlterConfigs (44) changes single configs.
* All values of a resource are checked before one is changed.
* It is carried out between two rounds of syncs, because a config may need syncs of its own.
* A resource that stands in the request twice is refused; Kafka 4.3 never answers then.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.configs import Change, Operation
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.resources import alter, each_once, reply_between_rounds
from headwater.delivery.wire.kafka import messages

KEY = 33
VERSIONS = (0, 2)

_Result = messages.AlterConfigsResponse.AlterConfigsResourceResponse


def handle(call: Call, request: messages.AlterConfigsRequest) -> None:
    """Replace the overrides of each resource."""

    def change(index: int) -> None:
        asked = request.resources[index]
        changes = [Change(config.name, Operation.SET, config.value) for config in asked.configs]
        alter(
            call.broker,
            asked.resource_type,
            asked.resource_name,
            changes,
            keep_others=False,
            validate_only=request.validate_only,
        )

    def answer(
        kind: int, name: str, code: ErrorCode, message: str | None
    ) -> messages.AlterConfigsResponse.AlterConfigsResourceResponse:
        return _Result(code, message, kind, name)

    resources = [(asked.resource_type, asked.resource_name) for asked in request.resources]

    reply_between_rounds(
        call,
        lambda: messages.AlterConfigsResponse(responses=each_once(resources, change, answer)),
    )
