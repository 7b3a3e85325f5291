"""Table-table join: two tables, and what a change of either changes in their join.

This file alone decides which rows of the join appear and which are taken back when rows of the
tables do. Both sides are changelogs: weight 1 for a row that appears, -1 for one that is taken
back, whatever its values: they are known. `key` is the join key, `c0` the primary key as bytes:
what tells the rows of a table apart. A join key that is not the primary key is the usual case (a
timeline joins follows with posts by author). `version` is higher whenever a row is another one.

- Within a step only the net change of a row counts: what was there before, and what is there after.
  A row that is written again as it was changes nothing.
- Taken back is each pair of the old tables that has lost a row, given each pair of the new tables
  that has won one; nothing is given and taken back in the same step. All that a step takes back
  comes first. But a row whose join key changes is taken back by the step of one bucket and given by
  that of another, in any order.
- An outer join has a row without a partner as long as the other table has no row of its key. A null
  in the key equals nothing: such a row never has a partner.
- A pair's time is the later of its rows'. Its version is the sum of theirs, which are those of the
  changes that brought them. So it grows whenever one of them changes or moves, and says in whatever
  order changes are seen which of two states of a pair is the later. A row without a partner has its
  own version. It has the same one when it is without a partner again: then it is as it was, and
  under the key where it was, so one bucket says so, batch by batch.
- Time decides nothing: no row is late, and what is taken back may be of any age. Whoever puts a
  window behind this join counts what was taken back in a window that has closed as late.

State. The rows of a table lie under join key and primary key, where changes find them however many
rows a join key has. Which those are lies under the join key alone, told apart by a number that each
is given; so what is read follows the changes and the pairs that they concern. How many rows a key
has on the side that an outer join asks for is counted apart, because to read them just to see
whether there are any would cost as much as the key is large. More than `pairs_max` pairs in one
step are an error that names the key.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.joins.errors import ChangelogError
from headwater.streams.joins.places import under_name
from headwater.streams.joins.rows import (
    LEFT,
    PAIRS_MAX,
    RIGHT,
    Input,
    Layout,
    Part,
    check_kind,
    check_pairs,
    equal_rows,
    outer_sides,
    pairs_of,
    read,
    taken,
    times_column,
    times_of,
    weights_of,
)
from headwater.streams.kernel.arrays import Bools, Int64s, int64s, whole
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, TIME, VERSION, Step, Time, value_name
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table

_SIDES: Final = ("left", "right")
_ROWS: Final = ("left/rows", "right/rows")
_MEMBERS: Final = ("left/members", "right/members")
_COUNTS: Final = ("left/counts", "right/counts")
_NEXT: Final = ("left/next", "right/next")
_NUMBER: Final = "number"
_COUNT: Final = "count"
_NAME: Final = "name"
_PRIMARY_KEY: Final = value_name(0)


class _Rows(NamedTuple):
    """Rows of one table.

    Attributes:
        codes: By row, which of the step's keys it has.
        numbers: By row, the number of its primary key.
        versions: By row.
        times: By row.
        values: c0, c1, ...
    """

    codes: Int64s
    numbers: Int64s
    versions: Int64s
    times: Int64s
    values: pa.Table

    def at(self, rows: Int64s) -> "_Rows":
        """Return some of the rows."""
        return _Rows(
            self.codes[rows],
            self.numbers[rows],
            self.versions[rows],
            self.times[rows],
            taken(self.values, rows),
        )

    def where(self, mask: Bools) -> "_Rows":
        """Return the rows that a mask is true for."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    def by_code(self) -> "_Rows":
        """Return the rows in order of their codes."""
        return self.at(np.argsort(self.codes, kind="stable"))


class _Change(NamedTuple):
    """What a step does to one table, and what it leaves.

    Attributes:
        removed: Rows that are there no longer.
        added: Rows that were not there.
        kept: The other rows of the keys that change in the other table; in order of their codes.
    """

    removed: _Rows
    added: _Rows
    kept: _Rows


class _Names(NamedTuple):
    """Who is named in a batch of one table, each once.

    Attributes:
        places: Join key and primary key as one: where the row lies.
        keys: The join key.
        has_key: Whether there is no null in it.
    """

    places: pa.BinaryArray
    keys: pa.BinaryArray
    has_key: Bools


