"""Real and remembered disks keep one contract; only one of them can lose power."""

import contextlib
import errno
import fcntl
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.disk import (
    File,
    RealDisk,
    RealFile,
    may_pass,
    read_device_file,
    read_file,
    replace_file,
    sync_names,
)
from headwater.testing.contracts.disk import DiskContract
from headwater.testing.memory_disk import MemoryDisk, Operation, PowerCut


class TestRealDiskContract(DiskContract):
    @pytest.fixture
    def disk(self) -> RealDisk:
        return RealDisk()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestMemoryDiskContract(DiskContract):
    @pytest.fixture
    def disk(self) -> MemoryDisk:
        return MemoryDisk()

    @pytest.fixture
    def root(self, disk: MemoryDisk) -> str:
        disk.make_directory("/data")
        return "/data"

    @pytest.fixture
    def no_descriptor_left(
        self, disk: MemoryDisk
    ) -> Callable[[], contextlib.AbstractContextManager[None]]:
        @contextlib.contextmanager
        def no_descriptor_left() -> Iterator[None]:
            disk.on_open = _refuse
            yield
            disk.on_open = lambda _: None

        return no_descriptor_left


def _refuse(path: str) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_a_file_is_not_replaced_before_its_directory_is_open() -> None:
    """The new content could be seen, and lost by a power cut, without a sync having failed."""
    disk = MemoryDisk()
    replace_file(disk, "/a", b"old")
    disk.on_open = lambda path: _refuse(path) if path == "/" else None
    with pytest.raises(OSError, match="Too many open files"):
        replace_file(disk, "/a", b"new")
    assert read_file(disk, "/a") == b"old"


class TestRealDisk:
    def test_a_short_write_is_continued(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)

        def write_three(descriptor: int, buffers: list[bytes]) -> int:
            return os.write(descriptor, b"".join(buffers)[:3])

        monkeypatch.setattr("headwater.base.disk.os.writev", write_three)
        file.append([b"one", b"two", b"three"])

        assert file.size() == 11
        assert file.read(100, 0) == b"onetwothree"

    def test_a_partial_write_that_fails_can_be_truncated_away(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        file.append([b"kept"])

        write = os.write

        def write_three(descriptor: int, buffers: list[bytes]) -> int:
            return write(descriptor, b"".join(buffers)[:3])

        def no_room(descriptor: int, buffer: bytes) -> int:
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", write_three)
            patched.setattr(os, "write", no_room)
            with pytest.raises(OSError, match="full"):
                file.append([b"one", b"two"])
        assert file.read(100, 0) == b"keptone"
        file.truncate(4)
        file.append([b"more"])

        assert file.size() == 8
        assert file.read(100, 0) == b"keptmore"

    def test_a_file_nobody_holds_is_closed(self, tmp_path: Path) -> None:
        file = RealDisk().open(str(tmp_path / "a"), create=True)
        descriptor = file.fileno()
        assert isinstance(file, RealFile)
        del file

        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    @pytest.mark.skipif(sys.platform != "linux", reason="needs O_DIRECT, which only Linux has")
    def test_a_file_system_that_cannot_read_past_the_cache_is_read_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a").write_bytes(b"x" * 5000)

        def refuse_reading(*_: object) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

        def refuse_flags(descriptor: int, command: int, argument: int = 0) -> int:
            if command == fcntl.F_SETFL:
                raise OSError(errno.EINVAL, "Invalid argument")
            return control(descriptor, command, argument)

        control = fcntl.fcntl
        with monkeypatch.context() as patched:
            patched.setattr(os, "preadv", refuse_reading)
            assert read_device_file(RealDisk(), str(tmp_path / "a")) == b"x" * 5000
            patched.setattr(fcntl, "fcntl", refuse_flags)
            assert read_device_file(RealDisk(), str(tmp_path / "a")) == b"x" * 5000

    @pytest.mark.skipif(sys.platform != "linux", reason="needs O_DIRECT, which only Linux has")
    @pytest.mark.parametrize("stays_short", [False, True])
    def test_a_short_read_from_the_device_is_not_the_end_of_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stays_short: bool
    ) -> None:
        content = bytes(range(256)) * 40
        (tmp_path / "a").write_bytes(content)
        reads: list[int] = []

        def read_a_part(_: int, buffers: Sequence[memoryview], position: int) -> int:
            reads.append(position)
            end = 5_000 if stays_short or len(reads) == 1 else len(content)
            part = content[position : max(position, end)][: len(buffers[0])]
            buffers[0][: len(part)] = part
            return len(part)

        monkeypatch.setattr(os, "preadv", read_a_part)
        file = RealDisk().open_on_device(str(tmp_path / "a"))
        if stays_short:
            with pytest.raises(OSError, match="beyond byte 5000") as failed:
                file.read(len(content), 0)
            assert failed.value.errno == errno.EIO
        else:
            assert file.read(len(content) + 10, 0) == content

    @pytest.mark.skipif(sys.platform != "linux", reason="needs O_DIRECT, which only Linux has")
    def test_without_memory_for_direct_reads_a_file_is_read_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a").write_bytes(b"x" * 5000)

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

        monkeypatch.setattr(mmap, "mmap", refuse)
        file = RealDisk().open_on_device(str(tmp_path / "a"))
        assert not fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_DIRECT
        assert file.read(5000, 0) == b"x" * 5000

    def test_a_disk_without_room_says_so(self) -> None:
        full = Path("/dev/full")
        if not full.exists():
            pytest.skip("this system has no /dev/full")
        file = RealFile(str(full), os.O_WRONLY)
        with pytest.raises(OSError, match="No space left") as refused:
            file.append([b"one"])

        assert may_pass(refused.value)
        assert not may_pass(OSError(errno.EIO, "broken"))


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    return disk


