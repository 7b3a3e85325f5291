"""The compiled walk over records: from the bytes of batches to the buffers of Arrow columns.

This file alone decides how the records part of a batch is read on Spark's way; the layout of a
record is described in `headwater.base.record.records`. It is handed unpacked bytes and where the
batches lie in them, and knows neither checksums, transactions nor Arrow.

It goes in two steps. `find_records` proves record after record and notes where the fields of each
lie, in `rows`: a line of numbers for each field, a column for each record. `gather` copies one
field of all records into one piece. So the buffers can be made exactly as large as they must be,
and the inner loops hold few arrays: with all of them at hand in one loop, it ran at a quarter of
the speed, because numba counts references wherever an array is handed on.

numba checks no index. Every read is proven to lie before the end of its record, and every record
before the end of its batch; what is gathered was proven before.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.streams.compiled import compiled

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

# A batch in the table of batches: where its records lie, and what their differences are added to.
BATCH_START: Final = 0
BATCH_END: Final = 1
BATCH_RECORD_COUNT: Final = 2
BATCH_BASE_OFFSET: Final = 3
BATCH_LAST_OFFSET_DELTA: Final = 4
BATCH_TIMESTAMP: Final = 5
BATCH_TIMESTAMP_TYPE: Final = 6

# The lines of `rows`; a length of -1 is null.
OFFSET: Final = 0
TIMESTAMP_US: Final = 1
TIMESTAMP_TYPE: Final = 2
KEY_AT: Final = 3
KEY_BYTES: Final = 4
VALUE_AT: Final = 5
VALUE_BYTES: Final = 6
HEADERS_AT: Final = 7
HEADER_COUNT: Final = 8
ROW_FIELDS: Final = 9

# The lines of what `find_headers` notes.
HEADER_KEY_AT: Final = 0
HEADER_KEY_BYTES: Final = 1
HEADER_VALUE_AT: Final = 2
HEADER_VALUE_BYTES: Final = 3
HEADER_FIELDS: Final = 4

# The cursor: the batch, the record in it, the byte and the offset that it goes on behind; and how
# many rows were found.
AT_BATCH: Final = 0
AT_RECORD: Final = 1
AT_BYTE: Final = 2
AT_OFFSET_DELTA: Final = 3
ROW_COUNT: Final = 4
CURSOR_FIELDS: Final = 5

# What `find_records` returns: all read, enough for one go, or what is wrong with the next record.
DONE: Final = 0
FULL: Final = 1
BAD_LENGTH: Final = 2
BAD_NUMBER: Final = 3
BAD_FIELD: Final = 4
BAD_HEADERS: Final = 5
BAD_END: Final = 6
BAD_OFFSET: Final = 7
BAD_TAIL: Final = 8

_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10
# The bits that the last byte of a number of 32 or 64 bits may have.
_VARINT_LAST_MAX: Final = 15
_VARLONG_LAST_MAX: Final = 1
_NOWHERE: Final = -1
_POSITIVE_MASK: Final = 0x7FFF_FFFF_FFFF_FFFF
_LOG_APPEND_TIME: Final = 1

# Spark counts microseconds in 64 bits: what a producer claims beyond the year 294247 stays there.
_TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000


@compiled
def find_records(
    source: Bytes,
    batches: Int64s,
    offsets: tuple[int, int],
    bytes_max: int,
    rows: Int64s,
    cursor: Int64s,
) -> int:
    """Note the records from `offsets[0]` on and below `offsets[1]`.

    Args:
        source: Unpacked bytes.
        batches: A line for each batch, see `BATCH_START`.
        offsets: The first offset that is wanted, and the first that is not any more.
        bytes_max: How many bytes the noted records may have together, if they are more than one.
        rows: What is noted, from its beginning on: see `OFFSET`.
        cursor: Where to go on; moved. A new one is all zeros.

    Returns:
        DONE, FULL, or what is wrong with the record that the cursor has reached.
    """
    room_bytes = bytes_max
    cursor[ROW_COUNT] = 0
    while cursor[AT_BATCH] < len(batches):
        batch = batches[cursor[AT_BATCH]]
        if cursor[AT_RECORD] == 0:
            cursor[AT_BYTE] = batch[BATCH_START]
            cursor[AT_OFFSET_DELTA] = -1
        outcome, room_bytes = _find_in_batch(source, batch, offsets, room_bytes, rows, cursor)
        if outcome != DONE:
            return outcome
        cursor[AT_BATCH] += 1
        cursor[AT_RECORD] = 0
    return DONE


@compiled
def _find_in_batch(
    source: Bytes,
    batch: Int64s,
    offsets: tuple[int, int],
    room_bytes: int,
    rows: Int64s,
    cursor: Int64s,
) -> tuple[int, int]:
    """Return the outcome, and how many bytes may still be noted."""
    start, end = cursor[AT_BYTE], batch[BATCH_END]
    row, last_delta = cursor[ROW_COUNT], cursor[AT_OFFSET_DELTA]
    outcome = DONE
    for record in range(cursor[AT_RECORD], batch[BATCH_RECORD_COUNT]):
        cursor[AT_RECORD] = record
        length, at = _read_number(source, start, end, _VARINT_BYTES_MAX)
        if at == _NOWHERE or length < 0 or length > end - at:
            return BAD_NUMBER if at == _NOWHERE else BAD_LENGTH, room_bytes
        if row == rows.shape[1] or (length > room_bytes and row > 0):
            outcome = FULL
            break
        delta, fault = _read_record(source, at, at + length, batch, rows, row)
        # Whoever goes on in the middle of a batch relies on each offset being there once.
        if fault == DONE and not last_delta < delta <= batch[BATCH_LAST_OFFSET_DELTA]:
            fault = BAD_OFFSET
        if fault != DONE:
            return fault, room_bytes
        if rows[OFFSET, row] >= offsets[1]:
            return DONE, room_bytes
        start, last_delta = at + length, delta
        if rows[OFFSET, row] >= offsets[0]:
            row += 1
            room_bytes -= length
            cursor[ROW_COUNT] = row
    cursor[AT_BYTE], cursor[AT_OFFSET_DELTA] = start, last_delta
    if outcome == DONE and start != end:
        outcome = BAD_TAIL
    return outcome, room_bytes


@compiled
def _read_record(
    source: Bytes, at: int, end: int, batch: Int64s, rows: Int64s, row: int
) -> tuple[int, int]:
    """Note a record in `rows`, and return the difference of its offset and what is wrong."""
    # The first byte, the attributes, carries nothing.
    timestamp_delta, at = _read_number(source, at + 1, end, _VARLONG_BYTES_MAX)
    if at == _NOWHERE:
        return 0, BAD_NUMBER
    offset_delta, at = _read_number(source, at, end, _VARINT_BYTES_MAX)
    if at == _NOWHERE:
        return 0, BAD_NUMBER
    key_bytes, key_at = _read_length(source, at, end)
    if key_at == _NOWHERE:
        return 0, BAD_FIELD
    value_bytes, value_at = _read_length(source, key_at + max(key_bytes, 0), end)
    if value_at == _NOWHERE:
        return 0, BAD_FIELD
    at = value_at + max(value_bytes, 0)
    header_count, headers_at = _read_number(source, at, end, _VARINT_BYTES_MAX)
    if headers_at == _NOWHERE:
        return 0, BAD_NUMBER
    rows[OFFSET, row] = batch[BATCH_BASE_OFFSET] + offset_delta
    rows[TIMESTAMP_US, row] = _timestamp_us(batch, timestamp_delta)
    rows[TIMESTAMP_TYPE, row] = batch[BATCH_TIMESTAMP_TYPE]
    rows[KEY_AT, row] = key_at
    rows[KEY_BYTES, row] = key_bytes
    rows[VALUE_AT, row] = value_at
    rows[VALUE_BYTES, row] = value_bytes
    rows[HEADERS_AT, row] = headers_at
    rows[HEADER_COUNT, row] = header_count
    at = _end_of_headers(source, headers_at, end, header_count)
    if at == _NOWHERE:
        return offset_delta, BAD_HEADERS
    return offset_delta, DONE if at == end else BAD_END


@compiled
def _timestamp_us(batch: Int64s, delta: int) -> int:
    timestamp_ms = batch[BATCH_TIMESTAMP]
    if batch[BATCH_TIMESTAMP_TYPE] != _LOG_APPEND_TIME:
        timestamp_ms += delta
    timestamp_us: int = 1000 * min(max(timestamp_ms, -_TIMESTAMP_MS_MAX), _TIMESTAMP_MS_MAX)
    return timestamp_us


@compiled
def _end_of_headers(source: Bytes, at: int, end: int, count: int) -> int:
    if count < 0 or count > end - at:
        return _NOWHERE
    for _ in range(count):
        key_bytes, key_at = _read_length(source, at, end)
        if key_at == _NOWHERE or key_bytes < 0:
            return _NOWHERE
        value_bytes, value_at = _read_length(source, key_at + key_bytes, end)
        if value_at == _NOWHERE:
            return _NOWHERE
        at = value_at + max(value_bytes, 0)
    return at


@compiled
def _read_length(source: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the length of a field and where it begins: nowhere if it ends behind `end`."""
    length, at = _read_number(source, at, end, _VARINT_BYTES_MAX)
    if at == _NOWHERE or length < -1 or length > end - at:
        return 0, _NOWHERE
    return length, at


