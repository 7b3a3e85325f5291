"""Session windows: stretches of activity of a key, with a silence longer than `gap` around them.

This file alone decides which rows are one session, when it closes, and what becomes of sessions
that a late row bridges. It knows no particular aggregate.

A session goes from its first event to its last event and the gap: events whose distance is just the
gap belong together, as in Spark and in Flink. It closes when the watermark has passed its end.

Time is cut into slots of a sixteenth of the gap. Rows of a key in one slot are always in one
session, so they are aggregated before they travel. A row is late when its slot began more than a
gap before the watermark: all rows of a slot are late at once, whichever of them travel together. So
a row may be late up to a slot before the session of this row alone would close. A row that is not
behind the watermark never is. One that is behind it, but not late, may belong to a session that has
closed already; where results are not corrected it begins another.

Where results are corrected, sessions are kept until no row can come that belongs to them. Late rows
may then lengthen a session, or bridge several: each of these that has been given is taken back, and
the one that they are now is given, when it is closed. Whoever applies that has what one query over
all rows that were not too late would give.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s, int64s
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, TIME, Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.time.durations import duration_text
from headwater.streams.windows.agenda import DUE, Agenda
from headwater.streams.windows.aggregation import Aggregation, Aggregations
from headwater.streams.windows.combining import combined, combined_rows, late_events, late_rows
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.lateness import Drop, Lateness
from headwater.streams.windows.panes import group_by_pane
from headwater.streams.windows.results import (
    INSERT,
    RETRACT,
    canonical_order,
    overflow_named,
    result_rows,
    together,
)
from headwater.streams.windows.session_loops import number_sessions

_FIRST: Final = "first"
_LAST: Final = "last"
_VERSION: Final = "version"
_SESSIONS: Final = "sessions"
_CLOSED: Final = "closed"
_SLOTS: Final = 16

_AGENDA: Final = Agenda("ends", pa.schema([(_FIRST, pa.int64()), (DUE, pa.int64())]), (_FIRST, DUE))


class _Merged(NamedTuple):
    """What rows and the sessions that were there make together.

    Attributes:
        keys: All keys that rows came of, in their order.
        old: Sessions that are no more, or have changed: code, first, last, version and partials.
        old_owners: Which of the new ones each of them is part of.
        new: The sessions that they are now, in the same columns.
    """

    keys: pa.Array
    old: pa.Table
    old_owners: Int64s
    new: pa.Table


class SessionWindows:
    """The operator for sessions."""

    def __init__(
        self,
        gap_us: int,
        aggregations: Sequence[Aggregation],
        values: pa.Schema,
        late: Lateness = Drop(),  # noqa: B008 - a value without state
    ) -> None:
        """Take the gap, what is computed of which values, and what becomes of late rows."""
        if gap_us <= 0:
            raise WindowSettingError(f"sessions cannot be {gap_us} microseconds apart")
        self._gap_us = gap_us
        # The least distance at which rows are apart.
        self._apart_us = gap_us + 1
        self._slot_us = max(1, gap_us // _SLOTS)
        self._aggregations = Aggregations(aggregations)
        self._until_us = late.until_us
        # A row that is not too late can belong to a session that ended this long before it.
        self._kept_us = self._apart_us + late.until_us if late.until_us else 0
        self._kept = pa.schema(
            [(_FIRST, pa.int64()), (_LAST, pa.int64()), (_VERSION, pa.int64())]
            + [(field.name, field.type) for field in self._aggregations.partials]
        )
        self.inputs = (values,)
        bounds = [pa.field("c0", pa.int64()), pa.field("c1", pa.int64())]
        self.output = pa.schema([*bounds, *self._aggregations.fields(first=2)])
        self.hold_us = self._kept_us

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {
            "silence between sessions": duration_text(self._gap_us),
            "aggregates": " and ".join(self._aggregations.labels),
            "results are corrected for": duration_text(self._until_us),
        }

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""
        return State({}, {})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Aggregate rows by slot and key; what has no time is only counted."""
        return combined(rows, self._combined)

    def _combined(self, rows: pa.Table) -> pa.Table:
        times = int64s(rows, TIME)
        slots = self._slots(times)
        codes, chosen = group_by_pane(arrays.whole(rows.column(KEY)), slots, self._slot_us)
        first, last = times[chosen], times[chosen]
        np.minimum.at(first, codes, times)
        np.maximum.at(last, codes, times)
        partials = self._aggregations.update(codes, len(chosen), rows)
        columns = {TIME: pa.array(slots[chosen]), _FIRST: pa.array(first), _LAST: pa.array(last)}
        columns |= zip(self._aggregations.names, partials, strict=True)
        return combined_rows(rows, chosen, np.bincount(codes, minlength=len(chosen)), columns)

    def late(
        self,
        which: int,  # noqa: ARG002 - there is but one
        rows: pa.Table,
        previous: int | None,
    ) -> tuple[Bools, Int64s]:
        """Tell which rows come when nothing that they could belong to is kept, and since when."""
        kept_us = self._gap_us + self._until_us + 1
        return late_rows(rows, previous, lambda times: self._slots(times) + kept_us)

    def _slots(self, times: Int64s) -> Int64s:
        return times // self._slot_us * self._slot_us

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Take rows in, take back what they change, and close what is due."""
        tables = dict(state.tables)
        table = tables.pop(_SESSIONS, None) or Table.empty(self._kept, (_FIRST,))
        closed = cast("int | None", state.values.get(_CLOSED))
        given: list[pa.Table] = []
        if time.previous is not None and (closed is None or closed < time.previous):
            # A bucket that was not told of a batch has sessions to close as of that batch.
            given += self._closings(tables, table, _no_entries(), time.previous)
            table = self._without_old(table, time.previous)
            closed = time.previous

        is_late, _ = self.late(0, inputs[0], time.previous)
        rows = inputs[0].filter(pa.array(~is_late)) if is_late.any() else inputs[0]
        entries = _no_entries()
        if rows.num_rows:
            merged = self._merged(table, rows, closed)
            given += self._corrections(merged, closed)
            table, entries = self._kept_in(table, merged, closed)

        given += self._closings(tables, table, entries, time.now)
        if time.now is not None:
            table = self._without_old(table, time.now)
            closed = time.now
        if table.runs:
            tables[_SESSIONS] = table
        values = {} if closed is None else {_CLOSED: closed}
        late = late_events(inputs[0], is_late)
        return Step(State(tables, values), together(self.output, given), late)

    def _merged(self, table: Table, rows: pa.Table, closed: int | None) -> _Merged:
        """Find the sessions that rows and what is kept of their keys make together."""
        keys = arrays.whole(rows.column(KEY))
        codes, chosen = group(keys)
        keys = keys.take(pa.array(chosen))
        known = table.find(keys)
        versions = pa.array(np.zeros(rows.num_rows, np.int64))
        rows = rows.append_column(_VERSION, versions).select(self._kept.names)
        stretches = pa.concat_tables([known.rows, rows]).combine_chunks()
        codes = np.concatenate([known.codes, codes])
        is_old = np.arange(len(codes)) < known.rows.num_rows

        firsts, lasts = int64s(stretches, _FIRST), int64s(stretches, _LAST)
        order = np.lexsort((lasts, firsts, codes))
        owners = np.empty(len(codes), np.int64)
        found = number_sessions(codes[order], firsts[order], lasts[order], self._apart_us, owners)
        owners[order] = owners.copy()
        # Sessions that no row came to stay as they are.
        is_touched = np.zeros(found, np.bool_)
        is_touched[owners[~is_old]] = True
        numbers = np.cumsum(is_touched) - 1
        chosen = np.flatnonzero(is_touched[owners])
        owners, stretches = numbers[owners[chosen]], stretches.take(pa.array(chosen))
        codes, is_old = codes[chosen], is_old[chosen]
        new = self._joined(owners, codes, stretches, is_old, closed)
        old = np.flatnonzero(is_old)
        kept = stretches.take(pa.array(old)).add_column(0, KEY, pa.array(codes[old]))
        return _Merged(keys, kept, owners[old], new)

    def _joined(
        self, owners: Int64s, codes: Int64s, stretches: pa.Table, is_old: Bools, closed: int | None
    ) -> pa.Table:
        """Return sessions made of stretches, their versions with them."""
        found = int(owners.max()) + 1 if len(owners) else 0
        firsts, lasts = int64s(stretches, _FIRST), int64s(stretches, _LAST)
        versions = np.zeros(found, np.int64)
        first, last, code = (np.empty(found, np.int64) for _ in range(3))
        first[owners], last[owners], code[owners] = firsts, lasts, codes
        np.minimum.at(first, owners, firsts)
        np.maximum.at(last, owners, lasts)
        np.maximum.at(versions, owners, int64s(stretches, _VERSION))
        if closed is not None:
            is_given = np.zeros(found, np.bool_)
            is_given[owners[is_old & (lasts + self._apart_us <= closed)]] = True
            # What is given only now, though its time is over, is a correction as well.
            is_born_late = ~is_given & (last + self._apart_us <= closed)
            versions = np.where(is_born_late, np.maximum(versions, 1), versions + is_given)
        columns = [pa.array(code), pa.array(first), pa.array(last), pa.array(versions)]
        # Trimmed here: what is given must be what is kept, to be taken back as it was.
        partials = self._aggregations.trim(self._aggregations.merge(owners, found, stretches))
        return pa.table([*columns, *partials], names=[KEY, *self._kept.names])

    def _corrections(self, merged: _Merged, closed: int | None) -> Iterator[pa.Table]:
        """Take back sessions that were given, and give those that are closed as they are now."""
        if closed is None or not self._until_us:
            return
        for rows, weight in ((merged.old, RETRACT), (merged.new, INSERT)):
            is_given = int64s(rows, _LAST) + self._apart_us <= closed
            if is_given.any():
                chosen = rows.filter(pa.array(is_given))
                keys = merged.keys.take(chosen.column(KEY).combine_chunks())
                yield self._rows(keys, chosen, weight, by_end=False)

    def _kept_in(self, table: Table, merged: _Merged, closed: int | None) -> tuple[Table, pa.Table]:
        """Put sessions into the table, and return when those close that have a new end."""
        old, new = merged.old, merged.new
        old_firsts, firsts = int64s(old, _FIRST), int64s(new, _FIRST)
        ends = int64s(new, _LAST) + self._apart_us
        keys = merged.keys.take(new.column(KEY).combine_chunks())
        gone = pa.array(old_firsts != firsts[merged.old_owners])
        old_keys = merged.keys.take(old.column(KEY).combine_chunks())
        removed = pa.table({KEY: old_keys, _FIRST: old.column(_FIRST)}).filter(gone)
        table = table.remove(removed).put(new.set_column(0, KEY, keys))

        is_new = np.ones(len(ends), np.bool_)
        same = ~gone.to_numpy(zero_copy_only=False)
        same &= int64s(old, _LAST) + self._apart_us == ends[merged.old_owners]
        is_new[merged.old_owners[same]] = False
        if closed is not None:
            is_new &= ends > closed
        entries = pa.table({KEY: keys, _FIRST: pa.array(firsts), DUE: pa.array(ends)})
        return table, entries.filter(pa.array(is_new))

    def _closings(
        self, tables: dict[str, Table], table: Table, entries: pa.Table, now: int | None
    ) -> Iterator[pa.Table]:
        """Give sessions whose end the watermark has reached."""
        due = _AGENDA.advance(tables, entries, now)
        if not due:
            return
        called = pa.concat_tables(due).combine_chunks()
        keys = arrays.whole(called.column(KEY))
        codes, chosen = group(keys)
        keys = keys.take(pa.array(chosen))
        known = table.find(keys)
        firsts, ends = int64s(known.rows, _FIRST), int64s(known.rows, _LAST) + self._apart_us
        # A session that has changed since has another entry, or none that matters any more.
        is_due = _contained(
            (known.codes, firsts, ends), (codes, int64s(called, _FIRST), int64s(called, DUE))
        )
        rows = known.rows.filter(pa.array(is_due))
        if rows.num_rows:
            keys = keys.take(pa.array(known.codes[is_due]))
            yield self._rows(keys, rows, INSERT, by_end=True)

    def _without_old(self, table: Table, now: int) -> Table:
        """Forget sessions that no row can belong to any more."""
        return (
            table.expire(_LAST, now - self._apart_us - self._kept_us + 1) if table.runs else table
        )

    def _rows(self, keys: pa.Array, rows: pa.Table, weight: int, *, by_end: bool) -> pa.Table:
        firsts, ends = int64s(rows, _FIRST), int64s(rows, _LAST) + self._apart_us
        with overflow_named(keys, firsts):
            results = self._aggregations.finish(rows)
        found = result_rows(
            self.output,
            keys,
            times=ends - 1,
            weight=weight,
            versions=int64s(rows, _VERSION),
            values=[firsts, ends - 1, *results],
        )
        codes, chosen = group(keys)
        ranks = np.empty(len(chosen), np.int64)
        ranks[canonical_order(keys.take(pa.array(chosen)))] = np.arange(len(chosen))
        by = (firsts, ranks[codes], ends) if by_end else (firsts, ranks[codes])
        return found.take(pa.array(np.lexsort(by)))


def _no_entries() -> pa.Table:
    return pa.schema([(KEY, pa.binary()), (_FIRST, pa.int64()), (DUE, pa.int64())]).empty_table()


def _contained(rows: tuple[Int64s, ...], among: tuple[Int64s, ...]) -> Bools:
    """Tell which rows of numbers are among others."""
    columns = [np.concatenate(pair) for pair in zip(among, rows, strict=True)]
    is_asked = np.arange(len(columns[0])) >= len(among[0])
    # Of equal rows, those of `among` come first.
    order = np.lexsort((is_asked, *columns))
    is_head = np.zeros(len(order), np.bool_)
    is_head[:1] = True
    for column in columns:
        is_head[1:] |= column[order[1:]] != column[order[:-1]]
    heads = np.maximum.accumulate(np.where(is_head, np.arange(len(order)), 0))
    found = np.empty(len(order), np.bool_)
    found[order] = ~is_asked[order[heads]]
    return found[len(among[0]) :]
