"""Table-table join: two tables, and what a change of either changes in their join.

This file alone decides which rows of the join appear and which are taken back when rows of the
tables do. Both sides are changelogs: weight 1 for a row that appears, -1 for one that is taken
back, with the values that it had. `key` is the join key, `c0` the primary key as bytes: what tells
the rows of a table apart. A join key that is not the primary key is the usual case (a timeline
joins follows with posts by author).

- Within a step only the net change of a row counts: what was there before, and what is there after.
  A row that is written again as it was changes nothing.
- Taken back is each pair of the old tables that has lost a row, given each pair of the new tables
  that has won one; nothing is given and taken back in the same step. All that is taken back comes
  first, so that no row is ever there twice.
- An outer join has a row without a partner as long as the other table has no row of its key. A null
  in the key equals nothing: such a row never has a partner.
- A pair's time is the later of its rows'. Its version is the sum of theirs, and a row's version
  says how often it has changed under this key since it appeared there. It begins again when a row
  is gone and comes back, or when it moves to another key.
- Time decides nothing: no row is late, and what is taken back may be of any age. Whoever puts a
  window behind this join counts what was taken back in a window that has closed as late.

State. Each table lies under the join key, its rows told apart by a number that each primary key is
given; what is read follows the changes and the pairs that they concern. How many rows a key has on
the side that an outer join asks for is counted apart, because to read them just to see whether
there are any would cost as much as the key is large. More than `pairs_max` pairs in one step are an
error that names the key.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.joins.errors import ChangelogError
from headwater.streams.joins.places import int64s, under_name
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
    pairs_of,
    read,
    taken,
    times_column,
    times_of,
    weights_of,
)
from headwater.streams.kernel.arrays import Bools, Int64s, whole
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, TIME, VERSION, Step, Time, value_name
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table

_ROWS: Final = ("left", "right")
_IDENTITIES: Final = ("left/identities", "right/identities")
_COUNTS: Final = ("left/counts", "right/counts")
_NEXT: Final = ("left/next", "right/next")
_NUMBER: Final = "number"
_COUNT: Final = "count"
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


class _Net(NamedTuple):
    """The net changes of one table, before their keys are numbered.

    Attributes:
        rows: The rows of the batch.
        removed: Which of them say what is there no longer.
        added: Which of them say what was not there.
        numbers: Of the removed, then of the added: the numbers of their primary keys.
        versions: The same, their versions.
    """

    rows: Input
    removed: Int64s
    added: Int64s
    numbers: tuple[Int64s, Int64s]
    versions: tuple[Int64s, Int64s]

    def keys(self) -> pa.BinaryArray:
        """Return the keys of the removed rows, then those of the added."""
        return self.rows.keys.take(pa.array(np.concatenate([self.removed, self.added])))

    def coded(self, codes: Int64s) -> tuple[_Rows, _Rows]:
        """Return the removed and the added rows; codes are those of `keys`."""
        cut = len(self.removed)
        chosen = (self.removed, self.added)
        removed, added = (
            _Rows(code, number, version, self.rows.times[rows], taken(self.rows.values, rows))
            for code, number, version, rows in zip(
                (codes[:cut], codes[cut:]), self.numbers, self.versions, chosen, strict=True
            )
        )
        return removed, added


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
        self._layout = Layout(left, right)
        self.output = self._layout.values
        self.hold_us = 0
        self._outer = (kind in {"left", "full"}, kind in {"right", "full"})
        self._pairs_max = pairs_max

    def start(self) -> State:
        """Return two tables without rows."""
        number = pa.field(_NUMBER, pa.int64())
        version = pa.field(VERSION, pa.int64())
        count = pa.field(_COUNT, pa.int64())
        tables = {}
        for side, values in enumerate(self.inputs):
            schema = pa.schema([number, version, (TIME, pa.int64()), *values])
            tables[_ROWS[side]] = Table.empty(schema, (_NUMBER,))
            tables[_IDENTITIES[side]] = Table.empty(pa.schema([number, version]))
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
        keys = pa.concat_arrays([net[LEFT].keys(), net[RIGHT].keys()])
        groups = group(keys)
        has_key = np.ones(len(groups.firsts), np.bool_)
        flags = [side.rows.has_key[np.concatenate([side.removed, side.added])] for side in net]
        has_key[groups.codes] = np.concatenate(flags)
        keys = keys.take(pa.array(groups.firsts))
        cut = len(net[LEFT].removed) + len(net[LEFT].added)
        coded = [net[LEFT].coded(groups.codes[:cut]), net[RIGHT].coded(groups.codes[cut:])]

        changes = []
        for side in (LEFT, RIGHT):
            removed, added = coded[side]
            others = np.concatenate([rows.codes for rows in coded[1 - side]])
            asked = np.unique(others[has_key[others]])
            kept = self._kept(state.tables[_ROWS[side]], side, keys, asked, removed)
            changes.append(_Change(removed, added, kept))
            _write(tables, side, keys, (removed, added), has_key)
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
        """Tell what a batch comes to, row by row; keep who is there, and under which number."""
        rows = read(batch, self.inputs[side])
        names = under_name(rows.keys, whole(rows.values.column(_PRIMARY_KEY)).cast(pa.binary()))
        groups = group(names)
        names = names.take(pa.array(groups.firsts))
        count = len(groups.firsts)
        found = tables[_IDENTITIES[side]].find(names)
        was_there = np.zeros(count, np.bool_)
        was_there[found.codes] = True
        numbers, versions = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        numbers[found.codes] = int64s(found.rows, _NUMBER)
        versions[found.codes] = int64s(found.rows, VERSION)

        weights = weights_of(batch)
        after = was_there.astype(np.int64)
        np.add.at(after, groups.codes, weights)
        self._check(side, rows, groups.codes, after)
        is_there = after == 1
        last, first = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
        plus, minus = np.flatnonzero(weights > 0), np.flatnonzero(weights < 0)[::-1]
        last[groups.codes[plus]] = plus
        first[groups.codes[minus]] = minus
        both = np.flatnonzero(was_there & is_there)
        old, new = taken(rows.values, first[both]), taken(rows.values, last[both])
        same = equal_rows(old, new) & (rows.times[first[both]] == rows.times[last[both]])
        changed = np.ones(count, np.bool_)
        changed[both[same]] = False

        removed, added = np.flatnonzero(was_there & changed), np.flatnonzero(is_there & changed)
        fresh = np.flatnonzero(is_there & ~was_there)
        numbers[fresh] = values[_NEXT[side]] + np.arange(len(fresh))
        values[_NEXT[side]] += len(fresh)
        table = tables[_IDENTITIES[side]]
        left = np.flatnonzero(was_there & ~is_there)
        table = table.remove(pa.table({KEY: names.take(pa.array(left))}))
        columns = [names.take(pa.array(added)), numbers[added], versions[added] + 1]
        tables[_IDENTITIES[side]] = table.put(pa.table(columns, names=[KEY, _NUMBER, VERSION]))
        return _Net(
            rows,
            first[removed],
            last[added],
            (numbers[removed], numbers[added]),
            (versions[removed], versions[added] + 1),
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
            f"in the {_ROWS[side]} table of a join, the row with the primary key {name.hex()} (its "
            f"bytes in hex) {what}",
            hint="a table's changes must name its primary key, and take back what they replace: "
            "read a topic of upserts as a table",
        )

    def _kept(
        self, table: Table, side: int, keys: pa.BinaryArray, asked: Int64s, removed: _Rows
    ) -> _Rows:
        """Return the rows of some keys that stay as they are."""
        found = table.find(keys.take(pa.array(asked)))
        rows = _Rows(
            asked[found.codes],
            int64s(found.rows, _NUMBER),
            int64s(found.rows, VERSION),
            times_of(found.rows),
            found.rows.select(self.inputs[side].names),
        )
        return rows.where(~np.isin(rows.numbers, removed.numbers))

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


def _write(
    tables: dict[str, Table],
    side: int,
    keys: pa.BinaryArray,
    rows: tuple[_Rows, _Rows],
    has_key: Bools,
) -> None:
    """Write the changes of one table; rows whose key has a null are never looked for."""
    removed, added = (part.where(has_key[part.codes]) for part in rows)
    table = tables[_ROWS[side]]
    gone = removed.where(~np.isin(removed.numbers, added.numbers))
    owners = keys.take(pa.array(gone.codes))
    table = table.remove(pa.table([owners, pa.array(gone.numbers)], names=[KEY, _NUMBER]))
    columns = [
        keys.take(pa.array(added.codes)),
        pa.array(added.numbers),
        pa.array(added.versions),
        times_column(added.times),
    ]
    names = [KEY, _NUMBER, VERSION, TIME, *added.values.column_names]
    tables[_ROWS[side]] = table.put(pa.table([*columns, *added.values.columns], names=names))


def _search(rows: _Rows, others: _Rows, *, swapped: bool = False) -> _Search:
    starts = np.searchsorted(others.codes, rows.codes, "left")
    counts = np.searchsorted(others.codes, rows.codes, "right") - starts
    return _Search(rows, others, swapped, starts, counts)


def _single(keys: pa.BinaryArray, side: int, rows: _Rows, weight: int) -> Part:
    left, right = (rows.values, None) if side == LEFT else (None, rows.values)
    owners = keys.take(pa.array(rows.codes))
    return Part(owners, rows.times, left, right, weight, rows.versions)
