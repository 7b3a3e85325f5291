"""A segment that is being written in place of others.

This file alone decides how a cleaned segment gets onto the disk: under names that a start removes,
batches first, then the indexes, all synced before anybody is told of it.
"""

from typing import Final

from headwater.base.disk import Buffer, Disk, File
from headwater.base.record.batch import BatchHeader
from headwater.log.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from headwater.log.names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_name
from headwater.log.txn_index import TxnIndex, TxnIndexEntry
from headwater.log.unsynced import sync_now

_WRITE_BYTES: Final = 1 << 20
"""One write: enough that its cost vanishes."""


class CleanedSegment:
    """The files of a new segment.

    Attributes:
        size: Bytes of batches so far.
        changed: Whether it differs from what it was made from.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int
    ) -> None:
        """Begin with nothing; what an earlier pass left under this name is gone.

        Raises:
            OSError: The file cannot be made.
        """
        self.base_offset = base_offset
        self.size = 0
        self.changed = False
        self._disk = disk
        self._directory = directory
        self._interval = index_interval_bytes
        self._paths: list[str] = []
        self._log = self._create(LOG)
        self._offset_index = OffsetIndex(base_offset)
        self._time_index = TimeIndex(base_offset)
        self._txn_index = TxnIndex()
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._since_index = 0
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    def _create(self, suffix: str) -> File:
        path = f"{self._directory}/{offset_name(self.base_offset, suffix)}{CLEANED}"
        file = self._disk.open(path, create=True)
        self._paths.append(path)
        if file.size():
            file.truncate(0)
        return file

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch; the buffer must not change afterwards.

        Raises:
            OSError: The disk is full or has failed.
        """
        position, size, last_offset = self.size, len(batch), header.last_offset
        if position + size > RELATIVE_OFFSET_MAX:
            raise OSError(f"{self._log.path} would exceed what an index can point to")
        if header.largest_timestamp > self._max_timestamp:
            self._max_timestamp = header.largest_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_index > self._interval:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._since_index = 0
        self._since_index += size
        self.size = position + size
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= _WRITE_BYTES:
            self._flush()

    def append_aborted(self, entry: TxnIndexEntry) -> None:
        """Add an entry to the index of aborted transactions."""
        self._txn_index.append(entry)

    def _flush(self) -> None:
        if self._waiting:
            self._log.append(self._waiting)
            self._waiting = []
            self._waiting_bytes = 0

    def finish(self, *, with_txn_index: bool) -> list[str]:
        """Write the rest and the indexes, and sync all of it.

        Args:
            with_txn_index: Whether an index of aborted transactions is needed, be it empty, because
                there is one to be replaced.

        Returns:
            Which files there are.

        Raises:
            OSError: The disk is full or has failed.
        """
        self._flush()
        if self._max_timestamp >= 0:
            self._time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
        contents = {INDEX: self._offset_index.encode(), TIME_INDEX: self._time_index.encode()}
        if with_txn_index or len(self._txn_index):
            contents[TXN_INDEX] = self._txn_index.encode()
        for suffix, content in contents.items():
            file = self._create(suffix)
            if content:
                file.append((content,))
            sync_now(file)
            file.close()
        sync_now(self._log)
        self._log.close()
        return [LOG, *contents]

    def discard(self) -> None:
        """Remove what was written."""
        self._log.close()
        for path in self._paths:
            if self._disk.exists(path):
                self._disk.remove(path)
