"""Which log is cleaned next, and what becomes of what a pass has made.

This file alone decides that. Who runs the passes, and in which process, is none of its business: it
hands out a `Job` and takes a `Cleaned`, or hears that there will be none. The dirtiest log comes
first. A log whose pass failed waits, each time twice as long, so that one bad log does not starve
the others.

A log start that follows from the size of the log (`dropping`) would be found lower in the log that
a swap leaves. So log starts are written down before each swap, not only before the first: between
two of them the log may have grown, and more may have been dropped.
"""

import logging
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

from headwater.base.clock import Clock
from headwater.base.disk import Disk
from headwater.base.errors import StorageError
from headwater.base.settings import BrokerSettings
from headwater.log.checkpoints import Key
from headwater.log.compaction.job import Cleaned, Job
from headwater.log.compaction.planning import plan_job
from headwater.log.compaction.selection import Cleanable, find_cleanable
from headwater.log.compaction.swap import remove_cleaned, swap_in
from headwater.log.partition import PartitionLog
from headwater.log.topic import Topic
from headwater.log.upkeep import Upkeep

_WAIT_MS_MAX: Final = 600_000
"""After a failed pass: rare enough to be no burden, soon enough that a freed disk is noticed."""

logger = logging.getLogger(__name__)


class Compaction:
    """The compacted logs of a data directory.

    Attributes:
        passes: How many have been put in place since the start.
        settings: The broker's, as they are in force.
    """

    def __init__(
        self,
        disk: Disk,
        topics: Mapping[str, Topic],
        *,
        upkeep: Upkeep,
        settings: BrokerSettings,
        clock: Clock,
    ) -> None:
        """Begin with no pass under way.

        Args:
            disk: Where the logs are.
            topics: All topics, as they come and go.
            upkeep: Which keeps the checkpoints, and removes old files.
            settings: Of the broker.
            clock: For the time that passes.
        """
        self._disk = disk
        self._topics = topics
        self._upkeep = upkeep
        self.settings = settings
        self._clock = clock
        self.passes = 0
        self._running: dict[Key, PartitionLog] = {}
        # By partition: how long it waits after a failed pass, and until when.
        self._waits: dict[Key, tuple[int, int]] = {}

    def next_job(self, now_ms: int) -> Job | None:
        """Return what is most worth cleaning, if anything is; it counts as under way.

        Args:
            now_ms: The calendar's time, against which records age.
        """
        if self._upkeep.failed:
            return None
        ranked: list[tuple[float, PartitionLog]] = []
        for log in self._candidates():
            cleanable = self._measure(log, now_ms)
            if cleanable is not None and cleanable.is_worth_it(log.config):
                rank = 1 + cleanable.dirty_ratio if cleanable.is_due else cleanable.dirty_ratio
                ranked.append((rank, log))
        ranked.sort(key=itemgetter(0), reverse=True)
        # The first may have nothing that is safe on disk yet: that must not keep up the others.
        jobs = (self._plan(log, now_ms) for _, log in ranked)
        return next((job for job in jobs if job is not None), None)

    def _candidates(self) -> Iterator[PartitionLog]:
        monotonic_ms = self._clock.monotonic_ms()
        for topic in self._topics.values():
            if not topic.config.is_compacted:
                continue
            for log in topic.partitions:
                if len(log.segments) < 2:
                    continue
                key = (log.topic, log.partition)
                _, until_ms = self._waits.get(key, (0, 0))
                if key not in self._running and monotonic_ms >= until_ms and not log.failed:
                    yield log

    def _measure(
        self, log: PartitionLog, now_ms: int, stable_offset: int | None = None
    ) -> Cleanable | None:
        try:
            return find_cleanable(
                log.segments,
                log.config,
                clean_offset=self._upkeep.clean_offset(log),
                log_start_offset=log.log_start_offset,
                stable_offset=log.last_stable_offset if stable_offset is None else stable_offset,
                now_ms=now_ms,
            )
        except OSError as error:
            self._put_off((log.topic, log.partition), f"it cannot be read: {error}")
            return None

    def _plan(self, log: PartitionLog, now_ms: int) -> Job | None:
        key = (log.topic, log.partition)
        try:
            # Gaps between offsets are believed below the recovery point alone.
            recovery_point = self._upkeep.checkpoint_log(log)
            stable_offset = min(recovery_point, log.last_stable_offset)
            cleanable = self._measure(log, now_ms, stable_offset)
            if cleanable is None or not cleanable.is_worth_it(log.config):
                return None
            # A start takes any .cleaned file for a sign that the swaps above it are incomplete, so
            # none may be left of an earlier pass. The first swap makes the removal durable.
            remove_cleaned(self._disk, log.directory)
            buffer_bytes = self.settings.log_cleaner_dedupe_buffer_size
            job = plan_job(
                log,
                cleanable,
                dedupe_buffer_bytes=buffer_bytes // self.settings.log_cleaner_threads,
                now_ms=now_ms,
            )
        except (OSError, StorageError) as error:
            self._put_off(key, str(error))
            return None
        self._running[key] = log
        return job

    def give_up(self, job: Job, reason: str) -> None:
        """A pass has failed: remove what it left, and try again later."""
        key = (job.topic, job.partition)
        if self._is_wanted(self._running.pop(key)):
            self._put_off(key, reason)
        self._discard(job)

    def _put_off(self, key: Key, reason: str) -> None:
        wait_ms = max(self.settings.log_cleaner_backoff_ms, 1)
        if key in self._waits:
            wait_ms = min(2 * self._waits[key][0], max(_WAIT_MS_MAX, wait_ms))
        self._waits[key] = wait_ms, self._clock.monotonic_ms() + wait_ms
        topic, partition = key
        logger.warning("compaction of %s-%d is put off: %s", topic, partition, reason)

    def _discard(self, job: Job) -> None:
        try:
            remove_cleaned(self._disk, job.directory)
        except OSError as error:
            logger.warning("what is left of a compaction cannot be removed yet: %s", error)

    def put_in_place(self, job: Job, cleaned: Cleaned, now_ms: int) -> Iterator[None]:
        """Let what a pass has made take the place of what it was made from, a segment a step.

        Raises:
            StorageError: The disk has failed; the broker must stop.
        """
        key = (job.topic, job.partition)
        log = self._running[key]
        for complaint in cleaned.complaints:
            logger.warning("%s: %s", job.directory, complaint)
        if cleaned.keyless_records:
            logger.warning(
                "compaction of %s-%d drops %d records without a key: "
                "nothing can replace them, so a compacted topic does not keep them",
                job.topic,
                job.partition,
                cleaned.keyless_records,
            )
        try:
            if cleaned.segments and self._is_wanted(log):
                # First of all: this pass may end early, and the topic may be compacted no more.
                self._upkeep.expect_gaps(log, job.end_offset)
            for new in cleaned.segments:
                if not self._is_wanted(log):
                    self._discard(job)
                    return
                due_ms = now_ms + log.config.file_delete_delay_ms
                self._upkeep.keep_log_start(log)
                if swap_in(self._disk, log, new, due_ms=due_ms):
                    self._upkeep.note_removed(log, now_ms)
                elif new.replaces[-1] >= log.segments[0].base_offset:
                    # Retention took some of them. The others still hold what is replaced further
                    # down, where the tombstones that keep it dead must not begin to age.
                    self._discard(job)
                    return
                yield
            if self._is_wanted(log):
                self._upkeep.record_clean_offset(log, cleaned.clean_offset)
                self._waits.pop(key, None)
                self.passes += 1
        except StorageError as error:
            if log.failed or self._upkeep.failed:
                raise
            self._put_off(key, str(error))
            self._discard(job)
        finally:
            self._running.pop(key, None)

    def _is_wanted(self, log: PartitionLog) -> bool:
        """Tell whether a log is still there and still to be compacted."""
        topic = self._topics.get(log.topic)
        return topic is not None and topic.topic_id == log.topic_id and topic.config.is_compacted
