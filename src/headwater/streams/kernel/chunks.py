"""Immutable pieces of state, named by their content, and where they come from.

This file alone decides the bytes of a chunk and its name. It knows neither what the columns mean
nor which table a chunk belongs to.

A chunk is an Arrow stream with one record batch, in the one layout of
`headwater.streams.kernel.canonical`. Its name is the BLAKE2b hash of its bytes, of 128 bits: two
chunks of one name are the same chunk, whichever batch, attempt or process has made them.
"""

import hashlib
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from headwater.streams.kernel.canonical import canonical
from headwater.streams.kernel.errors import StateDamagedError

_NAME_BYTES = 16


class ChunkStore(Protocol):
    """Where the bytes of chunks are kept."""

    def get(self, name: str) -> pa.Buffer:
        """Return the bytes of a chunk that was written."""


class DictStore:
    """A store in memory."""

    def __init__(self, chunks: Mapping[str, pa.Buffer] | None = None) -> None:
        self.chunks: dict[str, pa.Buffer] = dict(chunks or {})

    def get(self, name: str) -> pa.Buffer:
        """Return the bytes of a chunk.

        Raises:
            StateDamagedError: It was never written, or has been removed.
        """
        try:
            return self.chunks[name]
        except KeyError:
            raise missing(name) from None


def missing(name: str) -> StateDamagedError:
    """Return the error for a chunk that a header lists and the store does not have."""
    return StateDamagedError(
        f"chunk {name} of the state is not in the state store",
        hint="the checkpoint is not complete: restore it as a whole, or start with a new one",
    )


def name_of(data: pa.Buffer) -> str:
    """Return the name of a chunk with these bytes."""
    return hashlib.blake2b(data, digest_size=_NAME_BYTES).hexdigest()


class Chunk:
    """Rows that never change.

    Attributes:
        name: Made from its bytes.
        rows: How many.
        bytes: How many, as it is written.
    """

    __slots__ = ("_batch", "_data", "_store", "bytes", "name", "rows")

    def __init__(
        self, name: str, *, rows: int, size: int, store: ChunkStore, data: pa.Buffer | None = None
    ) -> None:
        self.name = name
        self.rows = rows
        self.bytes = size
        self._store = store
        self._data = data
        self._batch: pa.RecordBatch | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "Chunk":
        """Make a chunk of rows; nothing is stored yet."""
        columns = [canonical(column) for column in batch.columns]
        laid_out = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(laid_out)
        data = sink.getvalue()
        name = name_of(data)
        return cls(name, rows=batch.num_rows, size=data.size, store=_NOWHERE, data=data)

    def data(self) -> pa.Buffer:
        """Return the bytes of the chunk, from the store if need be."""
        if self._data is None:
            self._data = _aligned(self._store.get(self.name))
        return self._data

    def load(self) -> pa.RecordBatch:
        """Return the rows; their columns lie in the bytes of the chunk.

        Raises:
            StateDamagedError: The store has other bytes under this name.
        """
        if self._batch is None:
            data = self.data()
            if data.size != self.bytes:
                raise damaged(self.name)
            with pa.ipc.open_stream(data) as reader:
                self._batch = reader.read_next_batch()
        return self._batch

    def __repr__(self) -> str:
        return f"Chunk({self.name}, rows={self.rows}, bytes={self.bytes})"


def damaged(name: str) -> StateDamagedError:
    """Return the error for a chunk whose bytes are not those that its name was made from."""
    return StateDamagedError(
        f"chunk {name} of the state has other bytes than were written",
        hint="the checkpoint is damaged: restore it, or start with a new one",
    )


def _aligned(data: pa.Buffer) -> pa.Buffer:
    """Return the bytes at an address at which compiled loops can read numbers."""
    if data.address % 8 == 0:
        return data
    moved = pa.allocate_buffer(data.size)
    memoryview(moved)[:] = memoryview(data)
    return moved


_NOWHERE = DictStore()
