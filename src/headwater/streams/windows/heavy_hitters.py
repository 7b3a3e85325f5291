"""The values that come most often.

This file alone decides how they are found: by the summary of Misra and Gries. Each group has a
number of counters. While its values are not more than that, they are counted exactly. Where they
are more, those with the smallest counts are let go, and all that stay are taken down by the largest
count that was let go, which is remembered: no value came oftener than its count and what was
remembered. That is less than a thousandth of the values that were counted.

What is let go depends on the batches, not on their pieces.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.keys import decode_keys
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.amounts import add_up
from headwater.streams.windows.columns import flat, lists
from headwater.streams.windows.errors import AggregateTypeError
from headwater.streams.windows.items import ITEMS, check_item_type, gathered, items_of

_COUNTERS_MIN: Final = 1000
_COUNTERS_EACH: Final = 10
_COUNTS: Final = pa.list_(pa.int64())


class HeavyHitters(Aggregate):
    """Up to `k` values with their counts, the commonest first.

    A result is a list of structs: `value`, `count`, and `error`, by which the count may be too low.
    """

    partials = (ITEMS, _COUNTS, pa.int64())

    def __init__(self, kind: pa.DataType, *, k: int = 10) -> None:
        check_item_type("heavy_hitters", kind)
        if k < 1:
            raise AggregateTypeError(f"heavy_hitters cannot find {k} values", hint="give k >= 1")
        self._kind = kind
        self._k = k
        self._counters = max(_COUNTERS_MIN, _COUNTERS_EACH * k)
        self.output = pa.list_(
            pa.struct([("value", kind), ("count", pa.int64()), ("error", pa.int64())])
        )

    def update(self, rows: Rows) -> list[pa.Array]:
        """Count values."""
        codes, items = items_of(rows)
        counted = _counted(codes, items, np.ones(len(codes), np.int64), rows.groups)
        return [*counted, pa.array(np.zeros(rows.groups, np.int64))]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Add counts, all of them."""
        owners, items = flat(partials[0])
        counts = arrays.numbers(partials[1].flatten(), np.int64)
        errors = pa.array(add_up(codes, groups, partials[2]))
        return [*_counted(codes[owners], items, counts, groups), errors]

    def trim(self, partials: list[pa.Array]) -> list[pa.Array]:
        """Let the rarest values go where there are more than there are counters."""
        lengths = partials[0].value_lengths().fill_null(0).to_numpy()
        if not (lengths > self._counters).any():
            return partials
        owners, items = flat(partials[0])
        counts = arrays.numbers(partials[1].flatten(), np.int64)
        order, ranks = _commonest(owners, counts, lengths)
        cuts = np.zeros(len(lengths), np.int64)
        is_cut = ranks == self._counters
        cuts[owners[order[is_cut]]] = counts[order[is_cut]]
        counts = counts - cuts[owners]
        kept = np.flatnonzero(counts > 0)
        errors = arrays.numbers(partials[2], np.int64) + cuts
        return [
            lists(owners[kept], len(lengths), items.take(pa.array(kept))).cast(ITEMS),
            lists(owners[kept], len(lengths), pa.array(counts[kept])).cast(_COUNTS),
            pa.array(errors),
        ]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the commonest values."""
        lengths = partials[0].value_lengths().fill_null(0).to_numpy()
        owners, items = flat(partials[0])
        counts = arrays.numbers(partials[1].flatten(), np.int64)
        order, ranks = _commonest(owners, counts, lengths)
        chosen = order[ranks < self._k]
        (values,) = decode_keys(items.take(pa.array(chosen)), [self._kind])
        errors = arrays.numbers(partials[2], np.int64)[owners[chosen]]
        fields = [values, pa.array(counts[chosen]), pa.array(errors)]
        found = pa.StructArray.from_arrays(fields, fields=list(self.output.value_type))
        return lists(owners[chosen], len(lengths), found).cast(self.output)


def _counted(codes: Int64s, items: pa.Array, counts: Int64s, groups: int) -> list[pa.Array]:
    found = gathered(codes, items)
    totals = np.zeros(len(found.items), np.int64)
    np.add.at(totals, found.places, counts)
    return [
        lists(found.owners, groups, found.items).cast(ITEMS),
        lists(found.owners, groups, pa.array(totals)).cast(_COUNTS),
    ]


def _commonest(owners: Int64s, counts: Int64s, lengths: Int64s) -> tuple[Int64s, Int64s]:
    """Return an order of all items, each group's commonest first, and the rank of each in it.

    Items of one count stay in the order of their bytes.
    """
    order = np.lexsort((-counts, owners))
    starts = np.cumsum(lengths) - lengths
    return order, np.arange(len(owners)) - starts[owners[order]]
