"""One pass over one log.

This file alone decides in which order a pass reads and writes:

    1  the records behind the first dirty offset are read, and the latest offset of each key is
       noted, until the memory for keys is full
    2  all segments up to there, the cleaned ones too, are read once more and written anew without
       what a later record replaces; neighbours that have become small are put together

The old segments are not touched: whoever asked for the pass puts the new ones in their place
(`swap`). It knows no process and no clock, and gives way after every few megabytes, so it can run
wherever there is a disk.
"""

from collections.abc import Generator, Iterator, Sequence

from headwater.base.disk import Disk, File
from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import parse_header
from headwater.log.compaction.batches import WHOLE, BatchFilter
from headwater.log.compaction.grouping import group_segments
from headwater.log.compaction.job import Cleaned, Job, NewSegment, SegmentFacts
from headwater.log.compaction.offset_map import OffsetMap
from headwater.log.compaction.scanning import (
    CHUNK_BYTES,
    BrokenSegmentError,
    FoundBatch,
    scan_dense_keys,
    scan_records,
    unpack,
    walk_batches,
)
from headwater.log.compaction.transactions import WalkedTransactions
from headwater.log.compaction.writing import CleanedSegment
from headwater.log.names import LOG, TXN_INDEX, offset_name

Pass = Generator[None, None, Cleaned]


def clean(disk: Disk, job: Job) -> Pass:
    """Make the segments that remain of a log, a few megabytes a step.

    Returns:
        What was made; its files are complete and synced under the names of segments that are being
        written.

    Raises:
        OSError: The disk is full or has failed; nothing that matters was changed.
    """
    return (yield from _Pass(disk, job).run())


class _Pass:
    """The state of a pass."""

    def __init__(self, disk: Disk, job: Job) -> None:
        self._disk = disk
        self._job = job
        self._latest = OffsetMap(job.dedupe_buffer_bytes)
        self._filter = BatchFilter(job, self._latest)
        self._made: list[NewSegment] = []
        self._read_bytes = 0
        self._written_bytes = 0

    def run(self) -> Pass:
        job = self._job
        yield from self._note_keys()
        self._latest.complete()
        clean_offset = self._latest.latest_offset + 1
        groups = group_segments(
            [segment for segment in job.segments if segment.base_offset < clean_offset],
            end_offset=job.end_offset,
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
        )
        while groups:
            group = groups.pop(0)
            before = self._filter.transactions.copy()
            broken = yield from self._write(group)
            if broken is not None:
                groups[:0] = self._without(group, broken, before)
        return Cleaned(
            clean_offset=clean_offset,
            segments=self._made,
            read_bytes=self._read_bytes,
            written_bytes=self._written_bytes,
            dropped_records=self._filter.dropped_records,
            keyless_records=self._filter.keyless_records,
            complaints=self._filter.complaints,
        )

    def _without(
        self, group: Sequence[SegmentFacts], broken: int, before: WalkedTransactions
    ) -> list[list[SegmentFacts]]:
        """Leave a segment alone that cannot be walked over, and go back to where its group began.

        What lies in it unseen may belong to any transaction.
        """
        self._filter.transactions = before
        before.miss()
        parts = [list(group[:broken]), list(group[broken + 1 :])]
        return [part for part in parts if part]

    # The keys.

    def _note_keys(self) -> Iterator[None]:
        job, latest = self._job, self._latest
        latest.begin_at(job.first_dirty_offset)
        transactions = WalkedTransactions(job.aborted)
        ends = [segment.base_offset for segment in job.segments[1:]]
        ends.append(job.end_offset)
        for segment, end_offset in zip(job.segments, ends, strict=True):
            if end_offset <= job.first_dirty_offset:
                continue
            with _Reading(self._disk, job.directory, segment) as file:
                try:
                    for batch in self._batches(file, segment):
                        if batch is None:
                            yield
                            continue
                        self._note_batch(batch, transactions)
                        if latest.full:
                            return
                except BrokenSegmentError as error:
                    self._filter.complain(f"{error}; the segment is left as it is")
            latest.reach(end_offset - 1)

    def _note_batch(self, batch: FoundBatch, transactions: WalkedTransactions) -> None:
        header = batch.header
        job, latest = self._job, self._latest
        if header.last_offset < job.first_dirty_offset or header.is_control:
            return
        if not transactions.pass_data(header):
            try:
                data = unpack(batch)
                dense = scan_dense_keys(header, data)
                if dense is not None and header.base_offset >= job.first_dirty_offset:
                    keys, has_tombstones = dense
                    if has_tombstones:
                        latest.note_unusual(header.base_offset)
                    latest.add_dense(header.base_offset, keys)
                else:
                    latest.add(header.base_offset, scan_records(header, data))
            except CorruptRecordError:
                # It stays as it is, so it replaces nothing; the second reading complains.
                latest.note_unusual(header.base_offset)
        if not latest.full:
            latest.reach(header.last_offset)

    def _batches(self, file: File, segment: SegmentFacts) -> Iterator[FoundBatch | None]:
        """Walk over the batches of a segment; None where it is time to give way."""
        chunk: memoryview | None = None
        for batch in walk_batches(file, segment.size):
            if batch.chunk is not chunk:
                if chunk is not None:
                    yield None
                chunk = batch.chunk
                self._read_bytes += min(len(chunk), CHUNK_BYTES)
            yield batch

    # The segments.

    def _write(self, group: Sequence[SegmentFacts]) -> Generator[None, None, int | None]:
        """Write one segment in place of a group; return which of them is broken, if one is."""
        job = self._job
        target = CleanedSegment(
            self._disk,
            job.directory,
            group[0].base_offset,
            index_interval_bytes=job.index_interval_bytes,
        )
        target.changed = len(group) > 1
        done = False
        try:
            for number, segment in enumerate(group):
                last = number == len(group) - 1
                try:
                    yield from self._copy(segment, target, is_last=last)
                except BrokenSegmentError as error:
                    self._filter.complain(f"{error}; the segment is left as it is")
                    return number
            if target.changed:
                names = [offset_name(segment.base_offset, TXN_INDEX) for segment in group]
                replaced = any(self._disk.exists(f"{job.directory}/{name}") for name in names)
                suffixes = target.finish(with_txn_index=replaced)
                bases = [segment.base_offset for segment in group]
                self._made.append(NewSegment(target.base_offset, target.size, bases, suffixes))
                self._written_bytes += target.size
                done = True
        finally:
            if not done:
                target.discard()
        return None

    def _copy(
        self, segment: SegmentFacts, target: CleanedSegment, *, is_last: bool
    ) -> Iterator[None]:
        """Let what remains of a segment follow what is there."""
        remains = self._filter.remains
        with _Reading(self._disk, self._job.directory, segment) as file:
            for batch in self._batches(file, segment):
                if batch is None:
                    yield
                    continue
                header = batch.header
                ends_segment = is_last and batch.position + batch.size == segment.size
                content, aborted = remains(batch, ends_segment=ends_segment)
                if content is WHOLE:
                    target.append(batch.content(), header)
                else:
                    target.changed = True
                    if content is not None:
                        target.append(content, parse_header(content))
                if aborted is not None:
                    target.append_aborted(aborted)


class _Reading:
    """A segment file that is open for the time of a `with`."""

    def __init__(self, disk: Disk, directory: str, segment: SegmentFacts) -> None:
        self._file = disk.open_for_reading(f"{directory}/{offset_name(segment.base_offset, LOG)}")

    def __enter__(self) -> File:
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()
