"""Words for places in a log."""

import time
from datetime import UTC, datetime, timedelta, timezone

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.positions import Kind, Position, duration_ms, parse

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "text, expected",
    [
        ("beginning", Position(Kind.EARLIEST)),
        ("earliest", Position(Kind.EARLIEST)),
        ("end", Position(Kind.LATEST)),
        ("latest", Position(Kind.LATEST)),
        ("0", Position(Kind.OFFSET, 0)),
        ("1042", Position(Kind.OFFSET, 1042)),
        ("-100", Position(Kind.BEFORE_END, 100)),
        ("@1763200000000", Position(Kind.TIME, 1_763_200_000_000)),
        ("2026-11-15T10:00:00Z", Position(Kind.TIME, 1_794_736_800_000)),
        ("2026-11-15T12:00+02:00", Position(Kind.TIME, 1_794_736_800_000)),
    ],
)
def test_forms(text: str, expected: Position) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text, ago_ms",
    [
        ("-500ms", 500),
        ("-20s", 20_000),
        ("-10m", 600_000),
        ("-1h30m", HOUR_MS + HOUR_MS // 2),
        ("-2d", 48 * HOUR_MS),
        ("-1w", 7 * 24 * HOUR_MS),
    ],
)
def test_so_long_ago(text: str, ago_ms: int) -> None:
    before_ms = time.time_ns() // 1_000_000
    position = parse(text)
    after_ms = time.time_ns() // 1_000_000
    assert position.kind is Kind.TIME
    assert before_ms <= position.number + ago_ms <= after_ms


@pytest.mark.parametrize(
    "text", ["", "yesterday", "10m", "-10x", "-m", "@", "@x", "1.5", "2026-13-01"]
)
def test_what_is_no_position_says_what_is(text: str) -> None:
    with pytest.raises(click.UsageError, match="beginning, end, an offset"):
        parse(text)


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001
def test_a_moment_without_a_zone_is_local(moment: datetime) -> None:
    assert parse(moment.isoformat()).number == int(moment.astimezone().timestamp() * 1000)


@given(
    st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1)),  # noqa: DTZ001
    st.integers(-14 * 60, 14 * 60),
)
def test_a_moment_with_a_zone_is_that_moment(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (zoned.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )
    assert abs(parse(zoned.isoformat()).number - expected) <= 1


@pytest.mark.parametrize("text", ["", "20", "s", "20x", "1h 30m", "-1s"])
def test_what_is_no_time_span(text: str) -> None:
    with pytest.raises(click.UsageError):
        duration_ms(text)
