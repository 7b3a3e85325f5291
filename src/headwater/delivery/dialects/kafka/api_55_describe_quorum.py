"""DescribeQuorum: v0-2.

Behaviour:
* The journal of metadata is a quorum of one: this node leads it and is its only voter. Its epoch
  is the number of this run, and what is in the journal is durable, so that the high watermark is
  its end.
* Only Kafka's name for the metadata, ``__cluster_metadata``, and its partition 0 are known.

Version notes:
* v1: times of the last fetch (KIP-836); a leader is always up to date.
* v2: the id of the directory and where voters are reached (KIP-853); here that is where everybody
  reaches this node.
"""

from headwater.base.errors import ErrorCode
from headwater.base.uuids import uuid_from_text
from headwater.delivery.broker.broker import Broker
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 55
VERSIONS = (0, 2)

_METADATA_TOPIC = "__cluster_metadata"
_FIRST_WITH_NODES = 2

_Topic = messages.DescribeQuorumResponse.TopicData
_Partition = messages.DescribeQuorumResponse.PartitionData


def handle(call: Call, request: messages.DescribeQuorumRequest) -> None:
    """Describe the quorum of one, if it is the one thing asked for."""
    broker = call.broker
    response = messages.DescribeQuorumResponse()
    asked = [
        (topic.topic_name, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    ]
    if asked == [(_METADATA_TOPIC, 0)]:
        response.topics = [_Topic(_METADATA_TOPIC, [_quorum(broker)])]
        if call.version >= _FIRST_WITH_NODES:
            response.nodes = [_node(broker)]
    else:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = "This server does not host this topic-partition."
        response.topics = [
            _Topic(
                topic.topic_name,
                [_Partition(part.partition_index, unknown, message) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    call.reply(response)


def _quorum(broker: Broker) -> messages.DescribeQuorumResponse.PartitionData:
    end = broker.store.journal_entries
    now_ms = broker.clock.now_ms()
    voter = messages.DescribeQuorumResponse.ReplicaState(
        broker.node_id, uuid_from_text(broker.store.directory_id), end, now_ms, now_ms
    )
    return _Partition(
        partition_index=0,
        leader_id=broker.node_id,
        leader_epoch=broker.leader_epoch,
        high_watermark=end,
        current_voters=[voter],
    )


def _node(broker: Broker) -> messages.DescribeQuorumResponse.Node:
    listener = messages.DescribeQuorumResponse.Listener(
        "PLAINTEXT", broker.advertised_host, broker.advertised_port
    )
    return messages.DescribeQuorumResponse.Node(broker.node_id, [listener])
