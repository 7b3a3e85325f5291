"""Which bytes of a segment are batches that can be believed.

This file alone decides what a good batch is when nobody vouches for a file: its size and magic, its
checksum, that offsets grow, that its epoch is one we have had, and that it may follow what came
before. It looks at what the device holds: the page cache may show batches that were never written
there. What becomes of the rest of the file is decided by `recovery`.
"""

import errno
from collections.abc import Iterator
from typing import Final

from headwater.base.disk import File
from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import (
    ATTRIBUTES_POS,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    MAGIC,
    SIZE_OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
)
from headwater.base.record.control import EndTransactionMarker, read_end_transaction
from headwater.base.record.crc import crc32c
from headwater.base.record.records import iterate
from headwater.log.epochs import LeaderEpochs
from headwater.log.index import OffsetIndex, TimeIndex
from headwater.log.producers import ProducerState
from headwater.log.segment import Segment

CHUNK_BYTES: Final = 4 << 20
"""One read of a scan: large enough that its cost vanishes, small enough for the CPU's cache."""


class Scan:
    """The state of a scan that goes from segment to segment.

    Attributes:
        producers_offset: Where the producers were made from snapshots and earlier batches.
        next_offset: Behind the last good batch.
        producers: As of there.
    """

    def __init__(
        self,
        epochs: LeaderEpochs,
        *,
        compacted: bool,
        leader_epoch: int,
        recovery_point: int,
        index_interval_bytes: int,
    ) -> None:
        """Start before the first segment; epochs that are found are added to `epochs`."""
        self._epochs = epochs
        self._compacted = compacted
        self._recovery_point = recovery_point
        self._index_interval_bytes = index_interval_bytes
        self._latest_epoch_max = max(leader_epoch, epochs.latest)
        self._epoch = -1
        self.producers_offset = -1
        self.next_offset = -1
        self.producers = ProducerState()

    def may_follow(self, base_offset: int) -> bool:
        """Tell whether a batch or a segment may start here, given what came before."""
        if base_offset == self.next_offset:
            return True
        if base_offset < self.next_offset:
            return False
        # Compaction leaves gaps below the recovery point alone; behind it one is a loss. Where no
        # recovery point is known, nobody can tell, and what is there is not thrown away.
        unknown = self._compacted and self._recovery_point == 0
        return unknown or base_offset <= self._recovery_point

    def segment(self, segment: Segment, start: int) -> int:
        """Take the good batches of a segment into account; return where they end."""
        if start == 0:
            segment.set_indexes(OffsetIndex(segment.base_offset), TimeIndex(segment.base_offset))
            for index in (segment.offset_index, segment.time_index):
                index.file_is_longer = True
            segment.reset_txn_index()
            self.next_offset = max(self.next_offset, segment.base_offset)
        size = segment.size
        end = start
        interval = self._index_interval_bytes
        for position, header in good_batches(segment.device_reader(), start, size):
            base_offset = header.base_offset
            last_offset = base_offset + header.last_offset_delta
            if self.next_offset < 0:
                # The first batch behind a trusted index entry: nothing is known before it.
                self.next_offset = max(base_offset, segment.base_offset)
            if (
                not self.may_follow(base_offset)
                or header.last_offset_delta < 0
                or not segment.fits(last_offset)
                or not self._epoch <= header.leader_epoch <= self._latest_epoch_max
            ):
                break
            if header.leader_epoch > self._epoch:
                self._epoch = header.leader_epoch
                if header.leader_epoch > self._epochs.latest:
                    self._epochs.assign(header.leader_epoch, base_offset)
            if header.producer_id >= 0:
                marker = read_marker(segment, position, header)
                segment.note_aborted(self.producers.replay(header, marker))
            end = position + header.batch_length + SIZE_OVERHEAD_BYTES
            segment.note(position, end - position, last_offset, header.largest_timestamp, interval)
            self.next_offset = last_offset + 1
        segment.size = size
        return end


def good_batches(file: File, start: int, size: int) -> Iterator[tuple[int, BatchHeader]]:
    """Walk over batches whose size, magic and checksum are right, and stop at the first other.

    Yields:
        The position and the header of each.

    Raises:
        OSError: EIO, also where the device gives less than the file has: what cannot be read must
            not be taken for what was never written.
    """
    position = start
    chunk_start = start
    chunk = b""
    view = memoryview(chunk)
    while size - position >= BATCH_HEADER_BYTES:
        at = position - chunk_start
        if at + BATCH_HEADER_BYTES > len(chunk):
            chunk = _read(file, min(CHUNK_BYTES, size - position), position)
            view = memoryview(chunk)
            chunk_start, at = position, 0
        header = parse_header(chunk, at)
        if header.batch_length < BATCH_LENGTH_MIN or header.magic != MAGIC:
            return
        length = header.batch_length + SIZE_OVERHEAD_BYTES
        if length > size - position:
            return
        if at + length > len(chunk):
            chunk = _read(file, max(length, min(CHUNK_BYTES, size - position)), position)
            view = memoryview(chunk)
            chunk_start, at = position, 0
        if crc32c(view[at + ATTRIBUTES_POS : at + length]) != header.crc:
            return
        yield position, header
        position += length


def _read(file: File, size: int, position: int) -> bytes:
    chunk = file.read(size, position)
    if len(chunk) < size:
        message = f"only {len(chunk)} of {size} bytes can be read at byte {position}"
        raise OSError(errno.EIO, message, file.path)
    return chunk


def read_marker(
    segment: Segment, position: int, header: BatchHeader
) -> EndTransactionMarker | None:
    """Return how a transaction ended, if the batch at a position says so.

    None for data, for control batches of other kinds, and for those that compaction has emptied or
    that cannot be read.
    """
    if not header.is_control or not header.record_count:
        return None
    try:
        for record in iterate(segment.reader().read(header.size_bytes, position)):
            return read_end_transaction(record)
    except CorruptRecordError:
        pass
    return None
