"""Tables joined change by change, against DuckDB's join of the whole tables after every batch."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.changelog import Upserts
from headwater.streams.joins.errors import ChangelogError, JoinTooLargeError
from headwater.streams.joins.rows import KINDS, LEFT, RIGHT
from headwater.streams.joins.tables import TableJoin
from headwater.streams.kernel.keys import encode_keys, null_mask
from headwater.streams.kernel.operator import Time
from headwater.streams.kernel.state import State
from tests.streams.joins.histories import KEYS, Batch, Event, Row, played, rows_of, standing
from tests.streams.joins.oracles import table_join

VALUES = pa.schema([("c0", pa.binary()), ("c1", pa.int64())])


def join(kind: str = "inner", pairs_max: int = 1_000_000) -> TableJoin:
    return TableJoin(VALUES, VALUES, kind=kind, pairs_max=pairs_max)


class Change(NamedTuple):
    """A row that is written, or deleted where there is no value."""

    side: int
    primary_key: int
    key: str | None
    value: int | None


class Tables:
    """Two tables, and the changes that lead to them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int], Event] = {}
        self.versions: Counter[tuple[int, int]] = Counter()
        self.changes: list[Event] = []

    def write(self, change: Change) -> None:
        place = (change.side, change.primary_key)
        old = self.rows.pop(place, None)
        if old is not None:
            self._note(old._replace(weight=-1))
        if change.value is not None:
            name = str(change.primary_key).encode()
            row = Event(
                change.side,
                change.key,
                change.value,
                0,
                (name, change.value),
                partition=change.primary_key % 2,
                version=self.versions[place],
            )
            self.versions[place] += 1
            self.rows[place] = row
            self._note(row)

    def _note(self, row: Event) -> None:
        self.changes.append(row._replace(number=len(self.changes)))


@st.composite
def changelogs(draw: st.DrawFn) -> list[Batch]:
    tables = Tables()
    changes = st.builds(
        Change,
        st.sampled_from((LEFT, RIGHT)),
        st.integers(0, 3),
        st.sampled_from((*KEYS, None)),
        st.one_of(st.none(), st.integers(0, 2)),
    )
    for change in draw(st.lists(changes, max_size=30)):
        tables.write(change)
    places = st.lists(st.integers(0, len(tables.changes)), max_size=6)
    cuts = [0, *sorted(draw(places)), len(tables.changes)]
    return [Batch(tuple(tables.changes[start:end]), None) for start, end in pairwise(cuts)]


def by_duckdb(batches: Sequence[Batch], kind: str) -> Counter[tuple[Any, ...]]:
    there: dict[tuple[Any, ...], Event] = {}
    for batch in batches:
        for event in batch.events:
            place = (event.side, event.value[0])
            if event.weight > 0:
                there[place] = event
            else:
                del there[place]
    return table_join(list(there.values()), kind)


@given(changelogs(), st.sampled_from(KINDS), st.sampled_from((1, 4)))
@settings(max_examples=150, deadline=None)
def test_after_every_batch_the_changes_add_up_to_the_join_of_the_tables(
    batches: list[Batch], kind: str, buckets: int
) -> None:
    rows, late = played(join(kind), batches, buckets=buckets)

    assert late == 0
    for number in range(len(batches)):
        so_far = standing([row for row in rows if row.batch <= number])
        assert so_far == by_duckdb(batches[: number + 1], kind)


def check_versions(
    rows: Sequence[Row], answers: Sequence[Counter[tuple[Any, ...]]], dice: random.Random
) -> None:
    """See that behind each batch whoever goes by primary keys and versions has the answer."""
    weights: Counter[tuple[Any, ...]] = Counter()
    last: dict[tuple[Any, ...], Row] = {}
    for number, answer in enumerate(answers):
        mine = [row for row in rows if row.batch == number]
        for row in mine:
            state = (row.values[0::2], row.version, row.key, row.time, row.values)
            weights[state] += row.weight
            assert weights[state] in {0, 1}
        # What is taken back and what appears is told apart by the version, in any order.
        for row in dice.sample(mine, len(mine)):
            whose = row.values[0::2]
            known = last.get(whose)
            if row.weight > 0 and (known is None or known.version < row.version):
                last[whose] = row
            elif row.weight < 0 and known is not None and known.version == row.version:
                del last[whose]
        there = sorted((each for each, weight in weights.items() if weight), key=lambda e: e[1])
        highest = {whose: (key, time, *values) for whose, _, key, time, values in there}
        assert Counter(highest.values()) == answer
        assert Counter((row.key, row.time, *row.values) for row in last.values()) == answer


