"""Merging runs: which rows of several runs still count.

This file alone decides it. A row counts if no newer run has one with its key and order, and if it
is neither a grave nor gone. Where older runs stay behind what is merged, graves stay too, and so
does, as a grave, what is gone by a column whose older value might not be below the floor.

Large runs are merged in parts, each with the hashes between two bounds, so that memory and the
offsets of Arrow's columns, which have 32 bits, suffice for tables of any size.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays, table_loops
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.runs import GRAVE, HASH, KEY, Run, Shape, orders_of

_PART_BYTES: Final = 64 * 1024 * 1024


def merge(
    shape: Shape,
    runs: Sequence[Run],
    added: pa.RecordBatch | None,
    columns: Sequence[str],
    *,
    oldest: bool,
) -> Iterator[pa.RecordBatch]:
    """Merge runs, from the oldest to the newest, and rows that are added behind them.

    Args:
        shape: Of the table.
        runs: What is merged.
        added: Sorted rows, newer than all runs.
        columns: Which columns are wanted.
        oldest: Whether no run is older than these: then graves and what is gone are left out.

    Yields:
        The rows, sorted, with hash and key, and with graves where there are some.
    """
    floored = {name for run in runs for name in run.floors}
    columns = [name for name in shape.schema.names if name in columns]
    needed = [
        name
        for name in shape.schema.names
        if name in columns or name in shape.order or name in floored
    ]
    bounds = _bounds(runs)
    for start, stop in zip(bounds, [*bounds[1:], None], strict=True):
        parts = [
            [
                _between(piece.chunk.load(), start, stop)
                for piece in run.pieces
                if piece.last >= start and (stop is None or piece.first < stop)
            ]
            for run in runs
        ]
        if added is not None:
            parts.append([_between(added, start, stop)])
        yield _merged(shape, runs, parts, needed, columns, oldest=oldest)


def _bounds(runs: Sequence[Run]) -> list[int]:
    """Return the hashes with which parts begin: from the first on, each has about so many bytes."""
    bounds, size = [0], 0
    pieces = sorted((piece.first, piece.chunk.bytes) for run in runs for piece in run.pieces)
    for first, piece_bytes in pieces:
        if size >= _PART_BYTES and first > bounds[-1]:
            bounds.append(first)
            size = 0
        size += piece_bytes
    return bounds


def _between(batch: pa.RecordBatch, start: int, stop: int | None) -> pa.RecordBatch:
    """Return the rows whose hashes lie from `start` on and below `stop`."""
    if start == 0 and stop is None:
        return batch
    hashed = arrays.numbers(batch.column(HASH), np.uint64)
    first = int(np.searchsorted(hashed, np.uint64(start)))
    behind = len(hashed) if stop is None else int(np.searchsorted(hashed, np.uint64(stop)))
    return batch.slice(first, behind - first)


def _merged(
    shape: Shape,
    runs: Sequence[Run],
    parts: Sequence[Sequence[pa.RecordBatch]],
    needed: Sequence[str],
    columns: Sequence[str],
    *,
    oldest: bool,
) -> pa.RecordBatch:
    """Merge the parts of runs; there may be one more part than runs."""
    graves = any(GRAVE in batch.schema.names for part in parts for batch in part)
    schema = shape.chunk_schema(needed, graves=graves)
    rows = _one_batch([_with_columns(batch, schema) for part in parts for batch in part], schema)
    if len(parts) == 1 and not graves and not any(run.floors for run in runs):
        return rows.select(shape.chunk_schema(columns, graves=False).names)
    ends = [0, *np.cumsum([sum(batch.num_rows for batch in part) for part in parts]).tolist()]
    index = _newest(rows, shape, ends)
    is_grave = np.zeros(rows.num_rows, np.bool_)
    if graves:
        column = rows.column(GRAVE)
        is_grave |= arrays.bits(column.buffers()[1], column.offset, len(column)).view(np.bool_)
    is_gone = np.zeros(rows.num_rows, np.bool_)
    for run, start, stop in zip(runs, ends, ends[1:], strict=False):
        for name, floor in run.floors.items():
            below = _below(rows.column(name).slice(start, stop - start), floor)
            # An older version of the row is as old only if the column is an order column.
            target = is_gone if oldest or name in shape.order else is_grave
            target[start:stop] |= below
    if oldest:
        is_gone |= is_grave
    index = index[~is_gone[index]]
    return _taken(rows, shape, index, None if oldest else is_grave[index], columns)


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of the schema; what has no graves gets a column of none."""
    columns = [
        batch.column(name)
        if name in batch.schema.names
        else pa.array(np.zeros(batch.num_rows, np.bool_))
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _one_batch(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not batches:
        return pa.RecordBatch.from_arrays(
            [pa.nulls(0, part.type) for part in schema], schema=schema
        )
    if len(batches) == 1:
        return batches[0]
    columns = [arrays.whole(column) for column in pa.Table.from_batches(batches, schema).columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _newest(rows: pa.RecordBatch, shape: Shape, ends: Sequence[int]) -> Int64s:
    """Return which rows count, in order, if those between two `ends` each are sorted."""
    hashed = arrays.numbers(rows.column(HASH), np.uint64)
    offsets, data = arrays.binary(rows.column(KEY))
    orders = orders_of(rows, shape.order)
    index = np.arange(ends[-2], ends[-1], dtype=np.int64)
    # From the newest on, so that what is merged twice is little.
    for number in range(len(ends) - 3, -1, -1):
        older = np.arange(ends[number], ends[number + 1], dtype=np.int64)
        merged = np.empty(len(older) + len(index), np.int64)
        count = table_loops.merge(older, index, hashed, offsets, data, orders, merged)
        index = merged[:count]
    return index


def _below(column: pa.Array, floor: int) -> Bools:
    """Tell which values are below the floor; nulls are not."""
    mask: Bools = arrays.numbers(column, np.int64) < floor
    valid = arrays.validity(column)
    return mask & valid.view(np.bool_) if len(valid) else mask


def _taken(
    rows: pa.RecordBatch,
    shape: Shape,
    index: Int64s,
    is_grave: Bools | None,
    columns: Sequence[str],
) -> pa.RecordBatch:
    """Take rows; where there is a grave, nothing but what tells which row it is for."""
    graves = is_grave is not None and bool(is_grave.any())
    wanted = pa.array(index)
    values = pa.array(index, mask=is_grave) if graves else wanted
    schema = shape.chunk_schema(columns, graves=graves)
    taken = [
        pa.array(is_grave)
        if name == GRAVE
        else rows.column(name).take(wanted if name in (HASH, KEY, *shape.order) else values)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(taken, schema=schema)
