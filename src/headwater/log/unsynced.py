"""What a partition has written that a power cut may still take.

This file alone decides what a commit must sync before its end may be acknowledged: files with new
bytes, and names. A new name is durable only when its directory is synced, so the directory belongs
to the commit as much as the data does. It knows nothing of offsets.

A commit goes round like this, and only one is under way at a time:

    begin   the list is handed over and a new one starts, for whatever is written meanwhile
    ...     each of the list is synced, by any thread, in any order
    end     handles that only waited to be synced are closed

Between begin and end every handle is held here: a syncer may know it by its number alone.

A directory has to be opened to be synced. Where no descriptor is free for that, no sync has failed,
but the names are not durable either: they wait for the next commit, and nothing that this one was
for may be acknowledged before. The files of this one are closed, which frees descriptors.
"""

import contextlib
import errno
import os
from collections.abc import Sequence

from headwater.base.disk import Disk, File, Syncable, sync_names
from headwater.base.handles import lacks_descriptors
from headwater.log.names import TEMPORARY


class NamesSync:
    """New and replaced names of a partition, made durable in the one order that is safe.

    Attributes:
        directories: Those whose names are not durable; none is left unless descriptors ran out.
    """

    __slots__ = ("_disk", "_replacements", "directories")

    def __init__(
        self, disk: Disk, replacements: Sequence[tuple[File, str]], directories: list[str]
    ) -> None:
        """Take written temporary files with their final names, and the directories to sync."""
        self._disk = disk
        self._replacements = replacements
        self.directories = directories

    def sync(self) -> None:
        """Sync content before a name points at it, and the directory after.

        A directory that was deleted meanwhile needs no names.
        """
        for file, path in self._replacements:
            file.sync()
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(file.path, path)
            file.close()
        while self.directories:
            try:
                self._disk.sync_directory(self.directories[0])
            except FileNotFoundError:
                pass
            except OSError as error:
                if lacks_descriptors(error):
                    return
                raise
            del self.directories[0]


class Unsynced:
    """The files and names that the next commit syncs, and those of the one under way.

    Attributes:
        next_commit: The number of the commit that what is added now belongs to.
        durable_commit: The number of the newest commit up to which everything is durable.
    """

    __slots__ = (
        "_directories",
        "_disk",
        "_files",
        "_replacements",
        "_under_way",
        "durable_commit",
        "next_commit",
    )

    def __init__(self, disk: Disk) -> None:
        """Start clean."""
        self.next_commit = 1
        self.durable_commit = 0
        self._disk = disk
        self._files: list[File] = []
        self._replacements: list[tuple[File, str]] = []
        self._directories: list[str] = []
        self._under_way: tuple[list[File], File | None, NamesSync | None] | None = None

    def __bool__(self) -> bool:
        """Tell whether the next commit has anything to sync."""
        return bool(self._files or self._replacements or self._directories)

    @property
    def under_way(self) -> bool:
        """Whether a commit has begun and not ended."""
        return self._under_way is not None

    @property
    def has_others(self) -> bool:
        """Whether names, or files other than the active segment's, are not known to be durable."""
        files, _, names = self._under_way or ((), None, None)
        return bool(self or files or names)

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

        What was the active segment when a commit began may be an older one now, so it is synced.

        Raises:
            OSError: EIO, as of `sync_now`.
        """
        files, active, _ = self._under_way or ((), None, None)
        for file in (*self._files, *files, *([active] if active is not None else [])):
            sync_now(file)

    def sync_names(self, directory: str) -> None:
        """Sync a directory at once; with the next commit where no descriptor is free for that.

        Raises:
            OSError: As of `sync_names` in `headwater.base.disk`.
        """
        try:
            sync_names(self._disk, directory)
        except OSError:
            self.add_names(directory)
            raise

    def begin(self, active: File | None) -> list[Syncable]:
        """Hand over what is to be synced, with the appender of the active segment if it is."""
        assert self._under_way is None, "one commit at a time"
        names = None
        items: list[Syncable] = list(self._files)
        if active is not None:
            items.append(active)
        if self._replacements or self._directories:
            names = NamesSync(self._disk, self._replacements, self._directories)
            items.append(names)
        self._under_way = self._files, active, names
        self.next_commit += 1
        self._files = []
        self._replacements = []
        self._directories = []
        return items

    def end(self) -> bool:
        """Close what was handed over and is needed no more; tell whether all of it is durable.

        Names that could not be synced for want of a descriptor wait for the next commit.
        """
        assert self._under_way is not None, "a commit is under way"
        files, _, names = self._under_way
        self._under_way = None
        for file in files:
            file.close()
        left = names.directories if names is not None else []
        for directory in left:
            self.add_names(directory)
        if not left:
            self.durable_commit = self.next_commit - 1
        return not left

    def sync_all(self) -> None:
        """Run a whole commit at once, of all but an active segment.

        Raises:
            OSError: EIO, as of `sync_now`; EMFILE where names could not be synced and wait.
        """
        for item in self.begin(None):
            sync_now(item)
        if not self.end():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


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