@given(changelogs(), st.sampled_from(KINDS), st.sampled_from((4, 64)), st.randoms())
@settings(max_examples=100, deadline=None)
def test_versions_say_which_row_of_a_primary_key_is_the_last(
    batches: list[Batch], kind: str, buckets: int, dice: random.Random
) -> None:
    rows, _ = played(join(kind), batches, buckets=buckets)

    answers = [by_duckdb(batches[: number + 1], kind) for number in range(len(batches))]
    check_versions(rows, answers, dice)


@given(changelogs(), st.sampled_from(KINDS), st.sampled_from(KINDS), st.randoms())
@settings(max_examples=60, deadline=None)
def test_a_join_can_be_joined_again_by_a_column_that_changes(
    batches: list[Batch], kind: str, other_kind: str, dice: random.Random
) -> None:
    def joined_by_value(values: Sequence[Any], time: int | None) -> Event:
        name = b"%d" % (10 * int(values[0] or 9) + int(values[2] or 9))
        value = values[3] if values[1] is None else values[1]
        return Event(LEFT, str(value), time, 0, (name, value))

    third = [Event(RIGHT, key, 0, 0, (key.encode(), 7)) for key in "12"]
    rows, _ = played(join(kind), batches, buckets=4)
    again, answers = [], []
    for number in range(len(batches)):
        mine = [row for row in rows if row.batch == number]
        changes = [
            joined_by_value(row.values, row.time)._replace(
                weight=row.weight, version=row.version, number=at
            )
            for at, row in enumerate(dice.sample(mine, len(mine)))
        ]
        again.append(Batch((*changes, *(third if number == 0 else ())), None))
        there = by_duckdb(batches[: number + 1], kind)
        assert set(there.values()) <= {1}
        inner = [joined_by_value(values, time) for _, time, *values in there]
        answers.append(table_join([*inner, *third], other_kind))

    rows, _ = played(join(other_kind), again, buckets=4)

    check_versions(rows, answers, dice)


def test_a_row_that_moves_to_another_key_is_there_once_and_has_a_higher_version() -> None:
    tables = Tables()
    batches = []
    for key in "abcdefghij":
        known = len(tables.changes)
        tables.write(Change(LEFT, 1, key, 0))
        batches.append(Batch(tuple(tables.changes[known:]), None))

    rows, _ = played(join("left"), batches, buckets=64)

    moved = sorted((row.batch, row.weight, row.version, row.key) for row in rows)
    assert moved[:3] == [(0, 1, 0, "a"), (1, -1, 0, "a"), (1, 1, 1, "b")]
    assert moved[-1] == (9, 1, 9, "j")


def test_what_is_taken_back_is_what_was_given_whatever_the_change_says() -> None:
    row, nobody = Event(LEFT, "a", 5, 1, (b"1", 7)), Event(LEFT, None, 5, 2, (b"2", 8))
    other = Event(RIGHT, "a", 5, 3, (b"1", 9))
    gone = [
        each._replace(time=6, weight=-1, number=10 + each.number, value=(each.value[0], 0))
        for each in (row, nobody)
    ]

    rows, _ = played(join("left"), [Batch((row, nobody, other), None), Batch(tuple(gone), None)])

    assert not standing(rows)
    assert sorted(out.values[1] for out in rows) == [7, 7, 8, 8]


@given(changelogs(), st.sampled_from(KINDS))
@settings(max_examples=100, deadline=None)
def test_only_net_changes_come_out(batches: list[Batch], kind: str) -> None:
    rows, _ = played(join(kind), batches)

    for number in range(len(batches)):
        mine = [(row.key, row.time, row.values) for row in rows if row.batch == number]
        assert len(mine) == len(set(mine))


