"""What a partition has written that a power cut may still take.

This file alone decides what a commit must sync before its end may be acknowledged: files with new
bytes, and names. A new name is durable only when its directory is synced, so the directory belongs
to the commit as much as the data does. It knows nothing of offsets.

A commit goes round like this, and only one is under way at a time:

    begin   the list is handed over and a new one starts, for whatever is written meanwhile
    ...     each of the list is synced, by any thread, in any order
    end     handles that only waited to be synced are closed

Between begin and end every handle is held here: a syncer may know it by its number alone.
"""

import contextlib
import errno
from collections.abc import Sequence

from headwater.base.disk import Disk, File, Syncable
from headwater.log.names import TEMPORARY


class NamesSync:
    """New and replaced names of a partition, made durable in the one order that is safe."""

    __slots__ = ("_directories", "_disk", "_replacements")

    def __init__(
        self, disk: Disk, replacements: Sequence[tuple[File, str]], directories: Sequence[str]
    ) -> None:
        """Take written temporary files with their final names, and the directories to sync."""
        self._disk = disk
        self._replacements = replacements
        self._directories = directories

    def sync(self) -> None:
        """Sync content before a name points at it, and the directory after.

        A directory that was deleted meanwhile needs no names.
        """
        for file, path in self._replacements:
            file.sync()
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(file.path, path)
            file.close()
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                self._disk.sync_directory(directory)


class Unsynced:
    """The files and names that the next commit syncs, and those of the one under way."""

    __slots__ = ("_directories", "_disk", "_files", "_replacements", "_under_way")

    def __init__(self, disk: Disk) -> None:
        """Start clean."""
        self._disk = disk
        self._files: list[File] = []
        self._replacements: list[tuple[File, str]] = []
        self._directories: list[str] = []
        self._under_way: tuple[list[File], File | None] | None = None

    def __bool__(self) -> bool:
        """Tell whether the next commit has anything to sync."""
        return bool(self._files or self._replacements or self._directories)

    @property
    def under_way(self) -> bool:
        """Whether a commit has begun and not ended."""
        return self._under_way is not None

    @property
    def has_files(self) -> bool:
        """Whether files other than the active segment's are not known to be durable."""
        return bool(self._files or (self._under_way and self._under_way[0]))

    def add_file(self, file: File) -> None:
        """Sync a file with the next commit, then close it."""
        self._files.append(file)

    def add_names(self, directory: str) -> None:
        """Sync a directory with the next commit."""
        if directory not in self._directories:
            self._directories.append(directory)

    def replace(self, path: str, content: bytes) -> None:
        """Give `path` this content with the next commit; the bytes are written now.

        Raises:
            OSError: There is no room; nothing was changed.
        """
        temporary = path + TEMPORARY
        file = self._disk.open(temporary, create=True)
        try:
            if file.size():
                file.truncate(0)
            file.append((content,))
        except OSError:
            file.close()
            raise
        self._replacements.append((file, path))

    def sync_files(self) -> None:
        """Sync all files but the active segment's at once, for what cannot wait for a commit.

        Raises:
            OSError: EIO, as of `sync_now`.
        """
        for file in (*self._files, *(self._under_way[0] if self._under_way else ())):
            sync_now(file)

    def begin(self, active: File | None) -> list[Syncable]:
        """Hand over what is to be synced, with the appender of the active segment if it is."""
        assert self._under_way is None, "one commit at a time"
        self._under_way = self._files, active
        items: list[Syncable] = list(self._files)
        if active is not None:
            items.append(active)
        if self._replacements or self._directories:
            items.append(NamesSync(self._disk, self._replacements, self._directories))
        self._files = []
        self._replacements = []
        self._directories = []
        return items

    def end(self) -> None:
        """Close what was handed over and is needed no more."""
        assert self._under_way is not None, "a commit is under way"
        for file in self._under_way[0]:
            file.close()
        self._under_way = None


def sync_now(item: Syncable) -> None:
    """Sync something at once.

    Raises:
        OSError: Always EIO, also where the disk said that it is full: after a failed sync, whatever
            the reason, nobody knows what is durable.
    """
    try:
        item.sync()
    except OSError as error:
        raise OSError(errno.EIO, f"cannot be synced: {error}", error.filename) from error
