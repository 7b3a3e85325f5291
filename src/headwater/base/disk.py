"""The disk, as something that is handed in.

This file alone touches files. The log asks a ``Disk`` for everything, so that a test can hand in
one that tears writes, forgets what was not synced, or fails at operation N.

The contract that every implementation keeps, and that the log relies on:

* Bytes appended are readable at once, and durable only after ``File.sync`` returned.
* A created, renamed or removed name is durable only after ``Disk.sync_directory`` of its parent.
* ``rename`` replaces its target atomically.
* A failed ``append`` may leave a part of its bytes behind; the caller truncates.
* Where no descriptor is free, whatever has to open something raises EMFILE or ENFILE, and nothing
  has happened. In particular no sync was tried, so this is no failed sync.
* ``sync`` may be called from another thread than the one that appends.
* After a failed ``sync`` the file shows bytes that will never be durable, to later processes too:
  Linux keeps the pages, marks them clean, and the next sync has nothing to write. Writing the same
  bytes again in place does not help on ext4, where the blocks stay marked as never written. Only
  ``Disk.open_on_device`` tells; what is cut off and appended anew becomes durable as usual.
* After a failed ``Disk.sync_directory`` the file system refuses every change until it is mounted
  anew: names belong to its journal.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from headwater.base.direct_reader import DirectReader
from headwater.base.directory_lock import RealLock
from headwater.base.handles import Handles, lacks_descriptors
from headwater.base.private import (
    DIRECTORY_MODE,
    others_may_enter,
    private_opener,
    restrict_directory,
)

Buffer = bytes | bytearray | memoryview

_IOV_MAX = 1024
"""What one ``writev`` takes on Linux and macOS."""


class Syncable(Protocol):
    """Something whose current content can be made durable."""

    def sync(self) -> None:
        """Return when all that was written before the call survives a power cut."""
        ...


class File(Syncable, Protocol):
    """One open file, appended at its end, read at any place."""

    @property
    def path(self) -> str:
        """The name it was opened by."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers behind the end; on OSError a part of them may have been written."""
        ...

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``; shorter only at the end of the file."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes; durable after ``sync``."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, or -1 where there is none (memory)."""
        ...

    def close(self) -> None:
        """Give the descriptor back; harmless when repeated."""
        ...


class Directory(Syncable, Protocol):
    """One open directory; ``sync`` makes its names durable, as often as it is called."""

    def close(self) -> None:
        """Give the descriptor back; harmless when repeated."""
        ...


class Disk(Protocol):
    """Names and files."""

    @property
    def handles(self) -> Handles:
        """The open files, and how many there may be."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for appending and reading; FileNotFoundError unless it exists or ``create``."""
        ...

    def open_for_reading(self, path: str) -> File:
        """Open for reading only; the descriptor stays valid after the name is removed."""
        ...

    def open_on_device(self, path: str) -> File:
        """Open for reading what the device holds, which a failed sync may have kept from it.

        What is dirty in the page cache is written out before it is read.
        """
        ...

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory has this name."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; FileNotFoundError where there is none."""
        ...

    def is_directory(self, path: str) -> bool:
        """Tell whether the name is a directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Create one directory; the parent must exist; harmless when it exists."""
        ...

    def restrict(self, path: str) -> bool:
        """Keep all users but the owner out of a directory; say so if some could look in.

        Returns:
            Whether only its owner can open it now.
        """
        ...

    def others_may_enter(self, path: str) -> bool:
        """Tell whether `restrict` would keep somebody out."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, replacing the target atomically."""
        ...

    def remove(self, path: str) -> None:
        """Remove one file; FileNotFoundError where there is none."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        ...

    def open_directory(self, path: str) -> Directory:
        """Open a directory, so that its names can be synced even if no descriptor is free then."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; may be called from any thread."""
        ...

    def free_bytes(self, path: str) -> int:
        """Return how much room is left for us."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return how much the whole volume holds."""
        ...

    def lock(self, path: str) -> "DirectoryLock":
        """Take the lock file, or raise ``AlreadyLockedError`` with the holder's pid."""
        ...


