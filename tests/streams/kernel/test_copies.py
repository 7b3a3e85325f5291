"""Copies may vanish, rot or not be possible at all: what is read is always what was written."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel import copies as copies_module
from headwater.streams.kernel.chunks import Chunk
from headwater.streams.kernel.copies import LocalCopies
from headwater.streams.kernel.errors import StateDamagedError


def _chunk(number: int, rows: int = 100) -> Chunk:
    return Chunk.of(pa.RecordBatch.from_pydict({"a": list(range(number, number + rows))}))


class Store:
    """Counts how often it is asked."""

    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = {chunk.name: chunk.data() for chunk in chunks}
        self.asked: list[str] = []

    def get(self, name: str) -> pa.Buffer:
        self.asked.append(name)
        return self.chunks[name]


def _files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_chunk_is_fetched_once_by_all_processes(tmp_path: Path) -> None:
    chunk = _chunk(1)
    store = Store(chunk)
    one, other = LocalCopies(tmp_path), LocalCopies(tmp_path)
    for copies in (one, one, other, other):
        assert copies.over(store).get(chunk.name).equals(chunk.data())
    assert store.asked == [chunk.name]
    assert _files(tmp_path) == [f"{chunk.name}.chunk"]


def test_a_chunk_that_was_just_written_is_not_fetched(tmp_path: Path) -> None:
    chunk = _chunk(1)
    store = Store()
    copies = LocalCopies(tmp_path / "made" / "when needed")
    copies.keep(chunk)
    copies.keep(chunk)
    assert copies.over(store).get(chunk.name).equals(chunk.data())
    assert LocalCopies(tmp_path / "made" / "when needed").get(chunk.name) is not None
    assert store.asked == []


def test_small_chunks_stay_in_memory(tmp_path: Path) -> None:
    small, large = _chunk(1, rows=10), _chunk(2, rows=10_000)
    copies = LocalCopies(tmp_path, file_bytes_min=20_000)
    for chunk in (small, large):
        copies.keep(chunk)
        assert copies.get(chunk.name) is not None
    assert LocalCopies(tmp_path).get(small.name) is None
    assert LocalCopies(tmp_path).get(large.name) is not None


def test_bytes_are_mapped_and_aligned(tmp_path: Path) -> None:
    chunk = _chunk(1, rows=10_000)
    store = Store(chunk)
    before = pa.total_allocated_bytes()
    data = LocalCopies(tmp_path).over(store).get(chunk.name)
    assert pa.total_allocated_bytes() - before < 10_000
    assert data.address % 64 == 0
    restored = Chunk(chunk.name, rows=chunk.rows, size=chunk.bytes, store=store, data=data)
    assert restored.load().equals(chunk.load())


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "longer"])
def test_a_damaged_copy_is_removed_and_fetched_again(tmp_path: Path, damage: str) -> None:
    chunk = _chunk(1)
    store = Store(chunk)
    LocalCopies(tmp_path).keep(chunk)
    path = tmp_path / f"{chunk.name}.chunk"
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    damages = {"cut": data[:-9], "empty": bytearray(), "flipped": data, "longer": data + b"\0"}
    path.write_bytes(damages[damage])
    assert LocalCopies(tmp_path).get(chunk.name) is None
    found = LocalCopies(tmp_path).over(store).get(chunk.name)
    assert found.equals(chunk.data())
    assert store.asked == [chunk.name]
    assert path.read_bytes() == bytes(chunk.data())


def test_a_store_with_other_bytes_is_not_believed(tmp_path: Path) -> None:
    chunk, other = _chunk(1), _chunk(2)
    store = Store()
    store.chunks[chunk.name] = other.data()
    with pytest.raises(StateDamagedError, match=chunk.name):
        LocalCopies(tmp_path).over(store).get(chunk.name)
    assert _files(tmp_path) == []


def test_a_copy_that_somebody_removes_stays_with_those_that_have_it(tmp_path: Path) -> None:
    chunk = _chunk(1)
    copies = LocalCopies(tmp_path)
    copies.keep(chunk)
    data = copies.get(chunk.name)
    (tmp_path / f"{chunk.name}.chunk").unlink()
    assert data is not None
    assert data.equals(chunk.data())
    assert copies.get(chunk.name) is not None
    assert LocalCopies(tmp_path).get(chunk.name) is None


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    chunks = [_chunk(number) for number in range(40)]
    size = chunks[0].bytes
    copies = LocalCopies(tmp_path, disk_bytes_max=10 * size)
    for age, chunk in enumerate(chunks):
        copies.keep(chunk)
        # The clock of a file system may be too coarse to tell files of one test apart.
        os.utime(tmp_path / f"{chunk.name}.chunk", (age, age))
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 11 * size
    left = {f"{chunk.name}.chunk" for chunk in chunks[-5:]}
    assert left <= set(_files(tmp_path))
    assert all(copies.get(chunk.name) is not None for chunk in chunks)


def test_a_copy_that_is_used_stays(tmp_path: Path) -> None:
    chunks = [_chunk(number) for number in range(8)]
    for age, chunk in enumerate(chunks):
        LocalCopies(tmp_path).keep(chunk)
        os.utime(tmp_path / f"{chunk.name}.chunk", (age, age))
    assert LocalCopies(tmp_path).get(chunks[0].name) is not None
    LocalCopies(tmp_path, disk_bytes_max=4 * chunks[0].bytes).keep(_chunk(99))
    left = _files(tmp_path)
    assert f"{chunks[0].name}.chunk" in left
    assert f"{chunks[1].name}.chunk" not in left


def test_what_a_killed_process_has_left_makes_room_too(tmp_path: Path) -> None:
    (tmp_path / "half.unfinished").write_bytes(bytes(5000))
    os.utime(tmp_path / "half.unfinished", (1, 1))
    LocalCopies(tmp_path, disk_bytes_max=4000).keep(_chunk(1))
    assert _files(tmp_path) == [f"{_chunk(1).name}.chunk"]


def test_few_chunks_stay_open(tmp_path: Path) -> None:
    chunks = [_chunk(number) for number in range(20)]
    store = Store(*chunks)
    copies = LocalCopies(tmp_path, opened_max=3)
    for _ in range(2):
        for chunk in chunks:
            assert copies.over(store).get(chunk.name).equals(chunk.data())
    assert len(copies._opened) == 3
    assert len(store.asked) == 20


def test_a_place_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    chunks = [_chunk(number) for number in range(300)]
    store = Store(*chunks)
    room = 3 * chunks[0].bytes
    copies = LocalCopies(tmp_path / "file" / "below", memory_bytes_max=room)
    for chunk in chunks:
        assert copies.over(store).get(chunk.name).equals(chunk.data())
        assert copies.over(store).get(chunk.name).equals(chunk.data())
    assert len(store.asked) == 300
    assert len(copies._opened) == 3
    assert copies._memory_bytes == room


def test_a_directory_that_others_can_write_is_done_without(tmp_path: Path) -> None:
    chunk = _chunk(1)
    tmp_path.chmod(0o777)
    copies = LocalCopies(tmp_path)
    copies.keep(chunk)
    assert copies.get(chunk.name) is not None
    assert _files(tmp_path) == []
    (tmp_path / f"{chunk.name}.chunk").write_bytes(bytes(chunk.data()))
    assert LocalCopies(tmp_path).get(chunk.name) is None


def test_a_directory_that_is_a_link_is_done_without(tmp_path: Path) -> None:
    chunk = _chunk(1)
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "ours").symlink_to(tmp_path / "theirs")
    LocalCopies(tmp_path / "ours").keep(chunk)
    assert _files(tmp_path / "theirs") == []


def test_a_full_disk_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [_chunk(number) for number in range(3)]
    store = Store(*chunks)
    copies = LocalCopies(tmp_path)
    attempts = []

    def full(*_: object) -> None:
        attempts.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        for chunk in chunks:
            assert copies.over(store).get(chunk.name).equals(chunk.data())
    assert _files(tmp_path) == []
    assert len(attempts) == 1
    monkeypatch.setattr(copies, "_rest", 0)
    copies.keep(_chunk(9))
    assert len(_files(tmp_path)) == 1


def test_mappings_hold_no_descriptors(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path)
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        descriptors = Path("/dev/fd")
    before = len(list(descriptors.iterdir()))
    for number in range(30):
        copies.keep(_chunk(number))
    assert len(list(descriptors.iterdir())) <= before + 1


def test_processes_share_a_directory_while_it_overflows(tmp_path: Path) -> None:
    """Each reads and writes the same chunks, in its own order, with room for a few of them."""
    program = """
