"""A table as a changelog: from "this is the row now" to what is taken back and what appears.

This file alone decides what an upsert changes. A topic that holds a table says for each key what
its row is now, or that there is none; whoever joins or sums tables must know what it was before.

Rows have the primary key in `key` and come in the order of their offsets; a row with weight -1 is a
delete, whatever its values. Of several rows of a key in one step only the last one counts, so what
comes out are net changes: the old row with weight -1, then the new one with weight 1. A row that is
written again as it was changes nothing.

`version` grows by one with each change of a row. A row that comes back after a delete must not have
a version that it had before, and what is deleted is forgotten: so a row that appears begins above
all versions of rows that the bucket has deleted. It is 0 in a table without deletes.
"""

from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa

from headwater.streams.joins.rows import (
    Layout,
    Part,
    equal_rows,
    read,
    taken,
    times_column,
    times_of,
    weights_of,
)
from headwater.streams.kernel.arrays import Int64s, int64s
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, TIME, VERSION, Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table

_ROWS: Final = "rows"
_FLOOR: Final = "floor"


class Upserts:
    """Turns the upserts and deletes of a table into rows taken back and rows that appear."""

    def __init__(self, values: pa.Schema) -> None:
        self.inputs = (values,)
        self.parameters: dict[str, object] = {}
        self._layout = Layout(values, pa.schema([]))
        self.output = self._layout.values
        self.hold_us = 0

    def start(self) -> State:
        """Return a table without rows."""
        schema = pa.schema([(TIME, pa.int64()), (VERSION, pa.int64()), *self.inputs[0]])
        return State({_ROWS: Table.empty(schema)}, {_FLOOR: 0})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - one input
        """Return the rows as they are: which one is the last is known behind the shuffle."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:  # noqa: ARG002 - as of offsets
        """Apply a batch, and return what it changes."""
        rows = read(inputs[0], self.inputs[0])
        groups = group(rows.keys)
        keys = rows.keys.take(pa.array(groups.firsts))
        lasts = last_rows(groups.codes, len(keys))
        is_there = weights_of(inputs[0])[lasts] > 0
        times, values = rows.times[lasts], taken(rows.values, lasts)

        found = state.tables[_ROWS].find(keys)
        old = np.full(len(keys), -1, np.int64)
        old[found.codes] = np.arange(len(found.codes))
        was_there = old >= 0
        old_times, old_versions = times_of(found.rows), int64s(found.rows, VERSION)
        same = np.zeros(len(keys), np.bool_)
        both = np.flatnonzero(was_there & is_there)
        old_values = found.rows.select(self.inputs[0].names)
        # A table without columns does not know how many rows it has.
        if self.inputs[0].names:
            same[both] = equal_rows(taken(values, both), taken(old_values, old[both]))
        else:
            same[both] = True
        same[both] &= times[both] == old_times[old[both]]

        gone = np.flatnonzero(was_there & ~same)
        new = np.flatnonzero(is_there & ~same)
        floor = cast("int", state.values[_FLOOR])
        versions = np.full(len(keys), floor)
        versions[was_there] = old_versions[old[was_there]] + 1
        table = state.tables[_ROWS]
        removed = np.flatnonzero(was_there & ~is_there)
        # No version is ever above the number of steps, so this never grows too large for 32 bits.
        floor = int(versions[removed].max(initial=floor))
        table = table.remove(pa.table({KEY: keys.take(pa.array(removed))}))
        columns = [keys.take(pa.array(new)), times_column(times[new]), pa.array(versions[new])]
        put = taken(values, new)
        names = [KEY, TIME, VERSION, *put.column_names]
        table = table.put(pa.table([*columns, *put.columns], names=names))
        parts = [
            Part(
                keys.take(pa.array(gone)),
                old_times[old[gone]],
                taken(old_values, old[gone]),
                None,
                -1,
                old_versions[old[gone]],
            ),
            Part(keys.take(pa.array(new)), times[new], put, None, 1, versions[new]),
        ]
        return Step(State({_ROWS: table}, {_FLOOR: floor}), self._layout.assembled(parts))


def last_rows(codes: Int64s, groups: int) -> Int64s:
    """Return the last row of each group."""
    lasts = np.zeros(groups, np.int64)
    # Where a place is written more than once, numpy keeps what is written last.
    lasts[codes] = np.arange(len(codes))
    return lasts
