"""OffsetCommit: v2-10.

Behaviour:
* Answers when the offsets are durable; until then nobody can read them either.
* A topic or partition that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION (v10: an
  unknown id with UNKNOWN_TOPIC_ID), metadata beyond ``offset.metadata.max.bytes`` with
  OFFSET_METADATA_TOO_LARGE; the other partitions are committed all the same.
* Without a generation the commit comes from a tool or a consumer outside group management, and is
  taken while the group has no members.
* Between JoinGroup and SyncGroup a member is told REBALANCE_IN_PROGRESS.

Version notes:
* v2-4: a retention of its own per request. v6: leader epoch. v7: group.instance.id (KIP-345).
* v9: a group that does not exist is GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION (KIP-848).
* v10: topics by id.
"""

from collections.abc import Sequence

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.values import CommitRequest, PartitionCommit
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 8
VERSIONS = (2, 10)

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_FIRST_WITH_TOPIC_IDS = 10

_Topic = messages.OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = messages.OffsetCommitResponse.OffsetCommitResponsePartition


def handle(call: Call, request: messages.OffsetCommitRequest) -> None:
    """Commit what can be committed, answer for each partition."""
    response = messages.OffsetCommitResponse()
    commits: list[PartitionCommit] = []
    answers: list[messages.OffsetCommitResponse.OffsetCommitResponsePartition] = []
    for topic in request.topics:
        answer = _Topic(topic.name, topic.topic_id)
        response.topics.append(answer)
        name = topic.name
        if call.version >= _FIRST_WITH_TOPIC_IDS:
            found = call.broker.topics.by_id(topic.topic_id)
            if found is None:
                answer.partitions = [
                    _Partition(partition.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
                    for partition in topic.partitions
                ]
                continue
            name = found.name
        for partition in topic.partitions:
            answer.partitions.append(_Partition(partition.partition_index))
            answers.append(answer.partitions[-1])
            commits.append(
                PartitionCommit(
                    name,
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                )
            )

    def reply(errors: Sequence[ErrorCode]) -> None:
        for partition_answer, error in zip(answers, errors, strict=True):
            partition_answer.error_code = error
        call.reply(response)

    call.broker.groups.committing.commit(
        CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            partitions=tuple(commits),
            retention_ms=request.retention_time_ms,
            missing_group_error=(
                ErrorCode.GROUP_ID_NOT_FOUND
                if call.version >= _FIRST_WITH_GROUP_ID_NOT_FOUND
                else ErrorCode.ILLEGAL_GENERATION
            ),
        ),
        reply,
    )