class _Net(NamedTuple):
    """What a batch comes to in one table.

    Attributes:
        keys: The join keys of the removed rows, then those of the added.
        has_key: By key: there is no null in it.
        removed: Rows that are there no longer, as they were.
        added: Rows that were not there. The codes of both count on through `keys`.
    """

    keys: pa.BinaryArray
    has_key: Bools
    removed: _Rows
    added: _Rows

    def coded(self, codes: Int64s) -> tuple[_Rows, _Rows]:
        """Return the removed and the added rows; codes are those of `keys`."""
        cut = len(self.removed.codes)
        return self.removed._replace(codes=codes[:cut]), self.added._replace(codes=codes[cut:])


class _Search(NamedTuple):
    """The partners that rows of one table have among rows of the other.

    Attributes:
        rows: Of one table.
        others: Of the other, in order of their codes.
        swapped: Whether `rows` are those of the right table.
        starts: By row, where its partners begin.
        counts: By row, how many there are.
    """

    rows: _Rows
    others: _Rows
    swapped: bool
    starts: Int64s
    counts: Int64s

    def pairs(self, keys: pa.BinaryArray, weight: int) -> Part:
        """Return the pairs."""
        mine, theirs = pairs_of(self.starts, self.counts)
        left, right = self.rows.at(mine), self.others.at(theirs)
        if self.swapped:
            left, right = right, left
        return Part(
            keys.take(pa.array(left.codes)),
            np.maximum(left.times, right.times),
            left.values,
            right.values,
            weight,
            left.versions + right.versions,
        )


