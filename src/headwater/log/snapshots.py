"""The producer snapshots of a partition, as files.

This file alone decides which snapshots exist: one per offset at which a segment was begun or the
log was closed, the last three of them. Three, because one may be torn by a crash, and one may be
ahead of what survives it.

A snapshot is a shortcut: without it the producers are made anew from the batches. So a disk too
full to take one is no failure.
"""

from typing import Final

from headwater.base.disk import Disk, may_pass
from headwater.log.names import SNAPSHOT, offset_name
from headwater.log.producers import ProducerState
from headwater.log.unsynced import Unsynced

SNAPSHOTS_MAX: Final = 3


class Snapshots:
    """Snapshot files by offset."""

    __slots__ = ("_directory", "_disk", "_offsets")

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        """Take the offsets that were found, growing."""
        self._disk = disk
        self._directory = directory
        self._offsets = offsets

    def save(self, offset: int, producers: ProducerState, unsynced: Unsynced) -> None:
        """Write the producers down as of an offset; the file joins the next commit.

        Raises:
            OSError: Something other than a full disk.
        """
        if self._offsets and self._offsets[-1] >= offset:
            return
        try:
            file = self._disk.open(self._path(offset), create=True)
            if file.size():
                file.truncate(0)
            file.append((producers.encode(),))
        except OSError as error:
            if not may_pass(error):
                raise
            return
        unsynced.add_file(file)
        unsynced.add_names(self._directory)
        self._offsets.append(offset)
        while len(self._offsets) > SNAPSHOTS_MAX:
            oldest = self._path(self._offsets.pop(0))
            if self._disk.exists(oldest):
                self._disk.remove(oldest)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset_name(offset, SNAPSHOT)}"
