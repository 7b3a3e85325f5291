"""The record batch, version 2: the unit in which data is sent, checked, stored and fetched.

This file alone decides where the fields of a batch header lie and what its bits mean. It never
looks at the records behind the header (`records` does), and judges no batch by a broker's rules
(`validation` does).

All numbers are big-endian:

    byte  size  field                 note
       0     8  base_offset           offset of the first record; stamped by the broker
       8     4  batch_length          bytes behind this field: size of the batch - 12
      12     4  leader_epoch          stamped by the broker
      16     1  magic                 2
      17     4  crc                   CRC-32C of everything from byte 21 on
      21     2  attributes            see below
      23     4  last_offset_delta     last offset = base_offset + this, also where compaction has
                                      removed the last record
      27     8  base_timestamp        milliseconds; records carry the difference to it
      35     8  max_timestamp         largest of the records, or the time of the append
      43     8  producer_id           -1: not idempotent
      51     2  producer_epoch
      53     4  base_sequence         sequence number of the first record
      57     4  record_count          0 where compaction has left only the header
      61        records               compressed as one piece

    attributes   bits 0-2   compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
                 bit  3     timestamp type: 0 create time, 1 log append time
                 bit  4     part of a transaction
                 bit  5     control batch: written by the broker, never shown to applications
                 bit  6     base_timestamp is a delete horizon, set by compaction

The checksum starts behind `base_offset` and `leader_epoch`, so a broker can stamp both into a
batch without computing it again: `stamp`.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from headwater.base.errors import CorruptRecordError
from headwater.base.record.crc import crc32c
from headwater.base.record.varint import BytesLike

HEADER: Final = struct.Struct(
    ">"
    "q"  # base_offset
    "i"  # batch_length
    "i"  # leader_epoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # last_offset_delta
    "q"  # base_timestamp
    "q"  # max_timestamp
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # base_sequence
    "i"  # record_count
)
BATCH_HEADER_BYTES: Final = HEADER.size
LENGTH_POS: Final = 8
LEADER_EPOCH_POS: Final = 12
MAGIC_POS: Final = 16
CRC_POS: Final = 17
ATTRIBUTES_POS: Final = 21
MAX_TIMESTAMP_POS: Final = 35
PRODUCER_POS: Final = 43

SIZE_OVERHEAD_BYTES: Final = 12
"""What `batch_length` leaves out: the base offset and the length itself."""

BATCH_LENGTH_MIN: Final = BATCH_HEADER_BYTES - SIZE_OVERHEAD_BYTES

MAGIC: Final = 2

COMPRESSION_MASK: Final = 0b0000_0111
TIMESTAMP_TYPE_MASK: Final = 0b0000_1000
TRANSACTIONAL_MASK: Final = 0b0001_0000
CONTROL_MASK: Final = 0b0010_0000
DELETE_HORIZON_MASK: Final = 0b0100_0000

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")  # producer_id, producer_epoch, base_sequence

_unpack_header = HEADER.unpack_from
_pack_int64 = _INT64.pack_into
_pack_int32 = _INT32.pack_into
_unpack_uint32 = _UINT32.unpack_from


class TruncatedBatchError(CorruptRecordError):
    """The data ends inside a batch: a torn write, or a fetch that was cut at its byte limit."""


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records, as numbers, in their order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + SIZE_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record, also if compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset at which the following batch may start."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; behind 2**31 - 1 follows 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of the records that are left; -1 where compaction has left none."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def codec(self) -> int:
        """Compression of the records: a `codecs.Codec`, or a number that nobody knows."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the records count only when their transaction is committed."""
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        """Whether the one record is a marker; see `control`."""
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether the batch comes from an idempotent producer."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones in here; None before it has first seen them."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None


