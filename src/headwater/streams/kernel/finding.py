"""Looking keys up in the runs of a table.

This file alone decides which rows a table has for a key: those of the newest run that has them, if
they are neither graves nor gone. What it costs follows the keys that are asked for: chunks whose
hashes lie elsewhere are not loaded, and of the others only what a search touches.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays, table_loops
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.runs import GRAVE, HASH, KEY, Piece, Run, Shape


class Matches(NamedTuple):
    """The rows of keys.

    Attributes:
        codes: For each row which of the keys it has; ascending.
        rows: The rows, without their keys; those of one key in their order.
    """

    codes: Int64s
    rows: pa.Table


class _Places(NamedTuple):
    """Where rows lie: for each the key that it has, the number of its piece, and the row in it."""

    codes: Int64s
    pieces: Int64s
    rows: Int64s


def find(
    shape: Shape, runs: Sequence[Run], keys: pa.BinaryArray, columns: Sequence[str]
) -> Matches:
    """Find the rows of keys, of which no two are equal, in runs from the oldest to the newest."""
    pieces = [(piece, run) for run in reversed(runs) for piece in run.pieces]
    places = _newest(shape, pieces, keys) if shape.order else _only(pieces, keys)
    order = np.argsort(places.pieces, kind="stable")
    parts: list[pa.RecordBatch] = []
    alive = np.ones(len(order), np.bool_)
    cuts = np.searchsorted(places.pieces[order], np.arange(len(pieces) + 1))
    for number in np.flatnonzero(np.diff(cuts)):
        piece, run = pieces[number]
        part = order[cuts[number] : cuts[number + 1]]
        batch = piece.chunk.load()
        alive[part] = _is_alive(batch, run.floors, places.rows[part])
        taken = places.rows[part[alive[part]]]
        parts.append(batch.select(list(columns)).take(pa.array(taken)))
    schema = pa.schema([shape.schema.field(name) for name in columns])
    rows = pa.Table.from_batches(parts, schema).combine_chunks()
    taken_from = order[alive[order]]
    if len(parts) > 1:
        rows = rows.take(pa.array(np.argsort(taken_from, kind="stable")))
    return Matches(places.codes[alive], rows)


def _only(pieces: Sequence[tuple[Piece, Run]], keys: pa.BinaryArray) -> _Places:
    """Find the newest row of each key, where a key has one at most in each run."""
    search = _Search(keys)
    found_in = np.full(len(keys), -1, np.int64)
    rows = np.zeros(len(keys), np.int64)
    for number, (piece, _) in enumerate(pieces):
        wanted = search.between(piece)
        if len(wanted):
            starts, ends = search.search(piece, wanted)
            found = ends > starts
            rows[wanted[found]] = starts[found]
            found_in[wanted[found]] = number
            search.forget(found_in >= 0)
    codes = np.flatnonzero(found_in >= 0)
    return _Places(codes, found_in[codes], rows[codes])


def _newest(shape: Shape, pieces: Sequence[tuple[Piece, Run]], keys: pa.BinaryArray) -> _Places:
    """Find the rows of each key, and of those with the same order the newest."""
    search = _Search(keys)
    found = [_Places(*(np.empty((3, 0), np.int64)))]
    orders = [np.empty((len(shape.order), 0), np.int64)]
    for number, (piece, _) in enumerate(pieces):
        wanted = search.between(piece)
        if not len(wanted):
            continue
        starts, ends = search.search(piece, wanted)
        counts = ends - starts
        rows = _ranges(starts, counts)
        batch = piece.chunk.load()
        columns = [arrays.numbers(batch.column(name), np.int64)[rows] for name in shape.order]
        orders.append(np.stack(columns))
        found.append(_Places(np.repeat(wanted, counts), np.full(len(rows), number), rows))
    codes, numbers, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    lines = np.concatenate(orders, axis=1)
    # Pieces are numbered from the newest on: of equal rows the newest comes first.
    index = np.lexsort((numbers, *reversed(lines), codes))
    same = np.zeros(len(index), np.bool_)
    same[1:] = np.diff(codes[index]) == 0
    for line in lines:
        same[1:] &= line[index[1:]] == line[index[:-1]]
    index = index[~same]
    return _Places(codes[index], numbers[index], rows[index])


def _ranges(starts: Int64s, counts: Int64s) -> Int64s:
    """Return the numbers from each start on, as many as its count says, in one list."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + counts, counts) + np.arange(total, dtype=np.int64)


class _Search:
    """Keys that are looked for, sorted as runs are."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        assert keys.type == pa.binary(), f"keys are {keys.type}"
        self._offsets, self._data = arrays.binary(keys)
        self._hashed = arrays.frozen(hashes(keys))
        self._wanted = np.argsort(self._hashed).astype(np.int64, copy=False)
        self._sorted = self._hashed[self._wanted]

    def between(self, piece: Piece) -> Int64s:
        """Return the keys whose hashes are among those of a piece, sorted by hash."""
        start = np.searchsorted(self._sorted, np.uint64(piece.first), "left")
        stop = np.searchsorted(self._sorted, np.uint64(piece.last), "right")
        return self._wanted[start:stop]

    def forget(self, found: Bools) -> None:
        """Look no more for keys that were found."""
        left = ~found[self._wanted]
        self._wanted, self._sorted = self._wanted[left], self._sorted[left]

    def search(self, piece: Piece, wanted: Int64s) -> tuple[Int64s, Int64s]:
        """Return the first row of each key in a piece, and the one behind its last."""
        batch = piece.chunk.load()
        offsets, data = arrays.binary(batch.column(KEY))
        found = np.empty((2, len(wanted)), np.int64)
        table_loops.search(
            wanted,
            self._hashed,
            self._offsets,
            self._data,
            arrays.numbers(batch.column(HASH), np.uint64),
            offsets,
            data,
            found,
        )
        return found[0], found[1]


def _is_alive(batch: pa.RecordBatch, floors: Mapping[str, int], rows: Int64s) -> Bools:
    """Tell which rows of a chunk are neither graves nor below a floor."""
    alive = np.ones(len(rows), np.bool_)
    if GRAVE in batch.schema.names:
        alive &= ~_bit_of(batch.column(GRAVE), 1, rows)
    for name, floor in floors.items():
        column = batch.column(name)
        below = arrays.numbers(column, np.int64)[rows] < floor
        if column.null_count:
            below &= _bit_of(column, 0, rows)
        alive &= ~below
    return alive


def _bit_of(column: pa.Array, number: int, rows: Int64s) -> Bools:
    """Return the bits of some rows in a bitmap of a column."""
    bitmap = arrays.seen(column.buffers()[number], np.uint8)
    at = rows + column.offset
    bits: Bools = (bitmap[at >> 3] >> (at & 7).astype(np.uint8)) & 1 == 1
    return bits
