"""Counts, sums, averages and variances.

This file alone decides what they take and give: the types of their results are Spark's. How a sum
is kept, so that neither order nor pieces matter, `exact_sums` decides.

A null is left out; of nothing but nulls, a count is 0 and the rest is null. The variance of a
single number is null, too. NaN makes every sum NaN, and infinities of both signs together do. A sum
of whole numbers or decimals that its type cannot hold is an error in the end, never on the way; a
sum of doubles is then infinite.
"""

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bytes, Int64s
from headwater.streams.windows import exact_sums
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.columns import from_words, to_words, words_type
from headwater.streams.windows.errors import AggregateTypeError, SumOverflowError

_DECIMAL_DIGITS_MAX: Final = 38
_EXACT_IN_DOUBLE: Final = 1 << 53
_ALL_DIGITS: Final = Context(prec=100)
"""More than four words can have; Decimal by itself rounds to 28."""


class Count(Aggregate):
    """How many rows there are, or how many values that are not null."""

    partials = (pa.int64(),)
    output = pa.int64()

    def update(self, rows: Rows) -> list[pa.Array]:
        """Return how many rows of each group count."""
        if rows.values is None or rows.values.null_count == 0:
            counts = np.bincount(rows.codes, minlength=rows.groups)
        else:
            counted = rows.codes[arrays.validity(rows.values).view(np.bool_)]
            counts = np.bincount(counted, minlength=rows.groups)
        return [pa.array(counts.astype(np.int64, copy=False))]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add counts."""
        return [pa.array(add_up(codes, groups, partials[0]))]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the counts."""
        return partials[0]


def add_up(codes: Int64s, groups: int, counts: pa.Array) -> Int64s:
    """Return the sums of counts, which no one lives to see overflow."""
    result = np.zeros(groups, np.int64)
    np.add.at(result, codes, arrays.numbers(counts, np.int64))
    return result


