"""Upserts and deletes as rows taken back and rows that appear, against a dictionary."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.changelog import Upserts
from headwater.streams.joins.rows import LEFT, equal_rows
from tests.streams.joins.histories import VALUES, Batch, Event, played, standing

VALUE = pa.schema([("c0", pa.int64())])


@st.composite
def upserts(draw: st.DrawFn) -> list[Batch]:
    rows = st.tuples(
        st.sampled_from(("a", "b", None)), st.integers(0, 2), st.sampled_from((1, 1, -1))
    )
    batches = []
    number = 0
    for batch in draw(st.lists(st.lists(rows, max_size=6), max_size=6)):
        events = []
        for key, value, weight in batch:
            events.append(Event(LEFT, key, value, number, (value,), weight))
            number += 1
        batches.append(Batch(tuple(events), None))
    return batches


@given(upserts(), st.sampled_from((1, 4)))
@settings(max_examples=100, deadline=None)
def test_after_every_batch_the_changes_add_up_to_the_table(
    batches: list[Batch], buckets: int
) -> None:
    rows, _ = played(Upserts(VALUE), batches, buckets=buckets)

    table: dict[str | None, Event] = {}
    for number, batch in enumerate(batches):
        before = dict(table)
        for event in batch.events:
            if event.weight > 0:
                table[event.key] = event
            else:
                table.pop(event.key, None)
        so_far = standing([row for row in rows if row.batch <= number])
        assert so_far == {(e.key, e.time, e.value[0]): 1 for e in table.values()}
        changed = {row.key for row in rows if row.batch == number}
        assert all(
            (before[key].value if key in before else None)
            != (table[key].value if key in table else None)
            for key in changed
        )


def test_versions_count_changes_and_go_on_after_a_delete() -> None:
    values = [(5, 1), (6, 1), (6, 1), (7, 1), (0, -1), (5, 1)]
    batches = [
        Batch((Event(LEFT, "a", 1, number, (value,), weight),), None)
        for number, (value, weight) in enumerate(values)
    ]

    rows, _ = played(Upserts(VALUE), batches)

    assert [(row.batch, row.weight, row.version, *row.values) for row in rows] == [
        (0, 1, 0, 5),
        (1, -1, 0, 5),
        (1, 1, 1, 6),
        (3, -1, 1, 6),
        (3, 1, 2, 7),
        (4, -1, 2, 7),
        (5, 1, 3, 5),
    ]


def test_a_row_that_comes_back_has_a_version_that_it_never_had() -> None:
    batches = [
        Batch((Event(LEFT, key, 1, number, (number,), weight),), None)
        for number, (key, weight) in enumerate((*[("a", 1)] * 3, ("a", -1), ("b", 1), ("a", 1)))
    ]

    rows, _ = played(Upserts(VALUE), batches)

    versions = [row.version for row in rows if row.key == "a" and row.weight > 0]
    assert versions == [0, 1, 2, 3]


def test_a_delete_of_nothing_changes_nothing() -> None:
    rows, _ = played(Upserts(VALUE), [Batch((Event(LEFT, "a", 1, 1, (1,), -1),), None)])

    assert rows == []


@pytest.mark.parametrize(
    "column, other, same",
    [
        (pa.array([1, None, None, 2]), pa.array([1, None, 1, 3]), [True, True, False, False]),
        (
            pa.array([float("nan"), 0.0, None, 1.5]),
            pa.array([float("nan"), -0.0, 0.0, 1.5]),
            [True, False, False, True],
        ),
        (pa.array(["", None, "x"]), pa.array([None, None, "x"]), [False, True, True]),
        (
            pa.array([[1], [2], [], None, None, [1, None], [1]]),
            pa.array([[1], [3], [], None, [], [1, None], [1, 1]]),
            [True, False, True, True, False, True, False],
        ),
        (
            pa.array([[[1.5], []], [[float("nan")]], [[0.0]]]),
            pa.array([[[1.5], []], [[float("nan")]], [[-0.0]]]),
            [True, True, False],
        ),
        (
            pa.array([{"a": 1, "b": ["x"]}, {"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
            pa.array([{"a": 1, "b": ["x"]}, {"a": 1, "b": ["y"]}, None, None]),
            [True, False, True, False],
        ),
        (
            pa.array([[("a", 1)], [("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            pa.array([[("a", 1)], [("a", 2)], [], []], pa.map_(pa.string(), pa.int64())),
            [True, False, True, False],
        ),
        (pa.nulls(2), pa.nulls(2), [True, True]),
    ],
)
def test_rows_are_equal_if_nobody_can_tell_them_apart(
    column: pa.Array, other: pa.Array, same: list[bool]
) -> None:
    found = equal_rows(pa.table({"c0": column}), pa.table({"c0": other}))

    assert found.tolist() == same


def test_a_schema_with_names_of_its_own_values_is_kept() -> None:
    assert Upserts(VALUES).output == VALUES


def test_a_table_of_keys_alone_says_who_comes_and_goes() -> None:
    weights = [1, 1, -1, 1]
    batches = [
        Batch((Event(LEFT, "a", 1, number, (), weight),), None)
        for number, weight in enumerate(weights)
    ]

    rows, _ = played(Upserts(pa.schema([])), batches)

    assert [(row.batch, row.weight) for row in rows] == [(0, 1), (2, -1), (3, 1)]
