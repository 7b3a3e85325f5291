"""DescribeProducers: v0.

Behaviour:
* Tells of a partition the producers that it remembers: epoch, last sequence number and timestamp,
  the epoch of the coordinator that last wrote a marker, and where an open transaction begins.
* A topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a name that no topic can
  have INVALID_TOPIC_EXCEPTION.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topic_rules import check_topic_name
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 61
VERSIONS = (0, 0)

_Topic = messages.DescribeProducersResponse.TopicResponse
_Partition = messages.DescribeProducersResponse.PartitionResponse
_Producer = messages.DescribeProducersResponse.ProducerState


def handle(call: Call, request: messages.DescribeProducersRequest) -> None:
    """Describe the producers of partitions."""
    topics = [
        _Topic(
            topic.name, [_describe(call, topic.name, index) for index in topic.partition_indexes]
        )
        for topic in request.topics
    ]
    call.reply(messages.DescribeProducersResponse(topics=topics))


def _describe(call: Call, topic: str, index: int) -> _Partition:
    try:
        check_topic_name(topic)
    except KafkaError as error:
        return _Partition(index, error.code, error.message)
    partition = call.broker.topics.partition(topic, index)
    if partition is None:
        return _Partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _Partition(
        index,
        ErrorCode.NONE,
        None,
        [
            _Producer(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer_id, producer in partition.log.producers.items()
        ],
    )
