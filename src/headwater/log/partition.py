"""One partition: the log that producers append to and consumers read.

This file alone decides which offset a batch gets, when a segment is full, when what was written is
durable and when a write failure is final; what readers are given is decided by `reading`. It is
single-threaded, starts no timer and calls nobody back; disk and clock are handed in. Batches come
finished: their checksum is verified, only offset, epoch and log append time are written into them.

    log_start_offset <= high_watermark <= log_end_offset

The high watermark is the end of what is durable (`flush.messages=1`) or the log end (any larger
number). It never goes back while the process lives, and recovery never shows what it cannot keep.

Durability is a round that somebody else runs for many partitions at once: `begin_commit` hands
over what must be synced and remembers the end, `end_commit` moves the high watermark there.

A full disk is a state that passes: the partial batch is removed and the next append may succeed. So
is a lack of descriptors: names that cannot be synced for want of one wait for the next commit. Any
other failure of a write, and every failure of a sync, is final: the kernel may have dropped the
data and a second sync would report success.
"""

import errno
from collections.abc import Sequence
from typing import Final

from headwater.base.clock import Clock
from headwater.base.disk import (
    Disk,
    Names,
    Syncable,
    may_pass,
    parent_directory,
    remedy,
)
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import NO_TIMESTAMP, BatchHeader, stamp, stamp_append_time
from headwater.base.record.control import EndTransactionMarker, build_end_transaction
from headwater.base.settings import TopicConfig
from headwater.log.admission import check_admitted
from headwater.log.appended import Appended
from headwater.log.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    encode_partition_metadata,
)
from headwater.log.reading import ReadableLog
from headwater.log.recovery import Expected, Found, find_log
from headwater.log.retention import removable
from headwater.log.rolling import must_roll
from headwater.log.segment import Segment
from headwater.log.snapshots import Snapshots
from headwater.log.unsynced import Unsynced, sync_now

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000


