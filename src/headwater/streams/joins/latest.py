"""Stream-table join: each row of a stream with what the table says when it comes.

This file alone decides which row of the table that is: the one that stands under the key when all
changes of the same batch are in. No watermark is asked and no row waits. The price is that the
answer depends on which rows happen to come in one batch; `asof` gives the one that does not.

The table is the right side, in one of two forms. A topic's is upserts in the order of their
offsets; a row with weight -1 deletes, whatever its values. An operator's is changes, of which those
of one row have no order within a batch: one bucket may take back what another replaces. So there a
row that appears stands, and a key is empty only if its row is taken back and none appears.

Its key is the join key; a table that has several rows under a join key is joined by `tables`. Of
changes that is known when they come: what appears less what is taken back is what stands there, and
more than one row is an error, of which the one that counts would be found by chance. Rows with a
null in their key belong to nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.joins.changelog import last_rows
from headwater.streams.joins.rows import (
    Layout,
    Part,
    check_kind,
    check_plain,
    read,
    taken,
    weights_of,
)
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.grouping import Groups, group
from headwater.streams.kernel.operator import KEY, Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table

_TABLE: Final = "table"


class LatestJoin:
    """Joins the rows of a stream with the current rows of a table."""

    def __init__(
        self, left: pa.Schema, right: pa.Schema, *, kind: str, changes: bool = False
    ) -> None:
        """Prepare the join.

        Args:
            left: The values of the stream.
            right: The values of the table.
            kind: inner or left.
            changes: Whether the table comes as changes that take rows back, and not as upserts in
                their order.
        """
        check_kind(kind, ("inner", "left"))
        self.inputs = (left, right)
        self.parameters = {"kind": kind}
        self._layout = Layout(left, right)
        self.output = self._layout.values
        self.hold_us = 0
        self._outer = kind == "left"
        self._changes = changes

    def start(self) -> State:
        """Return a table without rows."""
        return State({_TABLE: Table.empty(self.inputs[1])}, {})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - nothing to combine
        """Return the rows as they are."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:  # noqa: ARG002 - time decides nothing
        """Apply the changes of the table, then look up the rows of the stream."""
        check_plain(inputs[0], "left")
        left, right = (read(rows, side) for rows, side in zip(inputs, self.inputs, strict=True))
        table = state.tables[_TABLE]
        if len(right):
            weights = weights_of(inputs[1])[right.has_key]
            right = right.where(right.has_key)
            groups = group(right.keys)
            if self._changes:
                _check_single(table, right.keys, groups, weights)
            # Behind all that is taken back, where these are in no order.
            order = np.argsort(weights, kind="stable") if self._changes else np.arange(len(right))
            lasts = order[last_rows(groups.codes[order], len(groups.firsts))]
            put, removed = lasts[weights[lasts] > 0], lasts[weights[lasts] < 0]
            values = taken(right.values, put)
            keys = right.keys.take(pa.array(put))
            table = table.put(pa.table([keys, *values.columns], names=[KEY, *values.column_names]))
            table = table.remove(pa.table({KEY: right.keys.take(pa.array(removed))}))
        groups = group(left.keys)
        found = table.find(left.keys.take(pa.array(groups.firsts)))
        at = np.full(len(groups.firsts), -1, np.int64)
        at[found.codes] = np.arange(len(found.codes))
        partners = np.where(left.has_key, at[groups.codes], -1)
        rows = np.arange(len(left)) if self._outer else np.flatnonzero(partners >= 0)
        part = Part(
            left.keys.take(pa.array(rows)),
            left.times[rows],
            taken(left.values, rows),
            taken(found.rows, partners[rows]),
        )
        return Step(State({_TABLE: table}, {}), self._layout.assembled([part]))


def _check_single(table: Table, keys: pa.BinaryArray, groups: Groups, weights: Int64s) -> None:
    """Refuse changes behind which several rows stand under a key, or fewer than none.

    Raises:
        RetractionError: There are such keys.
    """
    counts = np.zeros(len(groups.firsts), np.int64)
    np.add.at(counts, groups.codes, weights)
    counts[table.find(keys.take(pa.array(groups.firsts))).codes] += 1
    if (counts > 1).any():
        raise RetractionError(
            f"hf.join_latest takes one row of the table for each key, but {counts.max()} rows have "
            "the same key",
            hint="give it one for each value of `on`, as hf.aggregate(by=...) and "
            "hf.top(1, by=...) do; hf.join_tables takes several",
        )
    if (counts < 0).any():
        raise RetractionError(
            "hf.join_latest is told to take back a row that is not in the table",
            hint="give it changes of which no row was left out on the way",
        )
