"""Sliding windows against DuckDB's RANGE frames, and against plain Python where events are late."""

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
from headwater.streams.windows.sliding import SlidingWindows
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

VALUES = pa.schema([("c0", pa.float64()), ("c1", pa.int64())])
AGGREGATIONS = [
    aggregation("count"),
    aggregation("sum", "c0", pa.float64()),
    aggregation("max", "c0", pa.float64()),
    aggregation("first", "c1", pa.int64()),
]
PLACE = ("time", "topic", "partition", "offset", "arrival")
# Quarters, so that the order in which the oracle adds cannot show.
quarters = st.one_of(st.none(), st.integers(-40, 40).map(lambda number: number / 4))
numbers = st.one_of(st.none(), st.integers(-9, 9))
lengths = st.sampled_from([0, 1, 5, 12, 60])


def operator(length: int, late: Lateness | None = None) -> SlidingWindows:
    return SlidingWindows(length, AGGREGATIONS, VALUES, late or Drop(), passed=["c1"])


def batch_answer(table: pa.Table, length: int) -> Sequence[tuple[Any, ...]]:
    """What DuckDB gives for all events at once."""
    return ask(
        f"""
        select key, count(*) over seen, sum(c0) over seen, max(c0) over seen,
            (
                select first(c1 order by time, topic, "partition", "offset", arrival)
                from events as other
                where other.key is not distinct from events.key and other.c1 is not null
                    and other.time between events.time - {length} and events.time
            ),
            c1
        from events
        window seen as (
            partition by key order by time range between {length} preceding and current row
        )
        """,
        table,
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(keys, st.integers(-30, 60), quarters, numbers), max_size=40),
    lengths,
    st.lists(st.integers(0, 40), max_size=5),
    st.lists(st.integers(0, 9)),
    st.sampled_from([Drop(), Correct(5)]),
)
def test_any_batches_give_what_one_query_gives(
    listed: list[tuple[Any, ...]], length: int, places: list[int], slack: list[int], late: Lateness
) -> None:
    table = rows(listed, VALUES, topics=("x", "y", "z"))
    pieces = cut(table, places)
    marks = watermarks_within(pieces, slack)
    batches = [Batch((piece,), mark) for piece, mark in zip(pieces, marks, strict=True)]

    left = check_laws(operator(length, late), batches, identity=None)

    assert left.rows == expected(batch_answer(table, length))
    assert left.late == 0
    assert left.versions == 0


def brute_force(
    batches: Sequence[Batch], length: int, until: int
) -> tuple[list[tuple[Any, ...]], int]:
    taken: list[dict[str, Any]] = []
    late = 0
    previous: int | None = None
    for batch in batches:
        for row in told(batch):
            if row["time"] is None or (previous is not None and row["time"] + until < previous):
                late += row["time"] is not None
            else:
                taken.append(row)
        previous = batch.watermark
    taken.sort(key=lambda row: [row[name] for name in PLACE])
    answer = []
    for row in taken:
        seen = [
            other
            for other in taken
            if other["key"] == row["key"] and 0 <= row["time"] - other["time"] <= length
        ]
        doubles = [other["c0"] for other in seen if other["c0"] is not None]
        wholes = [other["c1"] for other in seen if other["c1"] is not None]
        total = sum(doubles) if doubles else None
        largest = max(doubles, default=None)
        first = wholes[0] if wholes else None
        answer.append((row["key"], len(seen), total, largest, first, row["c1"]))
    return answer, late


@settings(max_examples=40, deadline=None)
@given(
    arrivals(quarters, numbers),
    lengths,
    st.sampled_from([Drop(), Correct(1), Correct(7), Correct(30)]),
    st.integers(0, 3),
)
def test_late_events_are_seen_where_they_still_can(
    listed: Arrivals, length: int, late: Lateness, unknown: int
) -> None:
    batches = arriving(listed, VALUES, unknown=unknown)

    left = check_laws(operator(length, late), batches, identity=None)

    answer, too_late = brute_force(batches, length, late.until_us)
    assert left.rows == expected(answer)
    assert left.late == too_late


def given_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    listed = table.select(["weight", "version", "time", "c0", "c1"]).to_pylist()
    return [tuple(row.values()) for row in listed]


