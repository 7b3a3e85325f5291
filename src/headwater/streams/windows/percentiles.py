"""Percentiles, with a known error or exactly.

This file alone decides which value a percentile is. NaN is larger than every other number. Nulls
are left out; of nothing but nulls, it is null.

With an error: the smallest value that so many of the values do not exceed, and at most 0.8 % away
from it. Numbers are counted in bins, 64 of them between a power of two and the next: the bin of a
double is in its uppermost bits, and no logarithm has to be the same on all machines. A bin stands
for its middle. Data that spans nine orders of magnitude fills at most 2,000 bins; numbers below
1e-309 count as 0.

Exactly: all values are kept in state, and between two of them lies what SQL's PERCENTILE_CONT says.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.amounts import is_whole
from headwater.streams.windows.columns import flat, lists
from headwater.streams.windows.errors import AggregateTypeError
from headwater.streams.windows.extremes import one_zero_one_nan, order_of

_BIN_SHIFT: Final = 52 - 6
_BINS: Final = pa.list_(pa.int32())
_COUNTS: Final = pa.list_(pa.int64())
_VALUES: Final = pa.list_(pa.float64())
_NOT_SIGN: Final = np.int64(2**63 - 1)


class _Sketch(Aggregate):
    """How many values are in each bin."""

    partials = (_BINS, _COUNTS)
    output = pa.float64()

    def __init__(self, share: Fraction) -> None:
        self._share = share

    def update(self, rows: Rows) -> list[pa.Array]:
        """Count values."""
        codes, doubles = _doubles(rows)
        bins = order_of(doubles) >> _BIN_SHIFT
        return _binned(codes, bins, np.ones(len(bins), np.int64), rows.groups)

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add counts."""
        owners, bins = flat(partials[0])
        counts = arrays.numbers(partials[1].flatten(), np.int64)
        found = arrays.numbers(bins, np.int32).astype(np.int64)
        return _binned(codes[owners], found, counts, groups)

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Walk along the bins until so many values are behind."""
        bins = arrays.numbers(partials[0].flatten(), np.int32).astype(np.int64)
        middles = _middles(bins)
        counts = arrays.numbers(partials[1].flatten(), np.int64)
        lengths = partials[0].value_lengths().fill_null(0).to_numpy()
        ends = np.cumsum(lengths)
        running = np.cumsum(counts)
        result: list[float | None] = []
        for length, end in zip(lengths.tolist(), ends.tolist(), strict=True):
            if not length:
                result.append(None)
                continue
            before = int(running[end - length - 1]) if end > length else 0
            total = int(running[end - 1]) - before
            rank = max(1, math.ceil(self._share * total))
            at = np.searchsorted(running[end - length : end], before + rank)
            result.append(float(middles[end - length + at]))
        return pa.array(result, pa.float64())


class _AllValues(Aggregate):
    """All values, in their order."""

    partials = (_VALUES,)
    output = pa.float64()

    def __init__(self, share: Fraction) -> None:
        self._share = share

    def update(self, rows: Rows) -> list[pa.Array]:
        """Gather values."""
        return _sorted(*_doubles(rows), rows.groups)

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite lists."""
        owners, values = flat(partials[0])
        return _sorted(codes[owners], values, groups)

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return what lies at the place."""
        values = arrays.numbers(partials[0].flatten(), np.float64)
        lengths = partials[0].value_lengths().fill_null(0).to_numpy()
        starts = np.cumsum(lengths) - lengths
        result: list[float | None] = []
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            if not length:
                result.append(None)
                continue
            place = self._share * (length - 1)
            lower = start + math.floor(place)
            result.append(_between(values[lower : lower + 2], float(place % 1)))
        return pa.array(result, pa.float64())


def percentile_of(kind: pa.DataType, *, p: float = 0.5, exact: bool = False) -> Aggregate:
    """Return the percentile for values of a type.

    Args:
        kind: The type.
        p: Between 0 and 1.
        exact: Whether to keep all values.
    """
    if not (is_whole(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)):
        raise AggregateTypeError(
            f"percentile takes numbers, and the column is of type {kind}",
            hint="cast the column to double",
        )
    if not 0 <= p <= 1:
        raise AggregateTypeError(f"there is no percentile {p}", hint="give p between 0 and 1")
    # As it was written: of ten values, 0.3 of them are three, though the double is less than 0.3.
    share = Fraction(repr(float(p)))
    return _AllValues(share) if exact else _Sketch(share)


def _between(neighbours: npt.NDArray[np.float64], rest: float) -> float:
    """Return what lies so far behind the first of two values; the last of all has no second."""
    first = float(neighbours[0])
    # What is equal stays what it is, which parts of it added up may not; and no infinity is
    # multiplied with nothing.
    if not rest or first == neighbours[1]:
        return first
    return float(neighbours[1]) * rest + first * (1 - rest)


def _doubles(rows: Rows) -> tuple[Int64s, pa.Array]:
    assert rows.values is not None
    values, codes = rows.values, rows.codes
    if values.null_count:
        codes, values = codes[arrays.validity(values).view(np.bool_)], values.drop_null()
    return codes, one_zero_one_nan(values.cast(pa.float64(), safe=False))


def _binned(codes: Int64s, bins: Int64s, counts: Int64s, groups: int) -> list[pa.Array]:
    # A bin has 18 bits with its sign.
    pairs = (codes << 18) + (bins + (1 << 17))
    found, places = np.unique(pairs, return_inverse=True)
    totals = np.zeros(len(found), np.int64)
    np.add.at(totals, places, counts)
    owners = found >> 18
    numbers = (found & ((1 << 18) - 1)) - (1 << 17)
    return [
        lists(owners, groups, pa.array(numbers.astype(np.int32))).cast(_BINS),
        lists(owners, groups, pa.array(totals)).cast(_COUNTS),
    ]


def _middles(bins: Int64s) -> npt.NDArray[np.float64]:
    order = (bins << _BIN_SHIFT) + (1 << (_BIN_SHIFT - 1))
    middles = np.where(order < 0, order ^ _NOT_SIGN, order).view(np.float64)
    edges = (bins << _BIN_SHIFT).view(np.float64)
    # Infinity and NaN have bins whose edge they are; minus infinity the one below all others.
    middles = np.where((bins >= 0) & ~np.isfinite(edges), edges, middles)
    middles = np.where(bins == _MINUS_INFINITY, -np.inf, middles)
    return np.where((bins == 0) | (bins == -1), 0.0, middles)


def _sorted(codes: Int64s, values: pa.Array, groups: int) -> list[pa.Array]:
    doubles = arrays.numbers(values, np.float64)
    order = np.lexsort((doubles, codes))
    return [lists(codes[order], groups, pa.array(doubles[order])).cast(_VALUES)]


_MINUS_INFINITY: Final = int(order_of(pa.array([-math.inf]))[0]) >> _BIN_SHIFT
