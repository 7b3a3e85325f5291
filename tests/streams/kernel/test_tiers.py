"""Runs stay few, rows are written few times, and tables take turns."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.tiers import ROWS_MIN, kept


def _added(sizes: list[int], added: int, stagger: int) -> tuple[list[int], int]:
    """Return the sizes after a run was added, and how many rows were written."""
    count = kept(sizes, added, stagger)
    merged = sum(sizes[count:]) + added
    return [*sizes[:count], merged], merged


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=60), st.integers(0, 63))
def test_runs_get_smaller_from_the_oldest_to_the_newest(puts: list[int], stagger: int) -> None:
    sizes: list[int] = []
    written = 0
    for added in puts:
        sizes, rows = _added(sizes, added, stagger)
        written += rows
    floored = [max(size, ROWS_MIN) for size in sizes]
    assert all(size >= sum(floored[at + 1 :]) for at, size in enumerate(floored))
    assert len(sizes) <= 2 + math.log2(sum(floored) / ROWS_MIN)
    # Each time that a row is written again, its run has doubled, or it was below the least size.
    assert (
        written <= sum(puts) * (3 + math.log2(sum(floored) / ROWS_MIN)) + len(puts) * 2 * ROWS_MIN
    )


@pytest.mark.parametrize("stagger", range(0, 64, 7))
def test_a_row_is_written_a_logarithmic_number_of_times(stagger: int) -> None:
    sizes: list[int] = []
    written = 0
    for _ in range(4096):
        sizes, rows = _added(sizes, 2000, stagger)
        written += rows
        assert len(sizes) <= 1 + math.ceil(math.log2(sum(sizes) / 1000))
    assert written / (4096 * 2000) <= 1 + math.log2(4096)


def test_tables_that_fill_at_the_same_pace_take_turns() -> None:
    largest = []
    for stagger in range(64):
        sizes = [150_000]
        batch = 0
        while len(sizes) > 1 or batch == 0:
            batch += 1
            sizes, _ = _added(sizes, 1500, stagger)
        largest.append(batch)
    assert 40 <= min(largest) < max(largest) <= 110
    assert max(largest.count(batch) for batch in largest) <= 6
