"""The first rows of each key: after every batch they are those that DuckDB finds in all rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.operator import WEIGHT, Time
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.ranking import Order, ranks_of
from headwater.streams.windows.top_rows import TopRows
from tests.streams.kernel.laws import Batch, check_laws, consolidate, expected, play, rows
from tests.streams.windows.streams import Arrivals, arrivals, arriving, ask

VALUES = pa.schema([("c0", pa.float64()), ("c1", pa.string())])
numbers = st.sampled_from([None, -1.5, 0.0, 2.0, float("nan"), float("inf")])
texts = st.sampled_from([None, "", "a", "ab", "é"])
# DuckDB calls NaN the largest, as we do; where nulls go it is told.
DIRECTIONS = {False: "ASC NULLS FIRST", True: "DESC NULLS LAST"}
orders = st.lists(
    st.builds(Order, st.sampled_from(["c0", "c1"]), st.booleans()),
    max_size=2,
    unique_by=lambda each: each.column,
)


def sorted_by(order: Sequence[Order], *ties: str) -> str:
    return ", ".join([*(f"{name} {DIRECTIONS[down]}" for name, down in order), *ties])


def first_rows(events: pa.Table, count: int, by: str, *, ranked: bool) -> Counter[Any]:
    rank = f"row_number() OVER (PARTITION BY key ORDER BY {by}) AS rank"
    chosen = f"key, c0, c1{', rank' if ranked else ''}"
    question = f"SELECT {chosen} FROM (SELECT *, {rank} FROM events) WHERE rank <= {count}"
    return expected(ask(question, events))


@given(arrivals(numbers, texts), orders, st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_of_events(listed: Arrivals, order: list[Order], count: int, ranked: bool) -> None:
    batches = arriving(listed, VALUES)
    operator = TopRows(count, order, VALUES, ranked=ranked)
    left = check_laws(operator, batches, identity=("c2",) if ranked else None)
    by = sorted_by(order, "topic", "partition", '"offset"', "arrival")
    for end in range(1, len(batches) + 1):
        parts = [batch.inputs[0] for batch in batches[:end]]
        so_far = pa.concat_tables(parts, promote_options="permissive")
        stands = consolidate(left.played.given[:end], identity=None)
        assert stands == first_rows(so_far, count, by, ranked=ranked)


Changes = list[tuple[pa.Table, pa.Table]]
"""Of each batch the rows that take back and that appear, and all rows that stand behind it."""


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    """Rows that appear, several times too, and some of them taken back, then or later."""
    there: list[tuple[Any, ...]] = []
    row = st.tuples(st.sampled_from(["a", "b"]), st.none(), numbers, texts)
    found, offset = [], 0
    for _ in range(draw(st.integers(1, 5))):
        listed: list[tuple[int, tuple[Any, ...]]] = []
        for _ in range(draw(st.integers(0, 8))):
            if draw(st.booleans()) and there:
                gone = there.pop(draw(st.integers(0, len(there) - 1)))
                listed.append((-1, gone))
            else:
                there.append(draw(row))
                listed.append((1, there[-1]))
        table = rows([each for _, each in listed], VALUES, first_offset=offset)
        weights = pa.array([weight for weight, _ in listed], pa.int8())
        offset += len(listed)
        found.append((table.append_column(WEIGHT, weights), rows(there, VALUES)))
    return found


@given(changes(), orders, st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_of_changes(listed: Changes, order: list[Order], count: int, ranked: bool) -> None:
    # All columns, so that only equal rows are equal in order: what ties mean is ours alone.
    known = {each.column for each in order}
    order = [*order, *(Order(name) for name in VALUES.names if name not in known)]
    operator = TopRows(count, order, VALUES, ranked=ranked, retracts=True)
    batches = [Batch((table,), None) for table, _ in listed]
    left = check_laws(operator, batches, identity=("c2",) if ranked else None)
    for end, (_, there) in enumerate(listed, start=1):
        stands = consolidate(left.played.given[:end], identity=None)
        assert stands == first_rows(there, count, sorted_by(order), ranked=ranked)


def test_what_is_not_among_the_first_is_not_kept() -> None:
    values = pa.schema([("c0", pa.int64())])
    operator = TopRows(2, [Order("c0", descending=True)], values)
    events = rows([("a", None, number) for number in range(100)], values)
    step = operator.step(operator.start(), [operator.combine(0, events)], Time(None, None))
    assert len(step.state.tables["rows"]) == 2
    assert operator.combine(0, events).num_rows == 2
    again = operator.step(step.state, [operator.combine(0, events.slice(0, 50))], Time(None, None))
    assert again.rows.num_rows == 0
    assert again.state.describe() == step.state.describe()


def test_a_row_that_falls_back_changes_its_rank_only_if_it_is_asked_for() -> None:
    values = pa.schema([("c0", pa.int64())])
    batches = [
        Batch((rows([("a", None, 1), ("a", None, 2)], values),), None),
        Batch((rows([("a", None, 3)], values, first_offset=2),), None),
    ]
    order = [Order("c0", descending=True)]

    def second(ranked: bool) -> list[tuple[Any, ...]]:
        given_rows = play(TopRows(2, order, values, ranked=ranked), batches).given[1]
        names = [WEIGHT, "version", *(f"c{number}" for number in range(1 + ranked))]
        return [tuple(row[name] for name in names) for row in given_rows.to_pylist()]

    assert second(ranked=False) == [(-1, 0, 1), (1, 1, 3)]
    assert second(ranked=True) == [(-1, 0, 2, 1), (-1, 0, 1, 2), (1, 1, 3, 1), (1, 1, 2, 2)]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(WindowSettingError, match="the first 0 rows are none"):
        TopRows(0, [], VALUES)
    with pytest.raises(WindowSettingError, match="cannot be ordered by c0"):
        TopRows(1, [Order("c0")], pa.schema([("c0", pa.list_(pa.int64()))]))
    table = rows([("a", None, 1.0, "")], VALUES)
    table = table.append_column(WEIGHT, pa.array([-1], pa.int8()))
    with pytest.raises(
        RetractionError, match=r"hf\.top of events is given rows that are taken back"
    ):
        TopRows(1, [], VALUES).combine(0, table)
    operator = TopRows(1, [], VALUES, retracts=True)
    with pytest.raises(RetractionError, match="not there"):
        operator.step(operator.start(), [table], Time(None, None))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, "", "a", "ab", "b", "é"]),
        pa.array([None, -1, 2, 30]),
        pa.array([None, float("-inf"), -1.5, 0.0, 2.0, float("inf"), float("nan")]),
        pa.array([None, False, True]),
        pa.array([None, "-3.50", "0.00", "12.25"]).cast(pa.decimal128(9, 2)),
        pa.array([None, 5, 7], pa.timestamp("us", "UTC")),
        pa.array([None, b"\x00", b"\x00\x01", b"\xff"]),
    ],
    ids=lambda values: str(values.type),
)
def test_ranks_are_ordered_as_values_are(values: pa.Array) -> None:
    turned = np.array([3, 0, 2, 1, *range(4, len(values))])[: len(values)]
    turned = turned[turned < len(values)]
    ranks = ranks_of(values.take(pa.array(turned)))
    assert list(np.argsort(ranks)) == list(np.argsort(turned))
    assert ranks[list(turned).index(0)] == 0


@given(changes(), orders, st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_a_key_gives_later_has_a_higher_version(
    listed: Changes, order: list[Order], count: int, ranked: bool
) -> None:
    operator = TopRows(count, order, VALUES, ranked=ranked, retracts=True)
    played = play(operator, [Batch((table,), None) for table, _ in listed])
    last: dict[bytes, int] = {}
    for table in played.given:
        given_now = [row for row in table.to_pylist() if row[WEIGHT] > 0]
        for row in given_now:
            assert row["version"] > last.get(row["key"], -1)
        last |= {row["key"]: row["version"] for row in given_now}


def test_versions_begin_with_nothing_as_long_as_nothing_is_forgotten() -> None:
    values = pa.schema([("c0", pa.int64())])
    operator = TopRows(2, [Order("c0")], values, retracts=True)
    state, versions = operator.start(), []
    for weight, key, number in ((1, "a", 1), (1, "b", 1), (1, "a", 2), (-1, "a", 2), (1, "a", 3)):
        table = rows([(key, None, number)], values)
        table = table.append_column(WEIGHT, pa.array([weight], pa.int8()))
        step = operator.step(state, [operator.combine(0, table)], Time(None, None))
        state = step.state
        versions += step.rows.column("version").to_pylist()

    assert versions == [0, 0, 1, 1, 2]
