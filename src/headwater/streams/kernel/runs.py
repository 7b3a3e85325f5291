"""A run: rows that were sorted once, in chunks, and are never changed.

This file alone decides what a run consists of and how rows become one. What comes before what,
`headwater.streams.kernel.table_loops` decides; `finding` searches runs, and `merging` merges them.

A chunk has the hash of each key and the key, then the columns of the table, and then, in chunks in
which rows were removed, whether the row is a grave: it says that older runs do not count for its
key and order, and has nulls for values.

Rows expire without being touched: a run notes that those below a floor are gone. Floors belong to
the runs that were there when they were set, so a row that comes later is not hidden by them. An
older run has every floor that a newer one has, at least as high.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays, table_loops
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.chunks import Chunk
from headwater.streams.kernel.grouping import hashes

HASH: Final = "#hash"
KEY: Final = "key"
GRAVE: Final = "#grave"

CHUNK_BYTES_MAX: Final = 4 * 1024 * 1024
"""What state stores and their change logs still take as one value."""

_CHUNK_BYTES_AIM: Final = CHUNK_BYTES_MAX * 7 // 8


@dataclass(frozen=True, slots=True)
class Shape:
    """What all runs of a table have in common.

    Attributes:
        schema: The columns besides the key.
        order: Those that tell rows of one key apart.
    """

    schema: pa.Schema
    order: tuple[str, ...]

    def chunk_schema(self, columns: Sequence[str], *, graves: bool) -> pa.Schema:
        """Return the columns of a chunk, or some of them."""
        fields = [pa.field(HASH, pa.uint64(), nullable=False)]
        fields.append(pa.field(KEY, pa.binary(), nullable=False))
        fields.extend(self.schema.field(name) for name in columns)
        if graves:
            fields.append(pa.field(GRAVE, pa.bool_(), nullable=False))
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of a run, and what can be known of it without loading it.

    Attributes:
        chunk: The rows.
        first: The least hash.
        last: The greatest hash.
        graves: Whether some rows only say that there is none.
        spans: The least and the greatest value of each int64 column without nulls.
    """

    chunk: Chunk
    first: int
    last: int
    graves: bool
    spans: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "Piece":
        """Make a piece of sorted rows."""
        chunk = Chunk.of(batch)
        hashed = arrays.numbers(batch.column(HASH), np.uint64)
        spans = {}
        for name in batch.schema.names:
            column = batch.column(name)
            if column.type == pa.int64() and column.null_count == 0:
                values = arrays.numbers(column, np.int64)
                spans[name] = (int(values.min()), int(values.max()))
        graves = GRAVE in batch.schema.names
        return cls(chunk, int(hashed[0]), int(hashed[-1]), graves, spans)


@dataclass(frozen=True, slots=True)
class Run:
    """Sorted rows, of which no two have the same key and order.

    Attributes:
        pieces: The rows, in order.
        floors: Rows whose column is below its floor are gone.
    """

    pieces: tuple[Piece, ...]
    floors: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows there are, those that are gone counted too."""
        return sum(piece.chunk.rows for piece in self.pieces)

    @property
    def is_plain(self) -> bool:
        """Whether each row counts, unless a newer run has it."""
        return not self.floors and not any(piece.graves for piece in self.pieces)

    def expired(self, shape: Shape, column: str, before: int, *, oldest: bool) -> "Run | None":
        """Return the run without the rows whose column is below `before`; none if all are.

        A chunk goes at once if nothing in it counts any more. If the column is an order column, an
        older version of the row is as old; if it is another one, the older version might come to
        light again, unless there is none.
        """
        pieces = self.pieces
        if oldest or column in shape.order:
            pieces = tuple(piece for piece in pieces if not _is_below(piece, column, before))
        if not pieces:
            return None
        if all(_is_above(piece, column, before) for piece in pieces):
            return replace(self, pieces=pieces)
        floor = max(before, self.floors.get(column, before))
        return replace(self, pieces=pieces, floors={**self.floors, column: floor})


def _is_below(piece: Piece, column: str, before: int) -> bool:
    return column in piece.spans and piece.spans[column][1] < before


def _is_above(piece: Piece, column: str, before: int) -> bool:
    return column in piece.spans and piece.spans[column][0] >= before


def cut(rows: Iterable[pa.RecordBatch]) -> Run | None:
    """Make a run of sorted rows; none of no rows."""
    pieces: list[Piece] = []
    for batch in rows:
        count = -(-batch.nbytes // _CHUNK_BYTES_AIM)
        step = -(-batch.num_rows // max(count, 1))
        for start in range(0, batch.num_rows, max(step, 1)):
            pieces.extend(_small_enough(batch.slice(start, step)))
    return Run(tuple(pieces)) if pieces else None


def _small_enough(rows: pa.RecordBatch) -> Iterator[Piece]:
    """Halve rows until each half fits into a chunk, or is one row."""
    piece = Piece.of(rows)
    if piece.chunk.bytes <= CHUNK_BYTES_MAX or rows.num_rows == 1:
        yield piece
        return
    half = rows.num_rows // 2
    yield from _small_enough(rows.slice(0, half))
    yield from _small_enough(rows.slice(half))


def sort(shape: Shape, rows: pa.Table, *, graves: bool) -> pa.RecordBatch:
    """Return rows of the table, or graves for them, as a run has them."""
    count = rows.num_rows
    keys = arrays.whole(rows.column(KEY))
    assert keys.type == pa.binary(), f"keys are {keys.type}"
    assert keys.null_count == 0, "a key is null"
    hashed = hashes(keys)
    offsets, data = arrays.binary(keys)
    orders = orders_of(rows, shape.order)
    index = np.argsort(hashed).astype(np.int64, copy=False)
    is_distinct = table_loops.settle(
        index, arrays.frozen(hashed), offsets, data, orders, np.empty(count, np.int64)
    )
    assert is_distinct, "rows have the same key and order"
    columns = [pa.array(hashed), keys]
    for column in shape.schema:
        is_there = not graves or column.name in shape.order
        found = arrays.whole(rows.column(column.name)) if is_there else pa.nulls(count, column.type)
        assert found.type == column.type, f"{column.name}: {found.type} is not {column.type}"
        columns.append(found)
    if graves:
        columns.append(pa.array(np.ones(count, np.bool_)))
    schema = shape.chunk_schema(shape.schema.names, graves=graves)
    return pa.RecordBatch.from_arrays(columns, schema=schema).take(pa.array(index))


def orders_of(rows: pa.Table | pa.RecordBatch, order: Sequence[str]) -> Int64s:
    """Return a line for each order column."""
    orders = np.empty((len(order), rows.num_rows), np.int64)
    for line, name in enumerate(order):
        column = arrays.whole(rows.column(name))
        assert column.null_count == 0, f"order column {name} has nulls"
        orders[line] = arrays.numbers(column, np.int64)
    return orders
