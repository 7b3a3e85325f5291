"""Where rows lie in state besides under their key: by their time, or by a part of it.

This file alone decides how a stretch of time, or the identity of a row, becomes part of the key of
a table. A table finds rows by their whole key and nothing else, so what is to be found by time must
lie under its time.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.operator import KEY, TIME
from headwater.streams.kernel.table import Table

STRETCH_US: Final = 1_000_000
"""What lies together in a table by time. All of a stretch is read when the watermark passes through
it, so it is about as long as a batch takes."""


def under_number(keys: pa.BinaryArray, codes: Int64s) -> pa.BinaryArray:
    """Return keys with a number behind each: eight bytes, so that no two can be mistaken."""
    return pc.binary_join_element_wise(keys, number_keys(codes), b"")


def under_name(keys: pa.BinaryArray, names: pa.BinaryArray) -> pa.BinaryArray:
    """Return keys with a name behind each, and the length of the key behind both."""
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    return pc.binary_join_element_wise(keys, names, number_keys(lengths), b"")


def number_keys(codes: Int64s) -> pa.BinaryArray:
    """Return numbers as keys of eight bytes."""
    ends = np.arange(0, 8 * len(codes) + 1, 8, dtype=np.int32)
    data = np.ascontiguousarray(codes, "<i8")
    return pa.Array.from_buffers(
        pa.binary(), len(codes), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )


def stretch_keys(times: Int64s) -> pa.BinaryArray:
    """Return the keys under which rows of these times lie in a table by time."""
    return number_keys(times // STRETCH_US)


def due(table: Table, since: int | None, before: int) -> pa.Table:
    """Return the rows of a table by time that are older than `before`, in the table's order.

    Args:
        table: Its rows lie under `stretch_keys`; `time` is the first column of its order.
        since: No row in it is older; None where that is not known.
        before: In microseconds.
    """
    if not table.runs:
        return table.schema.empty_table()
    last = (before - 1) // STRETCH_US
    if since is None or last - since // STRETCH_US >= sum(run.rows for run in table.runs):
        rows = table.scan().drop_columns([KEY])
    else:
        stretches = np.arange(since // STRETCH_US, last + 1)
        rows = table.find(number_keys(stretches)).rows
    order = [(name, "ascending") for name in table.order]
    rows = rows.filter(pc.less(rows.column(TIME), before))
    return rows.take(pc.sort_indices(rows, sort_keys=order)) if rows.num_rows else rows