class DirectoryLock(Protocol):
    """Held for as long as the process lives."""

    def release(self) -> None:
        """Let others in."""
        ...


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Give ``path`` this content, durably, so that a crash leaves the old or the new whole.

    Raises:
        OSError: ``path`` is as it was. Only EIO may mean that nobody knows which content a later
            start will find, so whoever meets it must stop writing (``may_pass`` tells them apart).
    """
    temporary = f"{path}.tmp"
    if disk.exists(temporary):
        disk.remove(temporary)
    with Names(disk, parent_directory(path)) as names:
        try:
            file = disk.open(temporary, create=True)
            try:
                file.append([content])
                file.sync()
            finally:
                file.close()
            disk.rename(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                disk.remove(temporary)
            raise
        names.sync()


class Names:
    """The names in a directory, which is open while the context lasts.

    To be entered before a name is changed that must become durable: from then on nothing but a
    failed sync can prevent that.
    """

    __slots__ = ("_directory", "_opened")

    def __init__(self, disk: Disk, directory: str) -> None:
        """Open the directory.

        Raises:
            OSError: It cannot be opened; no sync was tried.
        """
        self._directory = directory
        self._opened = disk.open_directory(directory)

    def __enter__(self) -> Self:
        """Go on with an open directory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._opened.close()

    def sync(self) -> None:
        """Make the names durable.

        Raises:
            OSError: Always EIO, also where the disk said that it is full: after a failed sync,
                whatever the reason, nobody knows what is durable.
        """
        try:
            self._opened.sync()
        except OSError as error:
            message = f"cannot be synced: {error}"
            raise OSError(errno.EIO, message, self._directory) from error


def sync_names(disk: Disk, directory: str) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: EMFILE or ENFILE where the directory could not be opened, and no sync was tried;
            any other trouble is EIO, as of ``Names``.
    """
    try:
        names = Names(disk, directory)
    except OSError as error:
        if lacks_descriptors(error):
            raise
        raise OSError(errno.EIO, f"cannot be synced: {error}", directory) from error
    with names:
        names.sync()


def may_pass(error: OSError) -> bool:
    """Tell whether writing may go on later: room or descriptors are short, nothing is broken.

    Never true of a failed sync, which leaves unknown what is on the disk.
    """
    return is_full(error) or lacks_descriptors(error)


def is_full(error: OSError) -> bool:
    """Tell whether there is no room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def remedy(error: OSError) -> str:
    """Say what to do about a lack that may pass."""
    if lacks_descriptors(error):
        return "allow the process more open files (ulimit -Hn), or connect fewer clients"
    return "free space: lower retention.bytes or retention.ms"


def parent_directory(path: str) -> str:
    """Return the directory a name is in; paths are plain strings, on every kind of disk."""
    return os.path.dirname(path) or "."  # noqa: PTH120


