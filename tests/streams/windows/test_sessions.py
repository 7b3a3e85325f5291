"""Sessions against DuckDB's gaps and islands, and against plain Python where rows are late."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.operator import Time
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.errors import SumOverflowError, WindowSettingError
from headwater.streams.windows.lateness import Correct, Drop, Lateness
from headwater.streams.windows.sessions import SessionWindows
from tests.streams.kernel.laws import (
    FOREVER,
    Batch,
    check_laws,
    cut,
    expected,
    play,
    rows,
    watermarks_within,
)
from tests.streams.windows.streams import Arrivals, arrivals, arriving, ask, keys, told

VALUES = pa.schema([("c0", pa.int64())])
AGGREGATIONS = [
    aggregation("count"),
    aggregation("sum", "c0", pa.int64()),
    aggregation("collect", "c0", pa.int64()),
]
IDENTITY = ("c0", "c1")
PLACE = ("time", "topic", "partition", "offset", "arrival")
numbers = st.one_of(st.none(), st.integers(-9, 9))
gaps = st.sampled_from([1, 2, 5, 16, 40])


def operator(gap: int, late: Lateness | None = None) -> SessionWindows:
    return SessionWindows(gap, AGGREGATIONS, VALUES, late or Drop())


def batch_answer(table: pa.Table, gap: int) -> Sequence[tuple[Any, ...]]:
    """What DuckDB gives for all rows at once."""
    return ask(
        f"""
        with marked as (
            select *, coalesce(time - lag(time) over by_key > {gap}, true)::int as begins
            from events
            window by_key as (partition by key order by time, "partition", "offset", arrival)
        ), numbered as (
            select *, sum(begins) over by_key as n from marked
            window by_key as (partition by key order by time, "partition", "offset", arrival)
        )
        select key, min(time), max(time) + {gap}, count(*), sum(c0)::bigint,
            coalesce(
                list(c0 order by time, "partition", "offset", arrival) filter (c0 is not null), []
            )
        from numbered group by key, n
        """,
        table,
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(keys, st.integers(-30, 90), numbers), max_size=40),
    gaps,
    st.lists(st.integers(0, 40), max_size=5),
    st.lists(st.integers(0, 9)),
    st.sampled_from([Drop(), Correct(5)]),
)
def test_any_batches_give_what_one_query_gives(
    listed: list[tuple[Any, ...]], gap: int, places: list[int], slack: list[int], late: Lateness
) -> None:
    table = rows(listed, VALUES)
    pieces = cut(table, places)
    marks = watermarks_within(pieces, slack)
    batches = [Batch((piece,), mark) for piece, mark in zip(pieces, marks, strict=True)]

    left = check_laws(operator(gap, late), batches, identity=IDENTITY)

    assert left.rows == expected(batch_answer(table, gap))
    assert left.late == 0
    assert left.versions == 0


Session = list[dict[str, Any]]


def brute_force(
    batches: Sequence[Batch], gap: int, late: Lateness
) -> tuple[list[tuple[Any, ...]], int]:
    """Sessions as lists of rows; those that have closed are not touched where rows are dropped."""
    slot = max(1, gap // 16)
    sessions: dict[str | None, list[Session]] = {}
    too_late = 0
    previous: int | None = None
    for batch in batches:
        for row in told(batch):
            time = row["time"]
            oldest = None if previous is None else previous - gap - late.until_us
            if time is None or (oldest is not None and time // slot * slot < oldest):
                too_late += time is not None
                continue
            mine, others = [row], []
            for session in sessions.get(row["key"], []):
                times = [each["time"] for each in session]
                is_fixed = late == Drop() and previous is not None and max(times) + gap < previous
                is_near = min(abs(each - time) for each in times) <= gap
                if is_near and not is_fixed:
                    mine += session
                else:
                    others.append(session)
            sessions[row["key"]] = [*others, mine]
        previous = batch.watermark
    answer = []
    for key, found in sessions.items():
        for session in found:
            session.sort(key=lambda row: [row[name] for name in PLACE])
            values = [row["c0"] for row in session if row["c0"] is not None]
            times = [row["time"] for row in session]
            total = sum(values) if values else None
            answer.append((key, min(times), max(times) + gap, len(session), total, values))
    return answer, too_late


@settings(max_examples=40, deadline=None)
@given(
    arrivals(numbers),
    gaps,
    st.sampled_from([Drop(), Correct(1), Correct(7), Correct(30)]),
    st.integers(0, 3),
)
def test_late_rows_count_where_they_still_can(
    listed: Arrivals, gap: int, late: Lateness, unknown: int
) -> None:
    batches = arriving(listed, VALUES, unknown=unknown)

    left = check_laws(
        # Where rows are dropped, a row may begin a session within one that has closed.
        *(operator(gap, late), batches),
        identity=None if late == Drop() else IDENTITY,
    )

    answer, too_late = brute_force(batches, gap, late)
    assert left.rows == expected(answer)
    assert left.late == too_late


def given_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    listed = table.select(["weight", "version", "c0", "c1", "c2", "time"]).to_pylist()
    return [tuple(row.values()) for row in listed]


#   time      0         10        20        30
#   rows      a                   b                  two sessions, given when the watermark is 35
#   later               c                            a bridge: both are taken back
def test_a_late_row_bridges_two_sessions() -> None:
    batches = [
        Batch((rows([("k", 0, 1), ("k", 20, 2)], VALUES),), 35),
        Batch((rows([("k", 10, 3)], VALUES, first_offset=2),), 36),
        Batch((rows([("k", 21, 3)], VALUES, first_offset=3),), 37),
    ]

    left = check_laws(operator(12, Correct(30)), batches, identity=IDENTITY)

    first, second, third = map(given_rows, left.played.given)
    assert first == [(1, 0, 0, 12, 1, 12), (1, 0, 20, 32, 1, 32)]
    assert second == [(-1, 0, 0, 12, 1, 12), (-1, 0, 20, 32, 1, 32), (1, 1, 0, 32, 3, 32)]
    assert third == [(-1, 1, 0, 32, 3, 32), (1, 2, 0, 33, 4, 33)]


#   time      0         10        20        30
#   rows      a                   b                  a is given at 15, b is still open
#   later               c                            the bridge takes a back; all is given at 33
def test_a_bridge_to_an_open_session_takes_back_and_waits() -> None:
    batches = [
        Batch((rows([("k", 0, 1), ("k", 20, 2)], VALUES),), 15),
        Batch((rows([("k", 10, 3)], VALUES, first_offset=2),), 16),
        Batch((rows([], VALUES),), 33),
    ]

    left = check_laws(operator(12, Correct(30)), batches, identity=IDENTITY)

    first, second, third = map(given_rows, left.played.given)
    assert first == [(1, 0, 0, 12, 1, 12)]
    assert second == [(-1, 0, 0, 12, 1, 12)]
    assert third == [(1, 1, 0, 32, 3, 32)]


#   time      0         10        20        30
#   rows      a               |                      given at 17; corrected until 24 by itself
#   later               b     |                      comes at 25, is not late, and belongs to a
def test_a_session_is_kept_for_as_long_as_a_row_can_belong_to_it() -> None:
    batches = [
        Batch((rows([("k", 0, 1)], VALUES),), 25),
        Batch((rows([("k", 10, 2)], VALUES, first_offset=1),), 25),
        Batch((rows([], VALUES),), 27),
    ]

    left = check_laws(operator(16, Correct(7)), batches, identity=IDENTITY)

    first, second, third = map(given_rows, left.played.given)
    assert first == [(1, 0, 0, 16, 1, 16)]
    assert second == [(-1, 0, 0, 16, 1, 16)]
    assert third == [(1, 1, 0, 26, 2, 26)]


def test_rows_a_gap_apart_belong_together_and_no_more() -> None:
    table = rows([("k", 0, 1), ("k", 10, 1), ("k", 21, 1)], VALUES)

    left = check_laws(operator(10), [Batch((table,), FOREVER)], identity=IDENTITY)

    assert left.rows == expected([("k", 0, 20, 2, 2, [1, 1]), ("k", 21, 31, 1, 1, [1])])


def test_state_is_empty_when_all_is_over() -> None:
    table = rows([("k", 0, 1), ("l", 10**15, 1)], VALUES)
    batches = [Batch((table,), 5), Batch((rows([], VALUES),), FOREVER)]

    for late in (Drop(), Correct(10)):
        left = check_laws(operator(10, late), batches, identity=IDENTITY)
        assert '"tables": {}' in left.played.headers[-1][0]


def test_a_session_that_goes_on_for_long_is_given_once() -> None:
    batches = [
        Batch((rows([("k", 9 * number, 1)], VALUES, first_offset=number),), 9 * number)
        for number in range(20)
    ]

    left = check_laws(operator(10), [*batches, Batch((rows([], VALUES),), FOREVER)])

    assert left.rows == expected([("k", 0, 9 * 19 + 10, 20, 20, [1] * 20)])
    assert sum(table.num_rows for table in left.played.given) == 1


def test_a_bucket_that_missed_batches_closes_what_is_due_first() -> None:
    over = operator(10)
    table = over.combine(0, rows([("k", 0, 1)], VALUES))
    later = over.combine(0, rows([("k", 12, 1), ("k", 1, 5)], VALUES, first_offset=1))

    first = over.step(over.start(), [table], Time(None, 5))
    second = over.step(first.state, [later], Time(12, 40))

    assert given_rows(second.rows) == [(1, 0, 0, 10, 1, 10), (1, 0, 12, 22, 1, 22)]
    assert second.late == 1


def test_how_late_a_row_is() -> None:
    table = rows([("k", time, 1) for time in (None, 3, 4, 5, 30)], VALUES)

    mask, by_us = operator(32, Correct(8)).late(0, table, 45)

    # Slots of two microseconds begin at 2, 4, 4 and 30; 41 behind them all is over.
    assert mask.tolist() == [True, True, True, True, False]
    assert by_us.tolist() == [0, 2, 0, 0, 0]


@given(
    st.integers(1, 3600) | st.integers(1, 3600).map(lambda seconds: seconds * 1_000_000),
    st.integers(-(10**12), 10**12),
    st.integers(0, 2 * 3600 * 1_000_000),
    st.sampled_from([Drop(), Correct(60_000_000)]),
)
def test_a_row_is_late_when_its_own_session_is_over_or_a_sixteenth_of_the_gap_before(
    gap_us: int, time_us: int, behind_us: int, late: Drop | Correct
) -> None:
    """What `docs/guides/windows.md` says: the sixteenth is the price of aggregating early."""
    over = operator(gap_us, late)
    table = over.combine(0, rows([("k", time_us, 1)], VALUES))

    (is_late,), _ = over.late(0, table, time_us + behind_us)

    over_us = behind_us - late.until_us - gap_us
    if over_us > 0:
        assert is_late, "the session of this row alone has closed"
    if over_us <= -(gap_us // 16):
        assert not is_late
    if behind_us == 0:
        assert not is_late, "what is not older than the watermark is never late"


def test_an_overflow_names_the_session() -> None:
    table = rows([("k", 1, 2**63 - 1), ("k", 2, 1)], VALUES)

    with pytest.raises(SumOverflowError, match="window from 1970"):
        play(operator(10), [Batch((table,), FOREVER)])


@pytest.mark.parametrize("gap", [0, -1])
def test_a_gap_that_makes_no_sense_is_refused(gap: int) -> None:
    with pytest.raises(WindowSettingError):
        operator(gap)


def test_what_was_trimmed_is_taken_back_as_it_was_given() -> None:
    hitters = [aggregation("heavy_hitters", "c0", pa.int64(), k=2)]
    many = [("k", number % 9, number % 1500) for number in range(2500)]
    batches = [
        Batch((rows(many, VALUES),), 30),
        Batch((rows([("k", 3, 7)] * 30, VALUES, first_offset=2500),), 31),
        Batch((rows([("k", 4, 8)] * 20, VALUES, first_offset=2530),), 32),
    ]

    left = check_laws(SessionWindows(10, hitters, VALUES, Correct(50)), batches, identity=IDENTITY)

    assert left.versions == 2
    for row in left.rows:
        found = row[3]
        assert isinstance(found, tuple)
        assert [dict(each)["value"] for each in found] == [7, 8]


def test_how_long_results_are_corrected_is_part_of_the_state() -> None:
    assert operator(5, Correct(1)).parameters != operator(5, Correct(2)).parameters
    assert operator(5, Correct(1)).parameters != operator(5).parameters
