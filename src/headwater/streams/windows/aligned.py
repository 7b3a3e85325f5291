"""Tumbling and hopping windows.

This file alone decides when such a window closes, what it gives and when it gives it again. It
knows no particular aggregate.

Rows are aggregated by pane and key before they travel, and so they lie in state until the last
window has closed that has the pane. A window is the merge of its panes. It closes when the
watermark reaches its end, and has one row for each key that was seen in it: its start, its end, and
the results. It is closed with the rows of its batch.

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
from headwater.streams.time.durations import duration_text
from headwater.streams.time.fold import largest
from headwater.streams.windows.aggregation import Aggregation, Aggregations
from headwater.streams.windows.combining import combined, combined_rows, late_events, late_rows
from headwater.streams.windows.lateness import Drop, Lateness
from headwater.streams.windows.pane_tables import CODE, PANE, PaneTables
from headwater.streams.windows.panes import Windows, group_by_pane
from headwater.streams.windows.results import (
    INSERT,
    RETRACT,
    canonical_order,
    overflow_named,
    result_rows,
    together,
)

_VERSIONS: Final = "versions/"
_VERSION: Final = "version"
_CLOSED: Final = "closed"
"""Up to where windows have been closed; it need not move while there is nothing to close."""

_NO_VERSIONS: Final = Table.empty(pa.schema([(_VERSION, pa.int64())]))


class _Partials(NamedTuple):
    """Partial results of keys.

    Attributes:
        places: Which of the keys that were asked for have one, ascending.
        rows: The partial results.
    """

    places: Int64s
    rows: pa.Table


class _Touched(NamedTuple):
    """Panes and keys that were given rows.

    Attributes:
        keys: The keys, each once, in the order in which results come.
        codes: A key of them for each row.
        panes: The pane of each row, ascending.
    """

    keys: pa.Array
    codes: Int64s
    panes: Int64s


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
        self._panes = PaneTables(windows, self._aggregations)
        self._until_us = late.until_us
        self.inputs = (values,)
        bounds = [pa.field("c0", pa.int64()), pa.field("c1", pa.int64())]
        self.output = pa.schema([*bounds, *self._aggregations.fields(first=2)])
        self.hold_us = late.until_us

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {
            "windows": str(self._windows),
            "aggregates": " and ".join(self._aggregations.labels),
            "results are corrected for": duration_text(self._until_us),
        }

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""
        return State({}, {})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Aggregate rows by pane and key; what has no time is only counted."""
        return combined(rows, self._combined)

    def _combined(self, rows: pa.Table) -> pa.Table:
        panes = self._windows.panes(arrays.numbers(arrays.whole(rows.column(TIME)), np.int64))
        codes, firsts = group_by_pane(arrays.whole(rows.column(KEY)), panes, 1)
        partials = self._aggregations.update(codes, len(firsts), rows)
        columns = {TIME: pa.array(self._windows.pane_starts(panes[firsts]))}
        columns |= zip(self._aggregations.names, partials, strict=True)
        return combined_rows(rows, firsts, np.bincount(codes, minlength=len(firsts)), columns)

    def late(
        self,
        which: int,  # noqa: ARG002 - there is but one
        rows: pa.Table,
        previous: int | None,
    ) -> tuple[Bools, Int64s]:
        """Tell which rows come when all their windows are closed for good, and since when."""
        return late_rows(
            rows, previous, lambda times: self._windows.last_ends(times) + self._until_us
        )

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Take rows in, correct what they are late for, and close what is due."""
        tables = dict(state.tables)
        closed = cast("int | None", state.values.get(_CLOSED))
        # A bucket that was not told of a batch has windows to close as of that batch.
        given = list(self._closings(tables, closed, time.previous))
        closed = largest(closed, time.previous)

        is_late, _ = self.late(0, inputs[0], time.previous)
        rows = inputs[0].filter(pa.array(~is_late)) if is_late.any() else inputs[0]
        before = dict(tables)
        added = self._added(rows)
        self._panes.add(tables, added)
        given += self._corrections(before, tables, added, time.previous)

        given += self._closings(tables, closed, time.now)
        self._forget(tables, time.now)
        closed = largest(closed, time.now)
        values = {} if closed is None else {_CLOSED: closed}
        late = late_events(inputs[0], is_late)
        return Step(State(tables, values), together(self.output, given), late)

    def _added(self, rows: pa.Table) -> pa.Table:
        """Return what tasks have combined as one row for each pane and key."""
        panes = self._windows.panes(arrays.numbers(arrays.whole(rows.column(TIME)), np.int64))
        keys = arrays.whole(rows.column(KEY))
        codes, firsts = group_by_pane(keys, panes, 1)
        merged = self._table(self._aggregations.merge(codes, len(firsts), rows))
        merged = merged.add_column(0, PANE, pa.array(panes[firsts]))
        return merged.add_column(0, KEY, keys.take(pa.array(firsts)))

    def _corrections(
        self,
        before: Mapping[str, Table],
        tables: dict[str, Table],
        added: pa.Table,
        previous: int | None,
    ) -> Iterator[pa.Table]:
        """Give results of windows again that were closed before these rows came."""
        if previous is None or not self._until_us:
            return
        first = self._windows.first_open(previous - self._until_us)
        stop = self._windows.first_open(previous)
        touched = _touched(added, self._windows.panes_of(stop - 1).stop)
        old = self._panes.find(before, touched.keys)
        new = self._panes.find(tables, touched.keys)
        spans = (range(pane, pane + 1) for pane in np.unique(touched.panes).tolist())
        for window in self._windows.having_any(spans, first=first, stop=stop):
            inside = self._windows.panes_of(window)
            start, end = np.searchsorted(touched.panes, [inside.start, inside.stop])
            codes = np.unique(touched.codes[start:end])
            yield self._corrected(
                tables,
                self._windows.start(window),
                touched.keys.take(pa.array(codes)),
                self._merged(old.of(inside), codes),
                self._merged(new.of(inside), codes),
            )

    def _corrected(
        self,
        tables: dict[str, Table],
        start: int,
        keys: pa.Array,
        old: _Partials,
        new: _Partials,
    ) -> pa.Table:
        name = f"{_VERSIONS}{start}"
        table = tables.get(name, _NO_VERSIONS)
        known = table.find(keys)
        versions = np.zeros(len(keys), np.int64)
        versions[known.codes] = arrays.numbers(arrays.whole(known.rows.column(_VERSION)), np.int64)
        tables[name] = table.put(pa.table({KEY: keys, _VERSION: pa.array(versions + 1)}))

        retracted = self._rows(
            start, keys.take(pa.array(old.places)), old.rows, RETRACT, versions[old.places]
        )
        inserted = self._rows(start, keys, new.rows, INSERT, versions + 1)
        # A key's old row goes before its new one, and keys stay in order.
        order = np.argsort(np.concatenate([2 * old.places, 2 * new.places + 1]), kind="stable")
        return pa.concat_tables([retracted, inserted]).take(pa.array(order))

    def _merged(self, rows: pa.Table, wanted: Int64s) -> _Partials:
        """Merge the rows of a window, of those codes that are wanted."""
        codes = arrays.numbers(arrays.whole(rows.column(CODE)), np.int64)
        is_wanted = np.isin(codes, wanted)
        if not is_wanted.all():
            rows, codes = rows.filter(pa.array(is_wanted)), codes[is_wanted]
        found, groups = np.unique(codes, return_inverse=True)
        merged = self._table(self._aggregations.merge(groups, len(found), rows))
        return _Partials(np.searchsorted(wanted, found), merged)

    def _closings(
        self, tables: Mapping[str, Table], after: int | None, until: int | None
    ) -> Iterator[pa.Table]:
        """Give the results of windows whose end the watermark has reached."""
        if until is None:
            return
        first = None if after is None else self._windows.first_open(after)
        stop = self._windows.first_open(until)
        scanned = self._panes.scan(tables)
        for window in self._panes.windows(tables, first=first, stop=stop):
            rows = scanned.of(self._windows.panes_of(window))
            if not rows.num_rows:
                continue
            keys = arrays.whole(rows.column(KEY))
            if self._windows.pane_count > 1:
                codes, firsts = group(keys)
                merged = self._table(self._aggregations.merge(codes, len(firsts), rows))
                keys = keys.take(pa.array(firsts))
                order = pa.array(canonical_order(keys))
                keys, rows = keys.take(order), merged.take(order)
            start = self._windows.start(window)
            yield self._rows(start, keys, rows, INSERT, np.zeros(len(keys), np.int64))

    def _forget(self, tables: dict[str, Table], now: int | None) -> None:
        """Drop what no window needs any more."""
        if now is None:
            return
        self._panes.forget(tables, self._windows.first_open(now - self._until_us))
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


def _touched(added: pa.Table, behind: int) -> _Touched:
    """Return what was touched of the panes before the one that is `behind` them."""
    panes = arrays.numbers(arrays.whole(added.column(PANE)), np.int64)
    order = np.flatnonzero(panes < behind)
    order = order[np.argsort(panes[order], kind="stable")]
    keys = arrays.whole(added.column(KEY)).take(pa.array(order))
    codes, firsts = group(keys)
    keys = keys.take(pa.array(firsts))
    ranked = canonical_order(keys)
    return _Touched(keys.take(pa.array(ranked)), np.argsort(ranked)[codes], panes[order])
