"""A trace tells what a power cut would leave, and never promises more."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.disk import Disk, RealDisk, read_file, replace_file
from headwater.testing.contracts.disk import DiskContract
from headwater.testing.memory_disk import MemoryDisk
from headwater.testing.traced_disk import TracedDisk, TracedFile, lay_out, read_trace, replay


class TestTracedDiskContract(DiskContract):
    @pytest.fixture
    def disk(self, tmp_path: Path) -> TracedDisk:
        return TracedDisk(RealDisk(), str(tmp_path), lambda _: None)

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)


class House:
    """A traced disk in memory, and what its trace is worth."""

    def __init__(self) -> None:
        self.trace = bytearray()
        self.inner = MemoryDisk()
        self.inner.make_directory("/r")
        self.disk = TracedDisk(self.inner, "/r", self.trace.extend)

    def replayed(self) -> MemoryDisk:
        disk = MemoryDisk()
        replay(read_trace(bytes(self.trace)), disk)
        return disk

    def durable(self) -> dict[str, bytes]:
        return contents(self.replayed().crash(0, keep="nothing"))


def contents(disk: Disk, path: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in disk.list_directory(path):
        child = f"{path}/{name}"
        if disk.is_directory(child):
            found |= contents(disk, child)
        else:
            found[child] = read_file(disk, child)
    return found


@pytest.fixture
def house() -> House:
    return House()


def test_content_counts_from_its_sync_and_a_name_from_that_of_its_directory(house: House) -> None:
    file = house.disk.open("/r/a", create=True)
    file.append([b"one"])
    file.sync()
    assert house.durable() == {}
    house.disk.sync_directory("/r")
    file.append([b"two"])
    assert house.durable() == {"/a": b"one"}
    file.truncate(2)
    assert house.durable() == {"/a": b"one"}
    file.sync()
    assert house.durable() == {"/a": b"on"}
    house.disk.rename("/r/a", "/r/b")
    assert house.durable() == {"/a": b"on"}
    assert contents(house.replayed()) == {"/b": b"on"}


def test_a_sync_covers_what_came_before_it_and_only_once_it_has_returned(house: House) -> None:
    file = house.disk.open("/r/a", create=True)
    house.disk.sync_directory("/r")
    file.append([b"before"])
    number = file.begin_sync()
    file.append([b"meanwhile"])
    assert house.durable() == {"/a": b""}
    file.end_sync(number)
    assert house.durable() == {"/a": b"before"}
    assert contents(house.replayed()) == {"/a": b"beforemeanwhile"}


def test_an_event_that_was_cut_is_as_if_it_had_not_been(house: House) -> None:
    replace_file(house.disk, "/r/a", b"content")
    events = read_trace(bytes(house.trace))
    sizes = {len(read_trace(bytes(house.trace[:end]))) for end in range(len(house.trace) + 1)}
    assert sizes == set(range(len(events) + 1))
    assert [event.kind for event in events] == [
        "open",
        "append",
        "sync",
        "synced",
        "rename",
        "sync_directory",
        "synced",
    ]
    assert str(events[1]) == "    2 append         1 7 bytes"


def test_a_tree_goes_one_name_at_a_time(house: House) -> None:
    house.disk.make_directory("/r/d")
    house.disk.make_directory("/r/d/e")
    house.disk.open("/r/d/e/f", create=True)
    house.disk.remove_tree("/r/d")
    assert [str(event.arguments[0]) for event in read_trace(bytes(house.trace))[-3:]] == [
        "/d/e/f",
        "/d/e",
        "/d",
    ]
    assert house.replayed().list_directory("") == []


def test_what_a_failed_append_left_behind_is_traced(house: House) -> None:
    file = house.disk.open("/r/a", create=True)
    house.inner.fail_at(
        house.inner.operations + 1, OSError(errno.ENOSPC, "no space left"), keep_bytes=3
    )
    with pytest.raises(OSError, match="no space"):
        file.append([b"content"])
    assert contents(house.replayed()) == {"/a": b"con"}


def test_a_failed_change_or_sync_is_not_traced(house: House) -> None:
    file = house.disk.open("/r/a", create=True)
    house.disk.sync_directory("/r")
    file.append([b"content"])
    for _ in range(3):
        house.inner.fail_at(house.inner.operations + 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            house.disk.rename("/r/a", "/r/b")
    house.inner.fail_at(house.inner.operations + 1, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        file.sync()
    assert house.durable() == {"/a": b""}


def test_a_hidden_sync_makes_nothing_durable(house: House) -> None:
    house.disk.lie = lambda kind, path: kind == "sync" and path.endswith("/a")
    for name in ("a", "b"):
        file = house.disk.open(f"/r/{name}", create=True)
        file.append([b"content"])
        file.sync()
    house.disk.sync_directory("/r")
    assert house.durable() == {"/a": b"", "/b": b"content"}


def test_each_event_is_announced_by_its_number(house: House) -> None:
    announced: list[tuple[int, str]] = []
    house.disk.before = lambda number, kind: announced.append((number, kind))
    replace_file(house.disk, "/r/a", b"content")
    events = read_trace(bytes(house.trace))
    assert announced == [(event.number, event.kind) for event in events]
    assert house.disk.operations == len(events)


def test_events_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    descriptor = os.open(tmp_path / "trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    disk = TracedDisk(RealDisk(), str(tmp_path / "r"), lambda event: os.write(descriptor, event))

    def work(name: str) -> None:
        file: TracedFile = disk.open(f"{tmp_path}/r/{name}", create=True)
        for number in range(100):
            file.append([b"%d," % number])
            file.sync()
        disk.sync_directory(f"{tmp_path}/r")

    threads = [threading.Thread(target=work, args=(f"{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(descriptor)
    replayed = MemoryDisk()
    replay(read_trace((tmp_path / "trace").read_bytes()), replayed)
    expected = {f"/{n}": b"".join(b"%d," % number for number in range(100)) for n in range(4)}
    assert contents(replayed) == contents(replayed.crash(0, keep="nothing")) == expected


def test_a_disk_in_memory_is_laid_out_as_files(tmp_path: Path) -> None:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.open("/d/a", create=True).append([b"content"])
    disk.open("/empty", create=True)
    lay_out(disk, str(tmp_path))
    assert contents(RealDisk(), str(tmp_path)) == {
        f"{tmp_path}/d/a": b"content",
        f"{tmp_path}/empty": b"",
    }


NAMES = st.sampled_from(["/r/a", "/r/b", "/r/d/a", "/r/d/b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, st.binary(max_size=4)),
        st.tuples(st.just("truncate"), NAMES, st.integers(0, 6)),
        st.tuples(st.just("sync"), NAMES),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("sync_directory"), st.sampled_from(["/r", "/r/d"])),
    ),
    max_size=40,
)


def perform(disk: Disk, step: tuple[Any, ...]) -> None:
    kind, path, *rest = step
    if kind in {"append", "truncate", "sync"}:
        file = disk.open(path, create=True)
        getattr(file, kind)(*([[rest[0]]] if kind == "append" else rest))
    elif kind == "sync_directory" or disk.exists(path):
        getattr(disk, kind)(path, *rest)


@given(STEPS)
def test_the_replayed_disk_is_the_one_that_was_traced(steps: list[tuple[Any, ...]]) -> None:
    house = House()
    house.inner.sync_directory("")
    house.disk.make_directory("/r/d")
    for step in steps:
        perform(house.disk, step)
    assert contents(house.replayed()) == below(contents(house.inner, "/r"))
    assert house.durable() == below(contents(house.inner.crash(0, keep="nothing"), "/r"))


def below(found: dict[str, bytes]) -> dict[str, bytes]:
    return {path.removeprefix("/r"): content for path, content in found.items()}
