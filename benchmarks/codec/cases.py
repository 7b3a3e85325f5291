"""The messages that are measured: those on the way of every record.

This file alone decides what is measured. Both sides hold the same content; the bytes that they
write are compared before anything is timed. A case that writes includes the making of the message,
as a broker makes each response anew.
"""

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from kio.serial import entity_reader, entity_writer

from headwater.base.schema import Message, codec
from headwater.delivery.wire.kafka.messages import (
    FetchRequest,
    FetchResponse,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

# kio's own types are narrower than what it accepts.
Kio: TypeAlias = Any

kio_produce: Kio = importlib.import_module("kio.schema.produce.v9.request")
kio_produced: Kio = importlib.import_module("kio.schema.produce.v9.response")
kio_fetch_request: Kio = importlib.import_module("kio.schema.fetch.v12.request")
kio_fetch_response: Kio = importlib.import_module("kio.schema.fetch.v12.response")
kio_metadata: Kio = importlib.import_module("kio.schema.metadata.v12.response")

PRODUCED_BYTES = 16 * 1024
FETCHED_BYTES = 64 * 1024


@dataclass(frozen=True)
class Case:
    """One measurement: what it is called, and what each side does."""

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]


def all_cases() -> list[Case]:
    """Return the cases, each checked to mean the same on both sides."""
    return [
        *(produce_request(*shape) for shape in [(1, 1), (1, 10), (10, 10)]),
        *(produce_response(*shape) for shape in [(1, 1), (1, 10)]),
        *(fetch_request(*shape) for shape in [(1, 1), (1, 10), (1, 100)]),
        *(fetch_response(*shape) for shape in [(1, 1), (1, 10), (10, 100)]),
        metadata_response(10, 10),
    ]


def _decoding(name: str, ours: type[Message], version: int, entity: Kio, data: bytes) -> Case:
    decode = codec(ours, version).decode
    read = entity_reader(entity)
    assert decode(data)[1] == read(data, 0)[1] == len(data)
    assert codec(ours, version).encode(decode(data)[0]) == data
    return Case(name, lambda: decode(data), lambda: read(data, 0))


def _encoding(
    name: str, ours: Callable[[], list[Any]], entity: Kio, theirs: Callable[[], Kio]
) -> Case:
    write = entity_writer(entity)

    def kio_bytes() -> bytes:
        with io.BytesIO() as buffer:
            write(buffer, theirs())
            return buffer.getvalue()

    assert b"".join(ours()) == kio_bytes()
    return Case(name, ours, kio_bytes)


def produce_request(topics: int, partitions: int) -> Case:
    """Read a produce request."""
    records = bytes(PRODUCED_BYTES)
    message = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=f"topic-{topic}",
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=index, records=records)
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )
    data = codec(ProduceRequest, 9).encode(message)
    name = f"Produce v9 request, read, {topics}x{partitions}"
    return _decoding(name, ProduceRequest, 9, kio_produce.ProduceRequest, data)


def produce_response(topics: int, partitions: int) -> Case:
    """Make and write the answer to a produce request."""
    encode = codec(ProduceResponse, 9).encode_parts
    topic_class = ProduceResponse.TopicProduceResponse
    partition_class = ProduceResponse.PartitionProduceResponse
    kio_error = kio_produced.ErrorCode.none

    def ours() -> list[Any]:
        return encode(
            ProduceResponse(
                responses=[
                    topic_class(
                        name=f"topic-{topic}",
                        partition_responses=[
                            partition_class(index=index, base_offset=123, log_start_offset=0)
                            for index in range(partitions)
                        ],
                    )
                    for topic in range(topics)
                ]
            )
        )

    def theirs() -> Kio:
        return kio_produced.ProduceResponse(
            responses=tuple(
                kio_produced.TopicProduceResponse(
                    name=f"topic-{topic}",
                    partition_responses=tuple(
                        kio_produced.PartitionProduceResponse(
                            index=index,
                            error_code=kio_error,
                            base_offset=123,
                            log_append_time=None,
                            log_start_offset=0,
                            record_errors=(),
                            error_message=None,
                        )
                        for index in range(partitions)
                    ),
                )
                for topic in range(topics)
            ),
            throttle_time=kio_produced.i32Timedelta.parse(timedelta(0)),
        )

    name = f"Produce v9 response, make and write, {topics}x{partitions}"
    return _encoding(name, ours, kio_produced.ProduceResponse, theirs)


