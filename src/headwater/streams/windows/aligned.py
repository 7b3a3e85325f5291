"""Tumbling and hopping windows.

This file alone decides when such a window closes, what it gives and when it gives it again. It
knows no particular aggregate.

Rows are aggregated by pane and key before they travel, and there is a table of partial results for
each pane: the table is dropped when the last window has closed that has the pane. A window is the
merge of its panes. It closes when the watermark reaches its end, and has one row for each key that
was seen in it: its start, its end, and the results. It is closed with the rows of its batch.

Where results are corrected, panes are kept longer, and a late row gives a result again: the old
one, computed from the panes as they were, is taken back. How often that happened is remembered in
a table for each window that it happened to; the others have none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, TIME, Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.windows.aggregation import Aggregation, Aggregations
from headwater.streams.windows.combining import combined, combined_rows, late_events, late_rows
from headwater.streams.windows.lateness import Drop, Lateness
from headwater.streams.windows.panes import Windows, by_number, group_by_pane
from headwater.streams.windows.results import (
    INSERT,
    RETRACT,
    canonical_order,
    overflow_named,
    result_rows,
    together,
)

_PANE: Final = "pane/"
_VERSIONS: Final = "versions/"
_VERSION: Final = "version"
_CLOSED: Final = "closed"
"""Up to where windows have been closed; it need not move while there is nothing to close."""

_VERSION_SCHEMA: Final = pa.schema([(_VERSION, pa.int64())])


class _Partials(NamedTuple):
    """Partial results of keys.

    Attributes:
        codes: Which of the keys that were asked for have one, ascending.
        rows: The partial results.
    """

    codes: Int64s
    rows: pa.Table


class AlignedWindows:
    """The operator for windows that begin and end at fixed times."""

    def __init__(
        self,
        windows: Windows,
        aggregations: Sequence[Aggregation],
        values: pa.Schema,
        late: Lateness = Drop(),  # noqa: B008 - a value without state
    ) -> None:
        """Take the windows, what is computed of which values, and what becomes of late rows."""
        self._windows = windows
        self._aggregations = Aggregations(aggregations)
        self._until_us = late.until_us
        self.inputs = (values,)
        bounds = [pa.field("c0", pa.int64()), pa.field("c1", pa.int64())]
        self.output = pa.schema([*bounds, *self._aggregations.fields(first=2)])
        self.hold_us = late.until_us

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {
            "windows": [
                self._windows.length_us,
                self._windows.slide_us,
                self._windows.offset_us % self._windows.slide_us,
            ],
            "aggregates": self._aggregations.labels,
            "patience in us": self._until_us,
        }

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""
        return State({}, {})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Aggregate rows by pane and key; what has no time is only counted."""
        return combined(rows, self._combined)

    def _combined(self, rows: pa.Table) -> pa.Table:
        panes = self._windows.panes(arrays.numbers(arrays.whole(rows.column(TIME)), np.int64))
        keys = arrays.whole(rows.column(KEY))
        codes, firsts = group_by_pane(keys, panes, self._windows.pane_us)
        partials = self._aggregations.update(codes, len(firsts), rows)
        columns = {TIME: pa.array(panes[firsts])}
        columns |= zip(self._aggregations.names, partials, strict=True)
        return combined_rows(rows, firsts, np.bincount(codes, minlength=len(firsts)), columns)

    def late(
        self,
        which: int,  # noqa: ARG002 - there is but one
        rows: pa.Table,
        previous: int | None,
    ) -> tuple[Bools, Int64s]:
        """Tell which rows come when all their windows are closed for good, and by how much."""
        return late_rows(
            rows, previous, lambda times: self._windows.last_ends(times) + self._until_us - 1
        )

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Take rows in, correct what they are late for, and close what is due."""
        tables = dict(state.tables)
        closed = cast("int | None", state.values.get(_CLOSED))
        # A bucket that was not told of a batch has windows to close as of that batch.
        given = list(self._closings(tables, closed, time.previous))
        closed = _later(closed, time.previous)

        is_late, _ = self.late(0, inputs[0], time.previous)
        rows = inputs[0].filter(pa.array(~is_late)) if is_late.any() else inputs[0]
        before = dict(tables)
        touched = self._take_in(tables, rows)
        given += self._corrections(before, tables, touched, time.previous)

        given += self._closings(tables, closed, time.now)
        self._forget(tables, time.now)
        closed = _later(closed, time.now)
        values = {} if closed is None else {_CLOSED: closed}
        late = late_events(inputs[0], is_late)
        return Step(State(tables, values), together(self.output, given), late)

    def _take_in(self, tables: dict[str, Table], rows: pa.Table) -> dict[int, pa.Array]:
        """Merge rows into their panes, and return the keys that each pane was given rows of."""
        panes = arrays.numbers(arrays.whole(rows.column(TIME)), np.int64)
        touched = {}
        for pane, part in by_number(rows, panes):
            keys = arrays.whole(part.column(KEY))
            codes, firsts = group(keys)
            keys = keys.take(pa.array(firsts))
            fresh = self._table(self._aggregations.merge(codes, len(firsts), part))
            table = tables.get(f"{_PANE}{pane}") or Table.empty(self._aggregations.partials)
            known = table.find(keys)
            if known.rows.num_rows:
                both = pa.concat_tables([known.rows, fresh])
                codes = np.concatenate([known.codes, np.arange(len(keys))])
                fresh = self._table(self._aggregations.merge(codes, len(keys), both))
            kept = self._table(self._aggregations.trim(fresh.columns))
            tables[f"{_PANE}{pane}"] = table.put(kept.add_column(0, KEY, keys))
            touched[pane] = keys
        return touched

    def _corrections(
        self,
        before: Mapping[str, Table],
        tables: dict[str, Table],
        touched: Mapping[int, pa.Array],
        previous: int | None,
    ) -> Iterator[pa.Table]:
        """Give results of windows again that were closed before these rows came."""
        if previous is None or not self._until_us:
            return
        starts = {start for pane in touched for start in self._windows.starts(pane)}
        for start in sorted(starts):
            end = start + self._windows.length_us
            if not end <= previous < end + self._until_us:
                continue
            inside = [keys for pane, keys in sorted(touched.items()) if start <= pane < end]
            keys = pa.concat_arrays(inside)
            keys = keys.take(pa.array(group(keys).firsts))
            keys = keys.take(pa.array(canonical_order(keys)))
            yield self._corrected(before, tables, start, keys)

    def _corrected(
        self, before: Mapping[str, Table], tables: dict[str, Table], start: int, keys: pa.Array
    ) -> pa.Table:
        name = f"{_VERSIONS}{start}"
        table = tables.get(name) or Table.empty(_VERSION_SCHEMA)
        known = table.find(keys)
        versions = np.zeros(len(keys), np.int64)
        versions[known.codes] = arrays.numbers(arrays.whole(known.rows.column(_VERSION)), np.int64)
        tables[name] = table.put(pa.table({KEY: keys, _VERSION: pa.array(versions + 1)}))

        old = self._window_of(before, start, keys)
        new = self._window_of(tables, start, keys)
        retracted = self._rows(
            start, keys.take(pa.array(old.codes)), old.rows, RETRACT, versions[old.codes]
        )
        inserted = self._rows(start, keys, new.rows, INSERT, versions + 1)
        # A key's old row goes before its new one, and keys stay in order.
        order = np.argsort(np.concatenate([2 * old.codes, 2 * new.codes + 1]), kind="stable")
        return pa.concat_tables([retracted, inserted]).take(pa.array(order))

    def _closings(
        self, tables: Mapping[str, Table], after: int | None, until: int | None
    ) -> Iterator[pa.Table]:
        """Give the results of windows whose end the watermark has reached."""
        if until is None:
            return
        panes = _panes(tables)
        if not panes:
            return
        length = self._windows.length_us
        starts = {
            start
            for pane in panes
            for start in self._windows.starts(pane)
            if start + length <= until and (after is None or start + length > after)
        }
        for start in sorted(starts):
            inside = [
                tables[f"{_PANE}{pane}"].scan() for pane in panes if 0 <= pane - start < length
            ]
            rows = pa.concat_tables(inside)
            keys = arrays.whole(rows.column(KEY))
            if len(inside) > 1:
                codes, firsts = group(keys)
                merged = self._table(self._aggregations.merge(codes, len(firsts), rows))
                keys = keys.take(pa.array(firsts))
                order = pa.array(canonical_order(keys))
                keys, rows = keys.take(order), merged.take(order)
            yield self._rows(start, keys, rows, INSERT, np.zeros(len(keys), np.int64))

    def _window_of(self, tables: Mapping[str, Table], start: int, keys: pa.Array) -> _Partials:
        """Return the partial results of a window, of those keys that it has."""
        inside = [
            tables[f"{_PANE}{pane}"].find(keys)
            for pane in _panes(tables)
            if 0 <= pane - start < self._windows.length_us
        ]
        if not inside:
            return _Partials(np.empty(0, np.int64), self._aggregations.partials.empty_table())
        found, codes = np.unique(
            np.concatenate([part.codes for part in inside]), return_inverse=True
        )
        rows = pa.concat_tables([part.rows for part in inside])
        return _Partials(found, self._table(self._aggregations.merge(codes, len(found), rows)))

    def _forget(self, tables: dict[str, Table], now: int | None) -> None:
        """Drop what no window needs any more."""
        if now is None:
            return
        for pane in _panes(tables):
            if self._windows.last_end(pane) + self._until_us <= now:
                del tables[f"{_PANE}{pane}"]
        for name in [name for name in tables if name.startswith(_VERSIONS)]:
            start = int(name.removeprefix(_VERSIONS))
            if start + self._windows.length_us + self._until_us <= now:
                del tables[name]

    def _rows(
        self, start: int, keys: pa.Array, partials: pa.Table, weight: int, versions: Int64s
    ) -> pa.Table:
        starts = np.full(len(keys), start, np.int64)
        ends = starts + self._windows.length_us
        with overflow_named(keys, starts):
            results = self._aggregations.finish(partials)
        return result_rows(
            self.output,
            keys,
            times=ends - 1,
            weight=weight,
            versions=versions,
            values=[starts, ends, *results],
        )

    def _table(self, partials: list[pa.Array]) -> pa.Table:
        return pa.Table.from_arrays(partials, schema=self._aggregations.partials)


def _panes(tables: Mapping[str, Table]) -> list[int]:
    return sorted(int(name.removeprefix(_PANE)) for name in tables if name.startswith(_PANE))


def _later(one: int | None, other: int | None) -> int | None:
    known = [time for time in (one, other) if time is not None]
    return max(known, default=None)
