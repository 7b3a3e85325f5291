"""ListConfigResources: v0-1.

Behaviour:
* Names everything that has configs: topics, this broker, its loggers. Groups and client metrics
  are named when they have configs of their own, which they never have here.
* An unknown type is UNSUPPORTED_VERSION, and nothing is named.

Version notes:
* v0: Kafka called it ListClientMetricsResources; only client metrics are asked for.
* v1: types (KIP-1142); none means all.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.resources import ResourceType, names
from headwater.delivery.wire.kafka import messages

KEY = 74
VERSIONS = (0, 1)

_Resource = messages.ListConfigResourcesResponse.ConfigResource


def handle(call: Call, request: messages.ListConfigResourcesRequest) -> None:
    """Name the resources of the types asked for."""
    response = messages.ListConfigResourcesResponse()
    wanted = set(request.resource_types)
    if call.version == 0:
        wanted = {ResourceType.CLIENT_METRICS}
    if wanted <= set(ResourceType):
        response.config_resources = [
            _Resource(name, kind)
            for kind in sorted(wanted or ResourceType, reverse=True)
            for name in names(call.broker, ResourceType(kind))
        ]
    else:
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
    call.reply(response)
