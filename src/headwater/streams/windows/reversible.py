"""Aggregates that can take values back.

This file alone decides which these are, and how a value is taken back: it is added with the other
sign. Counts, and sums and averages of whole numbers and decimals are exact, so nothing is left of a
value that has gone. Doubles are refused: a large one takes the last bits of small ones with it, and
these would be missing when it is taken back. All others would have to keep every value.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows import exact_sums
from headwater.streams.windows.aggregation import Aggregate, Aggregation, Rows
from headwater.streams.windows.amounts import Count
from headwater.streams.windows.columns import from_words, to_words, words_type

_REVERSIBLE: Final = ("count", "sum", "avg")
_EXACT: Final = (pa.int64(), words_type(2), words_type(4))
"""Counts, and the words of whole numbers and of decimals."""


class Reversible(Aggregate):
    """An aggregate, and of how many values it is: of none, the result is null."""

    def __init__(self, inner: Aggregate) -> None:
        self._inner = inner
        self._count = Count()
        self.partials = (*inner.partials, *self._count.partials)
        self.output = inner.output

    def update(self, rows: Rows) -> list[pa.Array]:
        """Aggregate and count."""
        return [*self._inner.update(rows), *self._count.update(rows)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Merge and add up."""
        return [
            *self._inner.merge(codes, groups, partials[:-1]),
            *self._count.merge(codes, groups, partials[-1:]),
        ]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the results."""
        is_none = arrays.numbers(partials[-1], np.int64) == 0
        chosen = pa.array(np.arange(len(is_none)), mask=is_none)
        return self._inner.finish(
            [
                column if pa.types.is_int64(column.type) else column.take(chosen)
                for column in partials[:-1]
            ]
        )


def maybe_reversible(aggregation: Aggregation) -> Aggregation | None:
    """Return an aggregate that can take values back; None where there is none."""
    inner = aggregation.aggregate
    if aggregation.name not in _REVERSIBLE or not set(inner.partials) <= set(_EXACT):
        return None
    return aggregation._replace(
        aggregate=Reversible(inner), label=f"{aggregation.label}, reversible"
    )


def negated(partials: pa.Array) -> pa.Array:
    """Return the column of partial results that takes these back."""
    if pa.types.is_int64(partials.type):
        return pa.array(-arrays.numbers(partials, np.int64))
    words = to_words(partials)
    sums, seen = np.zeros(words.shape, np.int64), np.zeros(len(words), np.uint8)
    # Adding to nothing gives words the one form that they have in state.
    codes = np.arange(len(words))
    exact_sums.merge_integers(arrays.frozen(-words), arrays.validity(partials), codes, sums, seen)
    return from_words(sums, seen)
