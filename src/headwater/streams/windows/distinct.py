"""How many different values there are, exactly.

This file alone decides that. Each different value is kept in state for as long as its window: where
these are many, `approx_distinct` is the one to take. NaN is one value, and -0.0 is 0.0. Nulls are
left out.
"""

from collections.abc import Sequence

import pyarrow as pa

from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.columns import flat, lists
from headwater.streams.windows.items import ITEMS, check_item_type, gathered, items_of


class Distinct(Aggregate):
    """The set of values."""

    partials = (ITEMS,)
    output = pa.int64()

    def __init__(self, kind: pa.DataType) -> None:
        check_item_type("distinct", kind)

    def update(self, rows: Rows) -> list[pa.Array]:
        """Gather values."""
        return _sets(*items_of(rows), rows.groups)

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite sets."""
        owners, items = flat(partials[0])
        return _sets(codes[owners], items, groups)

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return how many values each set has."""
        return partials[0].value_lengths().fill_null(0).cast(pa.int64())


def _sets(codes: Int64s, items: pa.Array, groups: int) -> list[pa.Array]:
    found = gathered(codes, items)
    return [lists(found.owners, groups, found.items).cast(ITEMS)]
