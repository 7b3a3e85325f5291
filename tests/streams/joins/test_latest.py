"""Streams joined with what a table says at the moment, against a dictionary."""

import itertools
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.errors import JoinOptionError
from headwater.streams.joins.latest import LatestJoin
from headwater.streams.joins.rows import LEFT, RIGHT
from headwater.streams.kernel.errors import RetractionError
from tests.streams.joins.histories import VALUES, Batch, Event, histories, played, standing

visit, profile = (partial(Event, side) for side in (LEFT, RIGHT))


def join(kind: str = "left") -> LatestJoin:
    return LatestJoin(VALUES, VALUES, kind=kind)


@given(histories(deletes=True), st.sampled_from(("inner", "left")), st.sampled_from((1, 4)))
@settings(max_examples=100, deadline=None)
def test_each_row_gets_what_stands_in_the_table_behind_its_batch(
    batches: list[Batch], kind: str, buckets: int
) -> None:
    table: dict[str | None, Event] = {}
    expected: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        changes = [event for event in batch.events if event.side == RIGHT]
        for event in sorted(changes, key=lambda one: (one.topic, one.partition, one.number)):
            if event.weight > 0:
                table[event.key] = event
            else:
                table.pop(event.key, None)
        for event in batch.events:
            found = table.get(event.key) if event.key is not None else None
            if event.side == LEFT and (found or kind == "left"):
                other = (found.number, found.value) if found else (None, None)
                expected[(event.key, event.time, event.number, event.value, *other)] += 1

    rows, late = played(join(kind), batches, buckets=buckets)

    assert standing(rows) == expected
    assert late == 0


@given(
    st.lists(
        st.dictionaries(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 3))), max_size=6
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_changes_of_one_batch_may_come_in_any_order(
    steps: list[dict[str, int | None]], dice: random.Random
) -> None:
    table: dict[str, Event] = {}
    numbers = itertools.count()
    batches, expected = [], []
    for step in steps:
        changes = []
        for key, value in step.items():
            if key in table:
                changes.append(table.pop(key)._replace(weight=-1, number=next(numbers)))
            if value is not None:
                table[key] = profile(key, None, next(numbers), value)
                changes.append(table[key])
        # Each bucket of the operator in front has a partition of its own.
        changes = [each._replace(partition=dice.randrange(4)) for each in changes]
        visits = [visit(key, None, next(numbers)) for key in "ab"]
        batches.append(Batch((*changes, *visits), None))
        expected += [table[key].value if key in table else None for key in "ab"]

    rows, _ = played(LatestJoin(VALUES, VALUES, kind="left", changes=True), batches)

    assert [row.values[3] for row in rows] == expected


def taken_back(event: Event, number: int) -> Event:
    return event._replace(weight=-1, number=number)


ONE, OTHER = profile("a", None, 1, 1), profile("a", None, 2, 2)


@pytest.mark.parametrize(
    "batches, words",
    [
        ([[ONE, OTHER]], "2 rows have the same key"),
        ([[ONE], [OTHER]], "2 rows have the same key"),
        ([[ONE], [taken_back(ONE, 2), OTHER, profile("a", None, 3, 3)]], "2 rows"),
        ([[taken_back(ONE, 1)]], "take back a row that is not in the table"),
        (
            [[ONE], [taken_back(ONE, 2), taken_back(OTHER, 3)]],
            "take back a row that is not in the table",
        ),
    ],
)
def test_changes_have_one_row_under_a_key(batches: list[list[Event]], words: str) -> None:
    operator = LatestJoin(VALUES, VALUES, kind="left", changes=True)
    with pytest.raises(RetractionError, match=words) as raised:
        played(operator, [Batch(tuple(events), None) for events in batches])
    assert raised.value.hint


def test_a_visit_sees_the_profile_as_it_is_when_the_visit_comes() -> None:
    batches = [
        Batch((visit("ann", 1, 1), profile("ann", 9, 2, 100)), 50),
        Batch((visit("ann", 2, 3), visit("bob", 3, 4)), 50),
        Batch((profile("ann", 1, 5, weight=-1), visit("ann", 4, 6)), 50),
    ]

    rows, late = played(join(), batches)

    assert late == 0
    assert [(row.values[0], row.values[3]) for row in rows] == [
        (1, 100),
        (3, 100),
        (4, None),
        (6, None),
    ]


def test_what_a_join_cannot_be_is_refused() -> None:
    with pytest.raises(JoinOptionError, match="'full'"):
        join("full")
