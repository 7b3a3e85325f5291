"""ListOffsets: v1-11.

Behaviour:
* -1 latest: the high watermark, or the last stable offset under read_committed.
* -2 earliest: the log start offset; -4 (earliest local): the same, nothing is tiered.
* -3 the offset of the largest timestamp; -5 last tiered and -6 earliest pending upload: none.
* A timestamp: the first visible record at or after it; -1/-1 when there is none.
* What was answered to a producer with acks=1 and is not synced yet is waited for, for three
  seconds. After that the answer is OFFSET_NOT_AVAILABLE, LEADER_NOT_AVAILABLE before v5.
* A partition that stands in the request twice is INVALID_REQUEST, once.

Version notes:
* v2: isolation level. v4: leader epochs (KIP-320). v7: -3 (KIP-734). v8: -4. v9: -5. v11: -6.
"""

import logging
from collections import Counter
from collections.abc import Iterable
from functools import partial

from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.delivery.broker.broker import check_leader_epoch
from headwater.delivery.broker.partition import Partition
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

_log = logging.getLogger(__name__)

KEY = 2
VERSIONS = (1, 11)

_LATEST = -1
_EARLIEST = -2
_MAX_TIMESTAMP = -3
_EARLIEST_LOCAL = -4
_LATEST_TIERED = -5
_EARLIEST_PENDING_UPLOAD = -6
# The first version in which each special timestamp has its meaning.
_SINCE = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}

_FIRST_WITH_OFFSET_NOT_AVAILABLE = 5

# Where the log starts does not depend on where it ends.
_STARTS = {_EARLIEST, _EARLIEST_LOCAL}

_Answer = messages.ListOffsetsResponse.ListOffsetsPartitionResponse
# Offset, timestamp and leader epoch where there is nothing to find.
_NOTHING = (-1, -1, -1)


def handle(call: Call, request: messages.ListOffsetsRequest) -> None:
    """Look up one offset per partition, when all that producers were told of can be seen."""
    wait = call.broker.promises.when_kept(
        _at_their_ends(call, request),
        partial(_answer, call, request),
        otherwise=partial(_answer, call, request, in_time=False),
    )
    if wait is not None:
        call.on_cancel(wait.cancel)


def _at_their_ends(call: Call, request: messages.ListOffsetsRequest) -> Iterable[Partition]:
    for topic in request.topics:
        for asked in topic.partitions:
            partition = call.broker.topics.partition(topic.name, asked.partition_index)
            if partition is not None and asked.timestamp not in _STARTS:
                yield partition


def _answer(call: Call, request: messages.ListOffsetsRequest, *, in_time: bool = True) -> None:
    read_committed = request.isolation_level == 1
    response = messages.ListOffsetsResponse()
    for topic in request.topics:
        answers = []
        times = Counter(asked.partition_index for asked in topic.partitions)
        for asked in {each.partition_index: each for each in topic.partitions}.values():
            answer = _Answer(asked.partition_index)
            try:
                if times[asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)  # noqa: TRY301
                partition = call.broker.topics.partition(topic.name, asked.partition_index)
                if partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # noqa: TRY301
                check_leader_epoch(call.broker, asked.current_leader_epoch)
                if not in_time and asked.timestamp not in _STARTS:
                    _check_kept(call, partition)
                answer.offset, answer.timestamp, answer.leader_epoch = _find(
                    call, partition, asked.timestamp, read_committed=read_committed
                )
            except KafkaError as error:
                answer.error_code = error.code
                if isinstance(error, StorageError):
                    _log.error("offsets cannot be looked up: %s", error.message)
            answers.append(answer)
        response.topics.append(
            messages.ListOffsetsResponse.ListOffsetsTopicResponse(topic.name, answers)
        )
    call.reply(response)


def _check_kept(call: Call, partition: Partition) -> None:
    """Refuse to tell an end behind which a producer was told of records, as Kafka does."""
    if call.broker.promises.concern([partition]):
        known = call.version >= _FIRST_WITH_OFFSET_NOT_AVAILABLE
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE
        )


def _find(
    call: Call, partition: Partition, timestamp: int, *, read_committed: bool
) -> tuple[int, int, int]:
    log = partition.log
    if timestamp < 0 and call.version < _SINCE.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    upto = log.last_stable_offset if read_committed else log.high_watermark
    match timestamp:
        case -1:
            return upto, -1, call.broker.leader_epoch
        case -2 | -4:
            epoch = log.epoch_for_offset(log.log_start_offset)
            # What comes first to an empty log will be of this epoch.
            return log.log_start_offset, -1, epoch if epoch >= 0 else call.broker.leader_epoch
        case -3:
            found = log.max_timestamp(upto_offset=upto)
        case -5 | -6:
            return _NOTHING
        case _:
            found = log.offset_for_timestamp(timestamp, upto_offset=upto)
    return (found.offset, found.timestamp, found.leader_epoch) if found else _NOTHING
