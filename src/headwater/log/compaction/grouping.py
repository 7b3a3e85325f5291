"""Which neighbouring segments become one.

This file alone decides that: compaction leaves small segments, and many small files are a burden.
Together they must not exceed `segment.bytes`, their indexes not `segment.index.bytes`, and their
offsets must fit an index entry: all measured before the pass, since it makes nothing larger by
much.
"""

from collections.abc import Sequence

from headwater.log.compaction.job import SegmentFacts
from headwater.log.index import RELATIVE_OFFSET_MAX


def group_segments(
    segments: Sequence[SegmentFacts],
    *,
    end_offset: int,
    segment_bytes: int,
    segment_index_bytes: int,
) -> list[list[SegmentFacts]]:
    """Put neighbours together as far as they fit.

    Args:
        segments: Oldest first.
        end_offset: Where the last of them ends.
        segment_bytes: The most bytes of batches in a group.
        segment_index_bytes: The most bytes of each index.
    """
    groups: list[list[SegmentFacts]] = []
    ends = [segment.base_offset for segment in segments[1:]]
    ends.append(end_offset)
    for segment, end in zip(segments, ends, strict=True):
        if groups:
            group = [*groups[-1], segment]
            if (
                sum(member.size for member in group) <= segment_bytes
                and sum(member.offset_index_bytes for member in group) <= segment_index_bytes
                and sum(member.time_index_bytes for member in group) <= segment_index_bytes
                and end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
            ):
                groups[-1] = group
                continue
        groups.append([segment])
    return groups
