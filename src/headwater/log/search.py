"""Finding records by their timestamps.

This file alone decides how a timestamp leads to an offset: the segment by its largest timestamp,
the batch by the time index and the headers behind, the record by looking into that one batch.
Timestamps need not grow with offsets; the answer is the *first* record that is not older.

A batch whose records cannot be read does not fail the search: its first offset and largest
timestamp stand in for them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import BatchHeader
from headwater.base.record.records import iterate_timestamps
from headwater.log.segment import Segment


class FoundOffset(NamedTuple):
    """A record that was looked for."""

    offset: int
    timestamp: int
    leader_epoch: int


def find_timestamp(
    segments: Sequence[Segment], timestamp: int, *, from_offset: int, upto_offset: int
) -> FoundOffset | None:
    """Return the first record in the range whose timestamp is not smaller."""
    for segment in segments:
        if segment.base_offset >= upto_offset:
            return None
        if segment.max_timestamp < timestamp:
            continue
        _, before = segment.time_index.floor(timestamp)
        start = segment.offset_index.position_before(max(before, from_offset))
        for position, header in segment.headers(start):
            if header.base_offset >= upto_offset:
                return None
            if header.largest_timestamp < timestamp or header.last_offset < from_offset:
                continue
            found = _first_in_batch(segment, position, header, timestamp, from_offset)
            if found is not None:
                return found if found.offset < upto_offset else None
    return None


def find_max_timestamp(
    segments: Sequence[Segment], *, from_offset: int, upto_offset: int
) -> FoundOffset | None:
    """Return the first record in the range that has the largest timestamp of all."""
    best: tuple[int, int, Segment] | None = None
    for segment in segments:
        if segment.base_offset >= upto_offset:
            break
        candidate = _max_in_segment(segment, from_offset, upto_offset)
        if candidate is not None and (best is None or candidate[0] > best[0]):
            best = (*candidate, segment)
    if best is None:
        return None
    timestamp, offset, segment = best
    for position, header in segment.headers(segment.position_of(offset)):
        return _first_in_batch(segment, position, header, timestamp, from_offset)
    return None


def _max_in_segment(segment: Segment, from_offset: int, upto_offset: int) -> tuple[int, int] | None:
    """Return the largest timestamp in a part of a segment, and the last offset of its batch."""
    if segment.max_timestamp < 0:
        return None
    if from_offset <= segment.max_timestamp_offset < upto_offset:
        return segment.max_timestamp, segment.max_timestamp_offset
    # The largest of all lies outside the range: start behind the last one known to lie inside.
    timestamp, offset = segment.time_index.last_below(upto_offset)
    best = (timestamp, offset) if timestamp >= 0 and offset >= from_offset else None
    start = segment.offset_index.position_before(max(offset, from_offset))
    for _, header in segment.headers(start):
        if header.base_offset >= upto_offset:
            break
        if header.last_offset < from_offset or header.largest_timestamp < 0:
            continue
        if best is None or header.max_timestamp > best[0]:
            best = header.max_timestamp, header.last_offset
    return best


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, from_offset: int
) -> FoundOffset | None:
    """Return the first record of one batch that is not older and not below an offset."""
    batch = segment.reader().read(header.size_bytes, position)
    try:
        for offset, found in iterate_timestamps(batch):
            if found >= timestamp and offset >= from_offset:
                return FoundOffset(offset, found, header.leader_epoch)
    except CorruptRecordError:
        offset = max(header.base_offset, from_offset)
        return FoundOffset(offset, header.max_timestamp, header.leader_epoch)
    return None
