"""Rows that wait for their time: each step takes those that are due, and reads few others.

This file alone decides where such rows lie in state. Those that are due in about the same second
are one table. For a time that is farther away the tables are eight times as wide, and again, so
that a year of them is a dozen tables; when the watermark comes to a wide one, what is in it moves
to narrower ones. So a row moves a few times at most, whatever it waits for.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel.arrays import int64s
from headwater.streams.kernel.table import Table
from headwater.streams.windows.panes import by_number

DUE: Final = "due"
"""The column that says when: as soon as the watermark is there."""

_WIDTH_BITS: Final = 20
_STEP_BITS: Final = 3
_LEVEL_MAX: Final = 14
# Nine hours: what comes before the time is known is sorted into few tables.
_LEVEL_UNKNOWN: Final = 5


class Agenda:
    """What waits, in tables whose names begin with one word."""

    def __init__(self, word: str, schema: pa.Schema, order: Sequence[str]) -> None:
        """Take the columns besides the key, `DUE` among them, and those that tell rows apart."""
        self._word = f"{word}/"
        self._schema = schema
        self._order = tuple(order)

    def advance(self, tables: dict[str, Table], rows: pa.Table, now: int | None) -> list[pa.Table]:
        """Add rows, and return all that are due; a row that was added twice may come twice."""
        if now is None:
            self._add(tables, rows, now)
            return []
        due, waiting = _parted(rows, now)
        found, moved = [due], [waiting]
        for name in self._reached(tables, now):
            due, waiting = _parted(tables[name].scan(), now)
            found.append(due)
            if _level(name) == 0 and waiting.num_rows:
                tables[name] = tables[name].expire(DUE, now + 1)
            else:
                del tables[name]
                moved.append(waiting)
        for table in moved:
            self._add(tables, table, now)
        return [table for table in found if table.num_rows]

    def _reached(self, tables: dict[str, Table], now: int) -> list[str]:
        names = [name for name in tables if name.startswith(self._word)]
        return sorted(name for name in names if int(name.rsplit("/", 1)[1]) <= now)

    def _add(self, tables: dict[str, Table], rows: pa.Table, now: int | None) -> None:
        if not rows.num_rows:
            return
        dues = int64s(rows, DUE)
        levels = np.full(len(dues), _LEVEL_UNKNOWN if now is None else 0)
        if now is not None:
            for level in range(_LEVEL_MAX):
                levels += (dues - now) >> (_WIDTH_BITS + _STEP_BITS * (level + 1)) > 0
        for level, of_level in by_number(rows, levels):
            bits = _WIDTH_BITS + _STEP_BITS * level
            for start, part in by_number(of_level, int64s(of_level, DUE) >> bits << bits):
                name = f"{self._word}{level}/{start}"
                table = tables.get(name) or Table.empty(self._schema, self._order)
                tables[name] = table.put(part)


def _parted(rows: pa.Table, now: int) -> tuple[pa.Table, pa.Table]:
    is_due = int64s(rows, DUE) <= now
    return rows.filter(pa.array(is_due)), rows.filter(pa.array(~is_due))


def _level(name: str) -> int:
    return int(name.rsplit("/", 2)[1])
