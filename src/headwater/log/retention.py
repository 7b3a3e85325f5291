"""Which segments have to go.

This file alone decides that; the log does it. Whole segments only, oldest first, Kafka's rules:

    log start   everything below the log start offset, except the active segment
    time        the largest timestamp of the segment is older than `retention.ms`
    size        what is left without the segment still has `retention.bytes`

A segment goes only if all of it lies below the high watermark. Time may claim the active segment
too: the log then begins a new one first. Segments without timestamps count from when they were
seen. `cleanup.policy` decides whether time and size apply; the log start always does.
"""

from collections.abc import Sequence

from headwater.base.settings import TopicConfig
from headwater.log.segment import Segment


def removable(
    segments: Sequence[Segment],
    config: TopicConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
) -> int:
    """Return how many of the oldest segments have to go; all of them includes the active one."""
    ends = [segment.base_offset for segment in segments[1:]]
    ends.append(log_end_offset)
    below_high_watermark = sum(end <= high_watermark for end in ends)
    if segments and segments[-1].size == 0:
        below_high_watermark = min(below_high_watermark, len(segments) - 1)
    candidates = segments[:below_high_watermark]

    count = sum(end <= log_start_offset for end in ends[:-1])
    if "delete" not in config.cleanup_policy:
        return min(count, len(candidates))
    if config.retention_ms >= 0:
        count = max(count, _expired(candidates, now_ms - config.retention_ms))
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
        count = max(count, _in_excess(candidates, excess))
    return min(count, len(candidates))


def _expired(segments: Sequence[Segment], oldest_kept_ms: int) -> int:
    for count, segment in enumerate(segments):
        if segment.largest_timestamp >= oldest_kept_ms:
            return count
    return len(segments)


def _in_excess(segments: Sequence[Segment], excess_bytes: int) -> int:
    for count, segment in enumerate(segments):
        excess_bytes -= segment.size
        if excess_bytes < 0:
            return count
    return len(segments)
