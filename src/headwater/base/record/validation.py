"""What a producer may send: the rules a batch must pass before it enters a log.

This file alone decides which batch is refused, and with which of Kafka's error codes. It looks at
the header and the checksum only; whoever must look at records (keys of a compacted topic) does so
afterwards. It knows no topic: limits come as arguments.

The rules, in the order in which they are judged; the codes are those of Apache Kafka 4.3:

    less than a header                                       INVALID_RECORD
    magic 0 or 1: formats older than the protocol allows     INVALID_RECORD
    a magic or a size that no version has                    CORRUPT_MESSAGE
    a batch cut short, or bytes behind it                    INVALID_RECORD
    compression unknown                                      UNSUPPORTED_COMPRESSION_TYPE (1)
    more bytes than max.message.bytes                        MESSAGE_TOO_LARGE
    checksum wrong                                           CORRUPT_MESSAGE
    base offset other than 0                                 INVALID_RECORD
    no record, or last offset delta + 1 other than the count INVALID_RECORD
    more records than so many bytes can hold, however packed INVALID_RECORD
    more than 1,048,576 records                              MESSAGE_TOO_LARGE (3)
    control batch                                            INVALID_RECORD
    delete horizon: only compaction may set one              INVALID_RECORD (2)
    producer id without sequence number                      INVALID_RECORD
    log append time: only the broker may claim it            INVALID_TIMESTAMP (2)

(1) Apache Kafka fails with UNKNOWN_SERVER_ERROR. (2) Apache Kafka lets it pass, as it does a few
bytes behind a batch; and it refuses malformed records, which are not looked at here. So a header
may lie about its records a little, which only its readers notice, but not so much that the offsets
of the log leap ahead. (3) Apache Kafka counts the records instead. zstd packs so well that a batch
of half a megabyte could claim all offsets that a segment can tell apart, and each would need a
segment of its own; clients send a thousandth of that, and split what is too large. A transactional
batch without a producer id is refused by whoever knows the transaction that it was sent in.
"""

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    ATTRIBUTES_POS,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    LENGTH_POS,
    MAGIC,
    SIZE_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    parse_header,
)
from headwater.base.record.codecs import Codec
from headwater.base.record.crc import crc32c
from headwater.base.record.varint import BytesLike

_CODEC_MAX = int(max(Codec))

# A record is seven lengths and deltas of a byte each when there is nothing in it.
_RECORD_BYTES_MIN = 7

# The first power of two above the most that librdkafka can be told to put into a batch; the Java
# client's batches are bounded by their unpacked bytes.
_RECORDS_MAX = 1 << 20

# How many times larger the unpacked bytes can be at most, by codec. Deflate: 258 bytes in two bits;
# snappy: 64 in three bytes; LZ4: 255 a byte of length; zstd: a block of 128 KiB in four bytes.
_EXPANSION_MAX = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: 22,
    Codec.LZ4: 256,
    Codec.ZSTD: 32768,
}
_EXPANSION_BY_CODEC = tuple(_EXPANSION_MAX[codec] for codec in sorted(Codec))
# The length of the smallest message of any format: less is damage, not the start of a batch.
_MESSAGE_LENGTH_MIN = 14
_FORBIDDEN_ATTRIBUTES = CONTROL_MASK | TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK
_unpack_header = HEADER.unpack_from


