"""How much of a log can be cleaned, and whether it is worth it.

This file alone decides that, by Kafka's rules. A pass never reaches

    the active segment
    the last stable offset: a transaction that is not decided yet
    the recovery point: what a crash could still take
    the first segment with a record younger than `min.compaction.lag.ms`

It is worth it when more than `min.cleanable.dirty.ratio` of the bytes that it could reach have not
been cleaned yet, or when one of them is older than `max.compaction.lag.ms`.
"""

from typing import NamedTuple

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import NO_TIMESTAMP
from headwater.base.settings import TopicConfig
from headwater.base.settings.setting import LONG_MAX
from headwater.log.segment import Segment
from headwater.log.segments import SegmentList


class Cleanable(NamedTuple):
    """What a pass over a log would do.

    Attributes:
        first_dirty_offset: Below this an earlier pass has been.
        end_offset: The base offset of the first segment that it may not touch.
        dirty_ratio: The share of bytes that no pass has seen.
        is_due: Whether `max.compaction.lag.ms` asks for it.
    """

    first_dirty_offset: int
    end_offset: int
    dirty_ratio: float
    is_due: bool

    def is_worth_it(self, config: TopicConfig) -> bool:
        """Tell whether the pass should be made."""
        return self.is_due or self.dirty_ratio > config.min_cleanable_dirty_ratio


def find_cleanable(
    segments: SegmentList,
    config: TopicConfig,
    *,
    clean_offset: int,
    log_start_offset: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable | None:
    """Measure what a pass could clean.

    Args:
        segments: Of the log.
        config: Of its topic.
        clean_offset: How far earlier passes have come, as recorded.
        log_start_offset: The first offset.
        stable_offset: The end of what is decided and durable.
        now_ms: The calendar's time.

    Returns:
        None where there is nothing that a pass could do.
    """
    if len(segments) < 2 or segments.active is None:
        return None
    first_dirty = clean_offset
    if not log_start_offset <= clean_offset <= segments.active.base_offset:
        # The log was cut or trimmed since: all of it counts as new.
        first_dirty = log_start_offset
    dirty_place = segments.place_of(first_dirty)
    limit = min(stable_offset, segments.active.base_offset)
    end_place = segments.place_of(limit)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        for place in range(dirty_place, end_place):
            if segments[place].largest_timestamp > youngest_ms:
                end_place = place
                break
    end_offset = segments[end_place].base_offset
    dirty = [segments[place] for place in range(dirty_place, end_place)]
    dirty_bytes = sum(segment.size for segment in dirty)
    if end_offset <= first_dirty or not dirty_bytes:
        return None
    total = dirty_bytes + sum(segments[place].size for place in range(dirty_place))
    is_due = False
    if config.max_compaction_lag_ms < LONG_MAX:
        first_timestamps = [_first_timestamp(segment) for segment in dirty]
        oldest_ms = min((time for time in first_timestamps if time > 0), default=now_ms)
        is_due = oldest_ms < now_ms - config.max_compaction_lag_ms
    return Cleanable(first_dirty, end_offset, dirty_bytes / total, is_due)


def _first_timestamp(segment: Segment) -> int:
    """Return what the first batch says of the age of a segment, -1 where it is damaged."""
    try:
        return segment.first_timestamp
    except CorruptRecordError:
        return NO_TIMESTAMP
