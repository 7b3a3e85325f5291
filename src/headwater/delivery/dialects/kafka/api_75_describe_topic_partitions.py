"""DescribeTopicPartitions: v0.

Behaviour:
* Describes topics in the order of their names, page by page: an answer holds so many partitions at
  most, and its cursor says where the next one begins. No topic is created.
* An empty list means all topics; a cursor then may name one that is gone, and the next one follows.
* A cursor must name a topic of the list, and no partition below 0; else every topic of the list is
  INVALID_REQUEST.
* The only replica is in sync, so that no replica is kept as eligible besides (KIP-966).
"""

from collections.abc import Sequence

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topic_rules import check_topic_name
from headwater.delivery.dialects.kafka.api_03_metadata import TOPIC_OPERATIONS
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages
from headwater.log.topic import INTERNAL_TOPICS

KEY = 75
VERSIONS = (0, 0)

_Topic = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_Cursor = messages.DescribeTopicPartitionsResponse.Cursor


def handle(call: Call, request: messages.DescribeTopicPartitionsRequest) -> None:
    """Describe one page of topics."""
    asked = [topic.name for topic in request.topics]
    cursor = request.cursor
    if cursor is not None and (
        cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)
    ):
        refused = [_Topic(ErrorCode.INVALID_REQUEST, name) for name in asked]
        call.reply(messages.DescribeTopicPartitionsResponse(topics=refused))
        return
    names = sorted(set(asked)) if asked else [topic.name for topic in call.broker.topics]
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first = cursor.partition_index
    limit_max = call.broker.settings.max_request_partition_size_limit
    limit = max(1, min(request.response_partition_limit, limit_max))
    call.reply(_page(call, names, first, limit))


def _page(
    call: Call, names: Sequence[str], first: int, limit: int
) -> messages.DescribeTopicPartitionsResponse:
    """Describe topics, the first of them from a partition on, until the page is full."""
    response = messages.DescribeTopicPartitionsResponse()
    room = limit
    for name in names:
        if room == 0:
            response.next_cursor = _Cursor(name, 0)
            break
        described, count = _describe(call, name, first, room)
        response.topics.append(described)
        upto = first + len(described.partitions)
        if upto < count:
            response.next_cursor = _Cursor(name, upto)
            break
        room -= len(described.partitions)
        first = 0
    return response


def _describe(
    call: Call, name: str, first: int, room: int
) -> tuple[messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic, int]:
    """Describe some partitions of a topic; also tell how many it has."""
    topic = call.broker.topics.get(name)
    answer = _Topic(ErrorCode.NONE, name, topic_authorized_operations=TOPIC_OPERATIONS)
    if topic is None:
        answer.error_code = _why_missing(name)
        answer.is_internal = name in INTERNAL_TOPICS
        return answer, 0
    answer.topic_id, answer.is_internal = topic.topic_id, topic.internal
    node = [call.broker.node_id]
    epoch = call.broker.leader_epoch
    count = len(topic.partitions)
    answer.partitions = [
        _Partition(ErrorCode.NONE, index, node[0], epoch, node, node, [], [])
        for index in range(first, min(first + room, count))
    ]
    return answer, count


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