def validate_for_append(buffer: BytesLike, *, size_max: int) -> BatchHeader:
    """Check that the buffer holds exactly one batch that a client may append.

    Args:
        buffer: What a produce request carries for one partition, and nothing else.
        size_max: The topic's `max.message.bytes`.

    Raises:
        CorruptRecordError: It does not; the code is the one a Kafka client expects.
    """
    buffer_bytes = len(buffer)
    if buffer_bytes < BATCH_HEADER_BYTES:
        raise _explain(buffer, size_max)
    fields = _unpack_header(buffer)
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
    if (
        batch_length == buffer_bytes - SIZE_OVERHEAD_BYTES
        and magic == MAGIC
        and buffer_bytes <= size_max
        and attributes & COMPRESSION_MASK <= _CODEC_MAX
        and not attributes & _FORBIDDEN_ATTRIBUTES
        and base_offset == 0
        and record_count == last_offset_delta + 1
        and 0 < record_count <= _RECORDS_MAX
        and record_count * _RECORD_BYTES_MIN
        <= (buffer_bytes - BATCH_HEADER_BYTES) * _EXPANSION_BY_CODEC[attributes & COMPRESSION_MASK]
        and (producer_id < 0 or base_sequence >= 0)
        and crc32c(memoryview(buffer)[ATTRIBUTES_POS:]) == crc
    ):
        return tuple.__new__(BatchHeader, fields)
    raise _explain(buffer, size_max)


def _explain(buffer: BytesLike, size_max: int) -> CorruptRecordError:
    """Find the first rule that the batch breaks, away from the path of good batches."""
    if len(buffer) < BATCH_HEADER_BYTES:
        if len(buffer) >= SIZE_OVERHEAD_BYTES:
            length_field = buffer[LENGTH_POS:SIZE_OVERHEAD_BYTES]
            batch_length = int.from_bytes(length_field, "big", signed=True)
            if batch_length < _MESSAGE_LENGTH_MIN:
                return _too_short(batch_length)
        return _invalid(
            f"a record batch has at least {BATCH_HEADER_BYTES} bytes, {len(buffer)} were sent"
        )
    header = parse_header(buffer)
    return (
        _explain_frame(header, len(buffer))
        or _explain_size_and_crc(header, buffer, size_max)
        or _explain_fields(header)
    )


def _explain_frame(header: BatchHeader, left: int) -> CorruptRecordError | None:
    if header.magic in {0, 1}:
        return _invalid(f"message format {header.magic} is no longer accepted")
    if header.magic != MAGIC:
        return CorruptRecordError(f"magic {header.magic} is unknown")
    if header.batch_length < BATCH_LENGTH_MIN:
        return _too_short(header.batch_length)
    if header.size_bytes > left:
        return _invalid(f"the batch has {header.size_bytes} bytes, {left} were sent")
    if header.size_bytes < left:
        return _invalid(
            f"exactly one batch is allowed, {left - header.size_bytes} bytes follow the first"
        )
    if header.codec > _CODEC_MAX:
        return CorruptRecordError(
            f"compression {header.codec} is unknown", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    return None


def _explain_size_and_crc(
    header: BatchHeader, buffer: BytesLike, size_max: int
) -> CorruptRecordError | None:
    if header.size_bytes > size_max:
        return CorruptRecordError(
            f"the batch has {header.size_bytes} bytes, the topic allows {size_max}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    actual = crc32c(memoryview(buffer)[ATTRIBUTES_POS:])
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
    packed_bytes = header.size_bytes - BATCH_HEADER_BYTES
    if header.record_count * _RECORD_BYTES_MIN > packed_bytes * _EXPANSION_BY_CODEC[header.codec]:
        return _invalid(f"{header.record_count} records cannot be in {packed_bytes} bytes")
    if header.record_count > _RECORDS_MAX:
        return CorruptRecordError(
            f"the batch has {header.record_count} records, at most {_RECORDS_MAX} are allowed",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    if header.is_control:
        return _invalid("clients may not write control batches")
    if header.attributes & DELETE_HORIZON_MASK:
        return _invalid("only compaction may set a delete horizon")
    if header.has_producer_id and header.base_sequence < 0:
        return _invalid(
            f"producer {header.producer_id} sent the sequence number {header.base_sequence}"
        )
    return CorruptRecordError(
        "only the broker may claim log append time", ErrorCode.INVALID_TIMESTAMP
    )


def _too_short(batch_length: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"the batch length is {batch_length}, the smallest is {BATCH_LENGTH_MIN}"
    )


def _invalid(message: str) -> CorruptRecordError:
    return CorruptRecordError(message, ErrorCode.INVALID_RECORD)