SEEDS = range(60)


class TestPowerCut:
    def test_synced_bytes_survive_every_cut(self, disk: MemoryDisk) -> None:
        file = disk.open("/d/a", create=True)
        file.append([b"safe"])
        file.sync()
        disk.sync_directory("/d")
        file.append([b"not yet"])
        found = {read_file(disk.crash(seed), "/d/a") for seed in SEEDS}

        assert all(content.startswith(b"safe") for content in found)
        assert b"safe" in found
        assert b"safenot yet" in found
        assert any(b"safe" < content < b"safenot yet" for content in found), "torn"
        assert any(not b"safenot yet".startswith(content) for content in found), "garbled"
        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b"safe"

    def test_a_synced_file_without_a_durable_name_may_vanish(self, disk: MemoryDisk) -> None:
        file = disk.open("/d/a", create=True)
        file.append([b"safe"])
        file.sync()
        found = {tuple(disk.crash(seed).list_directory("/d")) for seed in SEEDS}

        assert found == {(), ("a",)}
        assert disk.crash(0, keep="nothing").list_directory("/d") == []

    def test_a_directory_that_is_not_durable_takes_all_with_it(self, disk: MemoryDisk) -> None:
        disk.make_directory("/d/e")
        disk.open("/d/e/a", create=True).sync()
        disk.sync_directory("/d/e")

        assert disk.crash(0, keep="nothing").list_directory("/d") == []
        assert {tuple(disk.crash(seed).list_directory("/d")) for seed in SEEDS} == {(), ("e",)}

    def test_renames_and_removes_may_be_undone(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"a")
        replace_file(disk, "/d/b", b"b")
        disk.rename("/d/a", "/d/c")
        disk.remove("/d/b")
        found = {tuple(disk.crash(seed).list_directory("/d")) for seed in SEEDS}

        assert found == {("a", "b"), ("a",), ("b", "c"), ("c",)}
        assert disk.crash(0, keep="nothing").list_directory("/d") == ["a", "b"]
        assert read_file(disk.crash(0, keep="nothing"), "/d/b") == b"b"

    def test_truncates_may_be_undone(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"onetwo")
        file = disk.open("/d/a")
        file.truncate(3)
        found = {read_file(disk.crash(seed), "/d/a") for seed in SEEDS}

        assert found == {b"onetwo", b"one"}

    def test_a_synced_truncate_is_durable(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"onetwo")
        file = disk.open("/d/a")
        file.truncate(3)
        file.sync()

        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b"one"

    def test_a_replaced_file_is_old_or_new(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"old")
        start = disk.operations
        replace_file(disk, "/d/a", b"new content")
        for number in range(start + 1, disk.operations + 1):
            for seed in range(10):
                again = MemoryDisk()
                again.make_directory("/d")
                again.sync_directory("/")
                replace_file(again, "/d/a", b"old")
                again.cut_power_at(number, after=seed % 2 == 1)
                with pytest.raises(PowerCut):
                    replace_file(again, "/d/a", b"new content")
                assert read_file(again.crash(seed), "/d/a") in {b"old", b"new content"}

    def test_a_directory_never_appears_under_two_names(self, disk: MemoryDisk) -> None:
        disk.make_directory("/d/e")
        disk.rename("/d/e", "/d/f")
        disk.rename("/d/f", "/d/g")

        assert all(len(disk.crash(seed).list_directory("/d")) <= 1 for seed in SEEDS)

    def test_a_seed_replays(self, disk: MemoryDisk) -> None:
        for name in "abcdef":
            disk.open(f"/d/{name}", create=True).append([name.encode() * 100])
        first, second = disk.crash(7), disk.crash(7)

        assert first.list_directory("/d") == second.list_directory("/d")
        assert [read_file(first, f"/d/{name}") for name in first.list_directory("/d")] == [
            read_file(second, f"/d/{name}") for name in second.list_directory("/d")
        ]

    def test_what_was_found_is_durable(self, disk: MemoryDisk) -> None:
        disk.open("/d/a", create=True).append([b"x" * 50])
        for seed in SEEDS:
            found = disk.crash(seed)
            names = found.list_directory("/d")
            contents = [read_file(found, f"/d/{name}") for name in names]
            again = found.crash(seed + 1)

            assert again.list_directory("/d") == names
            assert [read_file(again, f"/d/{name}") for name in names] == contents

    @given(
        st.lists(st.one_of(st.binary(max_size=8), st.integers(0, 20), st.just("sync"))),
        st.integers(0, 1000),
    )
    def test_only_the_unsynced_part_is_ever_touched(
        self, steps: list[bytes | int | str], seed: int
    ) -> None:
        disk = MemoryDisk()
        file = disk.open("/a", create=True)
        disk.sync_directory("/")
        safe = b""
        for step in steps:
            if isinstance(step, bytes):
                file.append([step])
            elif isinstance(step, int):
                file.truncate(min(step, file.size()))
                safe = safe[: file.size()]
            else:
                file.sync()
                safe = file.read(file.size(), 0)

        content = read_file(disk.crash(seed), "/a")
        assert content.startswith(safe)

    def test_the_cut_disk_is_dead(self, disk: MemoryDisk) -> None:
        file = disk.open("/d/a", create=True)
        disk.crash(0)

        with pytest.raises(PowerCut):
            file.append([b"x"])
        with pytest.raises(PowerCut):
            disk.exists("/d")
        with pytest.raises(PowerCut):
            file.read(1, 0)

    def test_a_restart_keeps_the_page_cache_and_frees_locks(self, disk: MemoryDisk) -> None:
        disk.lock("/d/.lock")
        disk.open("/d/a", create=True).append([b"cached"])
        again = disk.restart()

        assert read_file(again, "/d/a") == b"cached"
        again.lock("/d/.lock")
        assert again.crash(0, keep="nothing").list_directory("/d") == []

    def test_a_killed_process_leaves_the_page_cache_to_the_next(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"safe")
        file = disk.open("/d/a")
        file.append([b"cached"])
        disk.lock("/d/.lock")
        found = disk.after_kill()
        file.append([b"later"])
        file.sync()

        assert read_file(found, "/d/a") == b"safecached"
        found.lock("/d/.lock")
        assert read_file(found.crash(0, keep="nothing"), "/d/a") == b"safe"
        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b"safecachedlater"


