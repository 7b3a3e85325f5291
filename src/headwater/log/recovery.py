"""Finding a partition's log as the last process left it.

This file alone decides what of the files is believed. It runs once, before anybody reads or
writes, and whatever it returns is durable.

After a clean stop everything is believed: the end is found from the last index entry on.

After any other end only what lies below the recovery point is, and of the indexes only the entries
below it. Batches are read from the device: the page cache may show bytes whose sync has failed, and
no later sync writes those. What is cut off where the device has nothing good is gone from the page
cache too. Of indexes and snapshots the page cache may be believed, because they are replaced by
files with the same content: such a file is synced before it gets its name.

From the recovery point on every batch is checked: its size and magic, its checksum, that offsets
grow and that its epoch is one we have had. At the first bad batch the log is cut, and later
segments are removed. Whether the records inside a batch make sense is not asked: a batch with the
right checksum is what its producer sent, and it was acknowledged as such.

Offsets may have gaps where compaction was at work, but beyond the recovery point of a topic that
is not compacted a gap means that something is missing, so the log ends there: what is left is
always a prefix of what was written.

Index entries beyond, producers and epochs are made anew from the batches. Producers come from the
newest good snapshot at or before the start of the scan; if there is none and older batches were
removed, from one up to the log's end. Of the aborted transactions those are made anew whose marker
is scanned. An index of them that was closed long ago and makes no sense is made anew
from all batches of its segment, whatever the last process said.
"""

import contextlib
import logging
from bisect import bisect_right
from dataclasses import dataclass, field

from headwater.base.disk import Disk, parent_directory, read_file
from headwater.base.errors import CorruptRecordError, StorageError
from headwater.base.record.batch import SIZE_OVERHEAD_BYTES, BatchHeader
from headwater.log.epochs import LeaderEpochs
from headwater.log.index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    OffsetIndex,
    TimeIndex,
)
from headwater.log.leftovers import clear_leftovers
from headwater.log.names import (
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    decode_partition_metadata,
    encode_partition_metadata,
    offset_name,
    parse_offset_name,
)
from headwater.log.producers import ProducerState
from headwater.log.scan import Scan, read_marker
from headwater.log.segment import Segment
from headwater.log.segments import OFFSET_MAX
from headwater.log.txn_index import TxnIndexEntry
from headwater.log.unsynced import Unsynced, sync_now

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """What a recovery did.

    Attributes:
        scanned_bytes: Batches whose checksum was verified.
        truncated_bytes: What was cut off the last segment that is left.
        removed_segments: How many segments behind it went.
    """

    scanned_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0


