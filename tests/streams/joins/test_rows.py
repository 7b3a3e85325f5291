"""Which rows a join drops: late ones, and those without a time that nothing can be made of."""

import pytest

from headwater.streams.joins.rows import LEFT, RIGHT, TooLate, outer_sides
from tests.streams.joins.histories import Event, rows_of

TIMES = (None, 5, 19, 20, 50)


@pytest.mark.parametrize(
    "kind, side, until_us, previous, dropped",
    [
        ("inner", LEFT, 0, 20, [None, 5, 19]),
        ("inner", RIGHT, 0, 20, [None, 5, 19]),
        ("inner", LEFT, 10, 20, [None, 5]),
        ("inner", LEFT, 0, None, [None]),
        # These come out at once, with nothing beside them.
        ("left", LEFT, 0, 20, [5, 19]),
        ("left", RIGHT, 0, 20, [None, 5, 19]),
        ("right", RIGHT, 0, 20, [5, 19]),
        ("full", RIGHT, 0, None, []),
    ],
)
def test_rows_are_dropped_that_are_late_or_can_give_nothing(
    kind: str, side: int, until_us: int, previous: int | None, dropped: list[int | None]
) -> None:
    rows = rows_of([Event(side, "a", time, number) for number, time in enumerate(TIMES)], side)

    mask, late_us = TooLate(until_us, outer_sides(kind)).late(side, rows, previous)

    assert [time for time, is_late in zip(TIMES, mask, strict=True) if is_late] == dropped
    expected = [previous - time if previous and time and time in dropped else 0 for time in TIMES]
    assert late_us.tolist() == expected
