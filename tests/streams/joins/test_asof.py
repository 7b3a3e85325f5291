"""Streams joined with tables as of event time, against DuckDB."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.asof import ENDS_KEPT_US, AsofJoin
from headwater.streams.joins.errors import JoinOptionError
from headwater.streams.joins.rows import LEFT, RIGHT
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
from tests.streams.joins.oracles import asof_join, asof_join_while_open

KINDS = ("inner", "left")
order, price = (partial(Event, side) for side in (LEFT, RIGHT))


def join(kind: str = "left", until_us: int = 0, *, ends_kept_us: int = ENDS_KEPT_US) -> AsofJoin:
    return AsofJoin(VALUES, VALUES, kind=kind, until_us=until_us, ends_kept_us=ends_kept_us)


def by_duckdb(batches: Sequence[Batch], kind: str, until_us: int) -> Counter[tuple[Any, ...]]:
    """Ask which version each order has, of those that came before nothing could change it."""
    watermarks = [None, *(batch.watermark for batch in batches)]
    seen: list[Event] = []
    known_by: dict[int, int] = {}
    for number, batch in enumerate(batches):
        for event in batch.events:
            known_by[event.number] = number
            if event.side == LEFT and event.time is not None:
                if _is_behind(event.time, watermarks[number], until_us):
                    continue
                given_by = next(
                    later
                    for later in range(number, len(batches))
                    if _is_behind(event.time, batches[later].watermark, 0)
                )
                known_by[event.number] = max(
                    later
                    for later in range(given_by, len(batches))
                    if later == given_by or not _is_behind(event.time, watermarks[later], until_us)
                )
            seen.append(event)
    return asof_join_while_open(seen, kind, known_by)


def _is_behind(time: int, watermark: int | None, until_us: int) -> bool:
    return watermark is not None and time < watermark - until_us


@given(
    histories(deletes=True),
    st.sampled_from(KINDS),
    st.sampled_from((0, 1, 3, 20)),
    st.sampled_from((1, 4)),
)
@settings(max_examples=150, deadline=None)
def test_any_history_gives_what_duckdb_says_of_the_versions_that_came_in_time(
    batches: list[Batch], kind: str, until_us: int, buckets: int
) -> None:
    rows, late = played(join(kind, until_us), batches, buckets=buckets)

    assert standing(rows) == by_duckdb(batches, kind, until_us)
    assert late == late_count(batches)


@pytest.mark.parametrize("until_us", [0, 1, 3])
def test_versions_and_ends_that_come_late_are_what_duckdb_says(until_us: int) -> None:
    for seed in range(60):
        dice = random.Random(seed)
        batches, now = [], 0
        for number in range(12):
            now += dice.randrange(4)
            events = [
                Event(
                    dice.choice((LEFT, RIGHT)),
                    dice.choice("pq"),
                    max(0, now + dice.randint(-9, 2)),
                    4 * number + each,
                    dice.randrange(100),
                )
                for each in range(4)
            ]
            events = [
                each._replace(weight=-1) if each.side == RIGHT and dice.random() < 0.4 else each
                for each in events
            ]
            batches.append(Batch(tuple(events), now))
        batches.append(Batch((), 1_000_000))

        rows, late = played(join("left", until_us), batches)

        assert standing(rows) == by_duckdb(batches, "left", until_us), f"seed {seed}"
        assert late == late_count(batches) > 0


@given(histories(deletes=True), st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None)
def test_without_late_rows_it_is_duckdbs_asof_join(batches: list[Batch], kind: str) -> None:
    batches = [Batch(tuple(admitted(batches)), None), batches[-1]]

    rows, _ = played(join(kind), batches)

    assert standing(rows) == asof_join(batches[0].events, kind)


@given(histories(deletes=True), st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None)
def test_with_corrections_late_rows_do_not_matter(batches: list[Batch], kind: str) -> None:
    rows, _ = played(join(kind, until_us=2_000_000), batches[:-1])
    last = [batch.watermark for batch in batches[:-1] if batch.watermark is not None]

    seen = [event for batch in batches for event in batch.events]
    known = {
        row[2]: row
        for row in asof_join(seen, kind)
        if row[0] is None or row[1] is None or (last and row[1] < last[-1])
    }
    assert {row[2]: row for row in standing(rows)} == known


@given(histories(deletes=True), st.sampled_from((0, 3)))
@settings(max_examples=60, deadline=None)
def test_nothing_comes_out_older_than_the_hold_allows(batches: list[Batch], until_us: int) -> None:
    operator = join(until_us=until_us)

    rows, _ = played(operator, batches)

    for row in rows:
        previous = batches[row.batch - 1].watermark if row.batch else None
        if previous is not None and row.time is not None:
            assert row.time >= previous - operator.hold_us


# Prices of a product, and orders. An order of 20 could still see a price of 20 while the
# watermark is 20.
#
#   price    10: 1 EUR      20: 2 EUR
#   order        15    19 20
#   watermark             20  21
def test_an_order_has_the_price_of_its_time() -> None:
    batches = [
        Batch((price("p", 10, 1, 100), order("p", 15, 2), order("p", 20, 3)), 20),
        Batch((price("p", 20, 4, 200),), 20),
        Batch((), 21),
    ]

    rows, late = played(join(), batches)

    assert late == 0
    assert [(row.batch, row.time, row.values[3]) for row in rows] == [(0, 15, 100), (2, 20, 200)]


def test_equal_times_are_decided_by_where_the_versions_come_from() -> None:
    at = partial(Event, RIGHT, "p", 10)
    versions = [
        at(7, 1, topic="b", partition=0),
        at(9, 2, topic="a", partition=1),
        at(3, 3, topic="b", partition=1),
    ]

    for first, second in ((versions, []), (versions[2:], versions[:2]), ([], versions)):
        batches = [Batch(tuple(first), 5), Batch((*second, order("p", 10, 1)), 5), Batch((), 20)]
        rows, _ = played(join(), batches)
        assert [row.values[3] for row in rows] == [3]


def test_a_late_price_corrects_the_orders_that_it_concerns() -> None:
    batches = [
        Batch((price("p", 10, 1, 100), order("p", 15, 2), order("p", 25, 3)), 30),
        Batch((price("p", 20, 4, 200),), 30),
        Batch((price("p", 12, 5, 120),), 30),
        Batch((price("p", 13, 6, 0, weight=-1),), 30),
    ]

    rows, late = played(join("inner", until_us=100), batches)

    assert late == 3
    assert [(row.batch, row.weight, row.version, row.time, row.values[3]) for row in rows] == [
        (0, 1, 0, 15, 100),
        (0, 1, 0, 25, 100),
        (1, -1, 0, 25, 100),
        (1, 1, 1, 25, 200),
        (2, -1, 0, 15, 100),
        (2, 1, 1, 15, 120),
        (3, -1, 1, 15, 120),
    ]


def test_a_late_price_that_corrects_nothing_still_holds_from_now_on() -> None:
    batches = [
        Batch((price("p", 10, 1, 100), order("p", 15, 2)), 30),
        Batch((price("p", 14, 3, 140),), 30),
        Batch((order("p", 31, 4),), 40),
    ]

    rows, late = played(join(), batches)

    assert late == 1
    assert [(row.weight, row.time, row.values[3]) for row in rows] == [(1, 15, 100), (1, 31, 140)]


def test_a_late_order_is_joined_while_its_prices_are_kept() -> None:
    batches = [
        Batch((price("p", 10, 1, 100), price("p", 20, 2, 200)), 30),
        Batch((order("p", 15, 3), order("p", 19, 4), order("p", 20, 5)), 30),
    ]

    rows, late = played(join(until_us=11), batches)

    assert late == 3
    assert [(row.version, row.time, row.values[3]) for row in rows] == [(1, 19, 100), (1, 20, 200)]


def test_a_product_that_is_gone_has_no_price() -> None:
    batches = [
        Batch((price("p", 10, 1, 100), price("p", 20, 2, weight=-1), price("p", 30, 3, 300)), 5),
        Batch(tuple(order("p", time, time) for time in (9, 10, 19, 20, 29, 30)), 40),
    ]

    left, _ = played(join("left"), batches)
    inner, _ = played(join("inner"), batches)

    assert [row.values[3] for row in left] == [None, 100, 100, None, None, 300]
    assert [row.values[3] for row in inner] == [100, 100, 300]


def test_what_nobody_can_ask_for_is_forgotten_without_being_touched() -> None:
    operator = join(until_us=10, ends_kept_us=5)
    versions = [price("p", time, time) for time in range(10, 60)]
    ended = [price("q", 10, 70), price("q", 20, 71, weight=-1)]
    orders = [order("p", 15, 80), order("p", 55, 81)]
    events = (*versions, *ended, *orders)

    state = operator.step(
        operator.start(), [rows_of(events, side) for side in (LEFT, RIGHT)], Time(None, 5)
    ).state
    counts = []
    for previous, now in ((5, 30), (30, 31), (31, 62), (62, 200)):
        empty = [rows_of((), side) for side in (LEFT, RIGHT)]
        state = operator.step(state, empty, Time(previous, now)).state
        counts.append([len(state.tables[name]) for name in ("versions", "waiting", "given")])

    # With until of 10: at 30 those of 20 and later, and the end of q, which is gone behind 35.
    assert counts == [[41, 1, 0], [40, 1, 0], [8, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("until_us", [0, 10])
def test_a_late_price_of_before_the_end_does_not_bring_a_product_back(until_us: int) -> None:
    batches = [
        Batch((price("p", 10, 1, 100), price("p", 20, 2, 0, weight=-1)), 50),
        Batch((price("p", 15, 3, 150),), 60),
        Batch((order("p", 1000, 4),), 2000),
    ]

    rows, _ = played(join("left", until_us), batches)

    assert [row.values[3] for row in rows] == [None]


def test_an_end_is_known_for_as_long_as_is_said_behind_what_can_be_asked_for() -> None:
    def price_at_last(watermark: int) -> object:
        batches = [
            Batch((price("p", 10, 1, 100), price("p", 20, 2, 0, weight=-1)), watermark),
            Batch((price("p", 15, 3, 150), order("p", 1000, 4)), 2000),
        ]
        rows, _ = played(join(until_us=10, ends_kept_us=5), batches)
        return rows[0].values[3]

    assert price_at_last(35) is None
    assert price_at_last(36) == 150


def test_what_a_join_cannot_be_is_refused() -> None:
    with pytest.raises(JoinOptionError, match="'right'"):
        join("right")
    with pytest.raises(JoinOptionError, match="-1 us"):
        join(until_us=-1)
    with pytest.raises(RetractionError, match="the left side"):
        played(join(), [Batch((Event(LEFT, "a", 1, 1, weight=-1),), None)])
