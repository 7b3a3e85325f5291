"""A keyed table of state: immutable, and a change costs what has changed.

This file alone decides what the state of a table consists of and how it is described. How rows are
kept, `headwater.streams.kernel.runs` decides; when runs are merged, `tiers` beside it.

A table is a list of runs, from the oldest to the newest. What is put or removed becomes a new run;
the newest run that has a key and order decides what the table has for them. Equal operations on
equal tables give equal chunks and descriptions, to the byte.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headwater.streams.kernel import arrays, finding, merging, runs, tiers
from headwater.streams.kernel.canonical import check_value_type
from headwater.streams.kernel.chunks import Chunk, ChunkStore
from headwater.streams.kernel.errors import check_version
from headwater.streams.kernel.finding import Matches
from headwater.streams.kernel.runs import KEY, Piece, Run, Shape

VERSION: Final = 1


class Table:
    """Rows by key, and by order within a key.

    Attributes:
        schema: The columns besides `key`.
        order: The int64 columns, never null, that tell rows of one key apart.
        runs: What it consists of, from the oldest to the newest.
    """

    __slots__ = ("_shape", "_stagger", "order", "runs", "schema")

    def __init__(self, shape: Shape, kept: Sequence[Run], stagger: int) -> None:
        self._shape = shape
        self._stagger = stagger
        self.schema = shape.schema
        self.order = shape.order
        self.runs = tuple(kept)

    @classmethod
    def empty(cls, schema: pa.Schema, order: Sequence[str] = (), *, stagger: int = 0) -> "Table":
        """Return a table without rows.

        Args:
            schema: The columns besides `key`.
            order: The columns that tell rows of one key apart; none: a key has one row at most.
            stagger: Shifts when runs are merged, so that not all buckets do it at once.

        Raises:
            ValueTypeError: State cannot be kept of a column.
        """
        for column in schema:
            check_value_type(column.name, column.type)
        assert KEY not in schema.names, "the key is a column of its own"
        assert len(set(schema.names)) == len(schema.names), "columns need names of their own"
        assert all(schema.field(name).type == pa.int64() for name in order), "order must be int64"
        plain = pa.schema([pa.field(column.name, column.type) for column in schema])
        return cls(Shape(plain, tuple(order)), (), stagger)

    def find(self, keys: pa.BinaryArray, columns: Sequence[str] | None = None) -> Matches:
        """Return the rows of keys, of which no two are equal."""
        names = self.schema.names if columns is None else columns
        return finding.find(self._shape, self.runs, arrays.whole(keys), names)

    def put(self, rows: pa.Table) -> "Table":
        """Return the table with rows added, each in place of the one with its key and order.

        Args:
            rows: `key` and the columns of the table; no two with the same key and order.
        """
        if not rows.num_rows:
            return self
        return self._with(runs.sort(self._shape, rows, graves=False))

    def remove(self, rows: pa.Table) -> "Table":
        """Return the table without some rows; those that are not there are ignored.

        Args:
            rows: `key` and the order columns; no two are equal.
        """
        if not rows.num_rows or not self.runs:
            return self
        return self._with(runs.sort(self._shape, rows, graves=True))

    def expire(self, column: str, before: int) -> "Table":
        """Return the table without the rows whose int64 column is less than `before`."""
        assert self.schema.field(column).type == pa.int64(), "only int64 columns expire"
        left: list[Run] = []
        for run in self.runs:
            rest = run.expired(self._shape, column, before, oldest=not left)
            if rest is not None:
                left.append(rest)
        return Table(self._shape, left, self._stagger)

    def scan(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return `key` and columns of every row, by the hash of the key, the key and the order."""
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([pa.field(KEY, pa.binary()), *(self.schema.field(n) for n in names)])
        if not self.runs:
            return schema.empty_table()
        found = merging.merge(self._shape, self.runs, None, names, oldest=True)
        parts = [
            pa.RecordBatch.from_arrays([part.column(name) for name in schema.names], schema=schema)
            for part in found
        ]
        return pa.Table.from_batches(parts, schema)

    def __len__(self) -> int:
        if len(self.runs) < 2 and all(run.is_plain for run in self.runs):
            return sum(run.rows for run in self.runs)
        found = merging.merge(self._shape, self.runs, None, (), oldest=True)
        return sum(part.num_rows for part in found)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """What a store has to hold for this table."""
        return tuple(piece.chunk for run in self.runs for piece in run.pieces)

    def describe(self) -> dict[str, Any]:
        """Return all but the chunks, as JSON can hold it."""
        return {
            "version": VERSION,
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "order": list(self.order),
            "runs": [
                {
                    "floors": {name: run.floors[name] for name in sorted(run.floors)},
                    "chunks": [_described(piece) for piece in run.pieces],
                }
                for run in self.runs
            ],
        }

    @classmethod
    def restore(
        cls, description: Mapping[str, Any], store: ChunkStore, *, stagger: int = 0
    ) -> "Table":
        """Return the table that was described; its chunks are loaded when they are needed.

        Raises:
            StateDamagedError: Another version has described it.
        """
        check_version(description["version"], VERSION)
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(description["schema"])))
        kept = [
            Run(
                tuple(_restored(piece, store) for piece in run["chunks"]),
                floors=run["floors"],
            )
            for run in description["runs"]
        ]
        return cls(Shape(schema, tuple(description["order"])), kept, stagger)

    def _with(self, added: pa.RecordBatch) -> "Table":
        """Return the table with one more run, merged with those that it makes too small."""
        sizes = [run.rows for run in self.runs]
        count = tiers.kept(sizes, added.num_rows, self._stagger)
        parts: Iterable[pa.RecordBatch] = [added]
        if count < len(sizes):
            parts = merging.merge(
                self._shape, self.runs[count:], added, self.schema.names, oldest=count == 0
            )
        made = runs.cut(parts)
        return Table(self._shape, (*self.runs[:count], *((made,) if made else ())), self._stagger)


def _described(piece: Piece) -> list[Any]:
    spans = {name: list(piece.spans[name]) for name in sorted(piece.spans)}
    chunk = piece.chunk
    return [chunk.name, chunk.rows, chunk.bytes, piece.first, piece.last, piece.graves, spans]


def _restored(described: Sequence[Any], store: ChunkStore) -> Piece:
    name, rows, size, first, last, graves, spans = described
    chunk = Chunk(name, rows=rows, size=size, store=store)
    known = {column: (span[0], span[1]) for column, span in spans.items()}
    return Piece(chunk, first, last, graves, known)
