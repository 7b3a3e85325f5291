"""A table is a dict, whatever is done to it and wherever it is saved in between."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.streams.kernel import finding, merging, runs, tiers
from headwater.streams.kernel.chunks import ChunkStore, DictStore
from headwater.streams.kernel.errors import StateDamagedError, ValueTypeError
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.table import Table

SCHEMA = pa.schema(
    [
        ("at", pa.int64()),
        ("due", pa.int64()),
        ("word", pa.string()),
        ("numbers", pa.list_(pa.int32())),
    ]
)
KEYS = [b"", b"a", b"ab", b"b", b"\0", b"aa", b"abcdefgh", b"abcdefghi"]
SMALL = st.integers(-3, 6)
Row = tuple[bytes, int, int | None, str | None, list[int | None] | None]
Rows = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        SMALL,
        st.none() | SMALL,
        st.none() | st.text("xyz", max_size=3),
        st.none() | st.lists(st.none() | SMALL, max_size=2),
    ),
    max_size=8,
)


def _weak(keys: pa.BinaryArray) -> npt.NDArray[np.uint64]:
    """Two hashes for all keys, so that nearly all collide."""
    return hashes(keys) % np.uint64(2)


def _table_of(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 5
    names = ["key", *SCHEMA.names]
    kinds = [pa.binary(), *(field.type for field in SCHEMA)]
    return pa.table(
        {
            name: pa.array(list(column), kind)
            for name, kind, column in zip(names, kinds, columns, strict=True)
        }
    )


class TableMachine(RuleBasedStateMachine):
    """Does the same to a table, to a twin that is saved and restored each time, and to a dict."""

    @initialize(
        order=st.sampled_from([(), ("at",), ("due", "at")]),
        stagger=st.integers(0, 3),
        is_weak=st.booleans(),
        part_bytes=st.sampled_from([1, 2**20]),
        rows_min=st.sampled_from([1, 4, 1024]),
    )
    def begin(
        self, order: tuple[str, ...], stagger: int, is_weak: bool, part_bytes: int, rows_min: int
    ) -> None:
        self.patches = pytest.MonkeyPatch()
        self.hashes = _weak if is_weak else hashes
        for module in (runs, finding):
            self.patches.setattr(module, "hashes", self.hashes)
        self.patches.setattr(merging, "_PART_BYTES", part_bytes)
        self.patches.setattr(tiers, "ROWS_MIN", rows_min)
        self.patches.setattr(runs, "CHUNK_BYTES_MAX", 3000)
        self.patches.setattr(runs, "_CHUNK_BYTES_AIM", 100 if part_bytes == 1 else 2000)
        self.order = order
        self.stagger = stagger
        self.table = Table.empty(SCHEMA, order, stagger=stagger)
        self.twin = self.table
        self.oracle: dict[tuple[Any, ...], Row] = {}

    def teardown(self) -> None:
        self.patches.undo()

    def _identity(self, row: Row) -> tuple[Any, ...]:
        named = dict(zip(SCHEMA.names, row[1:], strict=True))
        return (row[0], *(named[name] for name in self.order))

    def _distinct(self, rows: list[Row]) -> list[Row]:
        whole = [row for row in rows if None not in self._identity(row)]
        return list({self._identity(row): row for row in whole}.values())

    def _do(self, name: str, *arguments: object) -> None:
        self.table = getattr(self.table, name)(*arguments)
        changed = getattr(self.twin, name)(*arguments)
        store = DictStore({chunk.name: chunk.data() for chunk in changed.chunks})
        header = json.loads(json.dumps(changed.describe()))
        self.twin = Table.restore(header, store, stagger=self.stagger)

    @rule(rows=Rows)
    def put(self, rows: list[Row]) -> None:
        rows = self._distinct(rows)
        self._do("put", _table_of(rows))
        self.oracle.update({self._identity(row): row for row in rows})

    @rule(rows=Rows)
    def remove(self, rows: list[Row]) -> None:
        rows = self._distinct(rows)
        self._do("remove", _table_of(rows).select(["key", *self.order]))
        for row in rows:
            self.oracle.pop(self._identity(row), None)

    @rule(column=st.sampled_from(["at", "due"]), before=SMALL)
    def expire(self, column: str, before: int) -> None:
        self._do("expire", column, before)
        at = 1 + SCHEMA.names.index(column)
        self.oracle = {
            identity: row
            for identity, row in self.oracle.items()
            if row[at] is None or row[at] >= before  # type: ignore[operator]
        }

    @rule(keys=st.lists(st.sampled_from(KEYS), unique=True), columns=st.permutations(SCHEMA.names))
    def find(self, keys: list[bytes], columns: list[str]) -> None:
        self._find(keys, columns[:2])

    def _find(self, keys: list[bytes], names: list[str]) -> None:
        found = self.table.find(pa.array(keys, pa.binary()), names)
        wanted = [
            (code, *(dict(zip(SCHEMA.names, row[1:], strict=True))[name] for name in names))
            for code, key in enumerate(keys)
            for identity, row in sorted(self.oracle.items())
            if identity[0] == key
        ]
        assert found.rows.column_names == names
        lists = [found.rows.column(name).to_pylist() for name in names]
        assert list(zip(found.codes.tolist(), *lists, strict=True)) == wanted

    @invariant()
    def is_the_dict(self) -> None:
        if not hasattr(self, "table"):
            return
        found = self.table.scan()
        found.validate(full=True)
        assert found.schema.names == ["key", *SCHEMA.names]
        rows = [tuple(row.values()) for row in found.to_pylist()]
        hash_of = dict(zip(KEYS, self.hashes(pa.array(KEYS, pa.binary())).tolist(), strict=True))
        wanted = sorted(self.oracle, key=lambda identity: (hash_of[identity[0]], *identity))
        assert rows == [self.oracle[identity] for identity in wanted]
        assert len(self.table) == len(self.oracle)

    @invariant()
    def finds_every_key(self) -> None:
        if hasattr(self, "table"):
            self._find(KEYS, ["at", "due"])

    @invariant()
    def does_not_depend_on_where_it_was_saved(self) -> None:
        if not hasattr(self, "table"):
            return
        assert self.table.describe() == self.twin.describe()
        for one, other in zip(self.table.chunks, self.twin.chunks, strict=True):
            assert one.data().equals(other.data())


TableMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTable = TableMachine.TestCase


def _keys(numbers: npt.ArrayLike) -> pa.BinaryArray:
    return pa.array([int(number).to_bytes(9, "big") for number in np.asarray(numbers)], pa.binary())


PLAIN = pa.schema([("count", pa.int64()), ("sum", pa.int64())])


def _counted(numbers: npt.ArrayLike, count: int) -> pa.Table:
    keys = _keys(numbers)
    values = pa.array(np.full(len(keys), count))
    return pa.table({"key": keys, "count": values, "sum": values})


class CountingStore:
    """Says which chunks were asked for."""

    def __init__(self, table: Table) -> None:
        self.chunks = {chunk.name: chunk.data() for chunk in table.chunks}
        self.asked: list[str] = []

    def get(self, name: str) -> pa.Buffer:
        self.asked.append(name)
        return self.chunks[name]


def test_a_key_is_looked_for_only_in_chunks_that_may_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "CHUNK_BYTES_MAX", 8 * 1024)
    monkeypatch.setattr(runs, "_CHUNK_BYTES_AIM", 7 * 1024)
    table = Table.empty(PLAIN).put(_counted(range(10_000), 1))
    assert len(table.chunks) > 40
    store: CountingStore = CountingStore(table)
    asked: ChunkStore = store
    found = Table.restore(table.describe(), asked).find(_keys([77]))
    assert found.rows.to_pylist() == [{"count": 1, "sum": 1}]
    assert len(store.asked) == 1


def test_chunks_are_neither_too_large_nor_too_small() -> None:
    dice = np.random.default_rng(2)
    # A hundred rows of 100 KB among many small ones.
    sizes = np.where(np.arange(20_000) % 200 == 0, 100_000, 10)
    rows = pa.table(
        {"key": _keys(dice.permutation(20_000)), "word": [b"x" * int(size) for size in sizes]}
    )
    table = Table.empty(pa.schema([("word", pa.binary())])).put(rows)
    assert all(chunk.bytes <= runs.CHUNK_BYTES_MAX for chunk in table.chunks)
    assert all(chunk.bytes >= 64 * 1024 for chunk in table.chunks)
    assert len(table.chunks) < 8
    assert sum(chunk.rows for chunk in table.chunks) == 20_000


def test_a_row_above_the_limit_is_a_chunk_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "CHUNK_BYTES_MAX", 2000)
    monkeypatch.setattr(runs, "_CHUNK_BYTES_AIM", 1750)
    rows = pa.table({"key": _keys(range(4)), "word": [b"x" * 5000, b"a", b"b", b"y" * 5000]})
    table = Table.empty(pa.schema([("word", pa.binary())])).put(rows)
    assert {chunk.rows for chunk in table.chunks if chunk.bytes > 2000} == {1}
    assert len(table) == 4


def test_chunks_that_expire_as_a_whole_are_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "kept", lambda sizes, *_: len(sizes))
    schema = pa.schema([("at", pa.int64())])
    for order in ((), ("at",)):
        table = Table.empty(schema, order)
        for hour in range(5):
            table = table.put(pa.table({"key": _keys(range(10)), "at": [hour] * 10}))
        assert len(table.chunks) == 5
        later = table.expire("at", 3)
        # Without an order column older rows are hidden by newer ones, and may be expired too.
        assert len(later.chunks) == 2
        assert len(later) == (20 if order else 10)
        assert table.expire("at", -1).describe() == table.describe()
        assert table.expire("at", 9).chunks == ()


def test_a_row_that_comes_below_a_floor_is_there() -> None:
    schema = pa.schema([("at", pa.int64())])
    table = Table.empty(schema, ["at"]).put(pa.table({"key": _keys([1, 1]), "at": [1, 9]}))
    table = table.expire("at", 5).put(pa.table({"key": _keys([1]), "at": [2]}))
    assert table.find(_keys([1])).rows.to_pylist() == [{"at": 2}, {"at": 9}]


def test_an_older_version_does_not_come_back_when_a_newer_one_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "ROWS_MIN", 1)
    schema = pa.schema([("due", pa.int64())])
    first = pa.table({"key": _keys(range(8)), "due": [9] * 8})
    table = Table.empty(schema).put(first).put(pa.table({"key": _keys([3]), "due": [1]}))
    table = table.expire("due", 5)
    assert table.find(_keys([3])).codes.tolist() == []
    # A merge of the newer run with one behind it, before the older one.
    table = table.put(pa.table({"key": _keys([100, 101]), "due": [9, 9]}))
    assert len(table.runs) == 2
    assert table.find(_keys([3])).codes.tolist() == []
    assert len(table) == 9


def test_nothing_is_left_of_rows_that_were_removed() -> None:
    table = Table.empty(PLAIN).put(_counted(range(3000), 1))
    for start in range(0, 3000, 1000):
        table = table.remove(_counted(range(start, start + 1000), 0).select(["key"]))
    assert len(table) == 0
    # Graves are given up when they reach the oldest run.
    table = table.put(_counted(range(4000), 1)).remove(_counted(range(4000), 0).select(["key"]))
    table = table.put(_counted([1], 5)).put(_counted([2], 5))
    table = table.remove(_counted(range(5000), 0).select(["key"]))
    assert table.chunks == ()


def test_a_change_costs_what_has_changed() -> None:
    """Bytes written for each row stay the same, give or take, while the table grows a hundredfold.

    And all tables do not write all of their rows in the same batch.
    """
    dice = np.random.default_rng(4)
    tables = [
        Table.empty(PLAIN, stagger=stagger).put(_counted(range(50_000), 0)) for stagger in range(8)
    ]
    written = np.zeros((len(tables), 150))
    for batch in range(written.shape[1]):
        changed = _counted(dice.choice(50_000, 500, replace=False), batch)
        for number, table in enumerate(tables):
            after = table.put(changed)
            old = {chunk.name for chunk in table.chunks}
            written[number, batch] = sum(
                chunk.rows for chunk in after.chunks if chunk.name not in old
            )
            tables[number] = after
            assert len(after.runs) <= 8
    assert written.mean() < 500 * 10
    rewritten = (written > 40_000).sum(axis=0)
    assert rewritten.sum() >= 4
    assert rewritten.max() <= 3


def test_a_key_with_a_million_rows() -> None:
    schema = pa.schema([("at", pa.int64()), ("v", pa.int32())])
    count = 1_000_000
    at = np.random.default_rng(6).permutation(count)
    keys = pa.array([b"k"]).take(pa.array(np.zeros(count, np.int64)))
    rows = pa.table({"key": keys.cast(pa.binary()), "at": at, "v": (at % 7).astype(np.int32)})
    table = Table.empty(schema, ["at"]).put(rows.slice(0, 600_000)).put(rows.slice(600_000))
    found = table.find(pa.array([b"j", b"k"], pa.binary()))
    assert found.rows.column("at").to_pylist() == list(range(count))
    assert set(found.codes.tolist()) == {1}
    assert len(table.expire("at", 999_990)) == 10


def test_colliding_keys_are_found_in_logarithmic_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one hash for 50,000 keys, a scan for each would compare a billion times."""

    def constant(keys: pa.BinaryArray) -> npt.NDArray[np.uint64]:
        return np.full(len(keys), 7, np.uint64)

    for module in (runs, finding):
        monkeypatch.setattr(module, "hashes", constant)
    numbers = np.random.default_rng(8).permutation(50_000)
    table = Table.empty(PLAIN).put(_counted(numbers, 1)).put(_counted(numbers[:30_000], 2))
    found = table.find(_keys(numbers))
    assert found.codes.tolist() == list(range(50_000))
    assert found.rows.column("count").to_pylist() == [2] * 30_000 + [1] * 20_000


def test_columns_of_other_types_are_refused_by_name() -> None:
    with pytest.raises(ValueTypeError, match="column c1 of type dictionary"):
        Table.empty(pa.schema([("c1", pa.dictionary(pa.int32(), pa.string()))]))


def test_a_description_of_a_newer_version_is_refused() -> None:
    described = Table.empty(PLAIN).describe()
    with pytest.raises(StateDamagedError, match="version 2"):
        Table.restore({**described, "version": 2}, DictStore())


def test_nothing_is_found_in_an_empty_table() -> None:
    table = Table.empty(PLAIN)
    assert len(table) == 0
    assert table.scan(["sum"]).schema.names == ["key", "sum"]
    found = table.find(_keys([1, 2]))
    assert (found.codes.tolist(), found.rows.num_rows) == ([], 0)
    assert found.rows.schema.names == ["count", "sum"]
    assert table.remove(_counted([1], 0).select(["key"])) is table
    assert table.expire("sum", 5).describe() == table.describe()
