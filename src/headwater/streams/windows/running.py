"""Aggregates of everything so far, by key.

This file alone decides what such a group gives: whenever a batch brings rows of its key, the result
so far is taken back and the new one appears. It knows no time, and no particular aggregate.

Where rows may be taken back, aggregates must be such that can do it; a group of which all rows were
taken back is gone.

`version` counts the changes of a group. Nothing is kept of one that is gone, so whatever group
comes after it in its bucket begins with a version that none that is gone has had: of one group, no
version is given twice.
"""

from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, OFFSET, PARTITION, TOPIC, WEIGHT, Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.aggregation import Aggregation, Aggregations
from headwater.streams.windows.results import (
    INSERT,
    RETRACT,
    canonical_order,
    refuse_retractions,
    result_rows,
    together,
)
from headwater.streams.windows.reversible import negated

_GROUPS: Final = "groups"
_VERSION: Final = "version"
_FLOOR: Final = "floor"
"""The version that groups begin with; 0 as long as none has gone."""

_NO_TIME: Final = pa.int64()


class RunningGroups:
    """The operator for groups without an end."""

    def __init__(
        self, aggregations: Sequence[Aggregation], values: pa.Schema, *, retracts: bool = False
    ) -> None:
        """Prepare the operator.

        Args:
            aggregations: What is computed; `reversible` ones where rows may be taken back.
            values: The columns of rows.
            retracts: Whether rows may be taken back: `weight` says so.
        """
        self._retracts = retracts
        # How many rows a group has says whether there is one.
        counted = [aggregation("count")] if retracts else []
        self._aggregations = Aggregations([*aggregations, *counted])
        self._kept = pa.schema([pa.field(_VERSION, pa.int64()), *self._aggregations.partials])
        self.inputs = (values,)
        self.output = pa.schema(self._aggregations.fields(first=0)[: len(aggregations)])
        self.hold_us = 0

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {
            "aggregates": " and ".join(self._aggregations.labels),
            "input": "changes" if self._retracts else "events",
        }

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""
        return State({_GROUPS: Table.empty(self._kept)}, {})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Aggregate rows by key."""
        if not self._retracts:
            refuse_retractions(rows, "hf.aggregate of such measures")
            return self._combined(rows)
        weights = arrays.numbers(arrays.whole(rows.column(WEIGHT)), np.int8)
        come = self._combined(rows.filter(pa.array(weights > 0)))
        gone = self._combined(rows.filter(pa.array(weights < 0)))
        for name in self._aggregations.names:
            at = gone.column_names.index(name)
            gone = gone.set_column(at, name, negated(arrays.whole(gone.column(name))))
        return pa.concat_tables([come, gone]).combine_chunks()

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:  # noqa: ARG002
        """Take rows in; there is no time at which anything closes."""
        (rows,) = inputs
        if not rows.num_rows:
            return Step(state, together(self.output, []))
        keys, partials = self._merged_by_key(rows)
        table = state.tables[_GROUPS]
        old = table.find(keys)
        floor = cast("int", state.values.get(_FLOOR, 0))
        versions = np.full(len(keys), floor, np.int64)
        versions[old.codes] = 1 + arrays.numbers(arrays.whole(old.rows.column(_VERSION)), np.int64)
        names = list(self._aggregations.names)
        both = pa.concat_tables([old.rows.select(names), partials]).combine_chunks()
        codes = np.concatenate([old.codes, np.arange(len(keys))])
        partials_so_far = self._aggregations.merge(codes, len(keys), both)
        merged = pa.table(self._aggregations.trim(partials_so_far), names=names)
        gone = self._results(
            keys.take(pa.array(old.codes)), old.rows, versions[old.codes] - 1, RETRACT
        )
        if self._retracts:
            there = _are_there(merged.column(names[-1]))
            floor = int(versions[~there].max(initial=floor))
            table = table.remove(pa.table({KEY: keys.filter(pa.array(~there))}))
            keys, merged = keys.filter(pa.array(there)), merged.filter(pa.array(there))
            versions = versions[there]
        kept = merged.add_column(0, _VERSION, pa.array(versions)).add_column(0, KEY, keys)
        come = self._results(keys, merged, versions, INSERT)
        state = State({_GROUPS: table.put(kept)}, {_FLOOR: floor} if floor else {})
        return Step(state, together(self.output, [gone, come]))

    def _combined(self, rows: pa.Table) -> pa.Table:
        keys = arrays.whole(rows.column(KEY))
        codes, firsts = group(keys)
        chosen = pa.array(firsts)
        columns = {KEY: keys.take(chosen)}
        for name in (TOPIC, PARTITION, OFFSET):
            if name in rows.column_names:
                columns[name] = arrays.whole(rows.column(name)).take(chosen)
        partials = self._aggregations.update(codes, len(firsts), rows)
        columns |= zip(self._aggregations.names, partials, strict=True)
        return pa.table(columns)

    def _merged_by_key(self, rows: pa.Table) -> tuple[pa.Array, pa.Table]:
        keys = arrays.whole(rows.column(KEY))
        codes, firsts = group(keys)
        keys = keys.take(pa.array(firsts))
        columns = self._aggregations.merge(codes, len(firsts), rows)
        order = pa.array(canonical_order(keys))
        merged = pa.table(columns, names=list(self._aggregations.names))
        return keys.take(order), merged.take(order)

    def _results(
        self, keys: pa.Array, partials: pa.Table, versions: Int64s, weight: int
    ) -> pa.Table:
        return result_rows(
            self.output,
            keys,
            times=pa.nulls(len(keys), _NO_TIME),
            weight=weight,
            versions=versions,
            values=self._aggregations.finish(partials)[: len(self.output)],
        )


def _are_there(counts: pa.ChunkedArray) -> Bools:
    """Tell which groups have a row.

    Raises:
        RetractionError: One has fewer than none.
    """
    rows = arrays.numbers(arrays.whole(counts), np.int64)
    if (rows < 0).any():
        raise RetractionError(
            "a row is taken back that is not there",
            hint="changes must be those of one table, all of them and each once",
        )
    found: Bools = rows > 0
    return found
