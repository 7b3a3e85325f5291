"""The compiled way back: from fields of rows to the records part of a batch.

This file alone decides how rows are written on Spark's way; the layout of a record is described in
`headwater.base.record.records`. It knows neither Arrow nor partitions, nor the header of a batch.

A *field* of all rows is three arrays: bytes, where each row's part begins in them, and how long it
is (-1 is null). A record has three: key, value, and the *tail*, its headers as they are written.

It goes in two steps, as reading does. `lay_out` writes the numbers of record after record and notes
where the fields of each go; `scatter` copies one field of all of them there. numba checks no index:
`lay_out` ends before a record that does not fit.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.streams.compiled import compiled

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

# The lines of `lengths`: of key, value and tail; and of `places`, where these go.
KEY: Final = 0
VALUE: Final = 1
TAIL: Final = 2
FIELD_COUNT: Final = 3

# The state of a batch that is being written.
RECORD_COUNT: Final = 0
FILLED_BYTES: Final = 1
BASE_TIMESTAMP: Final = 2
MAX_TIMESTAMP: Final = 3
STATE_FIELDS: Final = 4

_UNSIGNED_MASK: Final = 0x1FF_FFFF_FFFF_FFFF


@compiled
def measure(lengths: Int64s, sizes: Int64s) -> None:
    """Write how many bytes each row has as a record that is alone in its batch."""
    for row in range(len(sizes)):
        body = _body_bytes(lengths, row, 0, 0)
        sizes[row] = _number_bytes(body) + body


@compiled
def lay_out(
    order: Int64s,
    lengths: Int64s,
    timestamps: Int64s,
    limit_bytes: int,
    batch: Bytes,
    state: Int64s,
    places: Int64s,
) -> int:
    """Write the numbers of records behind those that a batch has already.

    Args:
        order: The rows to write.
        lengths: Of the three fields, by row.
        timestamps: In milliseconds, by row.
        limit_bytes: Where the batch has to end, unless its first record is larger.
        batch: The bytes; must have room for `limit_bytes`, and for any single record.
        state: How far the batch is; moved.
        places: Where the fields of each go, by their place in `order`; written.

    Returns:
        How many rows were written: all, or as many as fit.
    """
    at = state[FILLED_BYTES]
    for index in range(len(order)):
        row = order[index]
        if state[RECORD_COUNT] == 0:
            state[BASE_TIMESTAMP] = timestamps[row]
            state[MAX_TIMESTAMP] = timestamps[row]
        timestamp = timestamps[row] - state[BASE_TIMESTAMP]
        body = _body_bytes(lengths, row, timestamp, state[RECORD_COUNT])
        if at + _number_bytes(body) + body > limit_bytes and state[RECORD_COUNT] > 0:
            return index
        at = _write_number(batch, at, body)
        batch[np.uint64(at)] = 0
        at = _write_number(batch, at + 1, timestamp)
        at = _write_number(batch, at, state[RECORD_COUNT])
        at = _write_number(batch, at, lengths[KEY, row])
        places[KEY, index] = at
        at = _write_number(batch, at + max(lengths[KEY, row], 0), lengths[VALUE, row])
        places[VALUE, index] = at
        at += max(lengths[VALUE, row], 0)
        places[TAIL, index] = at
        at += lengths[TAIL, row]
        state[RECORD_COUNT] += 1
        state[FILLED_BYTES] = at
        state[MAX_TIMESTAMP] = max(state[MAX_TIMESTAMP], timestamps[row])
    return len(order)


@compiled
def scatter(
    order: Int64s, source: Bytes, at: Int64s, lengths: Int64s, batch: Bytes, places: Int64s
) -> None:
    """Copy one field of the rows to the places that were laid out for it."""
    for index in range(len(order)):
        row = order[index]
        _copy(batch, places[index], source, at[row], max(lengths[row], 0))


@compiled
def tail_bytes(counts: Int64s, key_lengths: Int64s, value_lengths: Int64s, sizes: Int64s) -> None:
    """Write how many bytes the headers of each row have; they lie one behind another."""
    header = 0
    for row in range(len(counts)):
        size = _number_bytes(counts[row])
        for _ in range(counts[row]):
            size += _number_bytes(key_lengths[header]) + key_lengths[header]
            size += _number_bytes(value_lengths[header]) + max(value_lengths[header], 0)
            header += 1
        sizes[row] = size


@compiled
def write_tails(
    counts: Int64s, key_lengths: Int64s, value_lengths: Int64s, tails: Bytes, places: Int64s
) -> None:
    """Write the numbers of all rows' headers, and note where keys and values go."""
    at = header = 0
    for row in range(len(counts)):
        at = _write_number(tails, at, counts[row])
        for _ in range(counts[row]):
            at = _write_number(tails, at, key_lengths[header])
            places[KEY, header] = at
            at = _write_number(tails, at + key_lengths[header], value_lengths[header])
            places[VALUE, header] = at
            at += max(value_lengths[header], 0)
            header += 1


@compiled
def _body_bytes(lengths: Int64s, row: int, timestamp: int, offset: int) -> int:
    """Return the length of a record behind its length."""
    length: int = (
        1
        + _number_bytes(timestamp)
        + _number_bytes(offset)
        + _number_bytes(lengths[KEY, row])
        + max(lengths[KEY, row], 0)
        + _number_bytes(lengths[VALUE, row])
        + max(lengths[VALUE, row], 0)
        + lengths[TAIL, row]
    )
    return length


@compiled
def _number_bytes(number: int) -> int:
    folded = (number << 1) ^ (number >> 63)
    count = 1
    # All bits but the lowest seven, without those that a shift of a negative number copies.
    rest = (folded >> 7) & _UNSIGNED_MASK
    while rest:
        count += 1
        rest >>= 7
    return count


@compiled
def _write_number(target: Bytes, at: int, number: int) -> int:
    """Write a zigzag number, and return the position behind it."""
    folded = (number << 1) ^ (number >> 63)
    rest = (folded >> 7) & _UNSIGNED_MASK
    while rest:
        target[np.uint64(at)] = np.uint8(folded & 0x7F | 0x80)
        at += 1
        folded = rest
        rest >>= 7
    target[np.uint64(at)] = np.uint8(folded & 0x7F)
    return at + 1


@compiled
def _copy(target: Bytes, to: int, source: Bytes, at: int, length: int) -> None:
    # Unsigned, because a negative index would count from the end: without that question the loop
    # becomes wide instructions, and is fifteen times as fast.
    first, origin = np.uint64(to), np.uint64(at)
    for step in range(np.uint64(length)):
        target[first + step] = source[origin + step]
