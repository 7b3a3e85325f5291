"""How partial results lie in Arrow columns: words of numbers, chosen rows, lists.

This file alone decides that. It knows no aggregate.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bytes, Int64s


def words_type(words: int) -> pa.DataType:
    """Return the type of a column of so many int64 a row."""
    return pa.binary(8 * words)


def from_words(words: Int64s, seen: Bytes) -> pa.Array:
    """Return int64s as a column, null where nothing was seen."""
    rows, width = words.shape
    return pa.FixedSizeBinaryArray.from_buffers(
        words_type(width), rows, [arrays.packed(seen), pa.py_buffer(np.ascontiguousarray(words))]
    )


def to_words(column: pa.Array) -> Int64s:
    """Return a column of words as int64s, zeros or whatever else where it is null."""
    width = column.type.byte_width // 8
    flat = arrays.seen(column.buffers()[1], np.int64)
    start = column.offset * width
    result: Int64s = flat[start : start + len(column) * width].reshape(-1, width)
    return result


def taken(column: pa.Array, rows: Int64s) -> pa.Array:
    """Return the rows with these numbers; null for -1."""
    return column.take(pa.array(rows, mask=rows < 0))


class Flat(NamedTuple):
    """The items of lists, and which list each is from."""

    owners: Int64s
    items: pa.Array


def flat(lists: pa.Array) -> Flat:
    """Take lists apart; those that are null have no items."""
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    return Flat(np.repeat(np.arange(len(lists)), lengths), lists.flatten())


def lists(owners: npt.NDArray[np.int64], count: int, items: pa.Array) -> pa.Array:
    """Put lists together of items that stand in the order of their owners."""
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=ends[1:])
    return pa.ListArray.from_arrays(pa.array(ends), items)