class _IntegerSum(Aggregate):
    """A sum of whole numbers, in two words."""

    partials = (words_type(2),)
    output = pa.int64()

    def update(self, rows: Rows) -> list[pa.Array]:
        """Add up numbers."""
        assert rows.values is not None
        numbers = arrays.numbers(rows.values.cast(pa.int64()), np.int64)
        sums, seen = _nothing(rows.groups, 2)
        exact_sums.add_integers(numbers, arrays.validity(rows.values), rows.codes, sums, seen)
        return [from_words(sums, seen)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up sums."""
        return [_merged_integers(codes, groups, partials[0])]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the sums, if int64 can hold them."""
        words, valid = to_words(partials[0]), arrays.validity(partials[0])
        lower, upper = words[:, 0], words[:, 1]
        is_wide = upper != upper.astype(np.int32)
        if len(valid):
            is_wide &= valid == 1
        if is_wide.any():
            group = int(is_wide.argmax())
            raise SumOverflowError(
                f"the sum {exact_sums.exact_integer_sum(words[group])} is larger than a long",
                group,
                hint="cast the column to decimal(38,0), or to double",
            )
        return _with_nulls(pa.int64(), (upper << 32) + lower, valid)


class _DoubleSum(Aggregate):
    """A sum of doubles, or of their squares."""

    partials = (words_type(exact_sums.DOUBLE_SUM_WORDS),)
    output = pa.float64()

    def __init__(self, *, squared: bool = False) -> None:
        self._squared = squared

    def update(self, rows: Rows) -> list[pa.Array]:
        """Add up numbers."""
        assert rows.values is not None
        bits = arrays.numbers(rows.values.cast(pa.float64(), safe=False), np.int64)
        sums, seen = _nothing(rows.groups, exact_sums.DOUBLE_SUM_WORDS)
        valid = arrays.validity(rows.values)
        exact_sums.add_doubles(bits, valid, rows.codes, sums, seen, self._squared)
        return [from_words(sums, seen)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up sums."""
        sums, seen = _nothing(groups, exact_sums.DOUBLE_SUM_WORDS)
        valid = arrays.validity(partials[0])
        exact_sums.merge_doubles(to_words(partials[0]), valid, codes, sums, seen)
        return [from_words(sums, seen)]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the doubles next to the sums."""
        result = np.empty(len(partials[0]), np.float64)
        exact_sums.round_doubles(to_words(partials[0]), result)
        return _with_nulls(pa.float64(), result, arrays.validity(partials[0]))


class _DecimalSum(Aggregate):
    """A sum of decimals, in four words."""

    partials = (words_type(4),)

    def __init__(self, kind: pa.DataType) -> None:
        self.scale = kind.scale
        self.output = pa.decimal128(min(kind.precision + 10, _DECIMAL_DIGITS_MAX), kind.scale)

    def update(self, rows: Rows) -> list[pa.Array]:
        """Add up numbers."""
        assert rows.values is not None
        halves = arrays.seen(rows.values.buffers()[1], np.int64).reshape(-1, 2)
        halves = halves[rows.values.offset : rows.values.offset + len(rows.values)]
        sums, seen = _nothing(rows.groups, 4)
        exact_sums.add_decimals(halves, arrays.validity(rows.values), rows.codes, sums, seen)
        return [from_words(sums, seen)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up sums."""
        return [_merged_integers(codes, groups, partials[0])]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the sums, if a decimal can hold them."""
        return _decimals(_exact_integers(partials[0]), self.output, "sum")


class _Average(Aggregate):
    """A sum, and of how many numbers it is."""

    def __init__(self, total: Aggregate) -> None:
        self._sum = total
        self._count = Count()
        self.partials = (*total.partials, *self._count.partials)

    def update(self, rows: Rows) -> list[pa.Array]:
        """Add up and count numbers."""
        return [*self._sum.update(rows), *self._count.update(rows)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up sums and counts."""
        return [
            *self._sum.merge(codes, groups, partials[:1]),
            *self._count.merge(codes, groups, partials[1:]),
        ]


class _DoubleAverage(_Average):
    """The average of doubles."""

    output = pa.float64()

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the quotients of the rounded sums and the counts."""
        sums = arrays.numbers(self._sum.finish(partials[:1]), np.float64)
        counts = np.maximum(arrays.numbers(partials[1], np.int64), 1)
        return _with_nulls(pa.float64(), sums / counts, arrays.validity(partials[0]))


class _IntegerAverage(_Average):
    """The average of whole numbers: the double next to what it is."""

    output = pa.float64()

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the averages, by exact division where the sum is no double."""
        words = to_words(partials[0])
        counts = np.maximum(arrays.numbers(partials[1], np.int64), 1)
        sums = words[:, 1].astype(np.float64) * 2.0**32 + words[:, 0]
        result = sums / counts
        for row in np.flatnonzero(np.abs(sums) >= _EXACT_IN_DOUBLE):
            result[row] = exact_sums.exact_integer_sum(words[row]) / int(counts[row])
        return _with_nulls(pa.float64(), result, arrays.validity(partials[0]))


class _DecimalAverage(_Average):
    """The average of decimals, with four digits more, rounded half up."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(_DecimalSum(kind))
        self._digits = min(kind.scale + 4, _DECIMAL_DIGITS_MAX) - kind.scale
        self.output = pa.decimal128(
            min(kind.precision + 4, _DECIMAL_DIGITS_MAX), kind.scale + self._digits
        )

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the averages, if a decimal can hold them."""
        averages = [
            None if total is None else _divided(total * 10**self._digits, count)
            for total, count in zip(
                _exact_integers(partials[0]), partials[1].to_pylist(), strict=True
            )
        ]
        return _decimals(averages, self.output, "average")


class _Spread(Aggregate):
    """The variance of a sample, or its root: null for fewer than two numbers, as in Spark.

    It is computed from the exact sums of the numbers and of their squares, and rounded once.
    """

    output = pa.float64()

    def __init__(self, *, root: bool) -> None:
        self._root = root
        self._parts: tuple[Aggregate, ...] = (_DoubleSum(), _DoubleSum(squared=True), Count())
        self.partials = tuple(part.partials[0] for part in self._parts)

    def update(self, rows: Rows) -> list[pa.Array]:
        """Add up numbers and squares, and count."""
        return [column for part in self._parts for column in part.update(rows)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up sums."""
        return [
            merged
            for part, column in zip(self._parts, partials, strict=True)
            for merged in part.merge(codes, groups, [column])
        ]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return what each group's three sums say."""
        sums, squares = to_words(partials[0]), to_words(partials[1])
        counts = arrays.numbers(partials[2], np.int64)
        result = np.full(len(counts), np.nan)
        is_finite = (sums[:, exact_sums.BINS] | squares[:, exact_sums.BINS]) < exact_sums.NAN
        for row in np.flatnonzero(is_finite & (counts > 1)):
            variance = _variance(sums[row], squares[row], int(counts[row]))
            result[row] = np.sqrt(variance) if self._root else variance
        return _with_nulls(pa.float64(), result, (counts > 1).view(np.uint8))


def _variance(sums: Int64s, squares: Int64s, count: int) -> float:
    total = exact_sums.exact_double_sum(sums)
    spread = count * exact_sums.exact_double_sum(squares) - total * total
    # What was let go of the squares may have been more than what is left.
    spread = max(spread, 0)
    unit = Fraction(1, 2**-exact_sums.LOWEST_SQUARE_EXPONENT)
    try:
        return float(Fraction(spread, count * (count - 1)) * unit)
    except OverflowError:
        return float("inf")


def sum_of(kind: pa.DataType) -> Aggregate:
    """Return the sum for values of a type."""
    if pa.types.is_decimal128(kind):
        return _DecimalSum(kind)
    if is_whole(kind):
        return _IntegerSum()
    if pa.types.is_floating(kind):
        return _DoubleSum()
    raise _not_a_number("sum", kind)


def average_of(kind: pa.DataType) -> Aggregate:
    """Return the average for values of a type."""
    if pa.types.is_decimal128(kind):
        return _DecimalAverage(kind)
    if is_whole(kind):
        return _IntegerAverage(_IntegerSum())
    if pa.types.is_floating(kind):
        return _DoubleAverage(_DoubleSum())
    raise _not_a_number("avg", kind)


def spread_of(kind: pa.DataType, *, root: bool) -> Aggregate:
    """Return the variance, or its root, for values of a type; decimals count as doubles."""
    if not (is_whole(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind)):
        raise _not_a_number("stddev" if root else "variance", kind)
    return _Spread(root=root)


def is_whole(kind: pa.DataType) -> bool:
    """Tell whether a type has whole numbers that a long can hold."""
    return bool(pa.types.is_integer(kind) and kind != pa.uint64())


def _not_a_number(name: str, kind: pa.DataType) -> AggregateTypeError:
    return AggregateTypeError(
        f"{name} takes numbers, and the column is of type {kind}",
        hint="cast the column to bigint, double or decimal",
    )


def _nothing(groups: int, words: int) -> tuple[Int64s, Bytes]:
    return np.zeros((groups, words), np.int64), np.zeros(groups, np.uint8)


def _merged_integers(codes: Int64s, groups: int, partials: pa.Array) -> pa.Array:
    others = to_words(partials)
    sums, seen = _nothing(groups, others.shape[1])
    exact_sums.merge_integers(others, arrays.validity(partials), codes, sums, seen)
    return from_words(sums, seen)


def _exact_integers(partials: pa.Array) -> list[int | None]:
    words, valid = to_words(partials), arrays.validity(partials)
    return [
        exact_sums.exact_integer_sum(words[row]) if not len(valid) or valid[row] else None
        for row in range(len(words))
    ]


def _divided(total: int, count: int) -> int:
    """Return the whole number next to a quotient; between two of them, that farther from 0."""
    quotient, rest = divmod(abs(total), count)
    quotient += 2 * rest >= count
    return quotient if total >= 0 else -quotient


def _decimals(unscaled: Sequence[int | None], kind: pa.DataType, what: str) -> pa.Array:
    limit = 10**kind.precision
    for group, number in enumerate(unscaled):
        if number is not None and abs(number) >= limit:
            raise SumOverflowError(
                f"the {what} {Decimal(number).scaleb(-kind.scale, _ALL_DIGITS)} is larger than a "
                f"decimal({kind.precision},{kind.scale})",
                group,
                hint="cast the column to a decimal with fewer digits, or to double",
            )
    data = b"".join((number or 0).to_bytes(16, "little", signed=True) for number in unscaled)
    valid = np.array([number is not None for number in unscaled], np.uint8)
    return pa.Array.from_buffers(kind, len(unscaled), [arrays.packed(valid), pa.py_buffer(data)])


def _with_nulls(kind: pa.DataType, values: np.ndarray, valid: Bytes) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [arrays.packed(valid), data])
