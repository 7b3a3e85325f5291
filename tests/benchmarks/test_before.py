"""When a row of a benchmark counts as worse than in an earlier tree."""

import pytest

from benchmarks.before import Figures, compare


@pytest.mark.parametrize(
    "unit, before, after, worse",
    [
        ("MB/s", 100.0, 94.0, True),
        ("MB/s", 100.0, 96.0, False),
        ("p99 ms", 1.0, 1.1, True),
        ("p99 ms", 1.0, 0.9, False),
    ],
)
def test_more_than_five_percent_is_worse_in_the_direction_of_the_unit(
    unit: str, before: float, after: float, worse: bool
) -> None:
    row = compare("row", unit, Figures([before], []), Figures([after], []))
    assert row.worse == worse


def test_a_machine_that_slows_the_peer_as_much_makes_no_row_worse() -> None:
    slower = compare("row", "MB/s", Figures([100.0], [2.0]), Figures([80.0], [2.0]))
    assert slower.ratio == pytest.approx(0.8)
    assert not slower.worse


def test_a_row_is_worse_when_it_falls_behind_its_peer_as_well() -> None:
    assert compare("row", "MB/s", Figures([100.0], [2.0]), Figures([80.0], [1.6])).worse


def test_medians_are_compared() -> None:
    row = compare("row", "MB/s", Figures([10.0, 100.0, 100.0], []), Figures([99.0, 99.0, 1.0], []))
    assert (row.before, row.after) == (100.0, 99.0)
