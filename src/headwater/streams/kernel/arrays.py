"""Arrow arrays as the numpy arrays that compiled loops work on.

This file alone decides how the memory of an Arrow array is seen: with its offset taken into
account, never copied where it can be helped, and always read-only, because numba compiles a loop
anew for each kind of array that it is given.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Index = int | np.signedinteger[Any]


class Binary(NamedTuple):
    """Strings of bytes: where each begins in `data`, and the end of the last."""

    offsets: Int32s
    data: Bytes


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array as one that cannot be written: one kind for the compiled loops."""
    view = array.view()
    view.flags.writeable = False
    return view


EVERYTHING: Final[Bytes] = frozen(np.empty(0, np.uint8))
"""As a mask: every row. Most columns have no null, and asking for each row would cost."""


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def seen(buffer: pa.Buffer | None, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """See a buffer as numbers; one that is left out has none."""
    if buffer is None or buffer.size == 0:
        return frozen(np.empty(0, dtype))
    numbers = buffer.size // np.dtype(dtype).itemsize
    return frozen(np.frombuffer(buffer, dtype, count=numbers))


def numbers(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """See an array of fixed width, whatever lies under its nulls."""
    if not len(array):
        return frozen(np.empty(0, dtype))
    return seen(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def int64s(rows: pa.Table, name: str) -> Int64s:
    """See a column of int64s, whatever lies under its nulls."""
    return numbers(whole(rows.column(name)), np.int64)


def binary(array: pa.Array) -> Binary:
    """See an array of strings or bytes; the large types have offsets of 64 bits."""
    is_large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    dtype = np.int64 if is_large else np.int32
    _, offsets, data = array.buffers()[:3]
    if not len(array):
        return Binary(frozen(np.zeros(1, dtype)), EVERYTHING)
    ends = seen(offsets, dtype)[array.offset : array.offset + len(array) + 1]
    return Binary(ends, seen(data, np.uint8))


def bits(buffer: pa.Buffer | None, offset: int, count: int) -> Bytes:
    """Return a byte, 0 or 1, for each of `count` bits behind the first `offset` ones."""
    first = offset // 8
    packed = seen(buffer, np.uint8)[first : (offset + count + 7) // 8]
    return frozen(np.unpackbits(packed, bitorder="little")[offset - 8 * first :][:count])


def validity(array: pa.Array) -> Bytes:
    """Return 1 for each value and 0 for each null, or EVERYTHING where there is no null."""
    if array.null_count == 0:
        return EVERYTHING
    if pa.types.is_null(array.type):
        return frozen(np.zeros(len(array), np.uint8))
    return bits(array.buffers()[0], array.offset, len(array))


def both(present: Bytes, valid: Bytes) -> Bytes:
    """Return the rows that are in both masks."""
    if not len(present) or not len(valid):
        return valid if len(valid) else present
    return frozen(present & valid)


def packed(mask: Bytes) -> pa.Buffer | None:
    """Return the bitmap of a mask: none at all for one without a zero."""
    if len(mask) == 0 or mask.all():
        return None
    return pa.py_buffer(np.packbits(mask, bitorder="little"))