@compiled
def _read_number(source: Bytes, at: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Return a number and the position behind it: nowhere if it is cut or too long."""
    folded = np.int64(0)
    for index in range(min(bytes_max, end - at)):
        byte = np.int64(source[at + index])
        folded |= (byte & 0x7F) << (7 * index)
        if byte < 128:
            last_max = _VARINT_LAST_MAX if bytes_max == _VARINT_BYTES_MAX else _VARLONG_LAST_MAX
            if index == bytes_max - 1 and byte > last_max:
                break
            return int(((folded >> 1) & _POSITIVE_MASK) ^ -(folded & 1)), at + index + 1
    return 0, _NOWHERE


@compiled
def find_headers(source: Bytes, headers_at: Int64s, counts: Int64s, found: Int64s) -> None:
    """Note where the headers of records lie that were found before: see `HEADER_KEY_AT`."""
    end = len(source)
    header = 0
    for row in range(len(headers_at)):
        at = headers_at[row]
        for _ in range(counts[row]):
            key_bytes, key_at = _read_length(source, at, end)
            value_bytes, value_at = _read_length(source, key_at + key_bytes, end)
            found[HEADER_KEY_AT, header] = key_at
            found[HEADER_KEY_BYTES, header] = key_bytes
            found[HEADER_VALUE_AT, header] = value_at
            found[HEADER_VALUE_BYTES, header] = value_bytes
            at = value_at + max(value_bytes, 0)
            header += 1


@compiled
def gather(
    source: Bytes, at: Int64s, lengths: Int64s, offsets: Int32s, data: Bytes, valid: Bytes
) -> None:
    """Copy a field of all records into one piece, in Arrow's layout.

    Args:
        source: Where the fields lie.
        at: Where each begins.
        lengths: How long each is; -1 is null.
        offsets: Where each begins in `data`, and the end of the last; written.
        data: Exactly as long as all of them; written.
        valid: A bit for each, all set: those of nulls are cleared.
    """
    filled = 0
    offsets[0] = 0
    for row in range(len(at)):
        length = lengths[row]
        if length < 0:
            valid[row >> 3] &= np.uint8(255 - (1 << (row & 7)))
        else:
            _copy(data, filled, source, at[row], length)
            filled += length
        offsets[row + 1] = filled


@compiled
def _copy(target: Bytes, to: int, source: Bytes, at: int, length: int) -> None:
    # Unsigned, because a negative index would count from the end: without that question the loop
    # becomes wide instructions, and is fifteen times as fast.
    first, origin = np.uint64(to), np.uint64(at)
    for step in range(np.uint64(length)):
        target[first + step] = source[origin + step]
