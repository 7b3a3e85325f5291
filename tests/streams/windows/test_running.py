"""Aggregates of everything so far: after every batch they are what DuckDB says of all rows."""

import itertools
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.changelog import Upserts
from headwater.streams.joins.rows import LEFT
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.operator import WEIGHT, Time
from headwater.streams.windows.aggregates import NAMES, aggregation
from headwater.streams.windows.aggregation import Aggregation
from headwater.streams.windows.reversible import maybe_reversible
from headwater.streams.windows.running import RunningGroups
from tests.streams.joins.histories import Batch as JoinBatch
from tests.streams.joins.histories import Event, played
from tests.streams.kernel.laws import Batch, check_laws, consolidate, expected, play, rows
from tests.streams.windows.streams import Arrivals, arrivals, arriving, ask, keys

CENTS = pa.decimal128(7, 2)
VALUES = pa.schema([("c0", pa.int64()), ("c1", CENTS)])
NUMBERED = list(enumerate(VALUES, start=1))
longs = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**62 - 1, -(2**62)]))
cents = st.one_of(st.none(), st.integers(-500, 500).map(lambda number: Decimal(number).scaleb(-2)))
REVERSIBLE = [
    aggregation("count"),
    aggregation("count", "c0", pa.int64()),
    aggregation("avg", "c0", pa.int64()),
    aggregation("sum", "c1", CENTS),
    aggregation("avg", "c1", CENTS),
]
OTHERS = [aggregation("max", "c0", pa.int64()), aggregation("distinct", "c0", pa.int64())]
# An average of decimals has four digits more, rounded half away from zero; DuckDB's is a double.
ANSWER = """
    SELECT key, count(*), count(c0),
        (sum(c0::HUGEINT)::DOUBLE / count(c0)), sum(c1)::DECIMAL(17, 2),
        round(sum(c1)::DECIMAL(38, 2), 2), count(c1) {others}
    FROM events GROUP BY key"""


def average(total: Decimal | None, count: int) -> Decimal | None:
    """The average with four digits more than cents have, halves away from zero."""
    if total is None:
        return None
    scaled = int(total.scaleb(6))
    quotient, rest = divmod(abs(scaled), count)
    quotient += 2 * rest >= count
    return Decimal(quotient if scaled >= 0 else -quotient).scaleb(-6)


def answer(events: pa.Table, others: str = "") -> Counter[Any]:
    found = []
    for row in ask(ANSWER.format(others=others), events):
        key, count, of_c0, mean, total, same, of_c1, *rest = row
        found.append((key, count, of_c0, mean, total, average(same, of_c1), *rest))
    return expected(found)


@given(arrivals(st.one_of(st.none(), st.integers(-9, 9)), cents))
@settings(max_examples=40, deadline=None)
def test_of_events(listed: Arrivals) -> None:
    batches = arriving(listed, VALUES)
    left = check_laws(RunningGroups([*REVERSIBLE, *OTHERS], VALUES), batches)
    for end in range(1, len(batches) + 1):
        parts = [batch.inputs[0] for batch in batches[:end]]
        so_far = pa.concat_tables(parts, promote_options="permissive")
        stands = consolidate(left.played.given[:end])
        assert stands == answer(so_far, ", max(c0), count(DISTINCT c0)")


def reversible(aggregations: Sequence[Aggregation]) -> list[Aggregation]:
    found = [maybe_reversible(each) for each in aggregations]
    return [each for each in found if each is not None]


Changes = list[tuple[pa.Table, pa.Table]]
"""Of each batch the rows that take back and that appear, and all rows that stand behind it."""


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    there: list[tuple[Any, ...]] = []
    found, offset = [], 0
    for _ in range(draw(st.integers(1, 5))):
        listed: list[tuple[int, tuple[Any, ...]]] = []
        for _ in range(draw(st.integers(0, 8))):
            if draw(st.booleans()) and there:
                listed.append((-1, there.pop(draw(st.integers(0, len(there) - 1)))))
            else:
                there.append(draw(st.tuples(keys, st.none(), longs, cents)))
                listed.append((1, there[-1]))
        table = rows([row for _, row in listed], VALUES, first_offset=offset)
        weights = pa.array([weight for weight, _ in listed], pa.int8())
        offset += len(listed)
        found.append((table.append_column(WEIGHT, weights), rows(there, VALUES)))
    return found


