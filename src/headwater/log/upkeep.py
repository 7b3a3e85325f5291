"""What a data directory needs from time to time: retention, removal and checkpoints.

This file alone decides when each of them is due, in which small steps they are done, and what the
offset checkpoints say. It knows neither what exists (``store``) nor why a segment has to go
(``retention``).

Everything is done in steps of a few milliseconds, so that nobody waits for it. Topics may come and
go between two steps: each step looks again at what is there.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from headwater.base.clock import Clock
from headwater.base.disk import may_pass
from headwater.base.errors import StorageError
from headwater.base.settings import BrokerSettings
from headwater.log.checkpoints import (
    CLEAN_OFFSETS,
    GAP_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Key,
    OffsetFiles,
    above_zero,
)
from headwater.log.deletion import Deletions
from headwater.log.partition import PartitionLog
from headwater.log.removal import END_OF_TIME_MS, Removal
from headwater.log.topic import Topic

_BUDGET_MS: Final = 20
# A checkpoint costs three syncs, reading this much a ten-thousandth of a second: a node with
# thousands of partitions that hardly grow would do little else.
_CHECKPOINT_WORTH_BYTES: Final = 256 << 10
"""How long one call of ``work_due`` may hold up everybody else; heartbeats bear five times that."""

logger = logging.getLogger(__name__)


class Upkeep:
    """The recurring work on all partitions of a data directory.

    Attributes:
        failed: Whether the disk failed under it, for good.
        recovery_points: Up to where each partition was safe when it was last looked at.
    """

    def __init__(
        self,
        directory: str,
        topics: Mapping[str, Topic],
        *,
        offsets: OffsetFiles,
        deletions: Deletions,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        """Begin with nothing due.

        Args:
            directory: The name for messages.
            topics: All topics, as they come and go.
            offsets: The checkpoints.
            deletions: The directories of deleted topics.
            settings: How often things are due.
            clock: For the time that passes.
        """
        self.failed = False
        self.recovery_points: dict[Key, int] = {}
        self._directory = directory
        self._topics = topics
        self._offsets = offsets
        self._deletions = deletions
        self._settings = settings
        self._clock = clock
        self._steps: Iterator[None] | None = None
        # Whether retention has raised a log start that no checkpoint has yet.
        self._starts_moved = False
        self._removal = Removal()
        self._trimmed: dict[PartitionLog, None] = {}
        now_ms = clock.monotonic_ms()
        self._retention_due_ms = now_ms + settings.log_retention_check_interval_ms
        self._checkpoint_due_ms = now_ms + settings.log_flush_offset_checkpoint_interval_ms

    def hurry(self) -> None:
        """Room is needed now: the next call applies retention and frees it without delay."""
        self._removal.hurry()

    def reclaim(self, log: PartitionLog) -> None:
        """Let the next call apply retention to a log, whenever the check of all is due."""
        self._trimmed[log] = None

    def work_due(self, now_ms: int) -> bool:
        """Do what is due, for a few milliseconds at most.

        Returns:
            Whether something is left that should be done soon.

        Raises:
            StorageError: Something could not be written; it is tried again later unless the disk
                has failed.
        """
        deadline_ms = self._clock.monotonic_ms() + _BUDGET_MS
        if self._steps is None:
            self._steps = self._all_steps(now_ms)
        try:
            for _ in self._steps:
                if self._clock.monotonic_ms() >= deadline_ms:
                    break
            else:
                self._steps = None
            if self._starts_moved:
                self.record_log_starts()
                self._starts_moved = False
        except OSError as error:
            self._steps = None
            self.failed = self.failed or not may_pass(error)
            raise StorageError(str(error)) from error
        except StorageError:
            self._steps = None
            raise
        return self._steps is not None

    def _all_steps(self, now_ms: int) -> Iterator[None]:
        yield from self._deletions.steps()
        monotonic_ms = self._clock.monotonic_ms()
        trimmed, self._trimmed = self._trimmed, {}
        for log in trimmed:
            if self._is_present(log):
                self._remove_expired(log, now_ms)
                yield
        if monotonic_ms >= self._retention_due_ms or self._removal.hurried:
            for log in self._present_logs():
                self._remove_expired(log, now_ms)
                yield
            self._retention_due_ms = monotonic_ms + self._settings.log_retention_check_interval_ms
        yield from self._removal.steps(now_ms)
        if monotonic_ms >= self._checkpoint_due_ms:
            yield from self.checkpoint_steps(worth_bytes=_CHECKPOINT_WORTH_BYTES)
            interval_ms = self._settings.log_flush_offset_checkpoint_interval_ms
            self._checkpoint_due_ms = monotonic_ms + interval_ms

    def _present_logs(self) -> Iterator[PartitionLog]:
        """Go through the partitions of now, without those whose topic is deleted on the way."""
        for log in list(self._logs()):
            if self._is_present(log):
                yield log

    def _is_present(self, log: PartitionLog) -> bool:
        topic = self._topics.get(log.topic)
        return topic is not None and topic.topic_id == log.topic_id

    def _logs(self) -> Iterator[PartitionLog]:
        return (log for topic in self._topics.values() for log in topic.partitions)

    # Retention.

    def _remove_expired(self, log: PartitionLog, now_ms: int) -> None:
        start, removed = log.log_start_offset, True
        try:
            removed = log.remove_expired(now_ms) > 0
        except StorageError as error:
            if log.failed:
                raise
            # The disk is full: the next log may need no room and give some.
            logger.warning("retention is put off: %s", error)
        self._starts_moved |= log.log_start_offset != start
        if removed:
            self._removal.add(log, now_ms)

    def note_removed(self, log: PartitionLog, now_ms: int) -> None:
        """Segments of a log have just been removed: their files go when their time has come."""
        self._removal.add(log, now_ms)

    # Checkpoints.

    def checkpoint_steps(self, *, worth_bytes: int = 0) -> Iterator[None]:
        """Record how far every partition is safe, a partition a step.

        Raises:
            StorageError: The disk failed or is full; the old recovery points hold.
        """
        for log in self._present_logs():
            self.recovery_points[log.topic, log.partition] = log.checkpoint(worth_bytes=worth_bytes)
            yield
        self.record_offsets()

    def record_offsets(self) -> None:
        """Write all checkpoints from what is known.

        Raises:
            StorageError: The disk failed or is full.
        """
        self._record(RECOVERY_POINTS, above_zero(self.recovery_points))
        self.record_log_starts()
        watermarks = {(log.topic, log.partition): log.high_watermark for log in self._logs()}
        self._record(HIGH_WATERMARKS, above_zero(watermarks))

    def record_log_starts(self, raised: Iterable[tuple[PartitionLog, int]] = ()) -> None:
        """Write down where every log starts, some of them as if they started later already.

        Raises:
            StorageError: The disk failed or is full.
        """
        starts = {(log.topic, log.partition): log.log_start_offset for log in self._logs()}
        for log, offset in raised:
            key = log.topic, log.partition
            starts[key] = max(starts[key], offset)
        self._record(LOG_STARTS, above_zero(starts))

    def keep_log_start(self, log: PartitionLog) -> None:
        """Write down where a log starts, before the files change from which it would follow.

        Raises:
            StorageError: The disk failed or is full.
        """
        if self._offsets.recorded(LOG_STARTS, (log.topic, log.partition)) < log.log_start_offset:
            self.record_log_starts()

    def trim(self, trims: Sequence[tuple[PartitionLog, int]]) -> None:
        """Let logs start at other offsets. Readers see that once a crash cannot undo it.

        Raises:
            StorageError: The disk failed or is full, and the logs start where they did, or at a
                segment whose predecessors are gone.
        """
        try:
            self.record_log_starts(trims)
        except StorageError:
            if self.failed:
                raise
            # Whole segments can go without a word written, and what goes makes the room for it.
            for log, offset in trims:
                self._free_below(log, offset)
            self.record_log_starts(trims)
        for log, offset in trims:
            log.trim(offset)

    def _free_below(self, log: PartitionLog, offset: int) -> None:
        log.trim(log.segment_start(offset))
        try:
            if log.remove_expired(self._clock.now_ms()):
                log.purge_deleted(END_OF_TIME_MS)
        except StorageError as error:
            if log.failed:
                raise
            logger.warning("no room is won: %s", error)

    def checkpoint_log(self, log: PartitionLog) -> int:
        """Record how far one partition is safe.

        Returns:
            The recovery point, which now survives a crash.

        Raises:
            StorageError: The disk failed or is full; the old recovery point holds.
        """
        self.recovery_points[log.topic, log.partition] = point = log.checkpoint()
        self._record(RECOVERY_POINTS, above_zero(self.recovery_points))
        return point

    def clean_offset(self, log: PartitionLog) -> int:
        """Return how far compaction has come, 0 where it has not been."""
        return self._offsets.recorded(CLEAN_OFFSETS, (log.topic, log.partition))

    def record_clean_offset(self, log: PartitionLog, offset: int) -> None:
        """Write down how far compaction has come.

        Raises:
            StorageError: The disk failed or is full; a later pass does the same again.
        """
        self._record_one(CLEAN_OFFSETS, log, offset)

    def expect_gaps(self, log: PartitionLog, below_offset: int) -> None:
        """Write down, before compaction leaves gaps between offsets, how far they may reach.

        Raises:
            StorageError: The disk failed or is full; there must be no new gap.
        """
        known = self._offsets.recorded(GAP_OFFSETS, (log.topic, log.partition))
        self._record_one(GAP_OFFSETS, log, max(known, below_offset))

    def _record_one(self, name: str, log: PartitionLog, offset: int) -> None:
        offsets = {
            key: known
            for key, known in self._offsets.recorded_in(name).items()
            if key[0] in self._topics
        }
        offsets[log.topic, log.partition] = offset
        self._record(name, above_zero(offsets))

    def forget_topics(self, topics: set[str]) -> None:
        """Remove all that the checkpoints say of some topics.

        Raises:
            StorageError: The disk failed or is full.
        """
        with self.writing("the checkpoints"):
            self._offsets.forget_topics(topics)

    def _record(self, name: str, offsets: Mapping[Key, int]) -> None:
        with self.writing(name):
            self._offsets.record(name, offsets)

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Turn what the disk says while a file is written into our own error."""
        try:
            yield
        except OSError as error:
            self.failed = self.failed or not may_pass(error)
            raise StorageError(f"cannot write {self._directory}/{name}: {error}") from error
