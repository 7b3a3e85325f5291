"""How events without a time are counted, and when somebody is warned of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.time.faults import (
    COUNTS,
    Faults,
    columns_in,
    counted,
    counts_name,
    maybe_warning,
)

FAULTS = st.builds(
    Faults, *(st.integers(0, 9) for _ in range(3)), st.none() | st.integers(-(10**15), 10**15)
)
YEAR_2099_US = 4_070_908_800_000_000


@given(FAULTS, FAULTS, FAULTS)
def test_how_tasks_are_put_together_does_not_matter(
    one: Faults, two: Faults, three: Faults
) -> None:
    assert one.with_more(two).with_more(three) == three.with_more(one.with_more(two))
    assert one.with_more(Faults()) == one


@pytest.mark.parametrize("column", ["at", "with.a.dot", "with a space", "at, seen"])
def test_a_name_has_the_column_in_it(column: str) -> None:
    name = counts_name(17, column)
    assert name.startswith(COUNTS)
    assert columns_in(name) == column


def test_what_spark_reports_is_read_also_where_it_reports_nothing() -> None:
    told = {"rows": 5, "no_time": 1, "future": 2, "furthest_us": 7}
    assert counted(told) == Faults(5, 1, 2, 7)
    nothing: dict[str, int | None] = dict.fromkeys(told)
    assert counted(nothing) == counted({}) == Faults()


@pytest.mark.parametrize(
    "faults, is_warned",
    [
        (Faults(), False),
        (Faults(10), False),
        (Faults(10, 4), False),
        (Faults(10, 5), True),
        (Faults(10, 2, 3, 1), True),
        (Faults(11, 2, 3, 1), False),
        (Faults(1, 1), True),
    ],
)
def test_half_of_a_batch_is_worth_a_word(faults: Faults, *, is_warned: bool) -> None:
    assert (maybe_warning("at", faults) is not None) is is_warned


def test_the_word_says_what_is_wrong_and_what_to_do() -> None:
    text = maybe_warning("at", Faults(15, 2, 1_000, YEAR_2099_US)) or ""
    assert "1,002 of 15 events" in text
    assert "'at'" in text
    assert "up to 2099-01-01 00:00:00 UTC" in text
    assert "hf.watermark(..., future=...)" in text
    assert "2 have none" in text
    alone = maybe_warning("at", Faults(2, 2)) or ""
    assert "future" not in alone


def test_times_beyond_the_calendar_are_told_as_numbers() -> None:
    text = maybe_warning("at", Faults(1, 0, 1, 2**63 - 1)) or ""
    assert "9,223,372,036,854,775,807 microseconds" in text
