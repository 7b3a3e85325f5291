"""Streams joined by how far their times are apart, against DuckDB's joins over all rows at once."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.errors import (
    JoinOptionError,
    JoinTooLargeError,
)
from headwater.streams.joins.interval import IntervalJoin
from headwater.streams.joins.rows import KINDS, LEFT, RIGHT
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.operator import Time
from tests.streams.joins.histories import (
    VALUES,
    Batch,
    Event,
    admitted,
    histories,
    late_count,
    played,
    rows_of,
    standing,
)
from tests.streams.joins.oracles import interval_join


def join(
    kind: str = "inner",
    lower_us: int = 0,
    upper_us: int = 5,
    **options: Any,  # noqa: ANN401 - passed on
) -> IntervalJoin:
    return IntervalJoin(VALUES, VALUES, kind=kind, lower_us=lower_us, upper_us=upper_us, **options)


@given(
    histories(),
    st.sampled_from(KINDS),
    st.integers(-4, 4),
    st.integers(0, 4),
    st.sampled_from((1, 4)),
)
@settings(max_examples=150, deadline=None)
def test_any_history_gives_what_a_join_of_all_rows_gives(
    batches: list[Batch], kind: str, lower_us: int, length: int, buckets: int
) -> None:
    operator = join(kind, lower_us, lower_us + length)

    rows, late = played(operator, batches, buckets=buckets)

    expected = interval_join(admitted(batches), kind, lower_us, lower_us + length)
    assert standing(rows) == expected
    assert all((row.weight, row.version) == (1, 0) for row in rows)
    assert late == late_count(batches)


@given(histories(), st.sampled_from(KINDS), st.integers(-10, 10), st.integers(0, 10))
@settings(max_examples=100, deadline=None)
def test_nothing_comes_out_older_than_the_hold_allows(
    batches: list[Batch], kind: str, lower_us: int, length: int
) -> None:
    operator = join(kind, lower_us, lower_us + length)

    rows, _ = played(operator, batches)

    for row in rows:
        previous = batches[row.batch - 1].watermark if row.batch else None
        if previous is not None and row.time is not None:
            assert row.time >= previous - operator.hold_us


@given(histories(), st.sampled_from(KINDS), st.integers(-5, 5), st.integers(0, 8))
@settings(max_examples=100, deadline=None)
def test_a_condition_decides_who_has_a_partner(
    batches: list[Batch], kind: str, lower_us: int, length: int
) -> None:
    def larger(pairs: pa.Table) -> pa.Array:
        return pa.compute.greater(pairs["r1"], pairs["l1"])

    operator = join(kind, lower_us, lower_us + length, condition=larger)

    rows, _ = played(operator, batches)

    assert standing(rows) == interval_join(
        admitted(batches), kind, lower_us, lower_us + length, "r.v > l.v"
    )


@given(histories(nulls=False), st.integers(-10, 10), st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_what_is_kept_is_what_may_still_have_a_partner(
    batches: list[Batch], lower_us: int, length: int
) -> None:
    operator = join("full", lower_us, lower_us + length)
    state = operator.start()
    previous = None
    for batch in batches:
        inputs = [rows_of(batch.events, side) for side in (LEFT, RIGHT)]
        state = operator.step(state, inputs, Time(previous, batch.watermark)).state
        previous = batch.watermark
        if previous is not None:
            for side, upper in (("left", lower_us + length), ("right", -lower_us)):
                for name in (side, f"{side}/alone"):
                    times = state.tables[name].scan(["time"])["time"].to_pylist()
                    assert all(time + upper >= previous for time in times)
    assert not any(len(table) for table in state.tables.values())


# Searches at 10, 20 and 30; a click may follow within 5.
#
#   search   10        20        30
#   click      12            26
#   watermark    15      20     26 27       36
#
# 26 is too late for the search of 20. While the watermark is 25, a click of 25 could still come.
def test_the_click_that_never_came_is_told_when_it_is_certain() -> None:
    search, click = (partial(Event, side, "q") for side in (LEFT, RIGHT))
    batches = [
        Batch((search(10, 1), search(20, 2), click(12, 3)), 15),
        Batch((), 25),
        Batch((click(26, 4),), 26),
        Batch((search(30, 5),), 35),
        Batch((), 36),
    ]

    rows, late = played(join("left"), batches)

    assert late == 0
    assert [(row.batch, row.time, row.values[0], row.values[2]) for row in rows] == [
        (0, 12, 1, 3),
        (2, 20, 2, None),
        (4, 30, 5, None),
    ]


def test_both_ends_of_the_interval_are_in_it() -> None:
    times = range(8, 18)
    events = [Event(RIGHT, "a", time, number) for number, time in enumerate(times)]

    rows, _ = played(join(upper_us=5), [Batch((Event(LEFT, "a", 10, 99), *events), None)])

    assert [row.time for row in rows] == [10, 11, 12, 13, 14, 15]


def test_a_late_row_is_counted_and_not_joined_even_if_its_partner_is_kept() -> None:
    batches = [
        Batch((Event(LEFT, "a", 10, 1),), 12),
        Batch((Event(RIGHT, "a", 11, 2),), 12),
        Batch((Event(RIGHT, "a", 12, 3),), 12),
    ]

    rows, late = played(join(), batches)

    assert late == 1
    assert [row.values[2] for row in rows] == [3]


def test_a_null_in_a_key_and_a_missing_time_belong_to_nothing() -> None:
    events = (
        Event(LEFT, None, 10, 1),
        Event(RIGHT, None, 10, 2),
        Event(LEFT, "a", None, 3),
        Event(RIGHT, "a", None, 4),
    )

    inner, _ = played(join("inner"), [Batch(events, None)])
    full, _ = played(join("full"), [Batch(events, None)])

    assert inner == []
    assert sorted(row.values[0] or row.values[2] for row in full) == [1, 2, 3, 4]


def test_rows_of_one_record_that_was_split_are_each_joined() -> None:
    row = Event(LEFT, "a", 10, 1)

    rows, _ = played(
        join("left"), [Batch((row, row, row), 10), Batch((Event(RIGHT, "a", 12, 2),), 20)]
    )

    assert [row.values[2] for row in rows] == [2, 2, 2]


@pytest.mark.parametrize("year", [-62_135_596_800_000_000, 253_402_300_799_999_999])
def test_the_first_and_the_last_year_are_joined_like_any_other(year: int) -> None:
    events = (Event(LEFT, "a", year, 1), Event(RIGHT, "a", year + 3, 2))

    rows, _ = played(join("full"), [Batch(events, None), Batch((), year + 100)])

    assert [row.values[::2] for row in rows] == [(1, 2)]


def test_a_key_with_too_many_pairs_is_named() -> None:
    events = [Event(side, "hot", 10, number) for number in range(40) for side in (LEFT, RIGHT)]
    operator = join(pairs_max=1000)

    with pytest.raises(JoinTooLargeError, match="1600 rows in one step") as raised:
        played(operator, [Batch((*events, Event(LEFT, "cold", 10, 41)), None)])

    assert b"hot" in raised.value.key


def plain_rows(times: Sequence[int]) -> pa.Table:
    """Return rows of one key, without the columns that an operator can do without."""
    numbers = pa.array(range(len(times)), pa.int64())
    return pa.table(
        {
            "key": pa.repeat(pa.scalar(b"k", pa.binary()), len(times)),
            "time": pa.array(times, pa.int64()),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), len(times)),
            "offset": numbers,
            "c0": numbers,
            "c1": numbers,
        }
    )


def test_ten_thousand_million_pairs_are_counted_and_not_made() -> None:
    side = plain_rows([10] * 100_000)
    operator = join()

    with pytest.raises(JoinTooLargeError, match="10000000000 of them are of the key 6b"):
        operator.step(operator.start(), [side, side], Time(None, None))


def test_more_rows_than_are_taken_at_once_all_come_out() -> None:
    operator = join("inner", 0, 0)
    left, right = plain_rows([10] * 500), plain_rows([10] * 400)

    step = operator.step(operator.start(), [left, right], Time(None, None))

    pairs = zip(step.rows["c0"].to_pylist(), step.rows["c2"].to_pylist(), strict=True)
    assert set(pairs) == {(one, other) for one in range(500) for other in range(400)}
    assert step.rows.num_rows == 200_000


def test_a_hot_key_costs_what_its_pairs_cost() -> None:
    # 20,000 rows a side, of which each has one partner: as many as 400 million pairs if all of a
    # key were compared.
    side = plain_rows(range(0, 200_000, 10))
    operator = join("inner", 0, 5, pairs_max=20_000)

    step = operator.step(operator.start(), [side, side], Time(None, None))
    again = operator.step(step.state, [side.slice(7, 1), side.slice(0, 0)], Time(None, None))

    assert step.rows.num_rows == 20_000
    assert again.rows["c2"].to_pylist() == [7]


def test_a_state_remembers_whether_there_is_a_further_condition() -> None:
    plain, other = (
        IntervalJoin(VALUES, VALUES, kind="inner", lower_us=0, upper_us=1, condition=condition)
        for condition in (None, lambda pairs: pairs["l1"])
    )

    assert plain.parameters != other.parameters


def test_what_a_join_cannot_be_is_refused() -> None:
    with pytest.raises(JoinOptionError, match="from 5 us to 4 us"):
        join(lower_us=5, upper_us=4)
    with pytest.raises(JoinOptionError, match="'semi'"):
        join("semi")
    with pytest.raises(RetractionError, match="the right side"):
        played(join(), [Batch((Event(RIGHT, "a", 1, 1, weight=-1),), None)])
