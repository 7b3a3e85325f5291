"""DescribeCluster: v0-2.

Behaviour:
* One broker, ourselves, is also the controller.
* Only brokers can be asked for (endpoint type 1): controllers have no port of their own here, so
  type 2 is answered as a Kafka broker answers it, MISMATCHED_ENDPOINT_TYPE.

Version notes:
* v1: endpoint type (KIP-919). v2: fenced brokers (KIP-1073); ours is never fenced.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.api_03_metadata import CLUSTER_OPERATIONS
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 60
VERSIONS = (0, 2)

_BROKERS = 1
_CONTROLLERS = 2
_NOT_ASKED = -(2**31)


def handle(call: Call, request: messages.DescribeClusterRequest) -> None:
    """Tell who we are."""
    broker = call.broker
    response = messages.DescribeClusterResponse(
        error_message=None,
        endpoint_type=_BROKERS,
        controller_id=-1,
        cluster_authorized_operations=_NOT_ASKED,
    )
    if request.endpoint_type == _CONTROLLERS:
        response.error_code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response.error_message = (
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER"
        )
    elif request.endpoint_type != _BROKERS:
        response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = f"Unsupported endpoint type {request.endpoint_type}"
    else:
        response.cluster_id = broker.cluster_id
        response.controller_id = broker.node_id
        response.brokers = [
            messages.DescribeClusterResponse.DescribeClusterBroker(
                broker.node_id, broker.advertised_host, broker.advertised_port, None
            )
        ]
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
    call.reply(response)
