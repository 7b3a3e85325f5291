"""Produce: v0-13.

Behaviour:
* Each partition's bytes must be exactly one record batch of magic 2. Versions 0-2 are
  advertised because older librdkafka compresses only when it sees them (KAFKA-18659), but they
  carry message formats that Kafka 4 has dropped: as there, they close the connection.
* acks=all answers when the batch is synced; acks=1 when it is in the page cache; acks=0 never, and
  an error drops the connection, as in Kafka.
* Internal topics take batches from Kafka's own tools only, which say so in their client id; from
  others it is INVALID_TOPIC_EXCEPTION, as in Kafka.
* When the disk fails, what still waits is answered KAFKA_STORAGE_ERROR, and the broker ends.
* Whatever its acks, a batch joins the next group commit and is visible only after it. Reads that
  come after the answer to acks=1 wait for that commit, see `broker/promises`.
* A batch that is refused for a moment, as by ``headwater.overflow``, has to come before those that
  its idempotent producer has sent after it; see `broker/refused`.
* A duplicate of one of a producer's last five batches answers the original offset.
* Transactional batches need the transactional id in the request, and a partition that is part of
  the transaction; without it they are INVALID_TXN_STATE, from v11 on TRANSACTION_ABORTABLE. A
  producer that was replaced is INVALID_PRODUCER_EPOCH.

Version notes:
* v7: zstd is allowed.
* v8: record errors and an error message (KIP-467).
* v11: TRANSACTION_ABORTABLE is understood. v12: writing to a partition adds it to the transaction
  (KIP-890); while the last transaction is ending the request waits.
* v13: topics by id (KIP-516).
"""

from functools import partial

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.produce import InvalidRecordsError, append_batch, note_refused
from headwater.delivery.broker.topics import BrokerTopic
from headwater.delivery.broker.transactions.admission import Refusals
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.transactional import admit_transactional, find_topic
from headwater.delivery.wire.kafka import messages
from headwater.log.appended import Appended

KEY = 0
VERSIONS = (0, 13)

_ACKS_ALL = -1
_ACKS_VALID = (-1, 0, 1)
_ADMIN_CLIENT_ID = "__admin_client"
_FIRST_WITH_ZSTD = 7

_PartitionResponse = messages.ProduceResponse.PartitionProduceResponse
_TopicResponse = messages.ProduceResponse.TopicProduceResponse
_Wait = tuple[Partition, int, messages.ProduceResponse.PartitionProduceResponse]


class _Pending:
    """An answer that waits until the last of its partitions is durable."""

    __slots__ = ("_call", "_remaining", "_response", "_waits")

    def __init__(self, call: Call, response: messages.ProduceResponse, waits: list[_Wait]) -> None:
        self._call = call
        self._response = response
        self._waits = waits
        self._remaining = len(waits)

    def one_is_durable(self) -> None:
        self._remaining -= 1
        if not self._remaining:
            self._call.reply(self._response)

    def disk_failed(self) -> None:
        """Promise nothing for what was still waiting; the first to hear of it answers."""
        if self._remaining > 0:
            self._remaining = 0
            for _, _, answer in self._waits:
                _refuse(answer, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            self._call.reply(self._response)


def handle(call: Call, request: messages.ProduceRequest) -> None:
    """Append every partition's batch, then answer as the request's acks demand."""
    if request.transactional_id is None:
        _append_all(call, request, {})
    else:
        admit_transactional(call, request, partial(_append_all, call, request))


def _append_all(call: Call, request: messages.ProduceRequest, refusals: Refusals) -> None:
    acks = request.acks
    response = messages.ProduceResponse()
    waits: list[_Wait] = []
    failed = False
    delay_ms = 0
    for topic_data in request.topic_data:
        topic, missing = find_topic(call, topic_data)
        topic_response = _TopicResponse(topic_data.name, topic_data.topic_id)
        response.responses.append(topic_response)
        for data in topic_data.partition_data:
            answer = _PartitionResponse(data.index)
            topic_response.partition_responses.append(answer)
            try:
                partition = _check(call, topic, missing, data.index, acks)
                appended, delay = _append(call, request, partition, data.records, refusals)
            except KafkaError as error:
                _refuse(answer, error)
                failed = True
                continue
            answer.base_offset = appended.base_offset
            answer.log_append_time_ms = appended.log_append_time_ms
            answer.log_start_offset = appended.log_start_offset
            delay_ms = max(delay_ms, delay)
            if partition.log.high_watermark <= appended.last_offset:
                if acks == _ACKS_ALL:
                    waits.append((partition, appended.last_offset, answer))
                elif acks:
                    call.broker.promises.make(partition, appended.last_offset)
            elif acks == _ACKS_ALL and request.transactional_id is not None:
                waits += _wait_for_joining(call, request.transactional_id, answer)
    if delay_ms:
        response.throttle_time_ms = delay_ms
        call.mute(delay_ms)
    if acks == 0:
        if failed:
            call.close()
        else:
            call.reply(None)
    else:
        _reply(call, response, waits)


def _append(
    call: Call,
    request: messages.ProduceRequest,
    partition: Partition,
    records: memoryview | None,
    refusals: Refusals,
) -> tuple[Appended, int]:
    try:
        if refusals:
            _check_refused(refusals, partition)
        return append_batch(
            call.broker,
            partition,
            records,
            zstd_allowed=call.version >= _FIRST_WITH_ZSTD,
            transactional_allowed=request.transactional_id is not None,
        )
    except KafkaError as error:
        note_refused(call.broker, partition, records, error)
        raise


def _reply(call: Call, response: messages.ProduceResponse, waits: list[_Wait]) -> None:
    if not waits:
        call.reply(response)
        return
    pending = _Pending(call, response, waits)
    for partition, last_offset, _ in waits:
        partition.when_durable(last_offset, pending.one_is_durable, pending.disk_failed)


def _wait_for_joining(
    call: Call, transactional_id: str, answer: messages.ProduceResponse.PartitionProduceResponse
) -> list[_Wait]:
    """Wait for the coordinator, where the partition itself need not be waited for."""
    unsettled = call.broker.transactions.maybe_unsettled(transactional_id)
    return [] if unsettled is None else [(*unsettled, answer)]


def _check(
    call: Call, topic: BrokerTopic | None, missing: ErrorCode, index: int, acks: int
) -> Partition:
    if topic is None:
        raise KafkaError(missing)
    partition = topic.partition(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if acks not in _ACKS_VALID:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if topic.internal and call.client_id != _ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return partition


def _check_refused(refusals: Refusals, partition: Partition) -> None:
    refusal = refusals.get((partition.log.topic, partition.log.partition))
    if refusal is not None:
        raise refusal


def _refuse(answer: messages.ProduceResponse.PartitionProduceResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    answer.base_offset = -1
    answer.error_message = None if error.message == error.code.name else error.message
    if isinstance(error, InvalidRecordsError):
        answer.record_errors = [
            messages.ProduceResponse.BatchIndexAndErrorMessage(index, message)
            for index, message in error.records
        ]
