"""The compaction of one directory, for tests and measurements.

This file alone decides how a partition is cleaned that no broker has open: with the same passes and
swaps, one after the other, until nothing is left to do.
"""

from headwater.base.clock import Clock
from headwater.base.disk import Disk, read_file
from headwater.base.settings import TopicConfig
from headwater.log.compaction.cleaner import clean
from headwater.log.compaction.job import Cleaned
from headwater.log.compaction.planning import plan_job
from headwater.log.compaction.selection import find_cleanable
from headwater.log.compaction.swap import swap_in
from headwater.log.names import PARTITION_METADATA, decode_partition_metadata
from headwater.log.partition import PartitionLog

DEDUPE_BUFFER_BYTES = 128 << 20


def clean_directory(
    disk: Disk,
    directory: str,
    *,
    clock: Clock,
    config: TopicConfig | None = None,
    dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
) -> list[Cleaned]:
    """Compact all segments of a partition but the last one.

    Args:
        disk: Where it is.
        directory: The partition's own; no process may have it open.
        clock: For delete horizons.
        config: Of its topic.
        dedupe_buffer_bytes: How much memory the keys may take.

    Returns:
        What each pass did.

    Raises:
        StorageError: The directory cannot be read or written.
        OSError: The disk is full or has failed.
    """
    config = config or TopicConfig(cleanup_policy="compact")
    metadata = f"{directory}/{PARTITION_METADATA}"
    topic_id = decode_partition_metadata(read_file(disk, metadata)) or bytes(16)
    log = PartitionLog.open(
        disk,
        directory,
        topic=directory,
        partition=0,
        topic_id=topic_id,
        config=config,
        clock=clock,
        leader_epoch=0,
        recovery_point=0,
        log_start_offset=0,
        clean=True,
    )
    passes: list[Cleaned] = []
    clean_offset = 0
    while True:
        now_ms = clock.now_ms()
        cleanable = find_cleanable(
            log.segments,
            config,
            clean_offset=clean_offset,
            log_start_offset=log.log_start_offset,
            stable_offset=log.last_stable_offset,
            now_ms=now_ms,
        )
        if cleanable is None:
            break
        job = plan_job(log, cleanable, dedupe_buffer_bytes=dedupe_buffer_bytes, now_ms=now_ms)
        steps = clean(disk, job)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            cleaned: Cleaned = done.value
        for new in cleaned.segments:
            swap_in(disk, log, new, due_ms=now_ms)
        clean_offset = cleaned.clean_offset
        passes.append(cleaned)
    log.purge_deleted(clock.now_ms())
    log.close()
    return passes
