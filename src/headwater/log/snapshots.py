"""The producer snapshots of a partition, as files.

This file alone decides which snapshots exist: one per offset at which a segment was begun, the log
was closed, or batches were removed that no snapshot covered; the last three of them. Three, because
one may be torn by a crash, and one may be ahead of what survives it. If three or more segments are
begun within one commit, a crash may lose all three, so the newest durable snapshot is kept as well.

While its batches are there, a snapshot is a shortcut: without it the producers are made anew from
the batches. So a lack of room or of descriptors is no failure. Before batches are removed, a
snapshot has to know their producers; where there is no room for one, the batches go all the same,
because that makes room, and it is written as soon as it fits. A lack of descriptors keeps them: to
remove them frees none.
"""

import contextlib
import logging
from typing import Final, Protocol

from headwater.base.disk import Disk, is_full, may_pass
from headwater.log.names import SNAPSHOT, offset_name
from headwater.log.producers import ProducerState
from headwater.log.segments import SegmentList
from headwater.log.unsynced import Unsynced, sync_now

SNAPSHOTS_MAX: Final = 3

_log = logging.getLogger(__name__)


class Log(Protocol):
    """What is known of a partition's log."""

    producers: ProducerState
    log_end_offset: int

    @property
    def segments(self) -> SegmentList:
        """Its segments, oldest first."""
        ...


class Snapshots:
    """Snapshot files by offset."""

    __slots__ = ("_commits", "_directory", "_disk", "_durable", "_is_warned", "_offsets")

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        """Take the offsets that were found, growing."""
        self._disk = disk
        self._directory = directory
        self._offsets = offsets
        # The newest that is durable, and by which commit younger ones will be.
        self._durable = offsets[-1] if offsets else -1
        self._commits: list[tuple[int, int]] = []
        self._is_warned = False

    def save(self, offset: int, producers: ProducerState, unsynced: Unsynced) -> None:
        """Write the producers down as of an offset if that is possible now.

        Raises:
            OSError: Something other than a lack that may pass.
        """
        try:
            self._write(offset, producers, unsynced)
        except OSError as error:
            if not may_pass(error):
                raise

    def _write(self, offset: int, producers: ProducerState, unsynced: Unsynced) -> None:
        """Write the producers down as of an offset; the file joins the next commit."""
        if self._offsets and self._offsets[-1] >= offset:
            return
        try:
            file = self._disk.open(self._path(offset), create=True)
            if file.size():
                file.truncate(0)
            file.append((producers.encode(),))
        except OSError:
            with contextlib.suppress(OSError):
                self._remove(offset)
            raise
        unsynced.add_file(file)
        unsynced.add_names(self._directory)
        self._offsets.append(offset)
        self._commits.append((unsynced.next_commit, offset))
        while self._commits[0][0] <= unsynced.durable_commit:
            self._durable = self._commits.pop(0)[1]
        while len(self._offsets) > SNAPSHOTS_MAX and self._offsets[0] < self._durable:
            self._remove(self._offsets.pop(0))

    def cover(self, log: Log, first_offset: int, unsynced: Unsynced) -> None:
        """Write the producers down if no snapshot knows those whose batches are or will be gone.

        Args:
            log: The log.
            first_offset: The first that remains of its batches.
            unsynced: What has to be synced before any batch is removed.

        Raises:
            OSError: Something other than a full disk, and no batch may be removed: EMFILE or ENFILE
                if it may be tried again; EIO, as of `sync_now`.
        """
        if first_offset == 0 or not log.producers or self._knows(first_offset):
            return
        try:
            self._write(log.log_end_offset, log.producers, unsynced)
        except OSError as error:
            if not is_full(error):
                raise
            if not self._is_warned:
                self._is_warned = True
                _log.warning(
                    "%s: the snapshot of producers cannot be written for want of room; if the"
                    " broker is killed before it can, batches that these producers send again are"
                    " written twice",
                    self._directory,
                )
            return
        self._is_warned = False
        # A snapshot is of use only if all that it knows is there after a crash.
        active = log.segments.active
        if active is not None and active.unsynced:
            sync_now(active.open_appender())

    def _knows(self, first_offset: int) -> bool:
        """Tell whether a snapshot has all that lies before an offset."""
        return bool(self._offsets) and self._offsets[-1] >= first_offset

    def _remove(self, offset: int) -> None:
        path = self._path(offset)
        if self._disk.exists(path):
            self._disk.remove(path)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset_name(offset, SNAPSHOT)}"
