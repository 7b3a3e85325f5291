"""Requests as the campaign's clients send them.

This file alone decides how they are put: one connection, one attempt, nothing hidden. A client that
retries by itself would blur what was acknowledged.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader, TruncatedBatchError, scan
from headwater.delivery.client.connection import Connection
from headwater.delivery.wire.kafka import messages
from tests.crash.broker.promises import Place

# The newest versions that name topics; those behind take ids.
PRODUCE_VERSION = 12
FETCH_VERSION = 12

TIMEOUT_S = 20.0
_FETCH_BYTES = 1 << 20


class Fetched(NamedTuple):
    """A partition in a fetch response."""

    place: Place
    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    records: bytes

    def batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Go through the whole batches."""
        try:
            for position, header in scan(self.records):
                yield header, self.records[position : position + header.size_bytes]
        except TruncatedBatchError:
            return


def connect(address: tuple[str, int], name: str) -> Connection:
    """Open a connection."""
    return Connection(*address, client_id=name, timeout_s=TIMEOUT_S)


def init_producer_id(connection: Connection) -> tuple[int, int]:
    """Ask for a producer id and its epoch."""
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    response = connection.call(request)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    return response.producer_id, response.producer_epoch


def send_produce(connection: Connection, acks: int, batches: Mapping[Place, bytes]) -> None:
    """Send one batch to each of some partitions."""
    request = messages.ProduceRequest(acks=acks, timeout_ms=int(TIMEOUT_S * 1000))
    topics: dict[str, messages.ProduceRequest.TopicProduceData] = {}
    for (topic, partition), batch in batches.items():
        data = topics.get(topic)
        if data is None:
            data = topics[topic] = messages.ProduceRequest.TopicProduceData(name=topic)
            request.topic_data.append(data)
        # The broker stamps offsets into what it was sent, never into what we keep.
        records = bytearray(batch)
        data.partition_data.append(messages.ProduceRequest.PartitionProduceData(partition, records))
    connection.send(request, version_max=PRODUCE_VERSION)
    if acks == 0:
        connection.expect_no_answer()


def receive_produce(connection: Connection) -> Iterator[tuple[Place, Any]]:
    """Wait for the oldest answer; go through its partitions."""
    for topic in connection.receive().responses:
        for answer in topic.partition_responses:
            yield (topic.name, answer.index), answer


def fetch(
    connection: Connection, positions: Mapping[Place, int], *, wait_ms: int
) -> Iterator[Fetched]:
    """Read some partitions from some offsets on."""
    request = messages.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        session_id=0,
        session_epoch=-1,
    )
    topics: dict[str, messages.FetchRequest.FetchTopic] = {}
    for (topic, partition), offset in positions.items():
        asked = topics.get(topic)
        if asked is None:
            asked = topics[topic] = messages.FetchRequest.FetchTopic(topic=topic)
            request.topics.append(asked)
        asked.partitions.append(
            messages.FetchRequest.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
            )
        )
    response = connection.call(request, version_max=FETCH_VERSION)
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    for answered in response.responses:
        for data in answered.partitions:
            yield Fetched(
                (answered.topic, data.partition_index),
                ErrorCode(data.error_code),
                data.high_watermark,
                data.log_start_offset,
                bytes(data.records or b""),
            )