def read_file(disk: Disk, path: str) -> bytes:
    """Return the whole content of a file."""
    file = disk.open_for_reading(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def read_device_file(disk: Disk, path: str) -> bytes:
    """Return the whole content of a file as the device holds it."""
    file = disk.open_on_device(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


if sys.platform == "darwin":

    def sync_descriptor(descriptor: int) -> None:
        """Flush through the drive's own cache, which plain fsync on macOS does not."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:

    def sync_descriptor(descriptor: int) -> None:
        """Flush data and the metadata needed to read it back."""
        os.fdatasync(descriptor)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_handles", "_path", "_size")

    def __init__(self, path: str, flags: int, handles: Handles | None = None) -> None:
        """Open the descriptor; it closes with the object, so that late readers keep it alive."""
        self._descriptor = -1
        self._handles = handles
        self._descriptor = private_opener(path, flags)
        self._path = path
        self._size = os.fstat(self._descriptor).st_size
        if handles is not None:
            handles.opened(self)

    @property
    def path(self) -> str:
        """The name it was opened by."""
        return self._path

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers behind the end."""
        total = 0
        for buffer in buffers:
            total += len(buffer)
        if len(buffers) > _IOV_MAX:
            buffers = (b"".join(buffers),)
        written = os.writev(self._descriptor, buffers)
        if written != total:
            self._append_rest(buffers, written, total)
        self._size += total

    def _append_rest(self, buffers: Sequence[Buffer], written: int, total: int) -> None:
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            count = os.write(self._descriptor, rest)
            if count == 0:
                raise OSError(errno.EIO, f"wrote {total - len(rest)} of {total} bytes", self._path)
            rest = rest[count:]

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``."""
        chunk = os.pread(self._descriptor, size, position)
        if len(chunk) == size or not chunk:
            return chunk
        # One pread is cut at about 2 GiB and may be interrupted; only an empty one means the end.
        chunks = [chunk]
        got = len(chunk)
        while got < size:
            chunk = os.pread(self._descriptor, size - got, position + got)
            if not chunk:
                break
            chunks.append(chunk)
            got += len(chunk)
        return b"".join(chunks)

    def size(self) -> int:
        """Return the length in bytes, as this object knows it."""
        return self._size

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """Flush to the device."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        sync_descriptor(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            if self._handles is not None:
                self._handles.closed(self)
            os.close(descriptor)

    def __del__(self) -> None:
        """Close what nobody holds any more: a removed segment may still be on its way out."""
        self.close()


class DeviceFile(RealFile):
    """A file that is read past the page cache, where the file system can do that.

    Where it refuses O_DIRECT, the pages are dropped from the cache before they are read, which the
    kernel does for pages that no other process has mapped. Systems other than Linux offer neither:
    there the file is read as it is.
    """

    __slots__ = ("_direct",)

    def __init__(self, path: str, handles: Handles | None = None) -> None:
        """Open for reading only."""
        super().__init__(path, os.O_RDONLY, handles)
        self._direct: DirectReader | None = None
        if sys.platform == "linux":
            try:
                self._direct = DirectReader(self._descriptor)
            except OSError:
                self._drop_pages()

    def _drop_pages(self) -> None:
        os.fdatasync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, size: int, position: int) -> bytes:
        """Return up to ``size`` bytes at ``position``.

        Raises:
            OSError: EIO, also where the device gives less than the file has: what was written must
                not be taken for what never was.
        """
        chunk = self._read(size, position)
        if len(chunk) < min(size, self._size - position):
            message = f"cannot be read beyond byte {position + len(chunk)} of {self._size}"
            raise OSError(errno.EIO, message, self._path)
        return chunk

    def _read(self, size: int, position: int) -> bytes:
        if self._direct is not None and self._descriptor >= 0:
            try:
                return self._direct.read(size, position)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._direct.stop()
                self._direct = None
                self._drop_pages()
        return super().read(size, position)


class RealDirectory(RealFile):
    """A directory of the operating system."""

    __slots__ = ()

    def sync(self) -> None:
        """Flush the names; fdatasync may leave out a change that leaves the size as it was."""
        os.fsync(self._descriptor)


class RealDisk:
    """The operating system's files."""

    def __init__(self) -> None:
        """Open as many files as the system allows, until somebody sets ``handles.most``."""
        self.handles = Handles()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for appending and reading."""
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        return self.handles.open(lambda: RealFile(path, flags, self.handles))

    def open_for_reading(self, path: str) -> RealFile:
        """Open for reading only."""
        return self.handles.open(lambda: RealFile(path, os.O_RDONLY, self.handles))

    def open_directory(self, path: str) -> RealDirectory:
        """Open a directory."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        return self.handles.open_at_any_rate(lambda: RealDirectory(path, flags, self.handles))

    def open_on_device(self, path: str) -> DeviceFile:
        """Open for reading what the device holds."""
        return self.handles.open(lambda: DeviceFile(path, self.handles))

    def exists(self, path: str) -> bool:
        """Tell whether the name is taken."""
        return Path(path).exists()

    def list_directory(self, path: str) -> list[str]:
        """Return the names, sorted."""
        return sorted(os.listdir(path))  # noqa: PTH208 - names, not Path objects

    def is_directory(self, path: str) -> bool:
        """Tell whether the name is a directory."""
        return Path(path).is_dir()

    def make_directory(self, path: str) -> None:
        """Create one directory, which is its owner's alone."""
        Path(path).mkdir(mode=DIRECTORY_MODE, exist_ok=True)

    def restrict(self, path: str) -> bool:
        """Keep all users but the owner out."""
        return restrict_directory(Path(path))

    def others_may_enter(self, path: str) -> bool:
        """Tell whether `restrict` would keep somebody out."""
        return others_may_enter(Path(path))

    def rename(self, source: str, target: str) -> None:
        """Rename atomically."""
        Path(source).replace(target)

    def remove(self, path: str) -> None:
        """Remove one file."""
        Path(path).unlink()

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content."""
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Flush the directory's entries."""
        # Not by open_directory: only the thread that opens files may close idle ones.
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """Return what an unprivileged process may still write."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def total_bytes(self, path: str) -> int:
        """Return the size of the file system."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize

    def lock(self, path: str) -> RealLock:
        """Take the lock file or say who has it."""
        return RealLock(path)
