"""A state comes back from its header and chunks, and changes say what a store has to do."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.chunks import DictStore
from headwater.streams.kernel.errors import StateDamagedError
from headwater.streams.kernel.state import State, changes
from headwater.streams.kernel.table import Table

SCHEMA = pa.schema([("v", pa.int64())])
NAMES = st.sampled_from(["left", "right", "pane/1", "pane/2"])


def _put(table: Table, key: int, value: int) -> Table:
    keys = pa.array([key.to_bytes(2, "big")], pa.binary())
    return table.put(pa.table({"key": keys, "v": pa.array([value], pa.int64())}))


def _contents(state: State) -> dict[str, list[dict[str, object]]]:
    return {name: table.scan().to_pylist() for name, table in state.tables.items()}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(NAMES, st.integers(0, 9), st.none() | st.integers(0, 3)), max_size=4),
        max_size=8,
    )
)
def test_a_store_that_follows_the_changes_holds_exactly_the_state(
    batches: list[list[tuple[str, int, int | None]]],
) -> None:
    state = State()
    store = DictStore()
    for number, batch in enumerate(batches):
        tables = dict(state.tables)
        for name, key, value in batch:
            if value is None:
                tables.pop(name, None)
            else:
                tables[name] = _put(tables.get(name, Table.empty(SCHEMA)), key, value)
        after = State(tables, {"batch": number, "names": list(tables)})
        what = changes(state, after)
        for chunk in what.write:
            assert chunk.name not in store.chunks
            store.chunks[chunk.name] = chunk.data()
        for gone in what.remove:
            del store.chunks[gone]
        assert sorted(store.chunks) == [chunk.name for chunk in after.chunks]
        header = json.dumps(after.describe())
        state = State.restore(json.loads(header), store, stagger=3)
        assert _contents(state) == _contents(after)
        assert state.values == after.values
        assert json.dumps(state.describe()) == header


def test_a_header_does_not_depend_on_the_order_in_which_it_was_made() -> None:
    one, other = Table.empty(SCHEMA), _put(Table.empty(SCHEMA), 1, 2)
    first = State({"a": one, "b": other}, {"x": 1, "y": [None, 2.5]})
    second = State({"b": other, "a": one}, {"y": [None, 2.5], "x": 1})
    assert json.dumps(first.describe()) == json.dumps(second.describe())


def test_tables_of_one_kind_tell_their_schema_once() -> None:
    tables = {f"pane/{number}": Table.empty(SCHEMA) for number in range(100)}
    assert len(json.dumps(State(tables).describe())) < 100 * 80


def test_equal_tables_share_their_chunks() -> None:
    state = State({"a": _put(Table.empty(SCHEMA), 1, 2), "b": _put(Table.empty(SCHEMA), 1, 2)})
    assert len(state.chunks) == 1
    less = State({"b": state.tables["b"]})
    assert changes(state, less) == ((), ())
    assert changes(less, State()).remove == (state.chunks[0].name,)


def test_an_empty_state_comes_back() -> None:
    state = State.restore(State().describe(), DictStore())
    assert (dict(state.tables), dict(state.values), state.chunks) == ({}, {}, ())


def test_a_header_of_a_newer_version_is_refused() -> None:
    with pytest.raises(StateDamagedError, match="version 2"):
        State.restore({**State().describe(), "version": 2}, DictStore())
