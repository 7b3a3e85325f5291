"""OffsetDelete: v0.

Behaviour:
* Offsets of a topic that a member subscribes to are GROUP_SUBSCRIBED_TO_TOPIC; in a group with
  members that are no consumers nothing can be deleted: NON_EMPTY_GROUP.
* What was never committed is deleted without an error; a partition that does not exist is
  UNKNOWN_TOPIC_OR_PARTITION.
* Answers when the deletion is durable.
"""

from collections.abc import Sequence

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 47
VERSIONS = (0, 0)

_Topic = messages.OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = messages.OffsetDeleteResponse.OffsetDeleteResponsePartition


def handle(call: Call, request: messages.OffsetDeleteRequest) -> None:
    """Delete offsets that no member reads on from."""
    response = messages.OffsetDeleteResponse()
    keys: list[tuple[str, int]] = []
    answers: list[messages.OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
    for topic in request.topics:
        answer = _Topic(topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            partition = _Partition(asked.partition_index)
            answer.partitions.append(partition)
            if call.broker.topics.partition(topic.name, asked.partition_index) is None:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                keys.append((topic.name, asked.partition_index))
                answers.append(partition)

    def reply(error: ErrorCode, errors: Sequence[ErrorCode]) -> None:
        if error:
            call.reply(messages.OffsetDeleteResponse(error_code=error))
            return
        for partition_answer, code in zip(answers, errors, strict=True):
            partition_answer.error_code = code
        call.reply(response)

    call.broker.groups.forgetting.delete_offsets(request.group_id, keys, reply)
