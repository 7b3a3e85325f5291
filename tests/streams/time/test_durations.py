"""Lengths of time, as people write them."""

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.time.durations import DURATION_US_MAX, duration_text, duration_us
from headwater.streams.time.errors import DurationError


@pytest.mark.parametrize(
    "text, expected_us",
    [
        ("0 seconds", 0),
        ("10 seconds", 10_000_000),
        ("10s", 10_000_000),
        (" 1 Hour 30 minutes ", 5_400_000_000),
        ("1 hour, 30 min", 5_400_000_000),
        ("1.5 seconds", 1_500_000),
        ("0.0000019 s", 1),
        ("250ms", 250_000),
        ("3us", 3),
        ("2 weeks", 14 * 86_400_000_000),
    ],
)
def test_texts(text: str, expected_us: int) -> None:
    assert duration_us(text, "delay") == expected_us


@given(st.timedeltas(min_value=dt.timedelta(0), max_value=dt.timedelta(days=3_000_000)))
def test_time_deltas(length: dt.timedelta) -> None:
    assert duration_us(length, "delay") == length // dt.timedelta(microseconds=1)


@pytest.mark.parametrize(
    "length_us, text",
    [
        (0, "0 seconds"),
        (60_000_000, "1 minute"),
        (5_400_000_000, "1 hour 30 minutes"),
        (2 * 86_400_000_000 + 1_500_000, "2 days 1 second 500 ms"),
        (1, "1 us"),
        (-300_000_000, "-5 minutes"),
    ],
)
def test_lengths_are_told_as_people_write_them(length_us: int, text: str) -> None:
    assert duration_text(length_us) == text


@given(st.integers(0, DURATION_US_MAX))
def test_what_is_told_is_read_again_to_the_microsecond(length_us: int) -> None:
    assert duration_us(duration_text(length_us), "delay") == length_us


@pytest.mark.parametrize(
    "given_length, said",
    [
        ("", "no length of time"),
        ("soon", "no length of time"),
        ("10", "no length of time"),
        ("-1 second", "is negative"),
        (" - 1 second", "is negative"),
        ("10 seconds ago", "no length of time"),
        ("1 month", "no fixed length"),
        ("2 years", "no fixed length"),
        ("99999999 days", "out of bounds"),
        (dt.timedelta(seconds=-1), "is negative"),
        (11, "no length of time"),
        (None, "no length of time"),
    ],
)
def test_what_is_no_length_of_time_is_said_by_name(given_length: object, said: str) -> None:
    with pytest.raises(DurationError, match=said) as caught:
        duration_us(given_length, "delay")  # type: ignore[arg-type]
    assert "delay" in caught.value.message
    assert caught.value.hint


def test_no_sum_with_the_longest_leaves_64_bits() -> None:
    assert duration_us("3660000 days", "delay") == DURATION_US_MAX
    assert DURATION_US_MAX * 20 < 2**63
