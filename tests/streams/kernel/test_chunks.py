"""A chunk is its bytes: it comes back from any store, and other bytes are not believed."""

import hashlib

import pyarrow as pa
import pytest

from headwater.streams.kernel.chunks import Chunk, DictStore, name_of
from headwater.streams.kernel.errors import StateDamagedError

BATCH = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "b": ["x", None, "z"]})


def _restored(chunk: Chunk, data: pa.Buffer) -> Chunk:
    store = DictStore({chunk.name: data})
    return Chunk(chunk.name, rows=chunk.rows, size=chunk.bytes, store=store)


def test_a_chunk_is_named_by_its_bytes() -> None:
    chunk = Chunk.of(BATCH)
    assert chunk.name == hashlib.blake2b(bytes(chunk.data()), digest_size=16).hexdigest()
    assert chunk.name == name_of(chunk.data())
    assert (chunk.rows, chunk.bytes) == (3, chunk.data().size)
    assert Chunk.of(BATCH.slice(0)).name == chunk.name
    assert Chunk.of(BATCH.slice(1)).name != chunk.name
    assert chunk.name in repr(chunk)


def test_a_chunk_comes_back_from_a_store() -> None:
    chunk = Chunk.of(BATCH)
    assert chunk.load().equals(BATCH)
    assert _restored(chunk, chunk.data()).load().equals(BATCH)


def test_arrow_reads_a_chunk_without_us() -> None:
    with pa.ipc.open_stream(Chunk.of(BATCH).data()) as reader:
        assert reader.read_all().to_batches() == [BATCH]


def test_a_chunk_at_an_odd_address_is_moved() -> None:
    chunk = Chunk.of(BATCH)
    odd = pa.py_buffer(b"x" + bytes(chunk.data())).slice(1)
    assert odd.address % 8 != 0
    loaded = _restored(chunk, odd).load()
    assert loaded.equals(BATCH)
    assert loaded.column("a").buffers()[1].address % 8 == 0


def test_a_chunk_that_was_cut_is_refused() -> None:
    chunk = Chunk.of(BATCH)
    with pytest.raises(StateDamagedError, match=chunk.name):
        _restored(chunk, chunk.data().slice(0, chunk.bytes - 8)).load()


def test_a_chunk_that_is_missing_is_named() -> None:
    with pytest.raises(StateDamagedError, match="chunk abc of the state is not in"):
        DictStore().get("abc")