class PartitionLog(ReadableLog):
    """A partition's segments, producers and epochs."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        found: Found,
        *,
        name: tuple[str, int, bytes],
        config: TopicConfig,
        clock: Clock,
        leader_epoch: int,
        producer_id_expiration_ms: int,
    ) -> None:
        """Go on with a log as it was found; `open` finds it."""
        # Files from elsewhere may be ahead of our own count; an epoch never goes back.
        super().__init__(directory, found, leader_epoch=max(leader_epoch, found.epochs.latest))
        self._disk = disk
        self._clock = clock
        self.topic, self.partition, self.topic_id = name
        self.recovery = found.report
        found.producers.date_replayed(clock.now_ms())
        self._snapshots = Snapshots(disk, directory, found.snapshots)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.synced_offset = found.log_end_offset
        self._commit_offset = found.log_end_offset
        self._recovery_point = found.log_end_offset
        self._checkpointed = self._active_extent()
        self._unsynced = Unsynced(disk)
        self._active_dirty = False
        self._commit_wanted = False
        self._dirty_since_ms = 0
        self._refused_before = 0
        self._abandoned = False
        self.failure = ""
        self._durable = True
        self._config = config
        self.config = config

    @classmethod
    def open(  # noqa: PLR0913 - each is a fact that only the data directory knows
        cls,
        disk: Disk,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: TopicConfig,
        clock: Clock,
        leader_epoch: int,
        recovery_point: int,
        log_start_offset: int,
        clean: bool,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> "PartitionLog":
        """Open a partition, recovering it unless the last process stopped cleanly.

        Args:
            disk: Where the files are.
            directory: The partition's own; it may not exist before the first append.
            topic: Its name.
            partition: Its number.
            topic_id: 16 bytes; a directory of another topic is refused.
            config: The topic's configs; may be assigned anew at any time.
            clock: For log append time, and the age of segments.
            leader_epoch: Stamped into every batch that this object appends.
            recovery_point: Everything below was durable when it was last written down.
            log_start_offset: The first offset as last written down.
            clean: Whether `close` was the last thing that happened to it.
            producer_id_expiration_ms: After how much silence an idempotent producer is forgotten.

        Raises:
            StorageError: The files cannot be read, or belong to another topic.
        """
        try:
            expected = Expected(
                topic_id=topic_id,
                index_interval_bytes=config.index_interval_bytes,
                compacted="compact" in config.cleanup_policy,
                leader_epoch=leader_epoch,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                now_ms=clock.now_ms(),
            )
            found = find_log(disk, directory, expected, clean=clean)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}") from error
        return cls(
            disk,
            directory,
            found,
            name=(topic, partition, topic_id),
            config=config,
            clock=clock,
            leader_epoch=leader_epoch,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )

    def __repr__(self) -> str:
        """Show which partition it is and how far it goes."""
        return (
            f"PartitionLog({self.topic}-{self.partition}, {self.log_start_offset}.."
            f"{self.high_watermark}..{self.log_end_offset})"
        )

    @property
    def config(self) -> TopicConfig:
        """The topic's configs."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._durable = config.flush_messages == 1
        self._log_append_time = config.message_timestamp_type == "LogAppendTime"
        if not self._durable:
            self._show(self.log_end_offset)

    @property
    def is_durable(self) -> bool:
        """Whether records are on the disk before anybody is told of them: `flush.messages=1`."""
        return self._durable

    @property
    def failed(self) -> bool:
        """Whether the disk has failed under this log, for good."""
        return bool(self.failure)

    # Appending.

    def append(self, batch: bytearray | memoryview, header: BatchHeader) -> Appended:
        """Append one validated batch, or find that it is there already.

        Args:
            batch: Exactly the batch; offset, epoch and log append time are written into it.
            header: Its header as it was sent.

        Raises:
            KafkaError: The producer or its timestamps are refused; nothing was written.
            StorageError: The disk is full or has failed; nothing was written that will be kept.
        """
        if self.failure:
            raise StorageError(self.failure)
        now_ms = self._clock.now_ms()
        check_admitted(self._config, header, len(batch), now_ms)
        max_timestamp = now_ms if self._log_append_time else header.max_timestamp
        producer_id = header.producer_id
        if producer_id >= 0:
            repeated = self.repeated(header)
            if repeated is not None:
                time_ms = repeated.timestamp if self._log_append_time else NO_TIMESTAMP
                return Appended(
                    repeated.base_offset,
                    repeated.last_offset,
                    time_ms,
                    self.log_start_offset,
                    duplicate=True,
                )
        base_offset = self._write(batch, header.last_offset_delta, max_timestamp, now_ms)
        if producer_id >= 0:
            self.producers.add(header, base_offset, max_timestamp, now_ms)
        last_offset = base_offset + header.last_offset_delta
        if not self._durable:
            self._show(last_offset + 1)
        time_ms = now_ms if self._log_append_time else NO_TIMESTAMP
        return Appended(base_offset, last_offset, time_ms, self.log_start_offset, duplicate=False)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Append the control batch that ends a producer's transaction in this partition.

        Where none is open it changes nothing for readers: a coordinator that does not know whether
        it has written a marker writes it again.

        Args:
            producer_id: Whose transaction it is.
            producer_epoch: The producer's, raised already where the protocol raises it.
            committed: How it ended.
            coordinator_epoch: That of the coordinator who says so.
            transaction_version: From 2 on the epoch must have been raised.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED; nothing was
                written.
            StorageError: The disk is full or has failed; the transaction is still open.
        """
        if self.failure:
            raise StorageError(self.failure)
        self.producers.check_marker(
            producer_id,
            producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        now_ms = self._clock.now_ms()
        marker = EndTransactionMarker(committed, coordinator_epoch)
        batch = build_end_transaction(
            marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        offset = self._write(batch, 0, now_ms, now_ms)
        aborted = self.producers.end(
            producer_id, producer_epoch, marker, offset=offset, timestamp=now_ms
        )
        assert self._segments.active is not None
        self._segments.active.note_aborted(aborted)
        if not self._durable:
            self._show(offset + 1)
        time_ms = now_ms if self._log_append_time else NO_TIMESTAMP
        return Appended(offset, offset, time_ms, self.log_start_offset, duplicate=False)

    def _write(
        self, batch: bytearray | memoryview, last_offset_delta: int, max_timestamp: int, now_ms: int
    ) -> int:
        """Write a batch at the log end; return the offset that it got."""
        base_offset = self.log_end_offset
        last_offset = base_offset + last_offset_delta
        segment = self._segment_for_append(len(batch), last_offset, max_timestamp, now_ms)
        stamp(batch, 0, base_offset, self.leader_epoch)
        if self._log_append_time:
            stamp_append_time(batch, 0, now_ms)
        size = segment.size
        try:
            segment.append(batch, last_offset, max_timestamp, self._config.index_interval_bytes)
        except OSError as error:
            raise self._append_failed(segment, size, error) from error
        self.log_end_offset = last_offset + 1
        if not self._active_dirty:
            self._active_dirty = segment.unsynced = True
            self._dirty_since_ms = now_ms
            self._refused_before = self._disk.handles.refused
        return base_offset

    def _show(self, upto_offset: int) -> None:
        """Raise the high watermark."""
        self.high_watermark = upto_offset
        self._transactions.advance(upto_offset)

    def _segment_for_append(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> Segment:
        """Return the active segment, after creating or rolling it and beginning the epoch."""
        config = self._config
        try:
            segment = self._segments.active or self._create(now_ms)
            if must_roll(
                segment,
                config,
                size=size,
                last_offset=last_offset,
                max_timestamp=max_timestamp,
                now_ms=now_ms,
            ):
                segment = self._roll(now_ms)
            if self.leader_epoch > self.epochs.latest:
                self._begin_epoch()
        except OSError as error:
            raise self._storage_error("the log cannot grow", error) from error
        return segment

    def _create(self, now_ms: int) -> Segment:
        """Make the directory and its first segment; repeatable when a step fails."""
        self._disk.make_directory(self.directory)
        metadata = f"{self.directory}/{PARTITION_METADATA}"
        segment = Segment.create(self._disk, self.directory, self.log_end_offset, now_ms=now_ms)
        self._unsynced.replace(metadata, encode_partition_metadata(self.topic_id))
        self._unsynced.add_names(self.directory)
        self._unsynced.add_names(parent_directory(self.directory))
        self._segments.add(segment)
        return segment

    def _begin_epoch(self) -> None:
        """Let the leader epoch begin at the log end; its checkpoint joins the next commit."""
        epochs = self.epochs.copy()
        epochs.assign(self.leader_epoch, self.log_end_offset)
        self._unsynced.replace(f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}", epochs.encode())
        self._unsynced.add_names(self.directory)
        self.epochs = epochs

    def _roll(self, now_ms: int) -> Segment:
        """Close the active segment and begin the next one at the log end."""
        old = self._segments.active
        assert old is not None
        new = Segment.create(self._disk, self.directory, self.log_end_offset, now_ms=now_ms)
        self._unsynced.add_names(self.directory)
        if self._active_dirty:
            self._unsynced.add_file(old.open_appender())
        old.appender, old.unsynced = None, False
        old.finish()
        self._segments.add(new)
        self._active_dirty = False
        self._save_indexes(old)
        self._snapshots.save(self.log_end_offset, self.producers, self._unsynced)
        return new

    def _save_indexes(self, segment: Segment) -> None:
        """Write out a closed segment's indexes; without room they stay in memory for later."""
        try:
            files, created = segment.save_indexes()
        except OSError as error:
            if not may_pass(error):
                raise
            return
        for file in files:
            self._unsynced.add_file(file)
        if created:
            self._unsynced.add_names(self.directory)

    # Failing.

    def fail(self, reason: str) -> None:
        """Refuse every later append: what was written may be lost."""
        self.failure = self.failure or f"{self.topic}-{self.partition}: {reason}"

    def _append_failed(self, segment: Segment, size: int, error: OSError) -> StorageError:
        """Remove what a failed append left behind, if it came as far as to open the file."""
        try:
            if segment.appender is not None:
                segment.appender.truncate(size)
        except OSError as second:
            self.fail(f"a partial batch cannot be removed: {second}")
        return self._storage_error("the batch cannot be written", error)

    def _storage_error(self, what: str, error: OSError) -> StorageError:
        if may_pass(error):
            message = f"{self.topic}-{self.partition}: {what}: {error.strerror}"
            return StorageError(message, hint=remedy(error), passes=True)
        self.fail(f"{what}: {error}")
        return StorageError(self.failure)

    # Removing.

    def trim(self, offset: int) -> int:
        """Let the log start at an offset, as DeleteRecords asks for.

        Returns:
            The log start offset, which never goes back.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE: it lies above the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is above the high watermark {self.high_watermark}",
            )
        self._start_at(offset)
        return self.log_start_offset

    def drop_oldest(self, keep_bytes: int) -> None:
        """Raise the log start so far that at most `keep_bytes` of durable data remain."""
        # The rest does not count: a crash may take it, and then this log start is not found again.
        excess = self.durable_bytes() - keep_bytes
        if excess > 0:
            offset = self.offset_behind(self.log_start_offset, excess)
            self._start_at(self.high_watermark if offset is None else offset)

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_before(offset)

    def remove_expired(self, now_ms: int) -> int:
        """Remove the segments that retention no longer keeps.

        Their files are renamed now and removed by `purge_deleted`.

        Returns:
            The bytes that will be freed.
        """
        self.producers.expire(now_ms, self.producer_id_expiration_ms)
        with self._reading():
            count = removable(
                self._segments.as_sequence(),
                self._config,
                now_ms=now_ms,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                log_end_offset=self.log_end_offset,
            )
        if not self._segments or self.failure:
            return 0
        try:
            if count == len(self._segments):
                self._roll(now_ms)
            self._snapshots.cover(self, self._segments[count].base_offset, self._unsynced)
            if count == 0:
                return 0
            # The newest segment's name tells where offsets go on, the snapshot where producers do:
            # neither may be lost when nothing older is left to tell.
            self._unsynced.sync_files()
            freed = 0
            with Names(self._disk, self.directory) as names:
                names.sync()
                for _ in range(count):
                    due_ms = now_ms + self._config.file_delete_delay_ms
                    freed += self._segments.delete_oldest(due_ms).size
                    self._start_at(self._segments[0].base_offset)
                    # One at a time: recovery takes a gap for the end of the log.
                    names.sync()
        except OSError as error:
            raise self._storage_error("old segments cannot be removed", error) from error
        return freed

    def purge_deleted(self, now_ms: int) -> int | None:
        """Remove the files of segments that were deleted `file.delete.delay.ms` ago.

        Returns:
            When the next ones go, if there are any.
        """
        try:
            return self._segments.purge_deleted(now_ms)
        except OSError as error:
            raise self._storage_error("old segments cannot be removed", error) from error

    # Durability.

    @property
    def committing(self) -> bool:
        """Whether a commit has begun and not ended; one that failed never ends."""
        return self._unsynced.under_way

    def dirty(self) -> bool:
        """Tell whether a commit would have anything to sync."""
        return self._active_dirty or bool(self._unsynced)

    def commit_due(self) -> bool:
        """Tell whether `flush.messages` or `flush.ms` ask for a commit now."""
        if not self.dirty():
            return False
        config = self._config
        return (
            self._durable
            or self._commit_wanted
            or self.log_end_offset - self.synced_offset >= config.flush_messages
            or self._clock.now_ms() - self._dirty_since_ms >= config.flush_ms
            # What is not synced cannot be closed, and something else was to be opened.
            or self._disk.handles.refused != self._refused_before
        )

    def begin_commit(self) -> Sequence[Syncable]:
        """Hand over all that must be synced for the present end to be durable."""
        self._commit_offset = self.log_end_offset
        self._commit_wanted = False
        active = None
        if self._active_dirty and self._segments.active is not None:
            self._segments.active.mark(self.log_end_offset)
            active = self._segments.active.open_appender()
        self._active_dirty = False
        return self._unsynced.begin(active)

    def end_commit(self) -> None:
        """Move the high watermark, unless names were left unsynced, and another commit is due."""
        active = self._segments.active
        if active is not None and not self._active_dirty:
            active.synced()
        if self._unsynced.end():
            self.synced_offset = self._commit_offset
            self._show(max(self.high_watermark, self._commit_offset))
        else:
            # Somebody waits for it, whatever `flush.messages` says.
            self._commit_wanted = True
            self._disk.handles.close_one()
        if self._abandoned:
            self.abandon()

    def _active_extent(self) -> tuple[int, int]:
        active = self._segments.active
        return (self.log_end_offset, 0) if active is None else (active.base_offset, active.size)

    def checkpoint(self, *, worth_bytes: int = 0) -> int:
        """Write index entries out durably, let go of idle handles.

        Args:
            worth_bytes: A log that has grown by less keeps its recovery point: to read so little
                again after a crash costs less than to sync its indexes now.

        Returns:
            The recovery point: the next start need not look at anything below.
        """
        base_offset, size = self._active_extent()
        if base_offset == self._checkpointed[0] and size - self._checkpointed[1] < worth_bytes:
            self._segments.release_idle()
            return self._recovery_point
        # Indexes that wait for a commit may not survive a crash: nothing new is safe before it.
        # Where appends ask for none, it is wanted for closed segments, so that a recovery never
        # reads more than what came since, and compaction may have them.
        if self.failure or self._unsynced.has_others:
            self._commit_wanted = True
            return self._recovery_point
        try:
            indexed_offset, names_created = self._segments.sync_indexes()
            if names_created:
                self._unsynced.sync_names(self.directory)
        except OSError as error:
            raise self._storage_error("the indexes cannot be written", error) from error
        self._segments.release_idle()
        self._recovery_point = min(indexed_offset, self.synced_offset)
        self._checkpointed = base_offset, size
        return self._recovery_point

    def close(self) -> None:
        """Make everything durable, so that the next start need not look for damage.

        Raises:
            StorageError: That was not possible; the next start must recover.
        """
        if self.failure:
            raise StorageError(self.failure)
        try:
            if self._segments.active is not None:
                self._close_segments(self._segments.active)
        except OSError as error:
            raise self._storage_error("the log cannot be closed", error) from error
        self.abandon()

    def _close_segments(self, active: Segment) -> None:
        active.finish()
        self._snapshots.save(self.log_end_offset, self.producers, self._unsynced)
        indexed_offset, names_created = self._segments.sync_indexes()
        if indexed_offset < self.log_end_offset:
            raise StorageError(f"{self.directory}: the disk is too full to stop cleanly")
        if names_created:
            self._unsynced.add_names(self.directory)
        for item in self.begin_commit():
            sync_now(item)
        self.end_commit()
        if self.dirty():
            raise OSError(errno.EMFILE, "no descriptor is free to sync the names of its files")

    def abandon(self) -> None:
        """Let go of every file; those that a reader or a sync still holds close with them."""
        self._abandoned = True
        if not self._unsynced.under_way:
            self._segments.clear()
