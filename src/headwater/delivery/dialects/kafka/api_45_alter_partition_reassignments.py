"""AlterPartitionReassignments: v0-1.

Behaviour:
* Every partition has its only replica on this node: to assign it there is done at once, other
  brokers do not exist, and no reassignment is ever in progress that could be cancelled.

Version notes:
* v1: the client may forbid that the number of replicas changes (KIP-860); it never does.
"""

from collections.abc import Sequence

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topic_rules import check_brokers
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 45
VERSIONS = (0, 1)

_Topic = messages.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = messages.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def handle(call: Call, request: messages.AlterPartitionReassignmentsRequest) -> None:
    """Judge each reassignment; none has anything to do."""
    response = messages.AlterPartitionReassignmentsResponse()
    # As in Kafka, what is told of the whole request is told where something was asked for.
    if request.topics:
        response.error_message = None
        response.allow_replication_factor_change = request.allow_replication_factor_change
    response.responses = [
        _Topic(
            topic.name,
            [
                _one(call, topic.name, each.partition_index, each.replicas)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    call.reply(response)


def _one(
    call: Call, name: str, index: int, replicas: Sequence[int] | None
) -> messages.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = call.broker.topics.get(name)
    if topic is None:
        return _Partition(index, unknown, f"Unable to find a topic named {name}.")
    if topic.partition(index) is None:
        return _Partition(index, unknown, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        return _Partition(index, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    try:
        check_brokers(replicas, call.broker.node_id)
    except KafkaError as error:
        return _Partition(index, error.code, error.message)
    return _Partition(index, ErrorCode.NONE, None)