def parse_header(buffer: BytesLike, pos: int = 0) -> BatchHeader:
    """Read the header at `pos`, judging nothing but that the 61 bytes are there.

    Raises:
        TruncatedBatchError: Fewer are left.
    """
    try:
        return tuple.__new__(BatchHeader, _unpack_header(buffer, pos))
    except struct.error:
        raise TruncatedBatchError(
            f"a batch header needs {BATCH_HEADER_BYTES} bytes,"
            f" {max(len(buffer) - pos, 0)} are left at {pos}"
        ) from None


def scan(buffer: BytesLike, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Walk over batch after batch without looking inside: no checksum, no record.

    Yields:
        The position and the header of each batch that lies wholly in the buffer.

    Raises:
        TruncatedBatchError: The buffer ends inside a batch.
        CorruptRecordError: The size or the magic is impossible, so no next batch can be found.
    """
    end = len(buffer)
    while pos < end:
        header = parse_header(buffer, pos)
        check_frame(header, pos, end)
        yield pos, header
        pos += header.batch_length + SIZE_OVERHEAD_BYTES


def check_frame(header: BatchHeader, pos: int, end: int) -> None:
    """Refuse a header whose magic is not ours or whose batch does not lie within `pos`..`end`.

    Raises:
        TruncatedBatchError: The batch ends beyond `end`.
        CorruptRecordError: The size or the magic is impossible.
    """
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptRecordError(
            f"the batch at {pos} claims a length of {header.batch_length},"
            f" the smallest is {BATCH_LENGTH_MIN}"
        )
    if header.magic != MAGIC:
        raise CorruptRecordError(f"the batch at {pos} has magic {header.magic}, not {MAGIC}")
    if header.size_bytes > end - pos:
        raise TruncatedBatchError(
            f"the batch at {pos} has {header.size_bytes} bytes, {end - pos} are left"
        )


def check_crc(buffer: BytesLike, pos: int, size_bytes: int) -> bool:
    """Tell whether the batch of `size_bytes` at `pos` has the bytes its checksum was made from."""
    body = memoryview(buffer)[pos + ATTRIBUTES_POS : pos + size_bytes]
    stored: int = _unpack_uint32(buffer, pos + CRC_POS)[0]
    return crc32c(body) == stored


def stamp(buffer: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `pos` its place in the log; the checksum stays right."""
    _pack_int64(buffer, pos, base_offset)
    _pack_int32(buffer, pos + LEADER_EPOCH_POS, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, pos: int, max_timestamp: int) -> None:
    """Turn the batch at `pos` to log append time, and make its checksum anew."""
    (batch_length,) = _INT32.unpack_from(buffer, pos + LENGTH_POS)
    (attributes,) = _INT16.unpack_from(buffer, pos + ATTRIBUTES_POS)
    _INT16.pack_into(buffer, pos + ATTRIBUTES_POS, attributes | TIMESTAMP_TYPE_MASK)
    _pack_int64(buffer, pos + MAX_TIMESTAMP_POS, max_timestamp)
    write_crc(buffer, pos, batch_length + SIZE_OVERHEAD_BYTES)


def stamp_transaction(
    buffer: bytearray | memoryview,
    pos: int,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Make the batch at `pos` part of a producer's transaction, and its checksum anew."""
    (batch_length,) = _INT32.unpack_from(buffer, pos + LENGTH_POS)
    (attributes,) = _INT16.unpack_from(buffer, pos + ATTRIBUTES_POS)
    _INT16.pack_into(buffer, pos + ATTRIBUTES_POS, attributes | TRANSACTIONAL_MASK)
    _PRODUCER.pack_into(buffer, pos + PRODUCER_POS, producer_id, producer_epoch, base_sequence)
    write_crc(buffer, pos, batch_length + SIZE_OVERHEAD_BYTES)


def write_crc(buffer: bytearray | memoryview, pos: int, size_bytes: int) -> None:
    """Compute and store the checksum of the batch of `size_bytes` at `pos`."""
    body = memoryview(buffer)[pos + ATTRIBUTES_POS : pos + size_bytes]
    _UINT32.pack_into(buffer, pos + CRC_POS, crc32c(body))
