"""The segments of a partition, in the order of their offsets.

This file alone decides which segment holds an offset, what lies between two of them, and when the
files of a removed one go. It does not know why segments come and go.

Each segment reaches to the base offset of the next one; offsets in between may be missing where
compaction was at work, so whoever looks for one may have to look into the next segment.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from headwater.base.disk import may_pass
from headwater.base.record.batch import BATCH_HEADER_BYTES
from headwater.log.extent import FileRange
from headwater.log.segment import Segment
from headwater.log.txn_index import AbortedTransaction
from headwater.log.unsynced import sync_now

OFFSET_MAX: Final = 2**63 - 1


class SegmentList:
    """Segments by base offset; the last one is active."""

    __slots__ = ("_bases", "_deleted", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Take the segments, oldest first."""
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._deleted: list[tuple[int, Segment]] = []
        self.active: Segment | None = segments[-1] if segments else None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        """Go through them, oldest first."""
        return iter(self._segments)

    def __getitem__(self, at: int) -> Segment:
        """Return one by its place."""
        return self._segments[at]

    def as_sequence(self) -> Sequence[Segment]:
        """Return them for reading."""
        return self._segments

    def add(self, segment: Segment) -> None:
        """Let a segment become the active one."""
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def delete_oldest(self, due_ms: int) -> Segment:
        """Take the oldest out, which is not the active one; its files go at `due_ms`."""
        assert len(self._segments) > 1
        segment = self._segments[0]
        segment.mark_deleted()
        segment.close()
        del self._segments[0], self._bases[0]
        self._deleted.append((due_ms, segment))
        return segment

    def find(self, base_offsets: Sequence[int]) -> int | None:
        """Return the place of neighbours, none of them active, by their base offsets."""
        place = bisect_left(self._bases, base_offsets[0])
        found = self._bases[place : place + len(base_offsets)]
        if found != list(base_offsets) or place + len(found) >= len(self._bases):
            return None
        return place

    def replace(self, place: int, count: int, segment: Segment, *, due_ms: int) -> None:
        """Let a segment stand for some neighbours, whose files go at `due_ms`."""
        for old in self._segments[place : place + count]:
            old.close()
            self._deleted.append((due_ms, old))
        self._segments[place : place + count] = [segment]
        self._bases[place : place + count] = [segment.base_offset]

    def purge_deleted(self, now_ms: int) -> int | None:
        """Remove the files of deleted segments whose time has come; tell when the next ones go."""
        while self._deleted and self._deleted[0][0] <= now_ms:
            self._deleted[0][1].remove_deleted()
            del self._deleted[0]
        return self._deleted[0][0] if self._deleted else None

    def clear(self) -> None:
        """Let go of all."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()
        self._bases.clear()
        self._deleted.clear()
        self.active = None

    def place_of(self, offset: int) -> int:
        """Return the place of the segment that holds an offset, if one does."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upto_offset: int,
        log_end_offset: int,
        at_least_one: bool,
    ) -> FileRange | None:
        """Return whole batches of one segment, from the one that holds `offset` or the next.

        Batches that compaction has emptied come only beside or behind all others: some clients
        (kafkajs 2.2) ask for ever for the same offset when an answer holds no record at all.
        """
        limits = (max_bytes, upto_offset, log_end_offset, at_least_one)
        found = self._read_segment(offset, *limits)
        if found is None or len(found) % BATCH_HEADER_BYTES:
            return found
        first = self._first_with_records(offset, upto_offset)
        if first is None or first < found.next_offset:
            return found
        return self._read_segment(first, *limits) or found

    def _first_with_records(self, offset: int, upto_offset: int) -> int | None:
        """Return the base offset of the first batch from `offset` on that is not empty."""
        for segment in self._segments[self.place_of(offset) :]:
            for _, header in segment.headers(segment.position_of(offset)):
                if header.base_offset >= upto_offset:
                    return None
                if header.record_count > 0:
                    return header.base_offset
        return None

    def _read_segment(
        self,
        offset: int,
        max_bytes: int,
        upto_offset: int,
        log_end_offset: int,
        at_least_one: bool,
    ) -> FileRange | None:
        at = self.place_of(offset)
        while at < len(self._segments) and self._bases[at] < upto_offset:
            segment = self._segments[at]
            at += 1
            end_offset = self._bases[at] if at < len(self._bases) else log_end_offset
            if upto_offset >= end_offset == log_end_offset:
                # Whoever reads to the end comes back for what follows it.
                segment.mark(end_offset)
            found = segment.extent(
                offset,
                max_bytes,
                upto_offset=upto_offset,
                end_offset=end_offset,
                at_least_one=at_least_one,
            )
            if found is not None or segment.position_of(offset) < segment.size:
                return found
        return None

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a range, in the order of their markers.

        A transaction may be aborted in a later segment than those that hold its records.
        """
        found: list[AbortedTransaction] = []
        for segment in self._segments[self.place_of(from_offset) :]:
            if segment.txn_index.collect(from_offset, upto_offset, found):
                break
        return found

    def sync_indexes(self) -> tuple[int, bool]:
        """Write out and sync the index entries that are in memory only.

        Returns:
            The offset below which all entries found room, and whether a name was created, so that
            the directory has to be synced.

        Raises:
            OSError: Something other than a full disk.
        """
        indexed_offset = OFFSET_MAX
        names_created = False
        for segment in self._segments:
            if segment.indexes_saved():
                continue
            try:
                files, created = segment.save_indexes()
            except OSError as error:
                if not may_pass(error):
                    raise
                indexed_offset = min(indexed_offset, segment.base_offset)
                continue
            names_created |= created
            for file in files:
                sync_now(file)
                file.close()
        return indexed_offset, names_created

    def release_idle(self) -> None:
        """Close the handles that were not used since the last call."""
        for segment in self._segments:
            segment.release(active=segment is self.active)

    def size_bytes(self) -> int:
        """Return the bytes in all of them."""
        return sum(segment.size for segment in self._segments)

    def bytes_from(self, offset: int) -> int:
        """Return the bytes from the batch that holds an offset to the end."""
        if not self._segments:
            return 0
        at = self.place_of(offset)
        before = self._segments[at].position_of(offset)
        return sum(segment.size for segment in self._segments[at:]) - before

    def offset_behind(self, offset: int, skipped_bytes: int) -> int | None:
        """Return the first batch's offset that lies so many bytes behind the batch of another.

        Returns:
            None where there is no batch so far behind.
        """
        at = self.place_of(offset)
        position = self._segments[at].position_of(offset) + skipped_bytes
        for segment in self._segments[at:]:
            if position < segment.size:
                found = segment.boundary_from(position)
                if found is not None:
                    return found
            position = max(position - segment.size, 0)
        return None