def fail_a_sync(disk: MemoryDisk, file: File) -> None:
    disk.fail_at(disk.operations + 1, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        file.sync()


class TestFaults:
    def test_operations_are_counted_and_traced(self, disk: MemoryDisk) -> None:
        start = disk.operations
        replace_file(disk, "/d/a", b"12345")

        assert [(op.kind, op.path) for op in disk.trace[start:]] == [
            ("create", "/d/a.tmp"),
            ("append", "/d/a.tmp"),
            ("sync", "/d/a.tmp"),
            ("rename", "/d/a.tmp"),
            ("sync_directory", "/d"),
        ]
        assert [op.number for op in disk.trace] == list(range(1, disk.operations + 1))
        assert str(disk.trace[-2]).endswith("rename         /d/a.tmp -> /d/a")

    def test_an_append_fails_halfway(self, disk: MemoryDisk) -> None:
        file = disk.open("/d/a", create=True)
        disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(OSError, match="full"):
            file.append([b"12345678"])
        assert file.read(100, 0) == b"1234"
        disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "full"), keep_bytes=1)
        with pytest.raises(OSError, match="full"):
            file.append([b"abcdefgh"])
        file.append([b"!"])

        assert file.read(100, 0) == b"1234a!"

    @pytest.mark.parametrize("kind", ["create", "make_directory", "rename", "remove", "truncate"])
    def test_a_failed_change_does_not_happen(self, disk: MemoryDisk, kind: str) -> None:
        replace_file(disk, "/d/a", b"one")
        file = disk.open("/d/a")
        actions: dict[str, Callable[[], object]] = {
            "create": lambda: disk.open("/d/b", create=True),
            "make_directory": lambda: disk.make_directory("/d/b"),
            "rename": lambda: disk.rename("/d/a", "/d/b"),
            "remove": lambda: disk.remove("/d/a"),
            "truncate": lambda: file.truncate(0),
        }
        disk.fail_at(disk.operations + 1, OSError(errno.EIO, "broken"))
        with pytest.raises(OSError, match="broken"):
            actions[kind]()

        assert disk.trace[-1].kind == kind
        assert disk.list_directory("/d") == ["a"]
        assert read_file(disk, "/d/a") == b"one"

    def test_no_sync_helps_after_one_that_failed(self, disk: MemoryDisk) -> None:
        file = disk.open("/d/a", create=True)
        disk.sync_directory("/d")
        file.append([b"lost"])
        fail_a_sync(disk, file)
        disk = disk.restart()
        disk.open("/d/a").sync()

        assert read_file(disk, "/d/a") == b"lost", "the page cache still has it"
        assert read_device_file(disk, "/d/a") == bytes(4)
        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b""

    def test_what_follows_lost_bytes_becomes_durable_without_them(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"safe")
        file = disk.open("/d/a")
        file.append([b"lost"])
        fail_a_sync(disk, file)
        file.append([b"later"])
        file.sync()

        assert read_file(disk, "/d/a") == b"safelostlater"
        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b"safe\0\0\0\0later"

    def test_what_is_cut_off_and_appended_anew_becomes_durable(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"safe")
        file = disk.open("/d/a")
        file.append([b"lost"])
        fail_a_sync(disk, file)
        file.truncate(4)
        file.append([b"kept"])
        file.sync()

        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b"safekept"

    def test_a_power_cut_may_show_what_a_failed_sync_has_written(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"safe")
        file = disk.open("/d/a")
        file.append([b"lost"])
        fail_a_sync(disk, file)

        assert {read_file(disk.crash(seed), "/d/a") for seed in SEEDS} >= {b"safe", b"safelost"}

    def test_after_a_failed_directory_sync_nothing_can_be_changed(self, disk: MemoryDisk) -> None:
        disk.open("/d/a", create=True)
        disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(OSError, match="full") as refused:
            sync_names(disk, "/d")
        assert not may_pass(refused.value), "a failed sync is never harmless"
        disk = disk.restart()
        with pytest.raises(OSError, match="Read-only file system"):
            disk.sync_directory("/d")
        with pytest.raises(OSError, match="Read-only file system"):
            disk.open("/d/a").append([b"more"])

        disk = disk.crash(0, keep="nothing")
        assert disk.list_directory("/d") == []
        replace_file(disk, "/d/a", b"as usual")

    def test_a_sync_may_lie(self, disk: MemoryDisk) -> None:
        asked: list[Operation] = []

        def lie(operation: Operation) -> bool:
            asked.append(operation)
            return operation.kind == "sync"

        disk.lie = lie
        replace_file(disk, "/d/a", b"one")

        assert [operation.kind for operation in asked] == ["sync", "sync_directory"]
        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b""

    def test_power_goes_before_or_after_an_operation(self) -> None:
        for after, expected in ((False, []), (True, ["a"])):
            disk = MemoryDisk()
            disk.cut_power_at(1, after=after)
            with pytest.raises(PowerCut):
                disk.make_directory("/a")
            found = {tuple(disk.crash(seed).list_directory("/")) for seed in SEEDS}

            assert max(found) == tuple(expected)

    def test_capacity(self) -> None:
        disk = MemoryDisk(capacity_bytes=10)
        file = disk.open("/a", create=True)
        file.append([b"1234567"])
        assert disk.free_bytes("/") == 3
        with pytest.raises(OSError, match="No space left") as refused:
            file.append([b"89012"])
        assert may_pass(refused.value)
        assert file.size() == 10
        file.truncate(7)
        file.append([b"890"])
        disk.open("/b", create=True)
        disk.remove("/a")

        assert disk.free_bytes("/") == 10

    def test_reads_can_fail(self, disk: MemoryDisk) -> None:
        replace_file(disk, "/d/a", b"one")

        def broken(path: str) -> None:
            raise OSError(errno.EIO, "bad sector", path)

        disk.on_read = broken
        with pytest.raises(OSError, match="bad sector"):
            read_file(disk, "/d/a")

    def test_syncs_from_other_threads_lose_nothing(self, disk: MemoryDisk) -> None:
        file = disk.open("/d/a", create=True)
        disk.sync_directory("/d")
        stop = threading.Event()

        def sync_all_the_time() -> None:
            while not stop.is_set():
                file.sync()

        thread = threading.Thread(target=sync_all_the_time)
        thread.start()
        for _ in range(2000):
            file.append([b"x"])
        stop.set()
        thread.join()
        file.sync()

        assert read_file(disk.crash(0, keep="nothing"), "/d/a") == b"x" * 2000


class TestReplaceFile:
    @pytest.mark.parametrize("step", range(1, 6))
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_a_failure_leaves_the_old_content_or_says_that_nobody_knows(
        self, disk: MemoryDisk, step: int, code: int
    ) -> None:
        replace_file(disk, "/d/a", b"old")
        disk.fail_at(disk.operations + step, OSError(code, "fault"))
        with pytest.raises(OSError, match="fault") as refused:
            replace_file(disk, "/d/a", b"new")

        if may_pass(refused.value):
            assert read_file(disk, "/d/a") == b"old"
            assert disk.list_directory("/d") == ["a"], "no room is wasted on a failed attempt"
            replace_file(disk, "/d/a", b"later")
            assert read_file(disk, "/d/a") == b"later"