import random, sys
from pathlib import Path
import pyarrow as pa
from headwater.streams.kernel.chunks import Chunk, DictStore
from headwater.streams.kernel.copies import LocalCopies
chunks = [
    Chunk.of(pa.RecordBatch.from_pydict({"a": list(range(n, n + 200))})) for n in range(30)
]
store = DictStore({chunk.name: chunk.data() for chunk in chunks})
dice = random.Random(int(sys.argv[2]))
copies = LocalCopies(Path(sys.argv[1]), disk_bytes_max=6 * chunks[0].bytes, opened_max=4)
for _ in range(600):
    chunk = dice.choice(chunks)
    assert copies.over(store).get(chunk.name).equals(chunk.data())
    if dice.random() < 0.2:
        copies.keep(dice.choice(chunks))
"""
    started = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(seed)])
        for seed in range(3)
    ]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert not [name for name in _files(tmp_path) if name.endswith(".unfinished")]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("gkdr"), st.integers(0, 5)), max_size=40))
def test_whatever_happens_to_copies_the_bytes_are_right(
    tmp_path_factory: pytest.TempPathFactory, happenings: list[tuple[str, int]]
) -> None:
    directory = tmp_path_factory.mktemp("copies")
    chunks = [_chunk(number, rows=5) for number in range(6)]
    store = Store(*chunks)
    room = {"disk_bytes_max": 3 * chunks[0].bytes, "opened_max": 2, "memory_bytes_max": 1000}
    copies = LocalCopies(directory, **room)
    for what, number in happenings:
        chunk = chunks[number]
        path = directory / f"{chunk.name}.chunk"
        if what == "g":
            assert copies.over(store).get(chunk.name).equals(chunk.data())
        elif what == "k":
            copies.keep(chunk)
        elif what == "r":
            copies = LocalCopies(directory, **room)
        elif path.exists():
            # As a crash of the machine leaves it, or as a careless hand: a new file in its place.
            path.unlink()
            path.write_bytes(b"damaged")


def test_the_limits_are_those_that_are_documented() -> None:
    assert copies_module.DISK_BYTES_MAX == 8 * 2**30
    assert copies_module.OPENED_MAX < 65_530 // 4
