"""Rows on their way to their bucket: aggregated already, and still counted one by one.

This file alone decides which columns such rows have: those that say whose they are and where the
first of them comes from, how many events they stand for, and the partial results; and that a row
without a time is late whatever the window.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.operator import KEY, OFFSET, PARTITION, TIME, TOPIC
from headwater.streams.windows.results import refuse_retractions

EVENTS: Final = "events"
"""How many events a row stands for: late ones are counted as events."""


def combined(rows: pa.Table, timed_ones: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Return rows aggregated before they travel; what has no time is only counted.

    Args:
        rows: All rows.
        timed_ones: Aggregates those that have a time.

    Raises:
        RetractionError: One of them takes another back.
    """
    refuse_retractions(rows, "hf.window")
    times = arrays.whole(rows.column(TIME))
    if not times.null_count:
        return timed_ones(rows)
    timed = timed_ones(rows.filter(times.is_valid()))
    return pa.concat_tables([timed, counted_only(rows.filter(times.is_null()), timed)])


def late_rows(
    rows: pa.Table, previous: int | None, closing: Callable[[Int64s], Int64s]
) -> tuple[Bools, Int64s]:
    """Tell which rows come too late, and for how long they have been; those without a time are.

    Args:
        rows: The rows.
        previous: The watermark against which they are late.
        closing: Returns, for their times, the watermark from which on they are.
    """
    times = arrays.whole(rows.column(TIME))
    is_timeless: Bools = times.is_null().to_numpy(zero_copy_only=False)
    if previous is None:
        return is_timeless, np.zeros(len(is_timeless), np.int64)
    closings = closing(arrays.numbers(times, np.int64))
    is_late = ~is_timeless & (closings <= previous)
    return is_timeless | is_late, np.where(is_late, previous - closings, 0)


def late_events(rows: pa.Table, is_late: Bools) -> int:
    """Return how many events came too late; those without a time were counted before."""
    is_timed = arrays.whole(rows.column(TIME)).is_valid().to_numpy(zero_copy_only=False)
    return int(events_of(rows)[is_late & is_timed].sum())


def combined_rows(
    rows: pa.Table, firsts: Int64s, events: Int64s, columns: dict[str, pa.Array]
) -> pa.Table:
    """Return a row for each group.

    Args:
        rows: All rows.
        firsts: The first row of each group.
        events: How many rows each group has.
        columns: What else there is of each group; the first is its time.
    """
    chosen = pa.array(firsts)
    result = {KEY: arrays.whole(rows.column(KEY)).take(chosen), TIME: columns[TIME]}
    for name in (TOPIC, PARTITION, OFFSET):
        if name in rows.column_names:
            result[name] = arrays.whole(rows.column(name)).take(chosen)
    return pa.table(result | {EVENTS: pa.array(events.astype(np.int64))} | columns)


def counted_only(rows: pa.Table, like: pa.Table) -> pa.Table:
    """Return one row, if any, that says how many rows there are, and nothing else about them."""
    first = rows.slice(0, 1)
    columns = {
        field.name: first.column(field.name)
        if field.name in {KEY, TOPIC, PARTITION, OFFSET}
        else pa.nulls(first.num_rows, field.type)
        for field in like.schema
    }
    columns[EVENTS] = pa.array([rows.num_rows] * first.num_rows, pa.int64())
    return pa.table(columns)


def events_of(rows: pa.Table) -> Int64s:
    """Return how many events each row stands for."""
    if EVENTS not in rows.column_names:
        return np.ones(rows.num_rows, np.int64)
    found: Int64s = arrays.numbers(arrays.whole(rows.column(EVENTS)), np.int64)
    return found