def fetch_request(topics: int, partitions: int) -> Case:
    """Read a fetch request."""
    message = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * 1024 * 1024,
        topics=[
            FetchRequest.FetchTopic(
                topic=f"topic-{topic}",
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index, fetch_offset=123_456, partition_max_bytes=1_048_576
                    )
                    for index in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )
    data = codec(FetchRequest, 12).encode(message)
    name = f"Fetch v12 request, read, {topics}x{partitions}"
    return _decoding(name, FetchRequest, 12, kio_fetch_request.FetchRequest, data)


def fetch_response(topics: int, partitions: int) -> Case:
    """Make and write the answer to a fetch request; ours passes the records through."""
    records = bytes(FETCHED_BYTES if topics * partitions <= 10 else 1024)
    encode = codec(FetchResponse, 12).encode_parts
    topic_class = FetchResponse.FetchableTopicResponse
    partition_class = FetchResponse.PartitionData
    kio_error = kio_fetch_response.ErrorCode.none

    def ours() -> list[Any]:
        return encode(
            FetchResponse(
                responses=[
                    topic_class(
                        topic=f"topic-{topic}",
                        partitions=[
                            partition_class(
                                partition_index=index,
                                high_watermark=500,
                                last_stable_offset=500,
                                log_start_offset=0,
                                aborted_transactions=None,
                                records=records,
                            )
                            for index in range(partitions)
                        ],
                    )
                    for topic in range(topics)
                ]
            )
        )

    def theirs() -> Kio:
        return kio_fetch_response.FetchResponse(
            throttle_time=kio_fetch_response.i32Timedelta.parse(timedelta(0)),
            error_code=kio_error,
            responses=tuple(
                kio_fetch_response.FetchableTopicResponse(
                    topic=f"topic-{topic}",
                    partitions=tuple(
                        kio_fetch_response.PartitionData(
                            partition_index=index,
                            error_code=kio_error,
                            high_watermark=500,
                            last_stable_offset=500,
                            log_start_offset=0,
                            aborted_transactions=None,
                            records=records,
                        )
                        for index in range(partitions)
                    ),
                )
                for topic in range(topics)
            ),
        )

    name = f"Fetch v12 response, make and write, {topics}x{partitions}"
    return _encoding(name, ours, kio_fetch_response.FetchResponse, theirs)


def metadata_response(topics: int, partitions: int) -> Case:
    """Make and write the answer to a metadata request."""
    encode = codec(MetadataResponse, 12).encode_parts
    topic_class = MetadataResponse.MetadataResponseTopic
    partition_class = MetadataResponse.MetadataResponsePartition
    kio_error = kio_metadata.ErrorCode.none

    def ours() -> list[Any]:
        return encode(
            MetadataResponse(
                brokers=[MetadataResponse.MetadataResponseBroker(1, "localhost", 9092)],
                cluster_id="cluster",
                controller_id=1,
                topics=[
                    topic_class(
                        name=f"topic-{topic}",
                        partitions=[
                            partition_class(
                                partition_index=index,
                                leader_id=1,
                                leader_epoch=0,
                                replica_nodes=[1],
                                isr_nodes=[1],
                            )
                            for index in range(partitions)
                        ],
                    )
                    for topic in range(topics)
                ],
            )
        )

    def theirs() -> Kio:
        return kio_metadata.MetadataResponse(
            throttle_time=kio_metadata.i32Timedelta.parse(timedelta(0)),
            brokers=(
                kio_metadata.MetadataResponseBroker(
                    node_id=1, host="localhost", port=9092, rack=None
                ),
            ),
            cluster_id="cluster",
            controller_id=1,
            topics=tuple(
                kio_metadata.MetadataResponseTopic(
                    error_code=kio_error,
                    name=f"topic-{topic}",
                    topic_id=None,
                    is_internal=False,
                    partitions=tuple(
                        kio_metadata.MetadataResponsePartition(
                            error_code=kio_error,
                            partition_index=index,
                            leader_id=1,
                            leader_epoch=0,
                            replica_nodes=(1,),
                            isr_nodes=(1,),
                            offline_replicas=(),
                        )
                        for index in range(partitions)
                    ),
                )
                for topic in range(topics)
            ),
        )

    name = f"Metadata v12 response, make and write, {topics}x{partitions}"
    return _encoding(name, ours, kio_metadata.MetadataResponse, theirs)