@given(changelogs(), st.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
def test_a_history_that_is_undone_leaves_nothing(batches: list[Batch], kind: str) -> None:
    history = [event for batch in batches for event in batch.events]
    undone = [
        event._replace(weight=-event.weight, number=len(history) + number)
        for number, event in enumerate(reversed(history))
    ]
    operator = join(kind)
    rows, _ = played(operator, [*batches, Batch(tuple(undone), None)])

    assert not standing(rows)


@given(changelogs())
@settings(max_examples=60, deadline=None)
def test_no_row_is_left_in_state_that_is_not_in_a_table(batches: list[Batch]) -> None:
    operator = join("full")
    state = operator.start()
    there: set[tuple[Any, ...]] = set()
    for batch in batches:
        inputs = [rows_of(batch.events, side, VALUES) for side in (LEFT, RIGHT)]
        state = operator.step(state, inputs, Time(None, None)).state
        for event in batch.events:
            row = (event.side, event.key, event.value[0])
            (there.add if event.weight > 0 else there.remove)(row)
        for side, name in ((LEFT, "left"), (RIGHT, "right")):
            mine = [row for row in there if row[0] == side]
            keys = [row[1] for row in mine if row[1] is not None]
            assert len(state.tables[f"{name}/rows"]) == len(mine)
            assert len(state.tables[f"{name}/members"]) == len(keys)
            counts = state.tables[f"{name}/counts"].scan()["count"].to_pylist()
            assert sorted(counts) == sorted(Counter(keys).values())


def test_a_timeline_follows_who_follows_whom_and_who_posts_what() -> None:
    ids = iter(range(1000))

    def follow(who: str, whom: str, weight: int = 1) -> Event:
        return Event(LEFT, whom, None, next(ids), (f"{who}>{whom}".encode(), 0), weight)

    def post(who: str, text: str, weight: int = 1) -> Event:
        return Event(RIGHT, who, None, next(ids), (text.encode(), 0), weight)

    batches = [
        Batch((follow("ann", "bob"), follow("cat", "bob"), follow("ann", "dan")), None),
        Batch((post("bob", "hello"), post("dan", "hi")), None),
        Batch((follow("cat", "bob", -1), post("bob", "again")), None),
        Batch((post("bob", "hello", -1), follow("cat", "dan")), None),
        Batch((follow("cat", "bob"),), None),
    ]

    rows, _ = played(join(), batches)

    timeline: set[tuple[str, str]] = set()
    seen = []
    for number in range(len(batches)):
        for row in (row for row in rows if row.batch == number):
            entry = (row.values[0].decode().split(">")[0], row.values[2].decode())
            (timeline.add if row.weight > 0 else timeline.remove)(entry)
        seen.append(sorted(timeline))
    assert seen == [
        [],
        [("ann", "hello"), ("ann", "hi"), ("cat", "hello")],
        [("ann", "again"), ("ann", "hello"), ("ann", "hi")],
        [("ann", "again"), ("ann", "hi"), ("cat", "hi")],
        [("ann", "again"), ("ann", "hi"), ("cat", "again"), ("cat", "hi")],
    ]


def test_what_is_taken_back_names_the_version_that_was_given() -> None:
    tables = Tables()
    batches = []
    for value in range(3):
        for side in (LEFT, RIGHT):
            known = len(tables.changes)
            tables.write(Change(side, 1, "a", value))
            batches.append(Batch(tuple(tables.changes[known:]), None))

    rows, _ = played(join(), batches)

    assert [(row.weight, row.version, row.values[1::2]) for row in rows] == [
        (1, 0, (0, 0)),
        (-1, 0, (0, 0)),
        (1, 1, (1, 0)),
        (-1, 1, (1, 0)),
        (1, 2, (1, 1)),
        (-1, 2, (1, 1)),
        (1, 3, (2, 1)),
        (-1, 3, (2, 1)),
        (1, 4, (2, 2)),
    ]


def test_a_row_that_is_written_again_as_it_was_changes_nothing() -> None:
    row = Event(LEFT, "a", 5, 1, (b"1", 7))
    other = Event(RIGHT, "a", 5, 2, (b"1", 8))
    again = (row._replace(weight=-1, number=3), row._replace(number=4))

    rows, _ = played(join("full"), [Batch((row, other), None), Batch(again, None)])

    assert [out.batch for out in rows] == [0]


def test_a_row_that_appears_twice_or_goes_twice_is_refused() -> None:
    row = Event(LEFT, "a", 5, 1, (b"\x01\x02", 7))

    with pytest.raises(ChangelogError, match=r"0102 .* appears while it is there"):
        played(join(), [Batch((row,), None), Batch((row._replace(number=2),), None)])
    with pytest.raises(ChangelogError, match=r"0102 .* is taken back, but not there"):
        played(join(), [Batch((row._replace(weight=-1),), None)])


def test_a_key_with_too_many_pairs_is_named() -> None:
    events = [
        Event(side, "hot", 1, number, (str(number).encode(), 1))
        for number in range(40)
        for side in (LEFT, RIGHT)
    ]

    with pytest.raises(JoinTooLargeError, match="1600 rows in one step") as raised:
        played(join(pairs_max=1000), [Batch(tuple(events), None)])

    assert b"hot" in raised.value.key


USERS = pa.schema([("c0", pa.string()), ("c1", pa.int64())])


def as_changes(state: State, side: int, events: Sequence[Event]) -> tuple[State, pa.Table]:
    """Turn upserts into changes, and put them under the key that they are joined by."""
    step = Upserts(USERS).step(state, [rows_of(events, side, USERS)], Time(None, None))
    rows = step.rows.combine_chunks()
    keys = [rows["c0"].combine_chunks()]
    columns = {
        "key": encode_keys(keys, rows.num_rows),
        "null_key": pa.array(null_mask(keys, rows.num_rows)),
        "time": rows["time"],
        "partition": pa.array([0] * rows.num_rows, pa.int32()),
        "offset": pa.array(range(rows.num_rows), pa.int64()),
        "weight": rows["weight"],
        "version": rows["version"].cast(pa.int64()),
        "c0": rows["key"],
        "c1": rows["c1"],
    }
    return step.state, pa.table(columns)


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from((LEFT, RIGHT)),
                st.sampled_from("123"),
                st.sampled_from((*KEYS, None)),
                st.integers(0, 2),
                st.sampled_from((1, 1, -1)),
            ),
            max_size=6,
        ),
        max_size=6,
    ),
    st.sampled_from(KINDS),
)
@settings(max_examples=60, deadline=None)
def test_topics_of_upserts_are_joined_by_a_key_that_is_not_their_own(
    batches: list[list[tuple[int, str, str | None, int, int]]], kind: str
) -> None:
    operator = join(kind)
    state = operator.start()
    states = [Upserts(USERS).start(), Upserts(USERS).start()]
    there: dict[tuple[int, str], Event] = {}
    left: Counter[tuple[Any, ...]] = Counter()
    for batch in batches:
        inputs = []
        for side in (LEFT, RIGHT):
            events = [
                Event(side, name, value, number, (key, value), weight)
                for number, (which, name, key, value, weight) in enumerate(batch)
                if which == side
            ]
            states[side], changes = as_changes(states[side], side, events)
            inputs.append(changes)
        step = operator.step(state, inputs, Time(None, None))
        state = step.state
        for row in step.rows.drop_columns(["key", "version"]).to_pylist():
            values = tuple(row.values())
            left[(values[0], *values[2:])] += values[1]
        for which, name, key, value, weight in batch:
            there.pop((which, name), None)
            if weight > 0:
                stored = (name.encode(), value)
                there[(which, name)] = Event(which, key, value, 0, stored)
        expected: Counter[tuple[Any, ...]] = Counter()
        for (_, time, *pair), count in table_join(list(there.values()), kind).items():
            names = [
                one and encode_keys([pa.array([one.decode()])], 1)[0].as_py() for one in pair[::2]
            ]
            expected[(time, names[0], pair[1], names[1], pair[3])] += count
        assert +left == expected
        assert min(left.values(), default=0) >= 0
