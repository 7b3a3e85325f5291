"""When the active segment is full.

This file alone decides that, by Kafka's rules; the log then begins the next one:

    size    with this batch the segment would exceed `segment.bytes`
    time    `segment.ms` lie between its first batch and this one, in the records' own time;
            without timestamps, between its creation and now. Compaction never touches the active
            segment, so with it `max.compaction.lag.ms` counts too
    index   one of its indexes has reached `segment.index.bytes`
    range   the offset lies more than 2**31 - 1 behind the base offset, so no index can hold it

An empty segment is never full.
"""

from headwater.base.settings import TopicConfig
from headwater.log.segment import Segment


def must_roll(
    segment: Segment,
    config: TopicConfig,
    *,
    size: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
) -> bool:
    """Tell whether a batch of `size` bytes needs a new segment."""
    return segment.size > 0 and (
        segment.size > config.segment_bytes - size
        or _is_old(segment, _segment_ms(config), max_timestamp, now_ms)
        or segment.indexes_full(config.segment_index_bytes)
        or not segment.fits(last_offset)
    )


def _segment_ms(config: TopicConfig) -> int:
    if config.is_compacted and config.max_compaction_lag_ms < config.segment_ms:
        return config.max_compaction_lag_ms
    return config.segment_ms


def _is_old(segment: Segment, segment_ms: int, max_timestamp: int, now_ms: int) -> bool:
    first_timestamp = segment.first_timestamp
    if first_timestamp >= 0:
        return max_timestamp - first_timestamp > segment_ms
    return now_ms - segment.created_ms > segment_ms
