"""Aggregates of many ranges of rows, without reading a row once for each range that has it.

This file alone decides how that is done: rows are merged by two, these by two again, and so on;
each range is then put together of the largest pieces that fit in. So a range of n rows costs about
2 log n merges. It works for whatever can be merged: nothing has to be subtracted, which doubles
could not be, and minima cannot at all. Where a partial result grows with the rows in it, as a list
does, a range costs what its rows cost.
"""

import numpy as np
import pyarrow as pa

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows.aggregation import Aggregations


def aggregate_ranges(
    aggregations: Aggregations, rows: pa.Table, lows: Int64s, highs: Int64s
) -> pa.Table:
    """Return a partial result for each range.

    Args:
        aggregations: What is computed.
        rows: Rows with their values, in the order that ranges go by.
        lows: The first row of each range.
        highs: The row behind the last; no range is empty.
    """
    count = rows.num_rows
    level = aggregations.update(np.arange(count), count, rows)
    low, high = lows.copy(), highs.copy()
    fronts: list[tuple[Int64s, pa.Table]] = []
    backs: list[tuple[Int64s, pa.Table]] = []
    while len(low) and count:
        table = pa.Table.from_arrays(level, schema=aggregations.partials)
        for is_taken, nodes, ends in (
            ((low < high) & (low & 1 == 1), low, fronts),
            ((low < high) & (high & 1 == 1), high - 1, backs),
        ):
            taken = np.flatnonzero(is_taken)
            ends.append((taken, table.take(pa.array(nodes[taken]))))
        low, high = (low + 1) >> 1, high >> 1
        if not (low < high).any():
            break
        above = (count + 1) // 2
        level = aggregations.merge(np.arange(count) // 2, above, table)
        count = above
    if not fronts:
        return aggregations.partials.empty_table()
    # A range's pieces in the order of its rows: what is equal for an aggregate must keep it.
    owners, pieces = zip(*fronts, *reversed(backs), strict=True)
    found = aggregations.merge(
        np.concatenate(owners), len(lows), pa.concat_tables(pieces).combine_chunks()
    )
    return pa.Table.from_arrays(found, schema=aggregations.partials)


@compiled
def find_ranges(codes: Int64s, times: Int64s, length_us: int, lows: Int64s, highs: Int64s) -> None:
    """Find, for each row, the rows of its key from `length_us` before it up to its own time.

    Args:
        codes: The key of each row, ascending.
        times: When it was, ascending within a key.
        length_us: How far to look back; rows exactly that far count.
        lows: The first such row; written.
        highs: The row behind the last; written.
    """
    low = 0
    for row in range(len(codes)):
        while codes[low] != codes[row] or times[low] < times[row] - length_us:
            low += 1
        lows[row] = low
    high = len(codes)
    for row in range(len(codes) - 1, -1, -1):
        if row + 1 < len(codes) and (codes[row + 1] != codes[row] or times[row + 1] != times[row]):
            high = row + 1
        highs[row] = high
