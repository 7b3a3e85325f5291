"""Records: what a batch carries behind its header.

This file alone decides how keys, values, headers and timestamps become the records part of a
batch and are read back. The header's fields are `batch`'s, compression is `codecs`'.

    record     length          varint, bytes behind this field
               attributes      int8, no bit is in use
               timestamp       varlong, difference to base_timestamp
               offset          varint, difference to base_offset
               key             varint length and bytes; -1 is null
               value           the same
               headers         varint count, then for each a key (varint length and UTF-8) and a
                               value (varint length and bytes; -1 is null)

Reading first proves the batch whole (size, magic, checksum), so what fails afterwards was sent
wrong and carries INVALID_RECORD. Nothing here is on the way of a produced or fetched batch: pure
Python reads 0.7 and writes 2 million records of 100 bytes a second.

Header keys that are not UTF-8 survive a round trip: their bytes come as lone surrogates
(`surrogateescape`), which whoever prints them must replace.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    CONTROL_MASK,
    CREATE_TIME,
    HEADER,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SIZE_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    check_crc,
    check_frame,
    parse_header,
    write_crc,
)
from headwater.base.record.codecs import Codec, compress, decompress
from headwater.base.record.varint import (
    VARINTS,
    BytesLike,
    decode_varint,
    decode_varlong,
    encode_varint,
)

RECORDS_BYTES_MAX: Final = 100 * 1024 * 1024
"""How far a batch may unpack: `socket.request.max.bytes`, the largest request Kafka takes.

