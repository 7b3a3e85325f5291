"""Streams for the tests of windows: rows that come in batches, some of them late, and oracles."""

import itertools
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headwater.streams.kernel.arrays import whole
from headwater.streams.kernel.keys import decode_keys
from tests.streams.kernel.laws import FOREVER, Batch, rows

Arrivals = list[tuple[list[tuple[Any, ...]], int]]

DUCKDB = duckdb.connect(config={"threads": 1})
keys = st.sampled_from(["a", "b", "c", None])
_arrivals = itertools.count()


def arrivals(*values: st.SearchStrategy[Any]) -> st.SearchStrategy[Arrivals]:
    """Batches of (key, time, value...), and by how much the watermark rises with each."""
    event = st.tuples(keys, st.one_of(st.none(), st.integers(-9, 30)), *values)
    return st.lists(st.tuples(st.lists(event, max_size=12), st.integers(0, 25)), max_size=6)


def arriving(listed: Arrivals, values: pa.Schema, *, unknown: int = 0) -> list[Batch]:
    """Return arrivals as batches; for the first ones the watermark may be unknown."""
    batches, offset, mark = [], 0, -10
    for number, (events, by) in enumerate(listed):
        mark += by
        table = rows(events, values, first_offset=offset, topics=("x", "y"))
        batches.append(Batch((table,), None if number < unknown else mark))
        offset += table.num_rows
    return [*batches, Batch((rows([], values, topics=("x", "y")),), FOREVER)]


def told(batch: Batch) -> list[dict[str, Any]]:
    """Return the rows of a batch with their keys as people know them.

    `arrival` rises from row to row and from call to call: rows of one place stand in this order.
    """
    found: list[dict[str, Any]] = _readable(batch.inputs[0]).to_pylist()
    return [row | {"arrival": next(_arrivals)} for row in found]


def ask(query: str, events: pa.Table) -> Sequence[tuple[Any, ...]]:
    """Return what DuckDB answers about `events`; `arrival` is the number of the row."""
    numbers = pa.array(np.arange(events.num_rows))
    DUCKDB.register("events", _readable(events).append_column("arrival", numbers))
    found: Sequence[tuple[Any, ...]] = DUCKDB.execute(query).fetchall()
    return found


def _readable(table: pa.Table) -> pa.Table:
    (names,) = decode_keys(whole(table.column("key").combine_chunks()), [pa.string()])
    return table.set_column(0, "key", names)
