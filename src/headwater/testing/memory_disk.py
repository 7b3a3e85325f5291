"""A disk in memory that forgets what was not synced, and fails when told to.

This file alone decides what a power cut may do to files. It keeps the contract of
``headwater.base.disk`` and not one promise more, so that code which passes here relies on nothing
that only some file systems give:

* A file has a page cache and a durable content. Appends and truncates are a queue between the two,
  which ``File.sync`` empties. A power cut keeps a prefix of the queue, the last append perhaps
  torn, and may garble what it kept of the queue; it never touches durable bytes.
* A directory has the names a program sees and the durable ones. Creates, renames and removes are a
  queue between the two, which ``sync_directory`` empties. A power cut keeps none of the queue, or
  each of it by a toss of its own. A synced file whose name was not made durable is gone.
* A failed ``File.sync`` drops the bytes that were to be synced. Programs go on reading them from
  the page cache, also after a restart; later syncs succeed and do not write them. Only
  ``open_on_device`` and a power cut show that they are gone.
* After a failed ``sync_directory`` nothing can be changed until the next power cut: names belong to
  the file system's journal, and a file system that cannot write its journal goes read-only.

Every operation that changes something is numbered from 1 and traced; faults are set by number:

    disk = MemoryDisk()
    disk.fail_at(17, OSError(errno.ENOSPC, "no space left"))   # an append keeps a part of its bytes
    disk.cut_power_at(23)                                       # PowerCut, now and ever after
    disk = disk.crash(seed=4)                                   # what is found at the next start
"""

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, cast

from headwater.base.directory_lock import AlreadyLockedError
from headwater.base.disk import Buffer
from headwater.base.handles import Handles
from headwater.testing.memory_directory import MemoryDirectory
from headwater.testing.memory_nodes import DirectoryNode, FileNode, Node, size_of, survivor

Kind = Literal[
    "create",
    "append",
    "truncate",
    "sync",
    "make_directory",
    "rename",
    "remove",
    "sync_directory",
    "lock",
]
Keep = Literal["nothing", "some"]


class PowerCut(BaseException):
    """The machine lost power: no handler may catch it, no later operation succeeds."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change that was asked of the disk.

    Attributes:
        number: Counts from 1.
        kind: The method, in short.
        path: What it was asked for; the source of a rename.
        detail: The target of a rename, the number of bytes of an append or truncate.
    """

    number: int
    kind: Kind
    path: str
    detail: str = ""

    def __str__(self) -> str:
        """Show it as one line of a trace."""
        return f"{self.number:4} {self.kind:14} {self.path} {self.detail}".rstrip()


@dataclass(slots=True)
class _Fault:
    error: BaseException
    keep_bytes: int | None


