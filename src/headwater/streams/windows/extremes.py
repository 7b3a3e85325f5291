"""The smallest and the largest value.

This file alone decides how the values of a type are ordered, and which types have an order: as in
Spark, NaN is larger than every other number, -0.0 equals 0.0 (and comes out as 0.0), strings go by
their bytes. Nulls are left out; of nothing but nulls, the result is null.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows import picks
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.columns import taken
from headwater.streams.windows.errors import AggregateTypeError


class _Extreme(Aggregate):
    """The smallest or the largest; a partial result is the same of fewer rows."""

    def __init__(self, kind: pa.DataType, *, largest: bool) -> None:
        self._largest = largest
        self.partials = (kind,)
        self.output = kind

    def update(self, rows: Rows) -> list[pa.Array]:
        """Pick values."""
        assert rows.values is not None
        return self.merge(rows.codes, rows.groups, [rows.values])

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Pick among what was picked."""
        values = one_zero_one_nan(partials[0])
        picked = np.full(groups, -1)
        valid = arrays.validity(values)
        if _is_bytes(values.type):
            offsets, data = arrays.binary(values)
            picks.pick_bytes(offsets, data, valid, codes, picked, self._largest)
        elif pa.types.is_decimal128(values.type):
            halves = arrays.seen(values.buffers()[1], np.int64).reshape(-1, 2)
            halves = halves[values.offset : values.offset + len(values)]
            picks.pick_decimal(halves, valid, codes, picked, self._largest)
        else:
            picks.pick_number(order_of(values), valid, codes, picked, self._largest)
        return [taken(values, picked)]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return what was picked."""
        return partials[0]


def extreme_of(kind: pa.DataType, *, largest: bool) -> Aggregate:
    """Return the minimum or the maximum for values of a type."""
    if not is_ordered(kind):
        raise AggregateTypeError(
            f"{'max' if largest else 'min'} takes values that have an order, and the column is of "
            f"type {kind}",
            hint="take a field of it, or cast it to string",
        )
    return _Extreme(kind, largest=largest)


def is_ordered(kind: pa.DataType) -> bool:
    """Tell whether the values of a type have an order."""
    return bool(
        _is_bytes(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_integer(kind) and kind != pa.uint64())
        or (pa.types.is_floating(kind) and kind != pa.float16())
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def one_zero_one_nan(values: pa.Array) -> pa.Array:
    """Return floating numbers with one zero and one NaN, and all else as it is."""
    if not pa.types.is_floating(values.type):
        return values
    dtype = values.type.to_pandas_dtype()
    numbers = arrays.numbers(values, dtype) + dtype(0)
    numbers[np.isnan(numbers)] = np.nan
    valid = arrays.packed(arrays.validity(values))
    return pa.Array.from_buffers(values.type, len(values), [valid, pa.py_buffer(numbers)])


def order_of(values: pa.Array) -> Int64s:
    """Return whole numbers that are ordered as the values are, whatever lies under nulls."""
    if pa.types.is_boolean(values.type):
        return arrays.bits(values.buffers()[1], values.offset, len(values)).astype(np.int64)
    if pa.types.is_floating(values.type):
        doubles = arrays.numbers(values, values.type.to_pandas_dtype()).astype(np.float64)
        bits = doubles.view(np.int64)
        return arrays.frozen(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))
    if pa.types.is_integer(values.type):
        dtype = values.type.to_pandas_dtype()
    else:
        dtype = np.int32 if values.type.bit_width == 32 else np.int64
    return arrays.frozen(arrays.numbers(values, dtype).astype(np.int64, copy=False))


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}
