"""Which well-formed batch a topic's configs refuse.

This file alone decides that; whether the batch is well-formed was decided before, and whether its
producer is in order is decided by `producers`.

    larger than a whole segment                                       RECORD_LIST_TOO_LARGE
    part of a transaction that no producer could end                  INVALID_PRODUCER_ID_MAPPING
    timestamps too far ahead of or behind the broker's clock          INVALID_TIMESTAMP
    (`message.timestamp.after.max.ms`, `message.timestamp.before.max.ms`; not with log append time)

Timestamps are judged by the header, the first and the largest: records are not unpacked for it.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import TRANSACTIONAL_MASK, BatchHeader
from headwater.base.settings import TopicConfig


def check_admitted(config: TopicConfig, header: BatchHeader, size: int, now_ms: int) -> None:
    """Refuse a batch that the topic's configs do not allow.

    Raises:
        KafkaError: With the code that a Kafka client expects.
    """
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, a segment {config.segment_bytes}",
        )
    if header.producer_id < 0 and header.attributes & TRANSACTIONAL_MASK:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the batch is part of a transaction of producer {header.producer_id}",
        )
    max_timestamp = header.max_timestamp
    if config.message_timestamp_type == "LogAppendTime" or max_timestamp < 0:
        return
    if (
        max_timestamp - now_ms > config.message_timestamp_after_max_ms
        or now_ms - header.base_timestamp > config.message_timestamp_before_max_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamps from {header.base_timestamp} to {max_timestamp} are too far from"
            f" the broker's time {now_ms}",
        )
