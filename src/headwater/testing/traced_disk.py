"""A disk that tells somebody else what it was asked to do.

This file alone decides what a trace looks like and what follows from one. A process under test
works on a ``TracedDisk``; whoever kills it replays the trace on a ``MemoryDisk`` and knows which
bytes and which names had been synced: the page cache, which outlives the process, hides that.

A trace is never too hopeful:

* A change (open, make_directory, append, truncate, rename, remove, remove_tree) is made and then
  reported, both under one lock. So a trace lists changes in their order, and at the moment of
  death at most one was made and not reported. Nobody can have been told of that one.
* A sync is reported twice, under the lock but not during the sync itself: ``sync`` before it, so
  that what it covers is all that the trace has above this line; ``synced`` after it returned.
  Without the second line it did not happen.

``report`` gets each event as bytes and must have handed them to the kernel when it returns: written
to a file or a pipe they survive a SIGKILL. Paths are reported relative to ``root``.

    [4 length of the description][4 length of the content][description: JSON][content]

    ["open", 3, "/data/log/a-0/0.log"]    a handle, which later events name; creates the file if new
    ["append", 3]                         the content is what was written
    ["truncate", 3, 512]
    ["sync", 3]                           its event number is what ``synced`` names
    ["synced", 17]
    ["sync_directory", "/data/log"]
    ["rename", "/data/a.tmp", "/data/a"]  the others name a path alone
"""

import contextlib
import itertools
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from headwater.base.disk import Buffer, Directory, DirectoryLock, Disk, File
from headwater.base.handles import Handles
from headwater.testing.memory_disk import MemoryDisk, MemoryFile

_LENGTHS: Final = struct.Struct(">II")


class Event(NamedTuple):
    """One line of a trace.

    Attributes:
        number: Counts from 1.
        kind: The method, in short.
        arguments: Handles, paths and numbers, as listed above.
        content: What was appended.
    """

    number: int
    kind: str
    arguments: tuple[Any, ...]
    content: bytes = b""

    def __str__(self) -> str:
        """Show it as one line."""
        arguments = " ".join(map(str, self.arguments))
        size = f" {len(self.content)} bytes" if self.content else ""
        return f"{self.number:5} {self.kind:14} {arguments}{size}"


class TracedFile:
    """An open file whose changes are reported."""

    def __init__(self, disk: "TracedDisk", file: File, handle: int) -> None:
        """Wrap a file that was opened for appending."""
        self._disk = disk
        self._handle = handle
        self.inner = file

    @property
    def path(self) -> str:
        """The name it was opened by."""
        return self.inner.path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers behind the end; what a failed write left behind is reported too."""
        content = b"".join(buffers)
        end = self.inner.size()
        with self._disk.changing("append", self._handle) as report:
            try:
                self.inner.append(buffers)
            except OSError:
                with contextlib.suppress(OSError):
                    report(self.inner.read(len(content), end))
                raise
            report(content)

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``."""
        return self.inner.read(size, position)

    def size(self) -> int:
        """Return the length in bytes."""
        return self.inner.size()

    def truncate(self, size: int) -> None:
        """Cut the file."""
        with self._disk.changing("truncate", self._handle, size) as report:
            self.inner.truncate(size)
            report()

    def sync(self) -> None:
        """Make the content durable."""
        number = self.begin_sync()
        self.inner.sync()
        self.end_sync(number)

    def begin_sync(self) -> int:
        """Say that a sync of ``inner`` follows; return the number for ``end_sync``.

        For whoever syncs ``inner`` by other means than ``sync``, such as the kernel's own queue.
        """
        return self._disk.begin_sync("sync", self._handle, self.path)

    def end_sync(self, number: int) -> None:
        """Say that the sync has returned."""
        self._disk.end_sync(number)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.inner.fileno()

    def close(self) -> None:
        """Give the descriptor back."""
        self.inner.close()


class TracedDirectory(NamedTuple):
    """An open directory whose syncs are reported."""

    disk: "TracedDisk"
    inner: Directory
    relative: str
    path: str

    def sync(self) -> None:
        """Make the names durable."""
        number = self.disk.begin_sync("sync_directory", self.relative, self.path)
        self.inner.sync()
        self.disk.end_sync(number)

    def close(self) -> None:
        """Give the descriptor back."""
        self.inner.close()