A producer holds its records unpacked before it sends them, so an honest batch stays far below.
"""

NULL: Final = encode_varint(-1)
NO_ATTRIBUTES: Final = b"\x00"
NO_HEADERS: Final = encode_varint(0)

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One message: what a producer gave, and where and when it was put."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def iterate(
    buffer: BytesLike, pos: int = 0, *, limit_bytes: int = RECORDS_BYTES_MAX
) -> list[Record]:
    """Read all records of the batch at `pos`.

    Raises:
        CorruptRecordError: The batch is damaged, or its records contradict their lengths.
    """
    header, data = open_batch(buffer, pos, limit_bytes=limit_bytes)
    records: list[Record] = []
    try:
        _read_records(header, data, records)
    except (CorruptRecordError, IndexError) as error:
        raise _malformed(header, len(records), error) from error
    return records


def iterate_timestamps(
    buffer: BytesLike, pos: int = 0, *, limit_bytes: int = RECORDS_BYTES_MAX
) -> list[tuple[int, int]]:
    """Read (offset, timestamp) of every record, skipping over the rest.

    Raises:
        CorruptRecordError: As for `iterate`.
    """
    header, data = open_batch(buffer, pos, limit_bytes=limit_bytes)
    base_offset = header.base_offset
    base_timestamp, append_time = _timestamps_of(header)
    found: list[tuple[int, int]] = []
    add = found.append
    try:
        for timestamp, offset, _start, _end in _walk(header, data):
            add(
                (
                    base_offset + offset,
                    base_timestamp + timestamp if append_time is None else append_time,
                )
            )
    except (CorruptRecordError, IndexError) as error:
        raise _malformed(header, len(found), error) from error
    return found


def iterate_keys(
    buffer: BytesLike, pos: int = 0, *, limit_bytes: int = RECORDS_BYTES_MAX
) -> list[tuple[int, bytes | None]]:
    """Read (offset, key) of every record, skipping over the rest.

    Raises:
        CorruptRecordError: As for `iterate`.
    """
    header, data = open_batch(buffer, pos, limit_bytes=limit_bytes)
    base_offset = header.base_offset
    found: list[tuple[int, bytes | None]] = []
    add = found.append
    try:
        for _timestamp, offset, start, end in _walk(header, data):
            add((base_offset + offset, _read_bytes(data, start, end)[0]))
    except (CorruptRecordError, IndexError) as error:
        raise _malformed(header, len(found), error) from error
    return found


def open_batch(
    buffer: BytesLike, pos: int = 0, *, limit_bytes: int = RECORDS_BYTES_MAX
) -> tuple[BatchHeader, bytes]:
    """Prove the batch at `pos` whole and unpack its records part.

    Raises:
        CorruptRecordError: Size, magic or checksum are wrong, or the data does not unpack.
    """
    header = parse_header(buffer, pos)
    check_frame(header, pos, len(buffer))
    if not check_crc(buffer, pos, header.size_bytes):
        raise CorruptRecordError(f"the batch at {pos} does not have its checksum")
    if header.record_count < 0:
        raise CorruptRecordError(
            f"the batch at {pos} claims {header.record_count} records", ErrorCode.INVALID_RECORD
        )
    packed = memoryview(buffer)[pos + BATCH_HEADER_BYTES : pos + header.size_bytes]
    if header.record_count == 0 and not packed:
        return header, b""
    return header, decompress(header.codec, packed, limit_bytes)


def build_batch(  # noqa: PLR0913  the fields of a header, all but the records optional
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    timestamp_type: int = CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Write a new batch; its records are numbered from `base_offset`, whatever offset they have.

    Numbering without gaps is the only form in which a producer may send a batch.
    """
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    packed = _encode_records(records, base_timestamp)
    if codec != Codec.NONE:
        packed = compress(codec, packed)
    batch = bytearray(BATCH_HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        BATCH_HEADER_BYTES + len(packed) - SIZE_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        codec
        | (TIMESTAMP_TYPE_MASK if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0),
        len(records) - 1,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += packed
    write_crc(batch, 0, len(batch))
    return batch


def _encode_records(records: Sequence[Record], base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    varints = VARINTS
    for offset, (_, timestamp, key, value, headers) in enumerate(records):
        body = b"".join(
            (
                NO_ATTRIBUTES,
                varints[timestamp - base_timestamp],
                varints[offset],
                NULL if key is None else varints[len(key)],
                key or b"",
                NULL if value is None else varints[len(value)],
                value or b"",
                _encode_headers(headers) if headers else NO_HEADERS,
            )
        )
        parts.append(varints[len(body)])
        parts.append(body)
    return b"".join(parts)


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [VARINTS[len(headers)]]
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape")
        parts += (VARINTS[len(name)], name)
        parts += (NULL,) if value is None else (VARINTS[len(value)], value)
    return b"".join(parts)


def _walk(header: BatchHeader, data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (timestamp delta, offset delta, position of the key, end) of every record.

    Numbers of one or two bytes are read in place: calling for each takes half as long again. An
    IndexError out of here means that a record runs past the end of the data.
    """
    at = 0
    size = len(data)
    for _ in range(header.record_count):
        folded = data[at]
        at += 1
        if folded > 127:
            high = data[at]
            if high > 127:
                length, at = decode_varint(data, at - 1)
            else:
                folded += (high - 1) << 7
                length = (folded >> 1) ^ -(folded & 1)
                at += 1
        else:
            length = (folded >> 1) ^ -(folded & 1)
        end = at + length
        if length < 0 or end > size:
            raise CorruptRecordError(f"it claims {length} bytes, {size - at} are left")
        at += 1
        folded = data[at]
        at += 1
        if folded > 127:
            high = data[at]
            if high > 127:
                timestamp, at = decode_varlong(data, at - 1)
            else:
                folded += (high - 1) << 7
                timestamp = (folded >> 1) ^ -(folded & 1)
                at += 1
        else:
            timestamp = (folded >> 1) ^ -(folded & 1)
        folded = data[at]
        at += 1
        if folded > 127:
            high = data[at]
            if high > 127:
                offset, at = decode_varint(data, at - 1)
            else:
                folded += (high - 1) << 7
                offset = (folded >> 1) ^ -(folded & 1)
                at += 1
        else:
            offset = (folded >> 1) ^ -(folded & 1)
        yield timestamp, offset, at, end
        at = end
    if at != size:
        raise CorruptRecordError(f"{size - at} bytes follow the last record")


def _read_records(header: BatchHeader, data: bytes, records: list[Record]) -> None:
    base_offset = header.base_offset
    base_timestamp, append_time = _timestamps_of(header)
    for timestamp, offset, start, end in _walk(header, data):
        # An odd byte is a negative length, one above 127 is a long one: both are rare here.
        folded = data[start]
        if folded > 127 or folded & 1:
            key, at = _read_bytes(data, start, end)
        else:
            at = start + 1 + (folded >> 1)
            key = data[start + 1 : at]
        folded = data[at]
        if folded > 127 or folded & 1:
            value, at = _read_bytes(data, at, end)
        else:
            at += 1 + (folded >> 1)
            value = data[at - (folded >> 1) : at]
        headers: tuple[Header, ...] = ()
        if data[at]:
            headers, at = _read_headers(data, at, end)
        else:
            at += 1
        if at != end:
            raise CorruptRecordError("its fields do not fill its length")
        records.append(
            tuple.__new__(
                Record,
                (
                    base_offset + offset,
                    base_timestamp + timestamp if append_time is None else append_time,
                    key,
                    value,
                    headers,
                ),
            )
        )


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(data, at)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptRecordError(f"a field claims {length} bytes, {end - at} are left")
    return data[at : at + length], at + length


def _read_headers(data: bytes, at: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, at = decode_varint(data, at)
    if not 0 <= count <= end - at:
        raise CorruptRecordError(f"it claims {count} headers, {end - at} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        if name is None:
            raise CorruptRecordError("the key of a header is null")
        value, at = _read_bytes(data, at, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), at


def _timestamps_of(header: BatchHeader) -> tuple[int, int | None]:
    """Return what deltas are added to, and the one timestamp of all records if there is one."""
    is_append_time = header.attributes & TIMESTAMP_TYPE_MASK
    return header.base_timestamp, header.max_timestamp if is_append_time else None


def _malformed(header: BatchHeader, index: int, error: Exception) -> CorruptRecordError:
    cause = error.message if isinstance(error, CorruptRecordError) else "it ends early"
    return CorruptRecordError(
        f"record {index} of {header.record_count}: {cause}", ErrorCode.INVALID_RECORD
    )
