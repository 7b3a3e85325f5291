"""How much of a log can be cleaned, and when it is worth it."""

import dataclasses

import pytest

from headwater.base.settings import TopicConfig
from headwater.log.compaction.grouping import group_segments
from headwater.log.compaction.job import SegmentFacts
from headwater.log.compaction.selection import Cleanable, find_cleanable
from headwater.log.index import RELATIVE_OFFSET_MAX
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.compaction.helpers import COMPACT, append_pairs, roll
from tests.log.helpers import NOW_MS, base_offsets, open_log

HOUR_MS = 3_600_000
START_MS = NOW_MS - 3 * HOUR_MS


@pytest.fixture
def log() -> PartitionLog:
    """Give a log of three closed segments of two records each, an hour apart, and an active one."""
    log = open_log(MemoryDisk(), config=COMPACT, clock=ManualClock(NOW_MS))
    for number in range(3):
        append_pairs(log, [(b"a", b"1"), (b"b", b"1")], at_ms=START_MS + number * HOUR_MS)
        roll(log)
    append_pairs(log, [(b"a", b"2")], at_ms=START_MS)
    assert base_offsets(log) == [0, 2, 4, 6]
    return log


def find(
    log: PartitionLog,
    config: TopicConfig = COMPACT,
    *,
    clean_offset: int = 0,
    stable_offset: int = 7,
    now_ms: int = NOW_MS,
) -> Cleanable | None:
    return find_cleanable(
        log.segments,
        config,
        clean_offset=clean_offset,
        log_start_offset=log.log_start_offset,
        stable_offset=stable_offset,
        now_ms=now_ms,
    )


def test_all_closed_segments_of_a_new_log_are_dirty(log: PartitionLog) -> None:
    assert find(log) == (0, 6, 1.0, False)


def test_a_third_of_the_bytes_is_dirty(log: PartitionLog) -> None:
    found = find(log, clean_offset=4)
    assert found is not None
    assert found[:2] == (4, 6)
    assert found.dirty_ratio == pytest.approx(1 / 3)
    for ratio, worth in ((0.3, True), (0.34, False)):
        config = dataclasses.replace(COMPACT, min_cleanable_dirty_ratio=ratio)
        assert found.is_worth_it(config) is worth


def test_nothing_is_left_of_a_clean_log(log: PartitionLog) -> None:
    assert find(log, clean_offset=6) is None
    assert find(open_log(MemoryDisk(), config=COMPACT)) is None


@pytest.mark.parametrize("stable_offset, end_offset", [(4, 4), (3, 2), (7, 6)])
def test_the_segment_that_is_not_decided_is_out_of_reach(
    log: PartitionLog, stable_offset: int, end_offset: int
) -> None:
    found = find(log, stable_offset=stable_offset)
    assert found is not None
    assert found.end_offset == end_offset


def test_an_undecided_first_segment_leaves_nothing(log: PartitionLog) -> None:
    assert find(log, stable_offset=1) is None


@pytest.mark.parametrize("clean_offset", [99, 1])
def test_progress_that_cannot_be_right_counts_for_nothing(
    log: PartitionLog, clean_offset: int
) -> None:
    log.trim(2)
    found = find(log, clean_offset=clean_offset)
    assert found is not None
    assert found.first_dirty_offset == 2


def test_young_segments_wait_for_the_shortest_lag(log: PartitionLog) -> None:
    config = dataclasses.replace(COMPACT, min_compaction_lag_ms=2 * HOUR_MS)
    found = find(log, config, now_ms=NOW_MS + 10)
    assert found is not None
    assert found.end_offset == 4
    assert find(log, config, now_ms=START_MS + HOUR_MS) is None


def test_an_old_segment_is_due_whatever_its_share(log: PartitionLog) -> None:
    config = dataclasses.replace(
        COMPACT, max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1.0
    )
    for now_ms, due in ((NOW_MS + 2, True), (NOW_MS + 1, False)):
        found = find(log, config, clean_offset=4, now_ms=now_ms)
        assert found is not None
        assert found.is_worth_it(config) is due


def test_the_longest_lag_closes_segments(log: PartitionLog) -> None:
    log.config = dataclasses.replace(COMPACT, max_compaction_lag_ms=HOUR_MS)
    append_pairs(log, [(b"a", b"3")], at_ms=START_MS + HOUR_MS)
    assert base_offsets(log)[-1] == 6
    append_pairs(log, [(b"a", b"3")], at_ms=START_MS + HOUR_MS + 1)
    assert base_offsets(log)[-1] == 8


class TestGrouping:
    def group(self, *segments: SegmentFacts, end_offset: int = 1_000) -> list[list[int]]:
        groups = group_segments(
            segments, end_offset=end_offset, segment_bytes=100, segment_index_bytes=50
        )
        return [[segment.base_offset for segment in group] for group in groups]

    def test_by_bytes(self) -> None:
        sizes = [60, 40, 1, 99, 1]
        segments = [SegmentFacts(number, size, 0, 0) for number, size in enumerate(sizes)]
        assert self.group(*segments) == [[0, 1], [2, 3], [4]]

    def test_by_indexes(self) -> None:
        assert self.group(
            SegmentFacts(0, 1, 25, 0), SegmentFacts(1, 1, 25, 26), SegmentFacts(2, 1, 0, 25)
        ) == [[0, 1], [2]]

    def test_by_offsets(self) -> None:
        far = RELATIVE_OFFSET_MAX
        segments = [SegmentFacts(0, 1, 0, 0), SegmentFacts(1, 1, 0, 0)]
        assert self.group(*segments, end_offset=far + 1) == [[0, 1]]
        assert self.group(*segments, end_offset=far + 2) == [[0], [1]]

    def test_a_segment_that_is_too_large_stands_alone(self) -> None:
        assert self.group(SegmentFacts(0, 500, 0, 0), SegmentFacts(1, 1, 0, 0)) == [[0], [1]]