class TracedDisk:
    """Passes everything on to another disk and reports what changes something.

    Attributes:
        operations: How many events there were so far.
        before: Called with number and kind of each event before it happens, under the lock; the
            place to die at.
        lie: Asked with kind and path of each sync; where it answers true the sync is made and not
            reported, so that a trace looks as if the program had never asked for it.
    """

    def __init__(self, disk: Disk, root: str, report: Callable[[bytes], object]) -> None:
        """Trace what happens below ``root``, an existing directory."""
        self._disk = disk
        self._root = root
        self._report = report
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self.operations = 0
        self.before: Callable[[int, str], None] | None = None
        self.lie: Callable[[str, str], bool] | None = None

    @property
    def handles(self) -> Handles:
        """The open files of the disk beneath."""
        return self._disk.handles

    # Reading is not reported.

    def open_for_reading(self, path: str) -> File:
        """Open for reading only: the file of the disk beneath, which can be sent from."""
        return self._disk.open_for_reading(path)

    def open_on_device(self, path: str) -> File:
        """Open for reading what the device holds."""
        return self._disk.open_on_device(path)

    def exists(self, path: str) -> bool:
        """Tell whether the name is taken."""
        return self._disk.exists(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names, sorted."""
        return self._disk.list_directory(path)

    def is_directory(self, path: str) -> bool:
        """Tell whether the name is a directory."""
        return self._disk.is_directory(path)

    def free_bytes(self, path: str) -> int:
        """Return how much room is left."""
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        """Return how much the whole volume holds."""
        return self._disk.total_bytes(path)

    def lock(self, path: str) -> DirectoryLock:
        """Take the lock file, which is no part of a trace: its content means nothing later."""
        return self._disk.lock(path)

    # Changing is.

    def open(self, path: str, *, create: bool = False) -> TracedFile:
        """Open for appending and reading."""
        handle = next(self._handles)
        with self.changing("open", handle, self._relative(path)) as report:
            file = self._disk.open(path, create=create)
            report()
        return TracedFile(self, file, handle)

    def make_directory(self, path: str) -> None:
        """Create one directory."""
        with self.changing("make_directory", self._relative(path)) as report:
            self._disk.make_directory(path)
            report()

    def restrict(self, path: str) -> bool:
        """Keep all users but the owner out; modes are no part of a trace."""
        return self._disk.restrict(path)

    def others_may_enter(self, path: str) -> bool:
        """Tell whether `restrict` would keep somebody out."""
        return self._disk.others_may_enter(path)

    def rename(self, source: str, target: str) -> None:
        """Rename atomically."""
        paths = (self._relative(source), self._relative(target))
        with self.changing("rename", *paths) as report:
            self._disk.rename(source, target)
            report()

    def remove(self, path: str) -> None:
        """Remove one file."""
        with self.changing("remove", self._relative(path)) as report:
            self._disk.remove(path)
            report()

    def remove_tree(self, path: str) -> None:
        """Remove a directory, one name at a time: a death in between leaves a part of it."""
        for name in self._disk.list_directory(path):
            child = f"{path}/{name}"
            if self._disk.is_directory(child):
                self.remove_tree(child)
            else:
                self.remove(child)
        with self.changing("remove_tree", self._relative(path)) as report:
            self._disk.remove_tree(path)
            report()

    def open_directory(self, path: str) -> "TracedDirectory":
        """Open a directory."""
        return TracedDirectory(self, self._disk.open_directory(path), self._relative(path), path)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        number = self.begin_sync("sync_directory", self._relative(path), path)
        self._disk.sync_directory(path)
        self.end_sync(number)

    # What files ask of their disk.

    @contextlib.contextmanager
    def changing(self, kind: str, *arguments: Any) -> Iterator[Callable[..., None]]:  # noqa: ANN401
        """Hold the lock around one change; the caller reports it once it is made."""
        with self._lock:
            self._announce(kind)
            yield lambda content=b"": self._tell(kind, arguments, content)

    def begin_sync(self, kind: str, what: int | str, path: str) -> int:
        """Report that a sync follows; return its number, 0 where nothing shall be known of it."""
        with self._lock:
            self._announce(kind)
            if self.lie is not None and self.lie(kind, path):
                return 0
            self._tell(kind, (what,))
            return self.operations

    def end_sync(self, number: int) -> None:
        """Report that a sync has returned."""
        with self._lock:
            self._announce("synced")
            if number:
                self._tell("synced", (number,))

    def _relative(self, path: str) -> str:
        assert path == self._root or path.startswith(f"{self._root}/"), f"{path} is elsewhere"
        return path.removeprefix(self._root)

    def _announce(self, kind: str) -> None:
        if self.before is not None:
            self.before(self.operations + 1, kind)

    def _tell(self, kind: str, arguments: tuple[Any, ...], content: bytes = b"") -> None:
        self.operations += 1
        description = json.dumps([kind, *arguments]).encode()
        self._report(_LENGTHS.pack(len(description), len(content)) + description + content)


def read_trace(trace: bytes) -> list[Event]:
    """Return the events of a trace; one that was cut by the death of its process is left out."""
    events: list[Event] = []
    position = 0
    while position + _LENGTHS.size <= len(trace):
        description_bytes, content_bytes = _LENGTHS.unpack_from(trace, position)
        start = position + _LENGTHS.size
        middle = start + description_bytes
        position = middle + content_bytes
        if position > len(trace):
            break
        kind, *arguments = json.loads(trace[start:middle])
        event = Event(len(events) + 1, kind, tuple(arguments), trace[middle:position])
        events.append(event)
    return events


def replay(events: Sequence[Event], disk: MemoryDisk) -> None:
    """Let a disk in memory go through the same events.

    A sync that returned is made at the place where it began: it covers what came before that, and
    perhaps more, which nobody may count on.
    """
    returned = {event.arguments[0] for event in events if event.kind == "synced"}
    files: dict[int, MemoryFile] = {}
    for event in events:
        match event.kind, event.arguments:
            case "open", (handle, path):
                files[handle] = disk.open(path, create=True)
            case "append", (handle,):
                files[handle].append((event.content,))
            case "truncate", (handle, size):
                files[handle].truncate(size)
            case "sync", (handle,):
                if event.number in returned:
                    files[handle].sync()
            case "sync_directory", (path,):
                if event.number in returned:
                    disk.sync_directory(path)
            case "make_directory" | "remove" | "remove_tree" | "rename", paths:
                getattr(disk, event.kind)(*paths)
            case "synced", _:
                pass
            case unknown:
                raise ValueError(f"no event is {unknown}")


def lay_out(disk: MemoryDisk, directory: str, path: str = "") -> None:
    """Write all that a disk in memory holds below ``path`` into an empty directory."""
    for name in disk.list_directory(path):
        child, target = f"{path}/{name}", f"{directory}/{name}"
        if disk.is_directory(child):
            os.mkdir(target)  # noqa: PTH102 - paths are plain strings, on every kind of disk
            lay_out(disk, target, child)
        else:
            file = disk.open_for_reading(child)
            with open(target, "wb") as written:  # noqa: PTH123
                written.write(file.read(file.size(), 0))