@given(changes())
@settings(max_examples=50, deadline=None)
def test_of_changes(listed: Changes) -> None:
    operator = RunningGroups(reversible(REVERSIBLE), VALUES, retracts=True)
    left = check_laws(operator, [Batch((table,), None) for table, _ in listed])
    for end, (_, there) in enumerate(listed, start=1):
        assert consolidate(left.played.given[:end]) == answer(there)


Upserted = list[list[tuple[str, tuple[Any, ...] | None]]]
"""Of each batch the primary keys that are written, each with its row, or None for a delete."""

row_of_a_table = st.tuples(keys, st.none(), longs, cents)
upserted: st.SearchStrategy[Upserted] = st.lists(
    st.lists(st.tuples(st.sampled_from("pqr"), st.none() | row_of_a_table), max_size=8), max_size=6
)


@given(upserted, st.sampled_from((1, 4)))
@settings(max_examples=50, deadline=None)
def test_of_a_table(listed: Upserted, buckets: int) -> None:
    """Of any upserts and deletes, cut into any batches, the rows count that stand in the table."""
    row = pa.schema([("c0", pa.string()), *(field.with_name(f"c{n}") for n, field in NUMBERED)])
    numbers = itertools.count()
    events = [
        JoinBatch(
            tuple(
                Event(LEFT, key, None, next(numbers), (None,) * 3, -1)
                if values is None
                else Event(LEFT, key, None, next(numbers), (values[0], *values[2:]))
                for key, values in batch
            ),
            None,
        )
        for batch in listed
    ]
    given, _ = played(Upserts(row), events, buckets=buckets)
    batches = []
    for number in range(len(listed)):
        changed = [each for each in given if each.batch == number]
        table = rows([(each.values[0], None, *each.values[1:]) for each in changed], VALUES)
        weights = pa.array([each.weight for each in changed], pa.int8())
        batches.append(Batch((table.append_column(WEIGHT, weights),), None))
    operator = RunningGroups(reversible(REVERSIBLE), VALUES, retracts=True)
    left = check_laws(operator, batches)
    standing: dict[str, tuple[Any, ...]] = {}
    for end, batch in enumerate(listed, start=1):
        for key, values in batch:
            standing.pop(key, None)
            if values is not None:
                standing[key] = values
        there = rows(list(standing.values()), VALUES)
        assert consolidate(left.played.given[:end]) == answer(there)


def test_a_group_without_rows_leaves_nothing() -> None:
    operator = RunningGroups(reversible(REVERSIBLE), VALUES, retracts=True)
    table = rows([("a", None, 5, None)], VALUES)
    come = table.append_column(WEIGHT, pa.array([1], pa.int8()))
    gone = table.append_column(WEIGHT, pa.array([-1], pa.int8()))
    state = operator.step(operator.start(), [operator.combine(0, come)], Time(None, None)).state
    step = operator.step(state, [operator.combine(0, gone)], Time(None, None))
    assert step.rows.column(WEIGHT).to_pylist() == [-1]
    assert len(step.state.tables["groups"]) == 0
    with pytest.raises(RetractionError, match="not there"):
        operator.step(step.state, [operator.combine(0, gone)], Time(None, None))
    plain = RunningGroups(REVERSIBLE, VALUES)
    with pytest.raises(
        RetractionError, match=r"hf\.aggregate .* is given rows that are taken back"
    ):
        plain.combine(0, gone)


def test_only_what_is_exact_can_be_taken_back() -> None:
    options: dict[str, dict[str, float | bool]] = {
        "percentile": {"p": 0.5},
        "heavy_hitters": {"k": 3},
    }
    able = {
        (name, str(kind))
        for name in NAMES
        for kind in (pa.int64(), pa.float64(), CENTS)
        if maybe_reversible(aggregation(name, "c0", kind, **options.get(name, {}))) is not None
    }
    whole, decimal, double = "int64", str(CENTS), "double"
    assert able == {
        *(("count", kind) for kind in (whole, decimal, double)),
        *((name, kind) for name in ("sum", "avg") for kind in (whole, decimal)),
    }