@dataclass(slots=True)
class Found:
    """A log as it was found; without segments where nothing was ever appended.

    Attributes:
        segments: By base offset; the last one is active.
        producers: As of the log end.
        snapshots: Offsets of the producer snapshots on disk, growing.
        epochs: As of the log end.
        log_start_offset: The first offset.
        log_end_offset: The offset of the next record.
        report: What had to be done.
    """

    segments: list[Segment]
    producers: ProducerState
    snapshots: list[int]
    epochs: LeaderEpochs
    log_start_offset: int
    log_end_offset: int
    report: RecoveryReport = field(default_factory=RecoveryReport)


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a partition before its files are looked at.

    Attributes:
        topic_id: Whose directory it should be.
        index_interval_bytes: For index entries that are made anew.
        compacted: Whether gaps between offsets are to be expected.
        leader_epoch: No batch has a later one.
        recovery_point: Everything below was durable.
        log_start_offset: As it was last written down.
        now_ms: The age of segments without timestamps counts from here.
    """

    topic_id: bytes
    index_interval_bytes: int
    compacted: bool
    leader_epoch: int
    recovery_point: int
    log_start_offset: int
    now_ms: int


def find_log(disk: Disk, directory: str, expected: Expected, *, clean: bool) -> Found:
    """Find a partition's log, recovering it unless the last process stopped cleanly.

    Raises:
        OSError: The disk cannot be read or written.
        StorageError: The directory belongs to another topic.
    """
    nothing_offset = max(expected.log_start_offset, expected.recovery_point)
    nothing = Found([], ProducerState(), [], LeaderEpochs(), nothing_offset, nothing_offset)
    if not disk.is_directory(directory):
        return nothing
    search = _Search(disk, directory, expected)
    if not search.segments:
        return search.begin_again() or nothing
    found = search.resume() if clean else None
    return found or search.recover()


class _Search:
    """The files of one directory, and what is made of them."""

    def __init__(self, disk: Disk, directory: str, expected: Expected) -> None:
        self._disk = disk
        self._directory = directory
        self._expected = expected
        self._report = RecoveryReport()
        self._indexes_are_good = True
        self._names = clear_leftovers(disk, directory)
        self._check_topic_id()
        self.segments: list[Segment] = []
        self._snapshots: list[int] = []
        for name in sorted(self._names):
            parsed = parse_offset_name(name)
            if parsed is None:
                continue
            offset, kind, _ = parsed
            if kind == LOG:
                self.segments.append(self._describe(offset))
            elif kind == SNAPSHOT:
                self._snapshots.append(offset)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _describe(self, base_offset: int) -> Segment:
        file = self._disk.open_for_reading(self._path(offset_name(base_offset, LOG)))
        try:
            size = file.size()
        finally:
            file.close()
        return Segment(
            self._disk,
            self._directory,
            base_offset,
            size=size,
            created_ms=self._expected.now_ms,
        )

    def _check_topic_id(self) -> None:
        self._metadata_is_good = False
        if PARTITION_METADATA in self._names:
            topic_id = decode_partition_metadata(
                read_file(self._disk, self._path(PARTITION_METADATA))
            )
            self._metadata_is_good = topic_id == self._expected.topic_id
            if topic_id is not None and not self._metadata_is_good:
                raise StorageError(
                    f"{self._directory} belongs to another topic",
                    hint="move the directory away; the topic starts empty then",
                )

    def _read_epochs(self) -> LeaderEpochs | None:
        if LEADER_EPOCH_CHECKPOINT not in self._names:
            return None
        return LeaderEpochs.decode(read_file(self._disk, self._path(LEADER_EPOCH_CHECKPOINT)))

    # After a clean stop.

    def resume(self) -> Found | None:
        """Go on where a clean stop left off; None where the files say that there was none."""
        active = self.segments[-1]
        epochs = self._read_epochs()
        if not self._metadata_is_good or epochs is None:
            return None
        self._indexes_are_good = self._load_indexes(active, below_offset=OFFSET_MAX)
        latest, _ = active.time_index.last()
        log_end_offset = active.base_offset
        size = active.size
        end = active.offset_index.last_position()
        with contextlib.suppress(CorruptRecordError):
            for position, header in active.headers(end, size):
                self._note(active, position, header)
                log_end_offset = header.next_offset
                end = position + header.size_bytes
                # A clean stop ends the time index with the largest timestamp of all.
                self._indexes_are_good &= header.largest_timestamp <= latest
        is_whole = end == size and log_end_offset >= self._expected.log_start_offset
        if not is_whole or not self._indexes_are_good:
            active.size = size
            return None
        self._mend_txn_indexes(len(self.segments), log_end_offset)
        return self._found(epochs, log_end_offset, self._replay(log_end_offset))

    def _load_indexes(self, segment: Segment, *, below_offset: int) -> bool:
        """Keep the index entries below an offset that can be right; tell whether all were."""
        names = [offset_name(segment.base_offset, suffix) for suffix in (INDEX, TIME_INDEX)]
        known = self._names.issuperset(names)
        contents = [read_file(self._disk, self._path(name)) if known else b"" for name in names]
        offset_index = OffsetIndex(segment.base_offset, contents[0])
        time_index = TimeIndex(segment.base_offset, contents[1])
        below = min(below_offset, segment.base_offset + RELATIVE_OFFSET_MAX + 1)
        whole = (
            known
            and len(contents[0]) == len(offset_index) * OFFSET_ENTRY_BYTES
            and len(contents[1]) == len(time_index) * TIME_ENTRY_BYTES
        )
        whole &= offset_index.keep_valid(below_offset=below, below_position=segment.size)
        whole &= time_index.keep_valid(below_offset=below)
        if len(offset_index) and not len(time_index) and _has_timestamps(segment):
            # Without its times an index would hide timestamps: then neither is believed.
            offset_index = OffsetIndex(segment.base_offset)
            whole = False
        segment.set_indexes(offset_index, time_index)
        return whole

    def _note(self, segment: Segment, position: int, header: BatchHeader) -> None:
        segment.note(
            position,
            header.batch_length + SIZE_OVERHEAD_BYTES,
            header.base_offset + header.last_offset_delta,
            header.largest_timestamp,
            self._expected.index_interval_bytes,
        )

    def _found(self, epochs: LeaderEpochs, log_end_offset: int, producers: ProducerState) -> Found:
        log_start_offset = max(self._expected.log_start_offset, self.segments[0].base_offset)
        epochs.truncate_before(log_start_offset)
        return Found(
            self.segments,
            producers,
            self._snapshots,
            epochs,
            log_start_offset,
            log_end_offset,
            self._report,
        )

    def _replay(self, upto_offset: int) -> ProducerState:
        """Make the producers as of an offset: from the newest good snapshot, and the batches.

        A snapshot older than the first segment is of no use: batches between them are gone, and
        with them sequence numbers that a producer goes on from.
        """
        found = self._newest_snapshot(upto_offset)
        producers, start = found or (ProducerState(), self.segments[0].base_offset)
        bases = [segment.base_offset for segment in self.segments]
        for segment in self.segments[max(bisect_right(bases, start) - 1, 0) :]:
            if start >= upto_offset or segment.base_offset >= upto_offset:
                break
            # Damage down here is the readers' to find: it stops no start.
            with contextlib.suppress(CorruptRecordError):
                for position, header in segment.headers(segment.position_of(start)):
                    if header.base_offset >= upto_offset:
                        break
                    if header.producer_id >= 0 and header.base_offset >= start:
                        producers.replay(header, read_marker(segment, position, header))
        return producers

    def _newest_snapshot(self, upto_offset: int) -> tuple[ProducerState, int] | None:
        """Return the producers of the newest good snapshot, and its offset; remove bad ones."""
        for offset in self._snapshots[::-1]:
            if self.segments[0].base_offset <= offset <= upto_offset:
                content = read_file(self._disk, self._path(offset_name(offset, SNAPSHOT)))
                snapshot = ProducerState.decode(content)
                if snapshot is not None:
                    return snapshot, offset
                self._remove_snapshot(offset)
        return None

    def _mend_txn_indexes(self, count: int, end_offset: int) -> None:
        """Make the unreadable ones of the first `count` segments anew, which end at an offset."""
        ends = [segment.base_offset for segment in self.segments[1:count]]
        for segment, end in zip(self.segments, [*ends, end_offset], strict=False):
            if offset_name(segment.base_offset, TXN_INDEX) not in self._names:
                continue
            if segment.txn_index.keep_valid(from_offset=segment.base_offset, below_offset=end):
                continue
            logger.warning("%s is damaged; it is made anew", segment.path(TXN_INDEX))
            self._remake_txn_index(segment, segment.size)
            self._save_indexes(segment)

    def _remake_txn_index(self, segment: Segment, upto: int) -> ProducerState:
        """Find the aborted transactions of a segment up to a position, and the producers there."""
        producers = self._replay(segment.base_offset)
        segment.reset_txn_index()
        with contextlib.suppress(CorruptRecordError):
            for position, header in segment.headers(0, upto):
                if header.producer_id >= 0:
                    marker = read_marker(segment, position, header)
                    segment.note_aborted(producers.replay(header, marker))
        return producers

    # After any other end.

    def recover(self) -> Found:
        """Check what lies behind the recovery point, cut at the first bad batch, sync the rest."""
        bases = [segment.base_offset for segment in self.segments]
        # The segment before the recovery point may have been closed since it was written down, and
        # its last time index entry, made at that moment, may have been lost.
        first = max(bisect_right(bases, self._expected.recovery_point - 1) - 1, 0)
        for segment in self.segments[:first]:
            names = {offset_name(segment.base_offset, suffix) for suffix in (INDEX, TIME_INDEX)}
            if not names <= self._names:
                segment.rebuild_indexes(self._expected.index_interval_bytes)
                self._save_indexes(segment)
        if first > 0:
            self._mend_txn_indexes(first, self.segments[first].base_offset)
        epochs = self._read_epochs() or self._epochs_from_batches(first)
        scan = Scan(
            epochs,
            compacted=self._expected.compacted,
            leader_epoch=self._expected.leader_epoch,
            recovery_point=self._expected.recovery_point,
            index_interval_bytes=self._expected.index_interval_bytes,
        )
        self._scan(first, scan)
        log_end_offset = scan.next_offset
        log_start_offset = self._expected.log_start_offset
        if log_end_offset < log_start_offset:
            known = self._snapshot_at(log_start_offset)
            return self._begin_at_log_start(known or self._known_producers(scan))
        self._remove_snapshots_above(log_end_offset)
        # Retention would otherwise take a damaged one for one that covers what it removes.
        self._newest_snapshot(log_end_offset)
        epochs.truncate_from(log_end_offset)
        found = self._found(epochs, log_end_offset, self._known_producers(scan))
        self._make_durable(first, epochs)
        return found

    def _known_producers(self, scan: Scan) -> ProducerState:
        """Return the producers as of the end of a scan."""
        if self.segments[0].base_offset > 0 and not self._newest_snapshot(scan.producers_offset):
            # A snapshot ahead of the scan may know producers whose batches are gone.
            return self._replay(scan.next_offset)
        return scan.producers

    def _begin_at_log_start(self, producers: ProducerState) -> Found:
        """Remove all that is left, which lies before the log start, and go on from there.

        The offsets from the end to the log start had been given out when a power cut took their
        records. Given out again, they would be hidden by the log start as last written down.
        """
        offset = self._expected.log_start_offset
        # First of all, so that it is there if this start is killed before it has come to its end.
        snapshot = Unsynced(self._disk)
        snapshot.replace(self._path(offset_name(offset, SNAPSHOT)), producers.encode())
        snapshot.add_names(self._directory)
        snapshot.sync_all()
        self._remove_segments_from(0)
        self._remove_snapshots_above(-1, but=offset)
        self._snapshots = [offset]
        now_ms = self._expected.now_ms
        self.segments.append(Segment.create(self._disk, self._directory, offset, now_ms=now_ms))
        epochs = LeaderEpochs()
        self._make_durable(0, epochs)
        return self._found(epochs, offset, producers)

    def begin_again(self) -> Found | None:
        """Finish what an earlier start had begun to do; None if there was nothing."""
        producers = self._snapshot_at(self._expected.log_start_offset)
        return self._begin_at_log_start(producers) if producers is not None else None

    def _snapshot_at(self, offset: int) -> ProducerState | None:
        if offset not in self._snapshots:
            return None
        return ProducerState.decode(
            read_file(self._disk, self._path(offset_name(offset, SNAPSHOT)))
        )

    def _scan(self, first: int, scan: Scan) -> None:
        """Scan segment after segment, and cut where the good batches end."""
        for at in range(first, len(self.segments)):
            segment = self.segments[at]
            size = segment.size
            start = good = 0
            if at == first:
                start = self._trusted_start(segment)
                start_offset = scan.producers_offset = _offset_at(segment, start)
                if self._trust_txn_index(segment, start_offset):
                    scan.producers = self._replay(start_offset)
                else:
                    scan.producers = self._remake_txn_index(segment, start)
                good = scan.segment(segment, start) if start > 0 else 0
                if good == start > 0:
                    # Not one good batch where the index points: it is the index that is wrong.
                    scan.producers = self._replay(segment.base_offset)
                    scan.producers_offset = segment.base_offset
                    start = 0
            if start == 0:
                good = scan.segment(segment, 0)
            self._report.scanned_bytes += good - start
            if good < size:
                self._report.truncated_bytes = size - good
                self._cut(segment, good)
            if at + 1 < len(self.segments):
                following = self.segments[at + 1].base_offset
                if good < size or not scan.may_follow(following):
                    self._remove_segments_from(at + 1)
                    break
                segment.finish()

    def _trusted_start(self, segment: Segment) -> int:
        """Keep the index entries below the recovery point; return where the last one points."""
        below = self._expected.recovery_point if self._indexes_are_good else segment.base_offset
        if not self._load_indexes(segment, below_offset=below):
            segment.offset_index.file_is_longer = segment.time_index.file_is_longer = True
        return segment.offset_index.last_position()

    def _trust_txn_index(self, segment: Segment, below_offset: int) -> bool:
        """Keep the aborted transactions whose markers were durable before the scan begins.

        What came later may be garbled so that it looks like one of them. It lies behind them, so
        the last entry whose marker is there vouches for all before it.

        Returns:
            False where an entry makes no sense: then nobody knows how many are good.
        """
        index = segment.txn_index
        base_offset = segment.base_offset
        if not index.keep_valid(from_offset=base_offset, below_offset=OFFSET_MAX):
            return False
        index.keep_valid(from_offset=base_offset, below_offset=below_offset)
        while index and not _has_marker(segment, index.entries()[-1]):
            last = index.entries()[-1]
            index.keep_valid(from_offset=base_offset, below_offset=last.marker_offset)
        return True

    def _epochs_from_batches(self, upto: int) -> LeaderEpochs:
        """Make the epochs of the segments that will not be scanned anew: the file is damaged."""
        epochs = LeaderEpochs()
        for segment in self.segments[: upto + 1]:
            try:
                for _, header in segment.headers(0):
                    if header.base_offset >= self._expected.recovery_point:
                        break
                    if header.leader_epoch > epochs.latest:
                        epochs.assign(header.leader_epoch, header.base_offset)
            except CorruptRecordError:
                break
        return epochs

    def _cut(self, segment: Segment, size: int) -> None:
        segment.size = size
        segment.open_appender().truncate(size)
        segment.unsynced = True

    def _remove_segments_from(self, at: int) -> None:
        for segment in self.segments[at:]:
            for suffix in SEGMENT_SUFFIXES:
                name = offset_name(segment.base_offset, suffix)
                if name in self._names:
                    self._disk.remove(self._path(name))
            segment.close()
            self._report.removed_segments += 1
        del self.segments[at:]

    def _remove_snapshots_above(self, log_end_offset: int, *, but: int = -1) -> None:
        for offset in [each for each in self._snapshots if each > log_end_offset and each != but]:
            self._remove_snapshot(offset)

    def _remove_snapshot(self, offset: int) -> None:
        self._disk.remove(self._path(offset_name(offset, SNAPSHOT)))
        self._snapshots.remove(offset)

    def _save_indexes(self, segment: Segment) -> None:
        """Replace the index files, so that a name never stands for entries that are not durable."""
        files = Unsynced(self._disk)
        segment.replace_indexes(files)
        files.sync_all()

    def _make_durable(self, first: int, epochs: LeaderEpochs) -> None:
        """Sync all that was looked at: the device may have it in a cache of its own."""
        names = Unsynced(self._disk)
        for segment in self.segments[first:]:
            sync_now(segment.open_appender())
            segment.synced()
            self._save_indexes(segment)
        for segment in self.segments[first:-1]:
            segment.appender = None
        for offset in self._snapshots:
            if offset >= self._expected.recovery_point:
                path = self._path(offset_name(offset, SNAPSHOT))
                names.replace(path, read_file(self._disk, path))
        if not self._metadata_is_good:
            metadata = encode_partition_metadata(self._expected.topic_id)
            names.replace(self._path(PARTITION_METADATA), metadata)
        path = self._path(LEADER_EPOCH_CHECKPOINT)
        known = LEADER_EPOCH_CHECKPOINT in self._names
        if not known or read_file(self._disk, path) != epochs.encode():
            names.replace(path, epochs.encode())
        names.add_names(self._directory)
        names.add_names(parent_directory(self._directory))
        names.sync_all()


def _has_timestamps(segment: Segment) -> bool:
    with contextlib.suppress(CorruptRecordError):
        return segment.first_timestamp >= 0
    return True


def _has_marker(segment: Segment, entry: TxnIndexEntry) -> bool:
    """Tell whether there is a marker where an entry says so."""
    with contextlib.suppress(CorruptRecordError):
        for _, header in segment.headers(segment.position_of(entry.marker_offset)):
            found = header.base_offset, header.producer_id
            return header.is_control and found == (entry.marker_offset, entry.producer_id)
    return False


def _offset_at(segment: Segment, position: int) -> int:
    """Return the offset of the batch at a position, the segment's own where there is none."""
    with contextlib.suppress(CorruptRecordError):
        for _, header in segment.headers(position):
            return header.base_offset
    return segment.base_offset


def tell_missing(directory: str, recorded: range, found: range, *, clean: bool) -> None:
    """Warn when records that were durable once are not there: files were cut or removed.

    Only a clean stop records the start exactly: retention may have moved it before a crash.
    """
    if recorded and found.stop < recorded.stop:
        logger.warning(
            "%s ends at offset %d, but was known to reach %d: those records are lost",
            directory,
            found.stop,
            recorded.stop,
        )
    elif recorded and clean and found.start > recorded.start:
        logger.warning(
            "%s begins at offset %d, but was known to begin at %d: older records are lost",
            directory,
            found.start,
            recorded.start,
        )
