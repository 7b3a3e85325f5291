"""Produce requests that name a transaction, up to the moment when their batches may be appended.

This file alone decides which batches of a request the coordinator is asked about, and what a
version of Produce can be told. It appends nothing and answers nothing.
"""

from collections.abc import Callable
from functools import partial

from headwater.base.errors import CorruptRecordError, ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader, parse_header
from headwater.delivery.broker.topics import BrokerTopic, PartitionKey
from headwater.delivery.broker.transactions.admission import (
    Refusals,
    TransactionalBatch,
    Understands,
    admit,
)
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

_FIRST_WITH_ABORTABLE = 11
_FIRST_OF_KIP_890 = 12
_FIRST_WITH_TOPIC_IDS = 13


def find_topic(
    call: Call, topic_data: messages.ProduceRequest.TopicProduceData
) -> tuple[BrokerTopic | None, ErrorCode]:
    """Return a request's topic, and what to say where there is none."""
    topics = call.broker.topics
    if call.version >= _FIRST_WITH_TOPIC_IDS:
        return topics.by_id(topic_data.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    return topics.get(topic_data.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def admit_transactional(
    call: Call, request: messages.ProduceRequest, append_all: Callable[[Refusals], None]
) -> None:
    """Let the coordinator judge the transactional batches, then append what is not refused."""
    absent: dict[PartitionKey, KafkaError] = {}
    batches = _transactional_batches(call, request, absent)
    if not batches or request.transactional_id is None:
        append_all({})
        return

    def decided(refusals: Refusals) -> None:
        # What came into being while the request was held is no part of the transaction.
        append_all({**absent, **refusals})

    understands = Understands.OLD_CODES
    if call.version >= _FIRST_OF_KIP_890:
        understands = Understands.JOINING_BY_WRITING
    elif call.version >= _FIRST_WITH_ABORTABLE:
        understands = Understands.ABORTABLE
    admit(
        call.broker.transactions,
        request.transactional_id,
        batches,
        decided,
        understands=understands,
        verify=call.broker.settings.transaction_partition_verification_enable,
        keep=partial(_keep_records, request),
    )


def _transactional_batches(
    call: Call, request: messages.ProduceRequest, absent: dict[PartitionKey, KafkaError]
) -> list[TransactionalBatch]:
    """Return the batches to be asked about; note partitions that do not exist in `absent`."""
    found: list[TransactionalBatch] = []
    for topic_data in request.topic_data:
        topic, _ = find_topic(call, topic_data)
        if topic is not None and topic.internal:
            # Refused without asking anybody; the partition must not become part of anything.
            continue
        for data in topic_data.partition_data:
            key = (topic_data.name if topic is None else topic.name, data.index)
            partition = call.broker.topics.partition(*key)
            header = _maybe_header(data.records)
            if partition is None:
                absent[key] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif header is not None and header.is_transactional:
                producer = Producer(header.producer_id, header.producer_epoch)
                found.append(TransactionalBatch(key, partition, producer, header.base_sequence))
    return found


def _maybe_header(records: memoryview | None) -> BatchHeader | None:
    """Read a batch's header; what cannot be read is refused later, with its reason."""
    if not records:
        return None
    try:
        return parse_header(records)
    except CorruptRecordError:
        return None


def _keep_records(request: messages.ProduceRequest) -> int:
    """Copy the batches out of the connection's memory, which is used anew when this returns."""
    size = 0
    for topic_data in request.topic_data:
        for data in topic_data.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))
                size += len(data.records)
    return size
