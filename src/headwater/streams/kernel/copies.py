"""Copies of chunks on this machine, mapped into memory, so that a batch reads only what it touches.

This file alone decides when a copy is made, believed and thrown away. The state store has the
truth: a copy can be missing, damaged or removed at any time, by whoever, and nothing but time is
lost. It knows nothing of what is in a chunk.

A copy is a file named after its content. It is written under another name and then renamed, so a
file that has its name is whole, unless the machine has crashed: therefore each process checks its
bytes against its name when it first opens it. Nobody ever writes to it again; who removes it leaves
it to those that have it mapped. So processes share a directory without asking each other.

A directory that is full, cannot be written, or could be written by another user is done without:
chunks then come from the store, and a few stay in memory. One thread uses an object of this class.
"""

import contextlib
import os
import stat
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from headwater.streams.kernel.chunks import Chunk, ChunkStore, damaged, name_of

DISK_BYTES_MAX: Final = 8 * 1024**3
"""What the files may take together."""

MEMORY_BYTES_MAX: Final = 64 * 1024**2
"""What chunks of which there is no file may take in a process."""

OPENED_MAX: Final = 4096
"""Chunks that stay mapped: Linux allows a process 65,530 mappings, and Spark has its own."""

_SUFFIX: Final = ".chunk"
_UNFINISHED_SUFFIX: Final = ".unfinished"
# Files are counted when this process has added a sixteenth of what may be there: counting costs
# a look at each file, and a few processes cannot overshoot by much.
_COUNT_AFTER: Final = 16
# What is thrown away at once, so that the next chunk does not start it again.
_SPARE: Final = 8
# How often a chunk is used before its file is marked as used again.
_USES_EACH_MARK: Final = 64
# How many chunks are not written after one could not be: a full disk is not tried each time.
_REST_AFTER_FAILURE: Final = 256


class _Opened(NamedTuple):
    data: pa.Buffer
    is_mapped: bool


class LocalCopies:
    """A directory of chunks, shared by the processes of a machine."""

    def __init__(
        self,
        directory: Path,
        *,
        disk_bytes_max: int = DISK_BYTES_MAX,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        opened_max: int = OPENED_MAX,
        file_bytes_min: int = 0,
    ) -> None:
        """Use a directory, which need not exist yet.

        Args:
            directory: Where the files are.
            disk_bytes_max: What they may take together.
            memory_bytes_max: What chunks of which there is no file may take in this process.
            opened_max: How many chunks stay mapped.
            file_bytes_min: Of what is smaller there is no file.
        """
        self._directory = directory
        self._disk_bytes_max = disk_bytes_max
        self._memory_bytes_max = memory_bytes_max
        self._opened_max = opened_max
        self._file_bytes_min = file_bytes_min
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._memory_bytes = 0
        self._uses = 0
        self._rest = 0
        self._is_ours = False
        # As if so much had been added: what earlier processes have left is counted at once.
        self._added_bytes = disk_bytes_max

    def over(self, store: ChunkStore) -> ChunkStore:
        """Return a store that asks the given one only for chunks of which there is no copy."""
        return _Over(self, store)

    def keep(self, chunk: Chunk) -> None:
        """Make a copy of a chunk that has just been written to the store."""
        if chunk.name not in self._opened:
            self._add(chunk.name, chunk.data())

    def get(self, name: str) -> pa.Buffer | None:
        """Return the bytes of a chunk, if there is a copy of it."""
        opened = self._opened.get(name)
        if opened is not None:
            self._opened.move_to_end(name)
            self._uses += 1
            if opened.is_mapped and self._uses % _USES_EACH_MARK == 0:
                self._mark_used(name)
            return opened.data
        data = self._mapped(name)
        if data is None:
            return None
        if name_of(data) != name:
            self._remove(self._path(name))
            return None
        self._mark_used(name)
        self._open(name, _Opened(data, is_mapped=True))
        return data

    def fetched(self, name: str, data: pa.Buffer) -> pa.Buffer:
        """Take in what the store had, and return the same bytes, from the copy if there is one.

        Raises:
            StateDamagedError: These are not the bytes that were written under this name.
        """
        if name_of(data) != name:
            raise damaged(name)
        return self._add(name, data)

    def _add(self, name: str, data: pa.Buffer) -> pa.Buffer:
        mapped = self._mapped(name) if self._write(name, data) else None
        # The bytes were just written by us; reading them all back would prove nothing new.
        kept = _Opened(mapped or data, is_mapped=mapped is not None)
        self._open(name, kept)
        return kept.data

    def _open(self, name: str, opened: _Opened) -> None:
        self._opened[name] = opened
        self._memory_bytes += 0 if opened.is_mapped else opened.data.size
        while len(self._opened) > self._opened_max or self._memory_bytes > self._memory_bytes_max:
            _, closed = self._opened.popitem(last=False)
            self._memory_bytes -= 0 if closed.is_mapped else closed.data.size

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"

    def _check_owner(self) -> None:
        """Refuse a directory in which another user could change what was checked."""
        if self._is_ours:
            return
        status = self._directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{self._directory} belongs to somebody else")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{self._directory} can be written by others")
        self._is_ours = True

    def _mapped(self, name: str) -> pa.Buffer | None:
        try:
            self._check_owner()
            # The mapping outlives the file that it was made from, and holds no descriptor.
            with pa.memory_map(str(self._path(name))) as file:
                data = file.read_buffer()
        except (OSError, pa.ArrowInvalid):
            return None
        return data if data.size else None

    def _write(self, name: str, data: pa.Buffer) -> bool:
        """Write a file, and return whether it is there."""
        if data.size < self._file_bytes_min:
            return False
        if self._rest:
            self._rest -= 1
            return False
        unfinished: str | None = None
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_owner()
            descriptor, unfinished = tempfile.mkstemp(_UNFINISHED_SUFFIX, dir=self._directory)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(unfinished).rename(self._path(name))
        except OSError:
            if unfinished is not None:
                self._remove(Path(unfinished))
            self._rest = _REST_AFTER_FAILURE
            return False
        self._added_bytes += data.size
        if self._added_bytes * _COUNT_AFTER > self._disk_bytes_max:
            self._make_room()
            self._added_bytes = 0
        return True

    def _make_room(self) -> None:
        """Remove what was not used for longest, if there is too much."""
        found: list[tuple[int, str, int]] = []
        with contextlib.suppress(OSError), os.scandir(self._directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    found.append((status.st_mtime_ns, entry.name, status.st_size))
        size = sum(bytes_ for _, _, bytes_ in found)
        if size <= self._disk_bytes_max:
            return
        for _, name, bytes_ in sorted(found):
            self._remove(self._directory / name)
            size -= bytes_
            if size <= self._disk_bytes_max - self._disk_bytes_max // _SPARE:
                return

    def _mark_used(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._path(name))

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()


class _Over:
    """A store behind the copies of a machine."""

    def __init__(self, copies: LocalCopies, store: ChunkStore) -> None:
        self._copies = copies
        self._store = store

    def get(self, name: str) -> pa.Buffer:
        found = self._copies.get(name)
        if found is not None:
            return found
        return self._copies.fetched(name, self._store.get(name))