#   time      0    5    10   15   20
#   events    a         b         c       all given when the watermark is 21, each sees the last 10
#   late           d                      d is given, and b again: c does not see that far
def test_a_late_event_is_given_and_those_again_that_see_it() -> None:
    batches = [
        Batch((rows([("k", 0, 1.0, 1), ("k", 10, 2.0, 2), ("k", 20, 4.0, 3)], VALUES),), 21),
        Batch((rows([("k", 5, 8.0, 4)], VALUES, first_offset=3),), 22),
        Batch((rows([("k", 5, 16.0, 5)], VALUES, first_offset=4),), 23),
    ]

    left = check_laws(operator(10, Correct(30)), batches, identity=("c4",))

    first, second, third = map(given_rows, left.played.given)
    assert first == [(1, 0, 0, 1, 1.0), (1, 0, 10, 2, 3.0), (1, 0, 20, 2, 6.0)]
    assert second == [(-1, 0, 10, 2, 3.0), (1, 1, 5, 2, 9.0), (1, 1, 10, 3, 11.0)]
    assert third == [
        *((-1, 1, 5, 2, 9.0), (-1, 1, 10, 3, 11.0)),
        *((1, 1, 5, 3, 25.0), (1, 2, 5, 3, 25.0), (1, 2, 10, 4, 27.0)),
    ]


def test_an_event_waits_until_all_of_its_time_have_come() -> None:
    batches = [
        Batch((rows([("k", 10, 1.0, 1)], VALUES),), 10),
        Batch((rows([("k", 10, 2.0, 2)], VALUES, first_offset=1),), 11),
    ]

    left = check_laws(operator(5), batches, identity=("c4",))

    assert [table.num_rows for table in left.played.given] == [0, 2]
    assert left.late == 0
    assert left.rows == expected([("k", 2, 3.0, 2.0, 1, 1), ("k", 2, 3.0, 2.0, 1, 2)])


def test_state_holds_what_can_still_be_seen_and_no_more() -> None:
    table = rows([("k", time, 1.0, 1) for time in range(100)], VALUES)
    batches = [Batch((table,), 100), Batch((rows([], VALUES),), FOREVER)]

    left = check_laws(operator(10), batches, identity=None)

    assert '"tables": {}' in left.played.headers[-1][0]


def test_a_bucket_that_missed_batches_gives_what_was_due_first() -> None:
    over = operator(10)
    table = over.combine(0, rows([("k", 0, 1.0, 1)], VALUES))
    later = over.combine(0, rows([("k", 5, 1.0, 2), ("k", 11, 1.0, 3)], VALUES, first_offset=1))

    first = over.step(over.start(), [table], Time(None, 0))
    second = over.step(first.state, [later], Time(11, 40))

    assert given_rows(second.rows) == [(1, 0, 0, 1, 1.0), (1, 0, 11, 1, 1.0)]
    assert second.late == 1


def test_how_late_an_event_is() -> None:
    table = rows([("k", time, 1.0, 1) for time in (None, 3, 4, 5)], VALUES)

    mask, by_us = operator(10, Correct(6)).late(0, table, 11)

    assert mask.tolist() == [True, True, True, False]
    assert by_us.tolist() == [0, 8, 7, 0]


def test_an_overflow_names_the_event() -> None:
    over = SlidingWindows(5, [aggregation("sum", "c1", pa.int64())], VALUES)
    table = rows([("k", 1, 0.0, 2**63 - 1), ("k", 2, 0.0, 1)], VALUES)

    with pytest.raises(SumOverflowError, match="window from 1969"):
        play(over, [Batch((table,), FOREVER)])


def of_one_record(*numbers: int) -> pa.Table:
    """Rows as `explode` makes them of one record, or a union of a stream with itself."""
    table = rows([("k", 5, 1.0, number) for number in numbers], VALUES)
    place = pa.array([7] * len(numbers), pa.int64())
    partition = pa.array([0] * len(numbers), pa.int32())
    table = table.set_column(table.column_names.index("offset"), "offset", place)
    return table.set_column(table.column_names.index("partition"), "partition", partition)


@pytest.mark.parametrize("late", [Drop(), Correct(30)])
def test_rows_of_one_record_are_events_of_their_own(late: Lateness) -> None:
    every = [aggregation(name, "c1", pa.int64()) for name in ("first", "last", "collect")]
    over = SlidingWindows(10, every, VALUES, late, passed=["c1"])
    batches = [
        Batch((of_one_record(3, 1, 2),), None),
        Batch((of_one_record(3),), 6),
        Batch((of_one_record(4),), 7),
    ]

    left = check_laws(over, batches, identity=None)

    seen = [3, 1, 2, 3] if late == Drop() else [3, 1, 2, 3, 4]
    assert left.rows == expected(("k", 3, seen[-1], seen, number) for number in seen)
    assert left.played.given[1].column("c3").to_pylist() == [3, 1, 2, 3]


def test_how_long_results_are_corrected_is_part_of_the_state() -> None:
    assert operator(5, Correct(1)).parameters != operator(5, Correct(2)).parameters
    assert operator(5, Correct(1)).parameters != operator(5).parameters


def test_nobody_looks_ahead() -> None:
    with pytest.raises(WindowSettingError):
        operator(-1)
