"""OffsetForLeaderEpoch: v2-4.

Behaviour:
* Tells the largest leader epoch not above the one asked for, and where it ends: whoever has read
  further was given records that a crash has taken back (KIP-320).
* An epoch newer than all is -1/-1; one older than all is itself and the first offset there is.

Version notes:
* v3: the replica id, which makes no difference here. v4: flexible.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import check_leader_epoch
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 23
VERSIONS = (2, 4)

_Answer = messages.OffsetForLeaderEpochResponse.EpochEndOffset
_Topic = messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


def handle(call: Call, request: messages.OffsetForLeaderEpochRequest) -> None:
    """Tell where an epoch ends in each partition."""
    response = messages.OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers = [_one(call, topic.topic, asked) for asked in topic.partitions]
        response.topics.append(_Topic(topic.topic, answers))
    call.reply(response)


def _one(
    call: Call,
    topic: str,
    asked: messages.OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
) -> messages.OffsetForLeaderEpochResponse.EpochEndOffset:
    answer = _Answer(ErrorCode.NONE, asked.partition)
    partition = call.broker.topics.partition(topic, asked.partition)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    try:
        check_leader_epoch(call.broker, asked.current_leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    else:
        found = partition.log.epoch_end_offset(asked.leader_epoch)
        answer.leader_epoch, answer.end_offset = found
    return answer
