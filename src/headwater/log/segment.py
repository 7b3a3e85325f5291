"""One segment: a file of batches and its three indexes.

This file alone decides when an index entry is made, how an offset is found in a file, and which
handles a segment keeps open. It does not know its neighbours, what is durable, or why it is
closed.

Index entries follow Kafka's rule, batch by batch: when more than `index.interval.bytes` lie between
the start of the batch indexed last and this one, this batch gets an entry, and so does the largest
timestamp so far. A segment that is closed gets one last time index entry, so that the largest
timestamp of a closed segment is known without reading it. The third index, of aborted transactions,
cannot be made from this segment alone; whoever knows the producers adds to it.

Handles: the appender is opened by the first append and never read through `FileRange`, because
`sendfile` may move the position of what it sends from. The reader is opened by the first read.
`release` and `let_go` close what was idle since the call before, except an appender whose bytes
are not synced: an error of the disk is told to those who have the file open when it happens.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from headwater.base.disk import Buffer, Disk, File, read_file
from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    MAGIC,
    NO_TIMESTAMP,
    SIZE_OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
)
from headwater.log.extent import FileRange
from headwater.log.index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
)
from headwater.log.names import (
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
)
from headwater.log.txn_index import TXN_ENTRY_BYTES, TxnIndex, TxnIndexEntry
from headwater.log.unsynced import Unsynced

SCAN_BYTES: Final = 8192
"""One read while walking over headers: twice the usual distance between two index entries."""

MARKS_MAX: Final = 64
"""Batch boundaries remembered per segment; a consumer that reads on finds its place for free."""

INDEX_INTERVAL_BYTES: Final = 4096
"""Kafka's default, for indexes that are made anew: the distance matters to speed alone."""


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Walk over the headers of a segment file from a batch boundary on.

    Yields:
        The position and the header of each batch that lies wholly before `end`.

    Raises:
        CorruptRecordError: What stands there is no batch.
    """
    window = b""
    start = position
    while position + BATCH_HEADER_BYTES <= end:
        if position + BATCH_HEADER_BYTES > start + len(window):
            window = file.read(SCAN_BYTES, position)
            start = position
        header = parse_header(window, position - start)
        if header.batch_length < BATCH_LENGTH_MIN or header.magic != MAGIC:
            raise CorruptRecordError(f"there is no batch at byte {position} of {file.path}")
        following = position + header.batch_length + SIZE_OVERHEAD_BYTES
        if following > end:
            return
        yield position, header
        position = following


class Segment:
    """Batches from `base_offset` on.

    Attributes:
        size: Bytes in the file.
        max_timestamp: The largest of all batches, -1 if none has one.
        max_timestamp_offset: The last offset of the batch that brought it.
        created_ms: When this process first saw the segment; stands in for missing timestamps.
        unsynced: Whether the appender has written what no sync has covered yet.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_first_timestamp",
        "_indexes_created",
        "_kept_for_sync",
        "_lent",
        "_marks",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_reader",
        "_since_index",
        "_time_index",
        "_txn_index",
        "_used",
        "appender",
        "base_offset",
        "created_ms",
        "size",
        "unsynced",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int, created_ms: int
    ) -> None:
        """Describe a segment whose files exist; `create` makes a new one."""
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.appender: File | None = None
        self.unsynced = False
        # It was asked to let go of the appender, and could not.
        self._kept_for_sync = False
        self._reader: File | None = None
        # Whether the reader may be handed out.
        self._lent = False
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._max_timestamp: int | None = None
        self._max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self._since_index = 0
        self._indexes_created = False
        self._marks: dict[int, int] = {}
        self._used = True

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, *, now_ms: int) -> "Segment":
        """Make an empty segment; a file left by a failed attempt is emptied."""
        segment = cls(disk, directory, base_offset, size=0, created_ms=now_ms)
        segment.set_indexes(OffsetIndex(base_offset), TimeIndex(base_offset))
        segment._txn_index = TxnIndex()
        appender = segment.open_appender()
        if appender.size():
            appender.truncate(0)
        return segment

    def __repr__(self) -> str:
        """Show which segment it is."""
        return f"Segment({self.path(LOG)!r}, {self.size} bytes)"

    def path(self, suffix: str) -> str:
        """Return the name of one of its files."""
        return f"{self._directory}/{offset_name(self.base_offset, suffix)}"

    # Writing.

    def open_appender(self) -> File:
        """Return the handle that appends, opening it where there is none."""
        if self.appender is None:
            self.appender = self._disk.open(self.path(LOG), create=True)
            self._disk.handles.keep(self)
        return self.appender

    def append(
        self, batch: Buffer, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Write one finished batch behind the others, and index it if it is its turn."""
        self._used = True
        appender = self.appender or self.open_appender()
        appender.append((batch,))
        self.note(self.size, len(batch), last_offset, max_timestamp, index_interval_bytes)

    def note(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Take a batch into account that lies at `position`, the end of what is known so far."""
        assert self._max_timestamp is not None, "the indexes are loaded"
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        if self._since_index > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp, self._max_timestamp_offset)
            self._since_index = 0
        self._since_index += size
        self.size = position + size

    def mark(self, offset: int) -> None:
        """Remember that the batch of `offset` will start at the current end."""
        self._remember(offset, self.size)

    def _remember(self, offset: int, position: int) -> None:
        marks = self._marks
        if len(marks) >= MARKS_MAX and offset not in marks:
            del marks[next(iter(marks))]
        marks[offset] = position

    def indexes_full(self, segment_index_bytes: int) -> bool:
        """Tell whether one of the indexes has reached `segment.index.bytes`."""
        # Kafka keeps one time entry free for the one that is added when the segment is closed.
        return (
            len(self.offset_index) >= segment_index_bytes // 8
            or len(self.time_index) >= segment_index_bytes // 12 - 1
        )

    def fits(self, last_offset: int) -> bool:
        """Tell whether the distance to the base offset can be written into an index."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    # What is known of it.

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, -1 where no batch has one."""
        if self._max_timestamp is None:
            self.load_indexes()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        if self._max_timestamp is None:
            self.load_indexes()
        return self._max_timestamp_offset

    @property
    def largest_timestamp(self) -> int:
        """The age of the segment for retention: its largest timestamp, else when it was seen."""
        return self.created_ms if self.max_timestamp < 0 else self.max_timestamp

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which `segment.ms` counts."""
        if self._first_timestamp is None:
            for _, header in self.headers(0):
                self._first_timestamp = header.largest_timestamp
                break
            else:
                return NO_TIMESTAMP
        return self._first_timestamp

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, read from disk where it was idle."""
        if self._offset_index is None:
            self.load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read from disk where it was idle."""
        if self._time_index is None:
            self.load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def txn_index(self) -> TxnIndex:
        """The index of aborted transactions, read from disk where it was idle."""
        if self._txn_index is None:
            path = self.path(TXN_INDEX)
            content = read_file(self._disk, path) if self._disk.exists(path) else b""
            self._txn_index = TxnIndex(content)
        return self._txn_index

    def reset_txn_index(self) -> None:
        """Forget the aborted transactions, also those in the file; `note_aborted` goes on."""
        self._txn_index = TxnIndex()
        self._txn_index.file_is_longer = True

    def note_aborted(self, entry: TxnIndexEntry | None) -> None:
        """Take an aborted transaction into account whose marker is in this segment, if any."""
        if entry is not None:
            self.txn_index.append(entry)

    def index_sizes(self) -> tuple[int, int]:
        """Return the bytes of offset and time index, without reading them where they are idle."""
        if self._offset_index is None or self._time_index is None:
            return self._file_size(INDEX), self._file_size(TIME_INDEX)
        return (
            len(self._offset_index) * OFFSET_ENTRY_BYTES,
            len(self._time_index) * TIME_ENTRY_BYTES,
        )

    def _file_size(self, suffix: str) -> int:
        path = self.path(suffix)
        if not self._disk.exists(path):
            return 0
        file = self._disk.open_for_reading(path)
        try:
            return file.size()
        finally:
            file.close()

    def set_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Take indexes that describe a part of the file; `note` goes on from there."""
        self._offset_index = offset_index
        self._time_index = time_index
        self._max_timestamp, self._max_timestamp_offset = time_index.last()
        self._since_index = 0

    def load_indexes(self) -> None:
        """Read both index files; a damaged or missing one is made anew from the batches."""
        whole = True
        contents: list[bytes] = []
        for suffix, entry_bytes in ((INDEX, 8), (TIME_INDEX, 12)):
            path = self.path(suffix)
            content = read_file(self._disk, path) if self._disk.exists(path) else None
            whole = whole and content is not None and len(content) % entry_bytes == 0
            contents.append(content or b"")
        self.set_indexes(
            OffsetIndex(self.base_offset, contents[0]), TimeIndex(self.base_offset, contents[1])
        )
        highest = self.base_offset + RELATIVE_OFFSET_MAX + 1
        offsets_whole = self.offset_index.keep_valid(
            below_offset=highest, below_position=max(self.size, 1)
        )
        if not whole or not offsets_whole or not self.time_index.keep_valid(below_offset=highest):
            self.rebuild_indexes(INDEX_INTERVAL_BYTES)

    def rebuild_indexes(self, index_interval_bytes: int) -> None:
        """Make both indexes anew from the headers of all batches, up to the first damaged one."""
        size = self.size
        self.set_indexes(OffsetIndex(self.base_offset), TimeIndex(self.base_offset))
        self.offset_index.file_is_longer = self.time_index.file_is_longer = True
        with contextlib.suppress(CorruptRecordError):
            for position, header in self.headers(0, size):
                self.note(
                    position,
                    header.size_bytes,
                    header.last_offset,
                    header.largest_timestamp,
                    index_interval_bytes,
                )
        self.size = size
        self.finish()

    def finish(self) -> None:
        """Close the time index with the largest timestamp, as a segment has it that is complete."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self._max_timestamp_offset)

    def save_indexes(self) -> tuple[list[File], bool]:
        """Append to the index files what they lack; without an aborted transaction there are two.

        Returns:
            The handles, to be synced and closed, and whether a name was created, be it by an
            earlier call that failed.

        Raises:
            OSError: Nothing is lost; another call goes on where this one failed.
        """
        files: list[File] = []
        indexes = (
            (INDEX, self.offset_index, OFFSET_ENTRY_BYTES),
            (TIME_INDEX, self.time_index, TIME_ENTRY_BYTES),
            (TXN_INDEX, self.txn_index, TXN_ENTRY_BYTES),
        )
        for suffix, index, entry_bytes in indexes:
            path = self.path(suffix)
            if not self._disk.exists(path):
                if suffix == TXN_INDEX and not index:
                    continue
                self._indexes_created = True
            elif index.saved_entries == len(index) and not index.file_is_longer:
                continue
            file = self._disk.open(path, create=True)
            files.append(file)
            if file.size() != index.saved_entries * entry_bytes:
                file.truncate(index.saved_entries * entry_bytes)
            content = index.encode(index.saved_entries)
            if content:
                file.append((content,))
        # Only now: one of them without the others would never be synced.
        self._note_indexes_saved()
        created, self._indexes_created = self._indexes_created, False
        return files, created

    def replace_indexes(self, unsynced: Unsynced) -> None:
        """Write the index files whole; each is synced before it gets its name.

        Raises:
            OSError: There is no room.
        """
        unsynced.replace(self.path(INDEX), self.offset_index.encode(0))
        unsynced.replace(self.path(TIME_INDEX), self.time_index.encode(0))
        if self.txn_index or self._disk.exists(self.path(TXN_INDEX)):
            unsynced.replace(self.path(TXN_INDEX), self.txn_index.encode(0))
        self._note_indexes_saved()

    def _note_indexes_saved(self) -> None:
        for index in (self.offset_index, self.time_index, self.txn_index):
            index.saved_entries = len(index)
            index.file_is_longer = False

    def indexes_saved(self) -> bool:
        """Tell whether nothing would be lost by forgetting the indexes in memory."""
        return all(
            index is None or (index.saved_entries == len(index) and not index.file_is_longer)
            for index in (self._offset_index, self._time_index, self._txn_index)
        )

    # Reading.

    def reader(self) -> File:
        """Return the handle that is read from."""
        self._used = True
        if self._reader is None:
            self._reader = self._disk.open_for_reading(self.path(LOG))
            self._disk.handles.keep(self)
        return self._reader

    def device_reader(self) -> File:
        """Return a handle to read what the device holds; the page cache may show more."""
        return self._disk.open_on_device(self.path(LOG))

    def headers(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Walk over the headers from a batch boundary on; see `walk_headers`."""
        return walk_headers(self.reader(), position, self.size if end is None else end)

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch that ends at or behind `offset`, else the end."""
        marked = self._marks.get(offset)
        if marked is not None:
            return marked
        for position, header in self.headers(self.offset_index.position_before(offset)):
            if header.last_offset >= offset:
                if header.base_offset == offset:
                    self._remember(offset, position)
                return position
        return self.size

    def position_from(self, offset: int) -> int:
        """Return the position of the first batch that starts at or behind `offset`, else the end.

        Differs from `position_of` only for an offset in the middle of a batch.
        """
        marked = self._marks.get(offset)
        if marked is not None:
            return marked
        for position, header in self.headers(self.offset_index.position_before(offset)):
            if header.base_offset >= offset:
                return position
        return self.size

    def boundary_from(self, position: int) -> int | None:
        """Return the base offset of the first batch that starts at or behind a position."""
        for at, header in self.headers(self.offset_index.floor_position(position)):
            if at >= position:
                return header.base_offset
        return None

    def extent(
        self,
        offset: int,
        max_bytes: int,
        *,
        upto_offset: int,
        end_offset: int,
        at_least_one: bool,
    ) -> FileRange | None:
        """Return whole batches from the one that holds `offset`.

        Args:
            offset: Where to start.
            max_bytes: How much at most.
            upto_offset: No batch that starts here or behind.
            end_offset: Where the segment ends.
            at_least_one: The first batch comes even if it is larger than `max_bytes`.
        """
        start = self.position_of(offset)
        whole = upto_offset >= end_offset
        limit = self.size if whole else self.position_from(upto_offset)
        if start >= limit:
            return None
        if limit - start <= max_bytes:
            next_offset = end_offset if whole else upto_offset
            return FileRange(self._lend_reader(), start, limit - start, next_offset)
        end, next_offset = self._end_within(start, start + max_bytes, at_least_one=at_least_one)
        if end == start:
            return None
        return FileRange(self._lend_reader(), start, end - start, next_offset)

    def _lend_reader(self) -> File:
        """Return the reader to be handed out; as cheap as `reader` but for the first time."""
        if not self._lent:
            self._disk.handles.lend(self, self.reader())
            self._lent = True
        self._used = True
        assert self._reader is not None
        return self._reader

    def _end_within(self, start: int, limit: int, *, at_least_one: bool) -> tuple[int, int]:
        """Return the last batch boundary up to `limit`, or the first behind `start` if none is.

        Beside the position comes the offset that begins there, or may begin there.
        """
        end = start
        next_offset = -1
        begin = max(start, self.offset_index.floor_position(limit))
        for position, header in self.headers(begin):
            if position + header.size_bytes > limit and (position > start or not at_least_one):
                end = position
                next_offset = header.base_offset
                break
            end = position + header.size_bytes
            next_offset = header.next_offset
            if end >= limit:
                break
        if end > start:
            self._remember(next_offset, end)
        return end, next_offset

    # Letting go.

    def release(self, *, active: bool) -> None:
        """Close what was idle since the last call; whoever reads a `FileRange` keeps its file.

        The indexes of an active segment stay: they know more than their files.
        """
        if not self.let_go():
            return
        self._disk.handles.drop(self)
        if not active and self.indexes_saved():
            self._offset_index = self._time_index = None
            # Most segments have no aborted transaction, and to remember that costs nothing.
            if self._txn_index:
                self._txn_index = None
            self._marks.clear()

    def let_go(self) -> bool:
        """Forget the handles unless they were used since the last call; tell whether it did."""
        if self._used:
            self._used = False
            return False
        self._reader = None
        self._lent = False
        if self.unsynced:
            self._kept_for_sync = True
        else:
            self.appender = None
        return True

    def synced(self) -> None:
        """Allow the appender to be closed again: a sync has covered all that it wrote."""
        self.unsynced = False
        if self._kept_for_sync:
            self._kept_for_sync = False
            self._disk.handles.keep(self)

    def close(self) -> None:
        """Forget the handles for good; a reader or a sync that holds one keeps it open."""
        self.unsynced = self._kept_for_sync = False
        self.appender = self._reader = None
        self._lent = False
        self._disk.handles.drop(self)

    def mark_deleted(self) -> None:
        """Give its files the name under which they wait to be removed."""
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED)

    def remove_deleted(self) -> None:
        """Remove the files that `mark_deleted` has renamed."""
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix) + DELETED
            if self._disk.exists(path):
                self._disk.remove(path)