class TableJoin:
    """Joins two tables, change by change."""

    def __init__(
        self, left: pa.Schema, right: pa.Schema, *, kind: str, pairs_max: int = PAIRS_MAX
    ) -> None:
        """Prepare the join.

        Args:
            left: The values of the left table, its primary key as bytes first.
            right: The values of the right table, its primary key as bytes first.
            kind: inner, left, right or full.
            pairs_max: How many pairs one step may change.
        """
        check_kind(kind)
        self.inputs = (left, right)
        self.parameters = {"kind": kind}
        self._layout = Layout(left, right)
        self.output = self._layout.values
        self.hold_us = 0
        self._outer = outer_sides(kind)
        self._pairs_max = pairs_max

    def start(self) -> State:
        """Return two tables without rows."""
        number = pa.field(_NUMBER, pa.int64())
        version = pa.field(VERSION, pa.int64())
        count = pa.field(_COUNT, pa.int64())
        tables = {}
        for side, values in enumerate(self.inputs):
            schema = pa.schema([number, version, (TIME, pa.int64()), *values])
            tables[_ROWS[side]] = Table.empty(schema)
            members = pa.schema([number, (_NAME, pa.binary())])
            tables[_MEMBERS[side]] = Table.empty(members, (_NUMBER,))
            if self._outer[1 - side]:
                tables[_COUNTS[side]] = Table.empty(pa.schema([count]))
        return State(tables, dict.fromkeys(_NEXT, 0))

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - nothing to combine
        """Return the rows as they are: what they come to is known behind the shuffle."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:  # noqa: ARG002 - time decides nothing
        """Apply the changes of both tables, and return what they change in the join."""
        if not any(rows.num_rows for rows in inputs):
            return Step(state, self._layout.assembled([]))
        tables, values = dict(state.tables), dict(state.values)
        net = [self._net(tables, values, side, inputs[side]) for side in (LEFT, RIGHT)]
        keys = pa.concat_arrays([each.keys for each in net])
        groups = group(keys)
        has_key = np.concatenate([each.has_key for each in net])[groups.firsts]
        keys = keys.take(pa.array(groups.firsts))
        codes = np.split(groups.codes, [len(net[LEFT].keys)])
        coded = [each.coded(mine) for each, mine in zip(net, codes, strict=True)]

        changes = []
        for side in (LEFT, RIGHT):
            removed, added = coded[side]
            others = np.concatenate([rows.codes for rows in coded[1 - side]])
            asked = np.unique(others[has_key[others]])
            kept = self._kept(state, side, keys, asked, removed)
            changes.append(_Change(removed, added, kept))
        gone, come = self._pairs(keys, changes, has_key)
        for side in (LEFT, RIGHT):
            if self._outer[side]:
                lost, won = self._alone(tables, side, keys, changes, has_key)
                gone += lost
                come += won
        return Step(State(tables, values), self._layout.assembled([*gone, *come]))

    def _net(
        self, tables: dict[str, Table], values: dict[str, Any], side: int, batch: pa.Table
    ) -> _Net:
        """Tell what a batch comes to, row by row, and write it down."""
        rows = read(batch, self.inputs[side])
        versions = int64s(batch, VERSION) if len(rows) else rows.times
        places = under_name(rows.keys, whole(rows.values.column(_PRIMARY_KEY)).cast(pa.binary()))
        groups = group(places)
        firsts = pa.array(groups.firsts)
        names = _Names(places.take(firsts), rows.keys.take(firsts), rows.has_key[groups.firsts])
        count = len(groups.firsts)
        found = tables[_ROWS[side]].find(names.places)
        old = self._rows(side, found.codes, found.rows)
        was_there = np.zeros(count, np.bool_)
        was_there[old.codes] = True

        weights = weights_of(batch)
        after = was_there.astype(np.int64)
        np.add.at(after, groups.codes, weights)
        self._check(side, rows, groups.codes, after)
        is_there = after == 1
        last = np.full(count, -1, np.int64)
        plus = np.flatnonzero(weights > 0)
        plus = plus[np.argsort(versions[plus], kind="stable")]
        # Where a place is written more than once, numpy keeps what is written last.
        last[groups.codes[plus]] = plus

        changed = np.ones(count, np.bool_)
        both = np.flatnonzero(is_there[old.codes])
        newer = last[old.codes[both]]
        same = equal_rows(taken(old.values, both), taken(rows.values, newer))
        changed[old.codes[both]] = ~(same & (old.times[both] == rows.times[newer]))

        numbers = np.zeros(count, np.int64)
        numbers[old.codes] = old.numbers
        fresh = np.flatnonzero(is_there & ~was_there)
        numbers[fresh] = values[_NEXT[side]] + np.arange(len(fresh))
        values[_NEXT[side]] += len(fresh)

        removed = old.where(changed[old.codes])
        codes = np.flatnonzero(is_there & changed)
        chosen = last[codes]
        added = _Rows(
            codes, numbers[codes], versions[chosen], rows.times[chosen], taken(rows.values, chosen)
        )
        gone = removed.where(~is_there[removed.codes])
        _write_rows(tables, side, names, gone, added)
        _write_members(tables, side, names, gone, added.where(~was_there[codes]))
        owners = np.concatenate([removed.codes, codes])
        return _Net(names.keys.take(pa.array(owners)), names.has_key[owners], removed, added)

    def _rows(self, side: int, codes: Int64s, found: pa.Table) -> _Rows:
        """Return rows of a table as they lie in state."""
        return _Rows(
            codes,
            int64s(found, _NUMBER),
            int64s(found, VERSION),
            times_of(found),
            found.select(self.inputs[side].names),
        )

    def _check(self, side: int, rows: Input, codes: Int64s, after: Int64s) -> None:
        wrong = np.flatnonzero((after < 0) | (after > 1))
        if not len(wrong):
            return
        row = int(np.flatnonzero(codes == wrong[0])[0])
        name = rows.values.column(_PRIMARY_KEY)[row].as_py()
        what = (
            "appears while it is there" if after[wrong[0]] > 1 else "is taken back, but not there"
        )
        raise ChangelogError(
            f"in the {_SIDES[side]} table of a join, the row with the primary key {name.hex()} "
            f"(its bytes in hex) {what}",
            hint="a table's changes must name its primary key, and take back what they replace: "
            "read a topic of upserts as a table",
        )

    def _kept(
        self, state: State, side: int, keys: pa.BinaryArray, asked: Int64s, removed: _Rows
    ) -> _Rows:
        """Return the rows of some keys that stay as they are."""
        members = state.tables[_MEMBERS[side]].find(keys.take(pa.array(asked)))
        stay = np.flatnonzero(~np.isin(int64s(members.rows, _NUMBER), removed.numbers))
        places = whole(members.rows.column(_NAME)).take(pa.array(stay))
        found = state.tables[_ROWS[side]].find(places)
        assert len(found.codes) == len(stay), "a row that is a member is there"
        return self._rows(side, asked[members.codes[stay]], found.rows)

    def _pairs(
        self, keys: pa.BinaryArray, changes: Sequence[_Change], has_key: Bools
    ) -> tuple[list[Part], list[Part]]:
        """Return the pairs that are there no longer, and those that were not there."""
        left, right = changes
        gone, come = [
            [
                _search(lefts, right.kept),
                _search(lefts, rights.by_code()),
                _search(rights, left.kept, swapped=True),
            ]
            for lefts, rights in (
                (left.removed.where(has_key[left.removed.codes]), right.removed),
                (left.added.where(has_key[left.added.codes]), right.added),
            )
        ]
        counted = [(search.rows.codes, search.counts) for search in (*gone, *come)]
        check_pairs(keys, counted, self._pairs_max)
        return [part.pairs(keys, -1) for part in gone], [part.pairs(keys, 1) for part in come]

    def _alone(
        self,
        tables: dict[str, Table],
        side: int,
        keys: pa.BinaryArray,
        changes: Sequence[_Change],
        has_key: Bools,
    ) -> tuple[list[Part], list[Part]]:
        """Return the rows that were without a partner, and those that are now."""
        other = 1 - side
        before = np.zeros(len(keys), np.int64)
        found = tables[_COUNTS[other]].find(keys)
        before[found.codes] = int64s(found.rows, _COUNT)
        after = before.copy()
        np.add.at(after, changes[other].added.codes, 1)
        np.subtract.at(after, changes[other].removed.codes, 1)
        after[~has_key] = 0
        put, removed = (
            np.flatnonzero((after != before) & mask) for mask in (after > 0, after == 0)
        )
        table = tables[_COUNTS[other]]
        table = table.remove(pa.table({KEY: keys.take(pa.array(removed))}))
        columns = [keys.take(pa.array(put)), pa.array(after[put])]
        tables[_COUNTS[other]] = table.put(pa.table(columns, names=[KEY, _COUNT]))

        mine = changes[side]
        found_one = (before == 0) & (after > 0)
        lost_all = (before > 0) & (after == 0)
        gone = (
            mine.removed.where(before[mine.removed.codes] == 0),
            mine.kept.where(found_one[mine.kept.codes]),
        )
        come = (
            mine.added.where(after[mine.added.codes] == 0),
            mine.kept.where(lost_all[mine.kept.codes]),
        )
        return (
            [_single(keys, side, rows, -1) for rows in gone],
            [_single(keys, side, rows, 1) for rows in come],
        )


def _write_rows(
    tables: dict[str, Table], side: int, names: _Names, gone: _Rows, added: _Rows
) -> None:
    """Write the rows of one table that are another now, and remove those that are gone."""
    table = tables[_ROWS[side]]
    table = table.remove(pa.table({KEY: names.places.take(pa.array(gone.codes))}))
    columns = [
        names.places.take(pa.array(added.codes)),
        pa.array(added.numbers),
        pa.array(added.versions),
        times_column(added.times),
    ]
    columns += added.values.columns
    titles = [KEY, _NUMBER, VERSION, TIME, *added.values.column_names]
    tables[_ROWS[side]] = table.put(pa.table(columns, names=titles))


def _write_members(
    tables: dict[str, Table], side: int, names: _Names, gone: _Rows, come: _Rows
) -> None:
    """Write which rows a key has; nobody looks for those whose key has a null."""
    gone, come = (rows.where(names.has_key[rows.codes]) for rows in (gone, come))
    table = tables[_MEMBERS[side]]
    owners = names.keys.take(pa.array(gone.codes))
    table = table.remove(pa.table([owners, pa.array(gone.numbers)], names=[KEY, _NUMBER]))
    rows = pa.array(come.codes)
    columns = [names.keys.take(rows), pa.array(come.numbers), names.places.take(rows)]
    tables[_MEMBERS[side]] = table.put(pa.table(columns, names=[KEY, _NUMBER, _NAME]))


def _search(rows: _Rows, others: _Rows, *, swapped: bool = False) -> _Search:
    starts = np.searchsorted(others.codes, rows.codes, "left")
    counts = np.searchsorted(others.codes, rows.codes, "right") - starts
    return _Search(rows, others, swapped, starts, counts)


def _single(keys: pa.BinaryArray, side: int, rows: _Rows, weight: int) -> Part:
    left, right = (rows.values, None) if side == LEFT else (None, rows.values)
    owners = keys.take(pa.array(rows.codes))
    return Part(owners, rows.times, left, right, weight, rows.versions)
