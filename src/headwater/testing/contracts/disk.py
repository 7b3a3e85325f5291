"""What every ``Disk`` does alike.

This file alone decides what the log may expect of a disk in a running process. What is left after a
power cut is no part of it: only a disk that can be cut can show that.

    class TestMyDisk(DiskContract):
        @pytest.fixture
        def disk(self): return MyDisk()

        @pytest.fixture
        def root(self): return "/somewhere/empty"
"""

import gc
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from headwater.base.directory_lock import AlreadyLockedError
from headwater.base.disk import (
    Disk,
    File,
    Names,
    may_pass,
    parent_directory,
    read_device_file,
    read_file,
    replace_file,
    sync_names,
)
from headwater.base.handles import lacks_descriptors


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open nothing more."""
    # What is only waiting to be collected would give its descriptor back in the middle of it.
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Holder:
    """Keeps one file open until it is asked to let go."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.used = True
        self.file: File | None = disk.open(path, create=True)
        disk.handles.keep(self)

    def let_go(self) -> bool:
        was_used, self.used = self.used, False
        if not was_used:
            self.file = None
        return not was_used


def _error_of(attempt: Callable[[], object]) -> OSError | None:
    try:
        attempt()
    except OSError as error:
        return error
    return None


class DiskContract:
    """The suite; a subclass gives it a disk and the path of an empty directory on it."""

    @pytest.fixture
    def disk(self) -> Disk:
        """Return the disk under test."""
        raise AssertionError("a subclass gives the disk")

    @pytest.fixture
    def root(self) -> str:
        """Return the path of an existing, empty directory."""
        raise AssertionError("a subclass gives the directory")

    @pytest.fixture
    def no_descriptor_left(self) -> Callable[[], AbstractContextManager[None]]:
        """Return what keeps the disk from opening anything; a disk in memory has its own."""
        return no_descriptor_left

    # Files.

    def test_appended_bytes_are_read_back(self, disk: Disk, root: str) -> None:
        """Buffers of every kind come out in order, at any place, short only at the end."""
        file = disk.open(f"{root}/a", create=True)
        file.append([b"one", bytearray(b"two"), memoryview(b"three")])
        file.append([b"four"])

        assert file.size() == 15
        assert file.read(15, 0) == b"onetwothreefour"
        assert file.read(5, 6) == b"three"
        assert file.read(100, 11) == b"four"
        assert file.read(10, 15) == b""
        assert file.read(10, 99) == b""

    def test_more_buffers_than_one_system_call_takes(self, disk: Disk, root: str) -> None:
        """The number of buffers has no limit."""
        file = disk.open(f"{root}/a", create=True)
        file.append([bytes([i % 256]) for i in range(5000)])

        assert file.size() == 5000
        assert file.read(5000, 0) == bytes(i % 256 for i in range(5000))

    def test_appending_nothing(self, disk: Disk, root: str) -> None:
        """No buffers and empty buffers are no error."""
        file = disk.open(f"{root}/a", create=True)
        file.append([])
        file.append([b"", b""])

        assert file.size() == 0

    def test_two_handles_of_one_file(self, disk: Disk, root: str) -> None:
        """A reader sees what was appended after it was opened; a second appender goes on."""
        first = disk.open(f"{root}/a", create=True)
        first.append([b"one"])
        reader = disk.open_for_reading(f"{root}/a")
        second = disk.open(f"{root}/a")
        second.append([b"two"])

        assert reader.read(10, 0) == b"onetwo"
        assert second.size() == 6

    def test_a_reader_cannot_write(self, disk: Disk, root: str) -> None:
        """A handle for reading refuses to change the file."""
        disk.open(f"{root}/a", create=True).append([b"one"])
        reader = disk.open_for_reading(f"{root}/a")

        with pytest.raises(OSError, match=r".+"):
            reader.append([b"two"])
        with pytest.raises(OSError, match=r".+"):
            reader.truncate(0)
        assert read_file(disk, f"{root}/a") == b"one"

    def test_truncate_then_append(self, disk: Disk, root: str) -> None:
        """What is appended after a cut stands at the new end."""
        file = disk.open(f"{root}/a", create=True)
        file.append([b"onetwo"])
        file.truncate(3)

        assert file.size() == 3
        file.append([b"three"])
        assert file.read(100, 0) == b"onethree"

    def test_the_size_of_an_existing_file(self, disk: Disk, root: str) -> None:
        """A handle knows the size of what it opens."""
        disk.open(f"{root}/a", create=True).append([b"one"])

        assert disk.open(f"{root}/a").size() == 3
        assert disk.open(f"{root}/a", create=True).size() == 3
        assert disk.open_for_reading(f"{root}/a").size() == 3

    def test_a_closed_file_refuses(self, disk: Disk, root: str) -> None:
        """Closing twice is harmless; using a closed file is an error."""
        file = disk.open(f"{root}/a", create=True)
        file.append([b"one"])
        file.close()
        file.close()

        with pytest.raises(OSError, match=r".+"):
            file.append([b"two"])
        with pytest.raises(OSError, match=r".+"):
            file.read(1, 0)
        with pytest.raises(OSError, match=r".+"):
            file.sync()

    def test_a_file_outlives_its_name(self, disk: Disk, root: str) -> None:
        """Readers of a removed or replaced file go on reading it."""
        disk.open(f"{root}/a", create=True).append([b"old"])
        reader = disk.open_for_reading(f"{root}/a")
        disk.remove(f"{root}/a")
        disk.open(f"{root}/a", create=True).append([b"new"])

        assert reader.read(10, 0) == b"old"
        assert read_file(disk, f"{root}/a") == b"new"

    def test_a_file_keeps_the_name_it_was_opened_by(self, disk: Disk, root: str) -> None:
        """A rename changes neither the handle nor what it says."""
        file = disk.open(f"{root}/a", create=True)
        disk.rename(f"{root}/a", f"{root}/b")
        file.append([b"one"])
        file.sync()

        assert file.path == f"{root}/a"
        assert read_file(disk, f"{root}/b") == b"one"

    def test_absent_files(self, disk: Disk, root: str) -> None:
        """What is not there is not made by accident."""
        with pytest.raises(FileNotFoundError):
            disk.open(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            disk.open_for_reading(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            disk.remove(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            disk.rename(f"{root}/a", f"{root}/b")
        with pytest.raises(FileNotFoundError):
            disk.open(f"{root}/nowhere/a", create=True)
        assert disk.list_directory(root) == []

    def test_sync_and_descriptor(self, disk: Disk, root: str) -> None:
        """A sync returns; a descriptor is a number that a disk without one gives as -1."""
        file: File = disk.open(f"{root}/a", create=True)
        file.append([b"one"])
        file.sync()
        file.sync()

        assert file.fileno() >= -1

    def test_reading_what_is_on_the_device(self, disk: Disk, root: str) -> None:
        """What was written comes out at any place, synced or not, short only at the end."""
        content = bytes(range(256)) * 40
        file = disk.open(f"{root}/a", create=True)
        file.append([content[:5000]])
        file.sync()
        file.append([content[5000:]])
        on_device = disk.open_on_device(f"{root}/a")

        assert on_device.size() == len(content) == 10_240
        assert on_device.read(10_240, 0) == content
        assert on_device.read(4096, 4096) == content[4096:8192]
        assert on_device.read(3, 4095) == content[4095:4098]
        assert on_device.read(1, 10_239) == content[-1:]
        assert on_device.read(9_000, 8_000) == content[8_000:]
        assert on_device.read(10, 10_240) == b""
        assert on_device.read(10, 99_999) == b""
        assert read_device_file(disk, f"{root}/a") == content
        with pytest.raises(OSError, match=r".+"):
            on_device.append([b"more"])
        with pytest.raises(FileNotFoundError):
            disk.open_on_device(f"{root}/b")

    def test_more_on_the_device_than_one_read_takes(self, disk: Disk, root: str) -> None:
        """The size of a read has no limit."""
        content = bytes(range(251)) * 40_000
        file = disk.open(f"{root}/a", create=True)
        file.append([content])

        assert disk.open_on_device(f"{root}/a").read(len(content), 7) == content[7:]

    # Names.

    def test_names(self, disk: Disk, root: str) -> None:
        """Directories and files are listed in order and told apart."""
        disk.make_directory(f"{root}/b")
        disk.make_directory(f"{root}/b")
        disk.open(f"{root}/c", create=True)
        disk.open(f"{root}/a", create=True)

        assert disk.list_directory(root) == ["a", "b", "c"]
        assert disk.exists(f"{root}/a")
        assert disk.exists(f"{root}/b")
        assert not disk.exists(f"{root}/d")
        assert not disk.exists(f"{root}/a/d")
        assert disk.is_directory(f"{root}/b")
        assert not disk.is_directory(f"{root}/a")
        assert not disk.is_directory(f"{root}/d")

    def test_restricting_a_directory_changes_nothing_in_it(self, disk: Disk, root: str) -> None:
        """Its owner goes on as before; a directory that is not there is an error."""
        disk.make_directory(f"{root}/a")
        replace_file(disk, f"{root}/a/b", b"one")
        assert disk.restrict(f"{root}/a")
        assert disk.restrict(f"{root}/a")

        assert read_file(disk, f"{root}/a/b") == b"one"
        assert not disk.others_may_enter(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            disk.restrict(f"{root}/c")

    def test_directories_need_a_parent(self, disk: Disk, root: str) -> None:
        """Only the last name of a path is made."""
        with pytest.raises(FileNotFoundError):
            disk.make_directory(f"{root}/a/b")
        with pytest.raises(FileNotFoundError):
            disk.list_directory(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            disk.sync_directory(f"{root}/a")
        disk.open(f"{root}/c", create=True)
        with pytest.raises(FileExistsError):
            disk.make_directory(f"{root}/c")
        with pytest.raises(NotADirectoryError):
            disk.list_directory(f"{root}/c")

    def test_rename_replaces(self, disk: Disk, root: str) -> None:
        """A file takes the place of another."""
        disk.open(f"{root}/a", create=True).append([b"new"])
        disk.open(f"{root}/b", create=True).append([b"old"])
        disk.rename(f"{root}/a", f"{root}/b")

        assert disk.list_directory(root) == ["b"]
        assert read_file(disk, f"{root}/b") == b"new"

    def test_rename_of_directories(self, disk: Disk, root: str) -> None:
        """A directory moves with its content, replaces an empty one and no other."""
        disk.make_directory(f"{root}/a")
        disk.open(f"{root}/a/file", create=True).append([b"one"])
        disk.make_directory(f"{root}/empty")
        disk.rename(f"{root}/a", f"{root}/empty")

        assert disk.list_directory(root) == ["empty"]
        assert read_file(disk, f"{root}/empty/file") == b"one"
        disk.make_directory(f"{root}/a")
        with pytest.raises(OSError, match=r".+"):
            disk.rename(f"{root}/a", f"{root}/empty")
        disk.open(f"{root}/f", create=True)
        with pytest.raises(IsADirectoryError):
            disk.rename(f"{root}/f", f"{root}/a")
        with pytest.raises(NotADirectoryError):
            disk.rename(f"{root}/a", f"{root}/f")

    def test_remove_tree(self, disk: Disk, root: str) -> None:
        """All that is below goes, nothing beside it."""
        disk.make_directory(f"{root}/a")
        disk.make_directory(f"{root}/a/b")
        disk.open(f"{root}/a/b/c", create=True)
        disk.open(f"{root}/a/d", create=True)
        disk.open(f"{root}/ab", create=True)
        disk.remove_tree(f"{root}/a")

        assert disk.list_directory(root) == ["ab"]
        with pytest.raises(FileNotFoundError):
            disk.remove_tree(f"{root}/a")

    def test_syncing_directories(self, disk: Disk, root: str) -> None:
        """A directory can be synced as long as it is there."""
        disk.make_directory(f"{root}/a")
        disk.sync_directory(root)
        sync_names(disk, root)
        disk.remove_tree(f"{root}/a")

        with pytest.raises(OSError, match=r".+"):
            sync_names(disk, f"{root}/a")

    def test_room(self, disk: Disk, root: str) -> None:
        """There is a number for what is left."""
        assert disk.free_bytes(root) > 0

    # Handles.

    def test_open_files_are_counted(self, disk: Disk, root: str) -> None:
        """Closing a file, or forgetting it, gives the handle back."""
        before = len(disk.handles)
        file = disk.open(f"{root}/a", create=True)
        reader = disk.open_for_reading(f"{root}/a")
        assert len(disk.handles) == before + 2
        file.close()
        file.close()
        assert len(disk.handles) == before + 1
        del reader
        assert len(disk.handles) == before

    def test_no_more_files_than_allowed(self, disk: Disk, root: str) -> None:
        """A file too many is refused and not made; directories are opened all the same."""
        disk.handles.most = 1
        file = disk.open(f"{root}/a", create=True)
        with pytest.raises(OSError, match="being written or sent") as refused:
            disk.open(f"{root}/b", create=True)
        with pytest.raises(OSError, match="being written or sent"):
            disk.open_for_reading(f"{root}/a")

        assert may_pass(refused.value)
        assert disk.list_directory(root) == ["a"]
        sync_names(disk, root)
        file.close()
        disk.open(f"{root}/b", create=True)

    def test_an_idle_file_is_closed_for_another(self, disk: Disk, root: str) -> None:
        """Holders are asked in turn, and those that were used since are spared once."""
        disk.handles.most = 2
        first, second = (_Holder(disk, f"{root}/{name}") for name in ("a", "b"))
        second.used = False
        third = _Holder(disk, f"{root}/c")

        assert (first.file is None, second.file is None) == (False, True)
        assert not first.used
        assert third.file is not None
        assert len(disk.handles) == 2

    def test_without_a_descriptor_nothing_happens(
        self,
        disk: Disk,
        root: str,
        no_descriptor_left: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """What has to be opened is refused with an error that may pass, and no sync has failed."""
        replace_file(disk, f"{root}/a", b"old")
        attempts = (
            lambda: disk.open(f"{root}/b", create=True),
            lambda: disk.open(f"{root}/a"),
            lambda: disk.open_for_reading(f"{root}/a"),
            lambda: disk.list_directory(root),
            lambda: disk.open_directory(root),
            lambda: disk.sync_directory(root),
            lambda: sync_names(disk, root),
            lambda: replace_file(disk, f"{root}/a", b"new"),
        )
        with no_descriptor_left():
            errors = [_error_of(attempt) for attempt in attempts]

        assert [error is not None and lacks_descriptors(error) for error in errors] == [True] * 8
        assert disk.list_directory(root) == ["a"]
        assert read_file(disk, f"{root}/a") == b"old"
        sync_names(disk, root)

    def test_a_directory_that_is_open_can_be_synced(
        self,
        disk: Disk,
        root: str,
        no_descriptor_left: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """A name that is changed once its directory is open becomes durable for certain."""
        with Names(disk, root) as names, no_descriptor_left():
            disk.make_directory(f"{root}/a")
            names.sync()
            names.sync()

    # Locks.

    def test_one_holder_at_a_time(self, disk: Disk, root: str) -> None:
        """The second is refused and told who the first is; a released lock is free."""
        lock = disk.lock(f"{root}/.lock")
        with pytest.raises(AlreadyLockedError, match=r"in use by process \d+") as refused:
            disk.lock(f"{root}/.lock")
        lock.release()
        lock.release()

        assert root in refused.value.message
        disk.lock(f"{root}/.lock").release()

    # Helpers that live beside the interface.

    def test_replace_file(self, disk: Disk, root: str) -> None:
        """New content, old content replaced, leftovers of a crash in the way: one result."""
        replace_file(disk, f"{root}/a", b"one")
        disk.open(f"{root}/a.tmp", create=True).append([b"a torn attempt that is longer"])
        replace_file(disk, f"{root}/a", b"two")

        assert read_file(disk, f"{root}/a") == b"two"
        assert disk.list_directory(root) == ["a"]

    def test_parent_directory(self, disk: Disk, root: str) -> None:
        """The parent of a name is where it is listed."""
        disk.open(f"{root}/a", create=True)

        assert disk.list_directory(parent_directory(f"{root}/a")) == ["a"]
        assert parent_directory("a") == "."
