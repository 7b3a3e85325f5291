"""From a log to a job.

This file alone decides what a pass has to know of a log before it starts. Appends go on meanwhile;
none of them concerns what the pass may touch.
"""

from headwater.log.compaction.job import Job, LastOfProducer, SegmentFacts
from headwater.log.compaction.selection import Cleanable
from headwater.log.partition import PartitionLog


def plan_job(
    log: PartitionLog, cleanable: Cleanable, *, dedupe_buffer_bytes: int, now_ms: int
) -> Job:
    """Describe a pass over a log.

    Raises:
        OSError: An index cannot be read.
    """
    config = log.config
    within = [segment for segment in log.segments if segment.base_offset < cleanable.end_offset]
    facts = [
        SegmentFacts(segment.base_offset, segment.size, *segment.index_sizes())
        for segment in within
    ]
    producers = [
        LastOfProducer(
            producer_id,
            producer.epoch,
            producer.batches[-1].last_offset if producer.batches else -1,
        )
        for producer_id, producer in log.producers.items()
    ]
    # A marker may lie in a later segment than the records that it concerns.
    aborted = [
        entry
        for segment in log.segments
        for entry in segment.txn_index.entries()
        if entry.first_offset < cleanable.end_offset
    ]
    return Job(
        topic=log.topic,
        partition=log.partition,
        directory=log.directory,
        segments=facts,
        end_offset=cleanable.end_offset,
        first_dirty_offset=cleanable.first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        producers=[last for last in producers if last.last_offset < cleanable.end_offset],
        aborted=aborted,
    )