def test_what_comes_most_often_takes_bounded_room() -> None:
    operator = RunningGroups([aggregation("heavy_hitters", "c0", pa.int64(), k=2)], VALUES)
    state, sizes = operator.start(), []
    for batch in range(8):
        fresh = [("a", None, 5000 * batch + number, None) for number in range(5000)]
        table = rows([*fresh, *[("a", None, -1, None)] * 500], VALUES)
        step = operator.step(state, [operator.combine(0, table)], Time(None, None))
        state = step.state
        sizes.append(state.tables["groups"].scan().nbytes)
    assert max(sizes) < 2 * sizes[0]
    found = step.rows.column("c0").to_pylist()[-1]
    assert found[0]["value"] == -1
    assert found[0]["count"] <= 8 * 500 <= found[0]["count"] + found[0]["error"]


def changed(events: list[tuple[int, tuple[Any, ...]]]) -> pa.Table:
    table = rows([row for _, row in events], VALUES)
    return table.append_column(WEIGHT, pa.array([weight for weight, _ in events], pa.int8()))


def test_a_group_that_comes_back_has_versions_that_it_never_had() -> None:
    operator = RunningGroups(reversible([aggregation("count")]), VALUES, retracts=True)
    one, two, other = ("a", None, 1, None), ("a", None, 2, None), ("b", None, 1, None)
    batches = [
        [(1, one)],
        [(1, two)],
        [(-1, one), (-1, two)],
        [(1, one), (1, other)],
        [(1, two)],
    ]
    state, found = operator.start(), []
    for batch in batches:
        step = operator.step(state, [operator.combine(0, changed(batch))], Time(None, None))
        state = step.state
        listed = step.rows.select([WEIGHT, "version", "c0"]).to_pylist()
        found.append([tuple(row.values()) for row in listed])

    assert found[:3] == [[(1, 0, 1)], [(-1, 0, 1), (1, 1, 2)], [(-1, 1, 2)]]
    assert found[3:] == [[(1, 2, 1), (1, 2, 1)], [(-1, 2, 1), (1, 3, 2)]]


@given(changes())
@settings(max_examples=50, deadline=None)
def test_no_version_of_a_group_is_given_twice(listed: Changes) -> None:
    operator = RunningGroups(reversible(REVERSIBLE), VALUES, retracts=True)
    played = play(operator, [Batch((table,), None) for table, _ in listed])
    versions = [
        (row["key"], row["version"])
        for table in played.given
        for row in table.to_pylist()
        if row[WEIGHT] > 0
    ]
    assert len(versions) == len(set(versions))


def test_what_is_computed_is_part_of_the_state() -> None:
    smallest, largest = (aggregation(name, "c0", pa.int64()) for name in ("min", "max"))
    assert RunningGroups([smallest], VALUES).parameters == (
        RunningGroups([smallest], VALUES).parameters
    )
    assert RunningGroups([smallest], VALUES).parameters != (
        RunningGroups([largest], VALUES).parameters
    )
    count = aggregation("count")
    assert RunningGroups([count], VALUES).parameters != (
        RunningGroups(reversible([count]), VALUES, retracts=True).parameters
    )


def test_whatever_lies_under_a_time_that_is_null_cannot_be_seen() -> None:
    operator = RunningGroups([aggregation("first", "c0", pa.int64())], VALUES)
    found = []
    for under in ([5, 9], [9, 5]):
        table = rows([("a", None, 1, None), ("a", None, 2, None)], VALUES)
        hidden = pa.Array.from_buffers(
            pa.int64(), 2, [pa.py_buffer(b"\0"), pa.py_buffer(np.array(under, np.int64))]
        )
        table = table.set_column(table.column_names.index("time"), "time", hidden)
        step = operator.step(operator.start(), [operator.combine(0, table)], Time(None, None))
        found.append((step.rows.column("c0").to_pylist(), step.state.describe()))

    assert found[0] == found[1]
    assert found[0][0] == [1]
