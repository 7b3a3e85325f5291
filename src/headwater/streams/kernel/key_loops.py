"""The compiled loops that write columns into keys and read them out again.

This file alone decides how the bytes of one field are copied for all rows; which fields a key has,
and in which order, `headwater.streams.kernel.keys` decides. It knows no Arrow.

All go field by field: `cursor` says where the next byte of each row's key lies, and each loop moves
it behind what it has copied. A mask of no length stands for every row.

numba checks no index. Who writes has made room for exactly these lengths; who reads proves for each
field that it lies before the end of its key.
"""

from typing import Final

import numpy as np

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Bytes, Index, Int32s, Int64s

NULL: Final = 0
VALUE: Final = 1
LENGTH_BYTES: Final = 4


@compiled
def write_fixed(
    target: Bytes, cursor: Int64s, present: Bytes, valid: Bytes, values: Bytes, width: int
) -> None:
    """Write a field of fixed width: a tag, and the value where there is one.

    Args:
        target: The keys, one behind the other; written.
        cursor: Where each key goes on; moved.
        present: Which rows have this field at all.
        valid: Which of them have a value.
        values: `width` bytes for each row.
        width: 0 for a field that consists of its tag.
    """
    for row in range(len(cursor)):
        if len(present) > 0 and present[row] == 0:
            continue
        at = cursor[row]
        if len(valid) > 0 and valid[row] == 0:
            target[at] = NULL
            cursor[row] = at + 1
            continue
        target[at] = VALUE
        # With a width that the compiler knows, the copy is one instruction.
        if width == 8:
            _copy(target, at + 1, values, 8 * row, 8)
        elif width == 4:
            _copy(target, at + 1, values, 4 * row, 4)
        else:
            _copy(target, at + 1, values, width * row, width)
        cursor[row] = at + 1 + width


@compiled
def write_bytes(
    target: Bytes, cursor: Int64s, present: Bytes, valid: Bytes, offsets: Int32s, source: Bytes
) -> None:
    """Write a field of any length: a tag, and the length and the bytes where there is a value."""
    for row in range(len(cursor)):
        if len(present) > 0 and present[row] == 0:
            continue
        at = cursor[row]
        if len(valid) > 0 and valid[row] == 0:
            target[at] = NULL
            cursor[row] = at + 1
            continue
        start, length = np.int64(offsets[row]), np.int64(offsets[row + 1]) - np.int64(offsets[row])
        target[at] = VALUE
        for step in range(LENGTH_BYTES):
            target[at + 1 + step] = (length >> (8 * step)) & 255
        _copy(target, at + 1 + LENGTH_BYTES, source, start, length)
        cursor[row] = at + 1 + LENGTH_BYTES + length


@compiled
def read_fixed(
    source: Bytes,
    cursor: Int64s,
    ends: Int32s,
    present: Bytes,
    valid: Bytes,
    values: Bytes,
    width: int,
) -> bool:
    """Read a field of fixed width.

    Args:
        source: The keys.
        cursor: Where each key goes on; moved.
        ends: Where each key ends.
        present: Which rows have this field at all.
        valid: Set to 1 where there is a value, 0 elsewhere; written.
        values: `width` bytes for each row; written where there is a value.
        width: 0 for a field that consists of its tag.

    Returns:
        Whether every field was there.
    """
    for row in range(len(cursor)):
        valid[row] = 0
        if len(present) > 0 and present[row] == 0:
            continue
        at = cursor[row]
        if at >= ends[row] or source[at] > VALUE:
            return False
        if source[at] == NULL:
            cursor[row] = at + 1
            continue
        if ends[row] - at - 1 < width:
            return False
        valid[row] = 1
        _copy(values, width * row, source, at + 1, width)
        cursor[row] = at + 1 + width
    return True


@compiled
def find_bytes(
    source: Bytes, cursor: Int64s, ends: Int32s, present: Bytes, valid: Bytes, lengths: Int64s
) -> bool:
    """Note how long a field is in each key, and move the cursor behind it; see `read_fixed`."""
    for row in range(len(cursor)):
        valid[row] = 0
        lengths[row] = 0
        if len(present) > 0 and present[row] == 0:
            continue
        at, end = cursor[row], np.int64(ends[row])
        if at >= end or source[at] > VALUE:
            return False
        if source[at] == NULL:
            cursor[row] = at + 1
            continue
        if end - at - 1 < LENGTH_BYTES:
            return False
        length = np.int64(0)
        for step in range(LENGTH_BYTES):
            length |= np.int64(source[at + 1 + step]) << (8 * step)
        if length > end - at - 1 - LENGTH_BYTES:
            return False
        valid[row] = 1
        lengths[row] = length
        cursor[row] = at + 1 + LENGTH_BYTES + length
    return True


@compiled
def gather(source: Bytes, cursor: Int64s, lengths: Int64s, offsets: Int64s, target: Bytes) -> None:
    """Copy the bytes that lie before the cursor, as `find_bytes` has left it, into one piece."""
    for row in range(len(cursor)):
        _copy(target, offsets[row], source, cursor[row] - lengths[row], lengths[row])


@compiled
def _copy(target: Bytes, to: Index, source: Bytes, at: Index, length: Index) -> None:
    # Unsigned, because a negative index would count from the end.
    first, origin = np.uint64(to), np.uint64(at)
    for step in range(np.uint64(length)):
        target[first + step] = source[origin + step]
