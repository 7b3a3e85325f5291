"""The partial results of aligned windows in state, by pane and key.

This file alone decides which panes share a table. It knows no watermark, and what the partial
results are is the aggregates' own matter.

A window of a few dozen panes has a table for each. Where there are thousands, as in an hour every
second, time is cut into stretches of several panes, of which a window reaches over a few dozen, and
the panes of a stretch share a table. It goes when no window needs any pane of it, so a pane may lie
there a stretch longer than it has to.

    panes                  |-----|-|-----|-|-----|-|-----|-|
    in stretches of three  |-------------|---------|-------
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY
from headwater.streams.kernel.table import Table
from headwater.streams.windows.aggregation import Aggregations
from headwater.streams.windows.panes import Windows, by_number

PANE: Final = "pane"
"""The column that says of which pane a partial result is."""

CODE: Final = "code"
"""The column that says which of the keys that were asked for a partial result is of."""

_WORD: Final = "panes/"

# A table takes 200 bytes of a header that each step writes, and a tenth of a millisecond where it
# is read. A key that is looked up is found with all panes of a table, so few tables cost as well.
_STRETCHES: Final = 32


class PaneRows:
    """Rows of state by pane; a table is read when one of its panes is asked for."""

    def __init__(
        self, read: Callable[[int], pa.Table | None], width: int, nothing: pa.Table
    ) -> None:
        """Take what reads the table of a stretch, how many panes that has, and a table of none."""
        self._read = read
        self._width = width
        self._nothing = nothing
        self._known: dict[int, tuple[pa.Table, Int64s]] = {}

    def of(self, panes: range) -> pa.Table:
        """Return the rows of panes, in the order of panes; `panes` must not begin earlier again."""
        first, last = panes.start // self._width, (panes.stop - 1) // self._width
        for stretch in [stretch for stretch in self._known if stretch < first]:
            del self._known[stretch]
        parts = [self._nothing]
        for stretch in range(first, last + 1):
            rows, numbers = self._of_stretch(stretch)
            start, stop = np.searchsorted(numbers, [panes.start, panes.stop])
            if stop > start:
                parts.append(rows.slice(start, stop - start))
        return pa.concat_tables(parts)

    def _of_stretch(self, stretch: int) -> tuple[pa.Table, Int64s]:
        """Return the rows of a stretch by pane, and the panes."""
        if stretch not in self._known:
            rows = self._read(stretch)
            if rows is None:
                self._known[stretch] = (self._nothing, np.empty(0, np.int64))
            elif self._width == 1:
                self._known[stretch] = (rows, np.full(rows.num_rows, stretch))
            else:
                panes = _numbers(rows, PANE)
                order = np.argsort(panes, kind="stable")
                rows = rows.drop_columns([PANE]).take(pa.array(order))
                self._known[stretch] = (rows, panes[order])
        return self._known[stretch]


class PaneTables:
    """Where the partial results of windows lie."""

    def __init__(self, windows: Windows, aggregations: Aggregations) -> None:
        """Take the windows, and what is computed of them."""
        self._windows = windows
        self._aggregations = aggregations
        self._width = -(-windows.pane_count // _STRETCHES)
        # A pane that has a table for itself needs no column for its number.
        own = [PANE] if self._width > 1 else []
        fields = [*(pa.field(name, pa.int64()) for name in own), *aggregations.partials]
        self._empty = Table.empty(pa.schema(fields), own)

    def add(self, tables: dict[str, Table], rows: pa.Table) -> None:
        """Merge partial results into those that are there.

        Args:
            tables: The tables of a state.
            rows: The key, `PANE` and the partial results; no two of the same key and pane.
        """
        for stretch, part in by_number(rows, _numbers(rows, PANE) // self._width):
            name = f"{_WORD}{stretch}"
            tables[name] = self._with(tables.get(name, self._empty), part)

    def forget(self, tables: dict[str, Table], first: int) -> None:
        """Drop what only windows before the first one need."""
        for stretch in _stretches(tables):
            if self._windows.having(self._span(stretch)).stop <= first:
                del tables[f"{_WORD}{stretch}"]

    def windows(
        self, tables: Mapping[str, Table], *, first: int | None, stop: int
    ) -> Iterator[int]:
        """Return the windows that may have rows, from the first one and up to another."""
        spans = map(self._span, _stretches(tables))
        return self._windows.having_any(spans, first=first, stop=stop)

    def scan(self, tables: Mapping[str, Table]) -> PaneRows:
        """Return partial results with their keys; those of one pane in the order of state."""
        return self._rows(tables, Table.scan, pa.field(KEY, pa.binary()))

    def find(self, tables: Mapping[str, Table], keys: pa.Array) -> PaneRows:
        """Return partial results of keys, of which no two are equal, with a `CODE` each."""

        def read(table: Table) -> pa.Table:
            found = table.find(keys)
            return found.rows.add_column(0, CODE, pa.array(found.codes))

        return self._rows(tables, read, pa.field(CODE, pa.int64()))

    def _span(self, stretch: int) -> range:
        """Return the panes of a stretch."""
        return range(stretch * self._width, (stretch + 1) * self._width)

    def _rows(
        self, tables: Mapping[str, Table], read: Callable[[Table], pa.Table], head: pa.Field
    ) -> PaneRows:
        def read_stretch(stretch: int) -> pa.Table | None:
            table = tables.get(f"{_WORD}{stretch}")
            return None if table is None else read(table)

        nothing = pa.schema([head, *self._aggregations.partials]).empty_table()
        return PaneRows(read_stretch, self._width, nothing)

    def _with(self, table: Table, rows: pa.Table) -> Table:
        """Return a table with rows merged into it."""
        known = self._known(table, rows)
        names = list(self._aggregations.names)
        columns = [rows.column(name) for name in names]
        if len(known.owners):
            both = pa.concat_tables([known.rows.select(names), rows.select(names)])
            codes = np.concatenate([known.owners, np.arange(rows.num_rows)])
            columns = self._aggregations.merge(codes, rows.num_rows, both)
        kept = dict(zip(names, self._aggregations.trim(columns), strict=True))
        own = {name: rows.column(name) for name in (KEY, *table.order)}
        return table.put(pa.table(own | kept))

    def _known(self, table: Table, rows: pa.Table) -> "_Known":
        """Find what a table has of the keys and panes of rows."""
        keys = arrays.whole(rows.column(KEY))
        if not table.order:
            found = table.find(keys)
            return _Known(found.codes, found.rows)
        codes, firsts = group(keys)
        found = table.find(keys.take(pa.array(firsts)))
        there = found.codes * self._width + _numbers(found.rows, PANE) % self._width
        wanted = codes * self._width + _numbers(rows, PANE) % self._width
        order = np.argsort(wanted)
        places = np.searchsorted(wanted[order], there)
        is_wanted: Bools = places < len(order)
        is_wanted[is_wanted] = wanted[order[places[is_wanted]]] == there[is_wanted]
        return _Known(order[places[is_wanted]], found.rows.filter(pa.array(is_wanted)))


class _Known(NamedTuple):
    """What state has already of rows that are added.

    Attributes:
        owners: For each row of state, which row has its key and pane.
        rows: The rows of state.
    """

    owners: Int64s
    rows: pa.Table


def _stretches(tables: Mapping[str, Table]) -> list[int]:
    return sorted(int(name.removeprefix(_WORD)) for name in tables if name.startswith(_WORD))


def _numbers(rows: pa.Table, name: str) -> Int64s:
    found: Int64s = arrays.numbers(arrays.whole(rows.column(name)), np.int64)
    return found
