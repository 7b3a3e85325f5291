"""DeleteRecords: v0-2.

Behaviour:
* Raises the log start offset of partitions; -1 means the high watermark. An offset below the log
  start changes nothing and answers the log start; one above the high watermark is
  OFFSET_OUT_OF_RANGE. What was answered to a producer with acks=1 and is not synced yet is waited
  for first, for three seconds; after that the answer is REQUEST_TIMED_OUT, and nothing is trimmed.
* The new log starts are on disk before the answer, with one sync for the whole request, and
  before any reader sees them. On a full disk whole segments go first and make the room; without
  any to go, the log starts where it did and the answer is KAFKA_STORAGE_ERROR.
* Topics that are only compacted refuse (POLICY_VIOLATION), internal ones too
  (INVALID_TOPIC_EXCEPTION).
* Whoever waits in a fetch below the new log start is woken and told.

Version notes:
* v2: flexible.
"""

from functools import partial

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.partition import Partition
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 21
VERSIONS = (0, 2)

_HIGH_WATERMARK = -1
_FAILED = -1

_Topic = messages.DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = messages.DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(call: Call, request: messages.DeleteRecordsRequest) -> None:
    """Trim the partitions, when all that producers were told of can be seen."""
    named = (
        partition
        for topic in request.topics
        for asked in topic.partitions
        if (partition := call.broker.topics.partition(topic.name, asked.partition_index))
    )
    call.broker.promises.when_kept(
        named,
        partial(_trim, call, request),
        otherwise=partial(_trim, call, request, in_time=False),
    )


def _trim(call: Call, request: messages.DeleteRecordsRequest, *, in_time: bool = True) -> None:
    """Make the new log starts durable, move to them, answer."""
    broker = call.broker
    response = messages.DeleteRecordsResponse()
    trims: list[tuple[Partition, int, messages.DeleteRecordsResponse.DeleteRecordsPartitionResult]]
    trims = []
    for asked in request.topics:
        results = {}
        for wanted in asked.partitions:
            result = _Partition(wanted.partition_index, _FAILED)
            results[wanted.partition_index] = result
            try:
                partition = _find(broker, asked.name, wanted.partition_index)
                if not in_time and broker.promises.concern([partition]):
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)  # noqa: TRY301
                trims.append((partition, _wanted_start(partition, wanted.offset), result))
            except KafkaError as error:
                result.error_code = error.code
        response.topics.append(_Topic(asked.name, list(results.values())))
    if trims:
        try:
            broker.store.trim([(partition.log, offset) for partition, offset, _ in trims])
        except KafkaError as error:
            for _, _, result in trims:
                result.error_code = error.code
        broker.store.make_room()
        for partition, _, result in trims:
            if not result.error_code:
                result.low_watermark = partition.log.log_start_offset
            partition.wake()
    call.reply(response)


def _find(broker: Broker, name: str, index: int) -> Partition:
    topic = broker.topics.get(name)
    if topic is not None and topic.internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = topic.partition(index) if topic is not None else None
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.config.is_compacted and not topic.config.is_deleted:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition


def _wanted_start(partition: Partition, offset: int) -> int:
    high_watermark = partition.log.high_watermark
    if offset == _HIGH_WATERMARK:
        return high_watermark
    if not 0 <= offset <= high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return offset
