"""The order of rows within their keys.

This file alone decides how rows are compared: null is smaller than every value, NaN larger than
every number, -0.0 equals 0.0, and strings go by their bytes, as in Spark. It knows no state.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.extremes import is_ordered, one_zero_one_nan, order_of

_NUMBERED = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_temporal,
)


class Order(NamedTuple):
    """A column that rows are ordered by.

    Attributes:
        column: Its name.
        descending: Whether the largest is the first.
    """

    column: str
    descending: bool = False


def check_order_type(name: str, kind: pa.DataType) -> None:
    """Refuse a column whose values have no order.

    Raises:
        WindowSettingError: They have none.
    """
    if not is_ordered(kind):
        raise WindowSettingError(
            f"rows cannot be ordered by {name}, which is of type {kind}",
            hint="take a field of it, or cast it to string",
        )


def ranks_of(values: pa.Array) -> Int64s:
    """Return whole numbers that are ordered as the values are; 0 for null."""
    values = one_zero_one_nan(values)
    if any(is_kind(values.type) for is_kind in _NUMBERED):
        ranks = 1 + np.unique(order_of(values), return_inverse=True)[1]
    else:
        coded = values.dictionary_encode()
        of_dictionary = np.empty(len(coded.dictionary) + 1, np.int64)
        sorted_ones = pc.sort_indices(coded.dictionary).to_numpy()
        of_dictionary[sorted_ones] = np.arange(1, len(sorted_ones) + 1)
        ranks = of_dictionary[coded.indices.fill_null(0).to_numpy()]
    valid = arrays.validity(values)
    found: Int64s = np.where(valid == 1, ranks, 0) if len(valid) else ranks
    return found


def sort_keys(rows: pa.Table, order: Sequence[Order]) -> list[Int64s]:
    """Return what rows are compared by, the most important first."""
    found = []
    for column, descending in order:
        ranks = ranks_of(arrays.whole(rows.column(column)))
        found.append(-ranks if descending else ranks)
    return found


def sorted_rows(keys: Sequence[npt.NDArray[np.int64]]) -> Int64s:
    """Return the numbers of rows in the order of keys, the most important first."""
    found: Int64s = np.lexsort(tuple(reversed(keys)))
    return found


def places_within(codes: Int64s) -> Int64s:
    """Return, for codes in ascending order, how many of the same code stand before each."""
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])[: len(codes)]
    lengths = np.diff(np.r_[starts, len(codes)])
    return np.arange(len(codes)) - np.repeat(starts, lengths)
