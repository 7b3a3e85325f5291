"""What a producer may send: the rules a batch must pass before it enters a log.

This file alone decides which batch is refused, and with which of Kafka's error codes. It looks at
the header and the checksum only; whoever must look at records (keys of a compacted topic) does so
afterwards. It knows no topic: limits come as arguments.

The rules, in the order in which Apache Kafka judges them:

    no batch, a truncated one, or bytes behind it            INVALID_RECORD
    a size or a magic that no version has                    CORRUPT_MESSAGE
    magic 0 or 1: formats older than the protocol allows     INVALID_RECORD
    compression unknown                                      UNSUPPORTED_COMPRESSION_TYPE
    more bytes than max.message.bytes                        MESSAGE_TOO_LARGE
    checksum wrong                                           CORRUPT_MESSAGE
    base offset other than 0                                 INVALID_RECORD
    no record, or last offset delta + 1 other than the count INVALID_RECORD
    control batch                                            INVALID_RECORD
    producer id without sequence number                      INVALID_RECORD
    log append time: only the broker may claim it            INVALID_TIMESTAMP
"""

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    ATTRIBUTES_POS,
    BATCH_LENGTH_MIN,
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    MAGIC,
    SIZE_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    parse_header,
)
from headwater.base.record.codecs import ZSTD
from headwater.base.record.crc import crc32c
from headwater.base.record.varint import BytesLike

_FORBIDDEN_ATTRIBUTES = CONTROL_MASK | TIMESTAMP_TYPE_MASK
_unpack_header = HEADER.unpack_from


def validate_for_append(
    buffer: BytesLike, pos: int, end: int, max_message_bytes: int
) -> BatchHeader:
    """Check that `pos`..`end` holds exactly one batch that a client may append.

    Raises:
        CorruptRecordError: It does not; the code is the one a Kafka client expects.
    """
    if end - pos < HEADER.size or len(buffer) < end:
        raise _explain(buffer, pos, end, max_message_bytes)
    fields = _unpack_header(buffer, pos)
    (
        base_offset,
        batch_length,
        _leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _base_timestamp,
        _max_timestamp,
        producer_id,
        _producer_epoch,
        base_sequence,
        record_count,
    ) = fields
    size_bytes = batch_length + SIZE_OVERHEAD_BYTES
    if (
        size_bytes == end - pos
        and magic == MAGIC
        and size_bytes <= max_message_bytes
        and attributes & COMPRESSION_MASK <= ZSTD
        and not attributes & _FORBIDDEN_ATTRIBUTES
        and base_offset == 0
        and record_count == last_offset_delta + 1
        and record_count > 0
        and (producer_id < 0 or base_sequence >= 0)
        and crc32c(memoryview(buffer)[pos + ATTRIBUTES_POS : end]) == crc
    ):
        return tuple.__new__(BatchHeader, fields)
    raise _explain(buffer, pos, end, max_message_bytes)


def _explain(buffer: BytesLike, pos: int, end: int, max_message_bytes: int) -> CorruptRecordError:
    """Find the first rule that the batch breaks, away from the path of good batches."""
    left = min(end, len(buffer)) - pos
    if left < HEADER.size:
        return _invalid(f"a record batch has at least {HEADER.size} bytes, {left} were sent")
    header = parse_header(buffer, pos)
    return (
        _explain_frame(header, left)
        or _explain_size_and_crc(header, buffer, pos, max_message_bytes)
        or _explain_fields(header)
    )


def _explain_frame(header: BatchHeader, left: int) -> CorruptRecordError | None:
    if header.magic in {0, 1}:
        return _invalid(f"message format {header.magic} is no longer accepted")
    if header.magic != MAGIC:
        return CorruptRecordError(f"magic {header.magic} is unknown")
    if header.batch_length < BATCH_LENGTH_MIN:
        return CorruptRecordError(
            f"the batch length is {header.batch_length}, the smallest is {BATCH_LENGTH_MIN}"
        )
    if header.size_bytes > left:
        return _invalid(f"the batch has {header.size_bytes} bytes, {left} were sent")
    if header.size_bytes < left:
        return _invalid(
            f"exactly one batch is allowed, {left - header.size_bytes} bytes follow the first"
        )
    if header.compression > ZSTD:
        return CorruptRecordError(
            f"compression {header.compression} is unknown", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    return None


def _explain_size_and_crc(
    header: BatchHeader, buffer: BytesLike, pos: int, max_message_bytes: int
) -> CorruptRecordError | None:
    if header.size_bytes > max_message_bytes:
        return CorruptRecordError(
            f"the batch has {header.size_bytes} bytes, the topic allows {max_message_bytes}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    actual = crc32c(memoryview(buffer)[pos + ATTRIBUTES_POS : pos + header.size_bytes])
    if actual != header.crc:
        return CorruptRecordError(
            f"the checksum of the batch is {actual:#010x}, its header says {header.crc:#010x}"
        )
    return None


def _explain_fields(header: BatchHeader) -> CorruptRecordError:
    if header.base_offset != 0:
        return _invalid(f"the base offset of a new batch is {header.base_offset}, not 0")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        return _invalid(
            f"{header.record_count} records do not fit a last offset delta of"
            f" {header.last_offset_delta}"
        )
    if header.is_control:
        return _invalid("clients may not write control batches")
    if header.has_producer_id and header.base_sequence < 0:
        return _invalid(
            f"producer {header.producer_id} sent the sequence number {header.base_sequence}"
        )
    return CorruptRecordError(
        "only the broker may claim log append time", ErrorCode.INVALID_TIMESTAMP
    )


def _invalid(message: str) -> CorruptRecordError:
    return CorruptRecordError(message, ErrorCode.INVALID_RECORD)
