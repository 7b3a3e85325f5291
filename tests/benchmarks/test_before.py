"""When a row of a benchmark counts as worse than in an earlier tree."""

import pytest

from benchmarks.before import Figures, compare, side_by_side


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


def test_rows_whose_rival_was_the_earlier_tree_are_compared_with_it() -> None:
    rows: list[dict[str, object]] = [
        {"name": "idle memory, limit", "ours": 50.0, "theirs": 100.0, "ratio": 2.0, "unit": "MB"},
        {"name": "requests/s", "ours": 94.0, "theirs": 100.0, "ratio": 0.94, "unit": "requests/s"},
        {"name": "only ours", "ours": 94.0, "unit": "requests/s"},
    ]
    (row,) = side_by_side("broker", rows)
    assert (row.name, row.before, row.after, row.worse) == (
        "broker: requests/s",
        100.0,
        94.0,
        True,
    )
