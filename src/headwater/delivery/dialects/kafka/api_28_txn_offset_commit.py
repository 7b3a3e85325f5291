"""TxnOffsetCommit: v0-5.

Behaviour:
* The offsets count when the transaction commits, and never were if it aborts. The answer comes when
  they are durable; until the end of the transaction OffsetFetch with ``require_stable`` is told
  UNSTABLE_OFFSET_COMMIT.
* The partition of ``__consumer_offsets`` that holds the group must be part of the transaction. If
  it is not, the answer is INVALID_TXN_STATE, from v4 on TRANSACTION_ABORTABLE; v5 adds it.
* A topic or partition that does not exist is refused with UNKNOWN_TOPIC_OR_PARTITION, metadata
  beyond ``offset.metadata.max.bytes`` with OFFSET_METADATA_TOO_LARGE; the others are committed.
* A producer that was replaced is INVALID_PRODUCER_EPOCH.

Version notes:
* v2: leader epoch. v3: the producer says for which member and generation it speaks (KIP-447);
  ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID are told then.
* v4: TRANSACTION_ABORTABLE is understood. v5: committing adds the group to the transaction
  (KIP-890); while the last transaction is ending the request waits.
"""

from collections.abc import Callable, Sequence
from functools import partial

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.groups.offsets_topic import OFFSETS_TOPIC
from headwater.delivery.broker.groups.values import CommitRequest, PartitionCommit
from headwater.delivery.broker.state_topic import ProducerKey
from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.admission import (
    Refusals,
    TransactionalBatch,
    Understands,
    admit,
)
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 28
VERSIONS = (0, 5)

_FIRST_WITH_ABORTABLE = 4
_FIRST_OF_KIP_890 = 5
# A decoded partition without its metadata, as sys.getsizeof counts its parts together.
_PARTITION_BYTES = 200

_Topic = messages.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = messages.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def handle(call: Call, request: messages.TxnOffsetCommitRequest) -> None:
    """Commit what can be committed, answer for each partition."""
    response = messages.TxnOffsetCommitResponse()
    commits: list[PartitionCommit] = []
    answers: list[messages.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = []
    for topic in request.topics:
        answer = _Topic(topic.name)
        response.topics.append(answer)
        for partition in topic.partitions:
            index = partition.partition_index
            answer.partitions.append(_Partition(index))
            if call.broker.topics.partition(topic.name, index) is None:
                answer.partitions[-1].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            answers.append(answer.partitions[-1])
            commits.append(
                PartitionCommit(
                    topic.name,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                )
            )

    def reply(errors: Sequence[ErrorCode]) -> None:
        for partition_answer, error in zip(answers, errors, strict=True):
            partition_answer.error_code = error
        call.reply(response)

    def admitted(refusals: Refusals) -> None:
        for refusal in refusals.values():
            reply([error_for_client(refusal)] * len(commits))
            return
        _commit(call, request, commits, reply)

    if not commits:
        call.reply(response)
    elif not request.group_id:
        reply([ErrorCode.INVALID_GROUP_ID] * len(commits))
    else:
        try:
            place = (OFFSETS_TOPIC, call.broker.groups.partition_of(request.group_id))
        except KafkaError as error:
            # The first group of all makes the offsets topic, for which there may be no room.
            reply([error_for_client(error)] * len(commits))
            return
        _admit(call, request, place, admitted)


def _admit(
    call: Call,
    request: messages.TxnOffsetCommitRequest,
    place: PartitionKey,
    admitted: Callable[[Refusals], None],
) -> None:
    """Ask whether the group's partition of the offsets topic is part of the transaction."""
    broker = call.broker
    partition = broker.topics.partition(*place)
    assert partition is not None, "a group that was asked for has its partition"
    producer = Producer(request.producer_id, request.producer_epoch)
    understands = Understands.OLD_CODES
    if call.version >= _FIRST_OF_KIP_890:
        understands = Understands.JOINING_BY_WRITING
    elif call.version >= _FIRST_WITH_ABORTABLE:
        understands = Understands.ABORTABLE
    admit(
        broker.transactions,
        request.transactional_id,
        [TransactionalBatch(place, partition, producer, 0)],
        admitted,
        understands=understands,
        verify=broker.settings.transaction_partition_verification_enable,
        keep=partial(_size, request),
    )


def _commit(
    call: Call,
    request: messages.TxnOffsetCommitRequest,
    commits: Sequence[PartitionCommit],
    reply: Callable[[Sequence[ErrorCode]], None],
) -> None:
    call.broker.groups.committing.commit_in_transaction(
        CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id,
            partitions=tuple(commits),
        ),
        ProducerKey(request.producer_id, request.producer_epoch),
        reply,
    )


def _size(request: messages.TxnOffsetCommitRequest) -> int:
    """Return about how many bytes a request takes that has to wait; it is decoded already."""
    return sum(
        _PARTITION_BYTES + len(partition.committed_metadata or "")
        for topic in request.topics
        for partition in topic.partitions
    )