class MemoryFile:
    """An open file of a ``MemoryDisk``."""

    def __init__(
        self,
        disk: "MemoryDisk",
        path: str,
        node: FileNode,
        *,
        writable: bool = False,
        on_device: bool = False,
    ) -> None:
        """Hold the file itself, so that it outlives its name."""
        self._disk = disk
        self._path = path
        self._node = node
        self._writable = writable
        self._on_device = on_device
        self._closed = False
        disk.handles.opened(self)

    @property
    def path(self) -> str:
        """The name it was opened by."""
        return self._path

    def _check(self, *, writing: bool) -> None:
        if self._closed or (writing and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers behind the end, or a part of them and raise."""
        self._check(writing=True)
        content = b"".join(buffers)
        with self._disk.operation("append", self._path, str(len(content))) as fault:
            kept = self._disk.room_for(content)
            if fault is not None:
                at = len(content) // 2 if fault.keep_bytes is None else fault.keep_bytes
                kept = kept[:at]
            if kept:
                self._node.append(kept)
            if fault is None and len(kept) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``."""
        self._check(writing=False)
        self._disk.reading(self._path)
        content = self._node.on_device() if self._on_device else self._node.cached
        return bytes(memoryview(content)[position : position + size])

    def size(self) -> int:
        """Return the length in bytes."""
        return len(self._node.cached)

    def truncate(self, size: int) -> None:
        """Cut the file; a larger size fills with zeros, as the operating system does."""
        self._check(writing=True)
        with self._disk.operation("truncate", self._path, str(size)) as fault:
            if fault is None:
                self._node.truncate(size)

    def sync(self) -> None:
        """Make durable what was written since the last sync, unless this one fails or lies."""
        self._check(writing=False)
        with self._disk.operation("sync", self._path) as fault:
            if fault is not None:
                self._node.fail_sync()
            elif not self._disk.lies():
                self._node.sync()

    def fileno(self) -> int:
        """Return -1: there is no descriptor to send from."""
        return -1

    def close(self) -> None:
        """Refuse everything from now on."""
        self._closed = True
        self._disk.handles.closed(self)

    __del__ = close  # with the object, as a real file does


class _Attempt:
    """The body of one operation: runs it under the disk's lock, then raises the fault, if any."""

    __slots__ = ("_disk", "_fault", "_operation")

    def __init__(self, disk: "MemoryDisk", operation: Operation, fault: _Fault | None) -> None:
        self._disk = disk
        self._operation = operation
        self._fault = fault

    def __enter__(self) -> _Fault | None:
        return self._fault

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._disk.finish(self._operation)
        if self._fault is not None:
            raise self._fault.error


class MemoryDisk:
    """Names and files in memory, with a page cache that a power cut empties.

    Attributes:
        trace: Every operation so far, the failed ones too.
        capacity_bytes: What all files together may hold; appends beyond it raise ENOSPC.
        lie: Asked with each ``sync`` and ``sync_directory``; where it answers true the call returns
            as if all were well and makes nothing durable. It runs inside the call, so it can look
            at the stack to see who asked.
        on_read: Called with the path before every read; may raise.
        read_only: Whether the sync of a directory has failed, so that every change is refused.
        on_open: Called with the path before anything is opened, a directory too; may raise.
        after_operation: Called when an operation has happened or failed, to look at the disk.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        """Start with an empty root directory."""
        self.trace: list[Operation] = []
        self.capacity_bytes = capacity_bytes
        self.lie: Callable[[Operation], bool] | None = None
        self.on_read: Callable[[str], None] | None = None
        self.on_open: Callable[[str], None] = lambda _: None
        self.handles = Handles()
        self.after_operation: Callable[[Operation], None] | None = None
        self.read_only = False
        self._root = DirectoryNode()
        self._faults: dict[int, _Fault] = {}
        self._cut_at: tuple[int, bool] | None = None
        self._powered = True
        self._locks: dict[str, int] = {}
        self._guard = threading.RLock()

    # The Disk protocol.

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Open for appending and reading."""
        self.handles.open(lambda: self.on_open(path))
        parent, name = self._parent(path)
        node = parent.cached.get(name)
        if node is None and create:
            with self.operation("create", path) as fault:
                node = FileNode()
                if fault is None:
                    parent.bind({name: node})
        return MemoryFile(self, path, self._as_file(path, node), writable=True)

    def open_for_reading(self, path: str) -> MemoryFile:
        """Open for reading only."""
        self.handles.open(lambda: self.on_open(path))
        return MemoryFile(self, path, self._as_file(path, self._find(path)))

    def open_on_device(self, path: str) -> MemoryFile:
        """Open for reading what the device holds."""
        self.handles.open(lambda: self.on_open(path))
        return MemoryFile(self, path, self._as_file(path, self._find(path)), on_device=True)

    def exists(self, path: str) -> bool:
        """Tell whether the name is taken."""
        return self._find(path) is not None

    def list_directory(self, path: str) -> list[str]:
        """Return the names, sorted."""
        self.on_open(path)
        return sorted(self._directory(path).cached)

    def is_directory(self, path: str) -> bool:
        """Tell whether the name is a directory."""
        return isinstance(self._find(path), DirectoryNode)

    def make_directory(self, path: str) -> None:
        """Create one directory."""
        parent, name = self._parent(path)
        if isinstance(parent.cached.get(name), DirectoryNode):
            return
        if name in parent.cached:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self.operation("make_directory", path) as fault:
            if fault is None:
                parent.bind({name: DirectoryNode()})

    def restrict(self, path: str) -> bool:
        """Do nothing: files in memory have no modes."""
        self._directory(path)
        return True

    def others_may_enter(self, path: str) -> bool:
        """Tell that they may not: there is nobody else."""
        self._directory(path)
        return False

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; between two directories each side is made durable by itself."""
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        node = old_parent.cached.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        _check_replaceable(node, new_parent.cached.get(new_name), target)
        with self.operation("rename", source, f"-> {target}") as fault:
            if fault is not None or node is new_parent.cached.get(new_name):
                pass
            elif old_parent is new_parent:
                old_parent.bind({old_name: None, new_name: node})
            else:
                new_parent.bind({new_name: node})
                old_parent.bind({old_name: None})

    def remove(self, path: str) -> None:
        """Remove one file."""
        parent, name = self._parent(path)
        self._as_file(path, parent.cached.get(name))
        with self.operation("remove", path) as fault:
            if fault is None:
                parent.bind({name: None})

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content, one name at a time, as a real disk does."""
        for name in self.list_directory(path):
            child = f"{path}/{name}"
            if self.is_directory(child):
                self.remove_tree(child)
            else:
                self.remove(child)
        parent, name = self._parent(path)
        with self.operation("remove", path) as fault:
            if fault is None:
                parent.bind({name: None})

    def open_directory(self, path: str) -> MemoryDirectory:
        """Open a directory."""
        self.handles.open_at_any_rate(lambda: self.on_open(path))
        self._directory(path)
        return MemoryDirectory(lambda: self.sync_opened(path))

    def sync_directory(self, path: str) -> None:
        """Make the names durable; the directory is opened for that."""
        self.on_open(path)
        self.sync_opened(path)

    def sync_opened(self, path: str) -> None:
        """Make the names durable, unless this sync fails or lies."""
        node = self._directory(path)
        with self.operation("sync_directory", path) as fault:
            if fault is not None:
                self.read_only = True
            elif not self.lies():
                node.sync()

    def free_bytes(self, path: str) -> int:
        """Return the rest of the capacity, a tebibyte where none is set."""
        self._directory(path)
        if self.capacity_bytes is None:
            return 1 << 40
        return max(0, self.capacity_bytes - self.used_bytes())

    def total_bytes(self, path: str) -> int:
        """Return the capacity, a tebibyte where none is set."""
        self._directory(path)
        return 1 << 40 if self.capacity_bytes is None else self.capacity_bytes

    def lock(self, path: str) -> "MemoryLock":
        """Take the lock file or say who has it."""
        holder = self._locks.get(path)
        if holder is not None:
            message = f"{path.rpartition('/')[0]} is in use by process {holder}"
            raise AlreadyLockedError(message, hint="stop it or choose another directory")
        self.open(path, create=True).close()
        with self.operation("lock", path) as fault:
            if fault is None:
                self._locks[path] = os.getpid()
        return MemoryLock(self, path)

    def unlock(self, path: str) -> None:
        """Forget the holder of a lock file."""
        self._locks.pop(path, None)

    # Faults.

    @property
    def operations(self) -> int:
        """How many operations were asked for so far."""
        return len(self.trace)

    def fail_at(self, number: int, error: BaseException, *, keep_bytes: int | None = None) -> None:
        """Let operation ``number`` raise ``error`` instead of happening.

        Args:
            number: Counted from 1, as in ``trace``.
            error: Raised as it is.
            keep_bytes: What a failing append writes before it fails; half of it by default.
        """
        self._faults[number] = _Fault(error, keep_bytes)

    def cut_power_at(self, number: int, *, after: bool = False) -> None:
        """Raise ``PowerCut`` instead of operation ``number``, or when it has just happened."""
        self._cut_at = (number, after)

    def cut_power(self) -> None:
        """Let every operation from now on raise ``PowerCut``."""
        self._powered = False

    def crash(self, seed: int, *, keep: Keep = "some") -> "MemoryDisk":
        """Cut the power; return what is found at the next start. This disk is dead from now on.

        Args:
            seed: Decides everything that is left to chance.
            keep: Whether some of what was not synced survives, or nothing of it.
        """
        self.cut_power()
        return self.after_power_cut(seed, keep=keep)

    def after_power_cut(self, seed: int, *, keep: Keep = "some") -> "MemoryDisk":
        """Return what would be found if the power went now; this disk goes on."""
        found = MemoryDisk(capacity_bytes=self.capacity_bytes)
        dice = random.Random(seed) if keep == "some" else None  # noqa: S311 - replayable by design
        found._root = cast("DirectoryNode", survivor(self._root, dice, {}))
        return found

    def after_kill(self) -> "MemoryDisk":
        """Return what the next process would find if this one was killed now; this disk goes on."""
        found = MemoryDisk(capacity_bytes=self.capacity_bytes)
        found._root = deepcopy(self._root)
        found.read_only = self.read_only
        return found

    def restart(self) -> "MemoryDisk":
        """Return the disk as the next process finds it: page cache whole, locks released.

        Trace and faults go on as they were.
        """
        found = MemoryDisk(capacity_bytes=self.capacity_bytes)
        found._root = self._root
        found.trace, found.read_only = self.trace, self.read_only
        found.lie, found.on_read, found.on_open = self.lie, self.on_read, self.on_open
        found.after_operation = self.after_operation
        found._faults, found._cut_at, found._powered = self._faults, self._cut_at, self._powered
        self.cut_power()
        return found

    def used_bytes(self) -> int:
        """Return the size of all files that have a name."""
        return size_of(self._root)

    # What files and attempts ask of the disk they belong to.

    def operation(self, kind: Kind, path: str, detail: str = "") -> _Attempt:
        """Number and trace one operation, and say which fault is to be raised after it."""
        self._guard.acquire()
        try:
            self._check_power()
            self._check_writable(path)
            operation = Operation(len(self.trace) + 1, kind, path, detail)
            self.trace.append(operation)
            if self._cut_at == (operation.number, False):
                self.cut_power()
                self._check_power()
        except BaseException:
            self._guard.release()
            raise
        return _Attempt(self, operation, self._faults.pop(operation.number, None))

    def finish(self, operation: Operation) -> None:
        """End what ``operation`` began."""
        self._guard.release()
        if self.after_operation is not None:
            self.after_operation(operation)
        if self._cut_at == (operation.number, True):
            self.cut_power()
            self._check_power()

    def lies(self) -> bool:
        """Tell whether the operation under way shall only pretend."""
        return self.lie is not None and self.lie(self.trace[-1])

    def reading(self, path: str) -> None:
        """Let a read fail where a test asked for it."""
        self._check_power()
        if self.on_read is not None:
            self.on_read(path)

    def room_for(self, content: bytes) -> bytes:
        """Return as much of the content as the capacity allows."""
        if self.capacity_bytes is None:
            return content
        return content[: max(0, self.capacity_bytes - self.used_bytes())]

    def _check_power(self) -> None:
        if not self._powered:
            raise PowerCut

    def _check_writable(self, path: str) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def _find(self, path: str) -> Node | None:
        self._check_power()
        node: Node | None = self._root
        for name in filter(None, path.split("/")):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.cached.get(name)
        return node

    def _directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    @staticmethod
    def _as_file(path: str, node: Node | None) -> FileNode:
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node


class MemoryLock:
    """A lock that is gone when released or when the machine is."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        """Name what is held."""
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Let others in."""
        self._disk.unlock(self._path)


def _check_replaceable(node: Node, target: Node | None, path: str) -> None:
    """Refuse what ``rename(2)`` refuses."""
    if isinstance(node, DirectoryNode) and isinstance(target, FileNode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if isinstance(target, DirectoryNode) and target is not node:
        if isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if target.cached:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
