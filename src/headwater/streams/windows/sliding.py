"""Sliding windows: every event sees exactly the last `length` of its key, itself included.

This file alone decides what an event sees, when it is given, and which events a late one changes.
It knows no particular aggregate.

An event at t sees what was from t - length up to t, both included, as SQL's RANGE BETWEEN length
PRECEDING AND CURRENT ROW does: so events of one time see each other. It is given when the watermark
has passed t, because then all of these have come, in the order of time, topic, partition and
offset. Rows of one record, as `explode` makes them, are equal in all of these, and so are those of
a stream united with itself: they stand as they came. What was given stays in state for as long as
later events can see it.

An event is late when the watermark has passed its time. Where results are corrected, it is given
nevertheless, and all that were given already and see it are taken back and given again.

A batch reads what its keys have seen in the last `length` once, whatever the number of its events;
each event then costs about twice the logarithm of what it sees. Aggregates whose partial results
grow, `collect` and `distinct` and the exact percentile, cost all that the event sees.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s, int64s
from headwater.streams.kernel.grouping import group, hashes
from headwater.streams.kernel.operator import (
    KEY,
    OFFSET,
    PARTITION,
    TIME,
    TOPIC,
    VERSION,
    Step,
    Time,
    value_name,
)
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.time.durations import duration_text
from headwater.streams.windows.agenda import DUE, Agenda
from headwater.streams.windows.aggregation import Aggregation, Aggregations
from headwater.streams.windows.combining import late_events, late_rows
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.lateness import Drop, Lateness
from headwater.streams.windows.ordered import topic_ranks
from headwater.streams.windows.ranges import aggregate_ranges, find_ranges
from headwater.streams.windows.ranking import sorted_rows
from headwater.streams.windows.results import (
    INSERT,
    RETRACT,
    overflow_named,
    refuse_retractions,
    result_rows,
    together,
)

_SOURCE: Final = "source"
"""The hash of the topic: what tells apart must be a number."""

_NUMBER: Final = "number"
"""Counts the events of a bucket: it tells those apart that come from the same place."""

_ORDER: Final = (TIME, _SOURCE, PARTITION, OFFSET, _NUMBER)
_SEEN: Final = "seen"
_CLOSED: Final = "closed"
_NEXT: Final = "next"


class _Events(NamedTuple):
    """Events of several keys, by key and time.

    Attributes:
        keys: The keys.
        codes: The key of each event, ascending.
        rows: The events.
        places: Where each was among those that were known, and then those that have just come.
        is_fresh: Which of them have just come.
    """

    keys: pa.Array
    codes: Int64s
    rows: pa.Table
    places: Int64s
    is_fresh: Bools


class SlidingWindows:
    """The operator that gives a row for each event."""

    def __init__(
        self,
        length_us: int,
        aggregations: Sequence[Aggregation],
        values: pa.Schema,
        late: Lateness = Drop(),  # noqa: B008 - a value without state
        *,
        passed: Sequence[str] = (),
    ) -> None:
        """Take the length, what is computed of which values, and what becomes of late events.

        Args:
            length_us: How far an event looks back.
            aggregations: What is computed.
            values: All values that events come with.
            late: What becomes of late events.
            passed: The values of an event itself that follow its results.
        """
        if length_us < 0:
            raise WindowSettingError(f"no event can look {length_us} microseconds back")
        self._length_us = length_us
        self._until_us = late.until_us
        self._aggregations = Aggregations(aggregations)
        self._passed = tuple(passed)
        order = [pa.field(name, pa.int64()) for name in _ORDER]
        rest = [pa.field(TOPIC, pa.string()), pa.field(VERSION, pa.int64()), *values]
        self._kept = pa.schema([*order, *rest])
        places = (TOPIC, PARTITION, OFFSET, _NUMBER) if self._aggregations.is_ordered else ()
        self._read = [TIME, *places, *self._aggregations.columns]
        self._waiting = Agenda("waiting", pa.schema([*self._kept, (DUE, pa.int64())]), _ORDER)
        self.inputs = (values,)
        results = self._aggregations.fields(first=0)
        self.output = pa.schema(
            [*results]
            + [
                pa.field(value_name(len(results) + number), values.field(name).type)
                for number, name in enumerate(self._passed)
            ]
        )
        self.hold_us = late.until_us

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {
            "windows": f"the last {duration_text(self._length_us)}",
            "aggregates": " and ".join(self._aggregations.labels),
            "results are corrected for": duration_text(self._until_us),
        }

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""
        return State({}, {})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Keep all rows: each of them gives one."""
        refuse_retractions(rows, "hf.window")
        wanted = (KEY, TIME, TOPIC, PARTITION, OFFSET, *self.inputs[0].names)
        return rows.select([name for name in wanted if name in rows.column_names])

    def late(
        self,
        which: int,  # noqa: ARG002 - there is but one
        rows: pa.Table,
        previous: int | None,
    ) -> tuple[Bools, Int64s]:
        """Tell which events come when the watermark has passed them for good, and by how much."""
        kept_us = self._until_us + 1
        is_late, since_us = late_rows(rows, previous, lambda times: times + kept_us)
        is_timed = arrays.whole(rows.column(TIME)).is_valid().to_numpy(zero_copy_only=False)
        return is_late, np.where(is_late & is_timed, since_us + kept_us, 0)

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Take events in, correct what late ones change, and give those that are due."""
        tables = dict(state.tables)
        seen = tables.pop(_SEEN, None) or Table.empty(self._kept, _ORDER)
        closed = cast("int | None", state.values.get(_CLOSED))
        given: list[pa.Table] = []
        if time.previous is not None and (closed is None or closed < time.previous):
            # A bucket that was not told of a batch gives what was due then first.
            seen = self._give(tables, seen, self._nothing(), time.previous, given)
            closed = time.previous

        is_late, _ = self.late(0, inputs[0], time.previous)
        number = cast("int", state.values.get(_NEXT, 0))
        events = self._as_kept(inputs[0].filter(pa.array(~is_late)), number)
        number += events.num_rows
        if closed is not None and events.num_rows:
            is_behind = pa.array(int64s(events, TIME) < closed)
            seen = self._correct(seen, events.filter(is_behind), given)
            events = events.filter(pa.array(int64s(events, TIME) >= closed))

        seen = self._give(tables, seen, events, time.now, given)
        closed = closed if time.now is None else time.now
        if seen.runs:
            tables[_SEEN] = seen
        values = {_NEXT: number} if closed is None else {_NEXT: number, _CLOSED: closed}
        late = late_events(inputs[0], is_late)
        return Step(State(tables, values), together(self.output, given), late)

    def _give(
        self,
        tables: dict[str, Table],
        seen: Table,
        events: pa.Table,
        now: int | None,
        given: list[pa.Table],
    ) -> Table:
        """Give events that the watermark has passed, and return what later ones can see."""
        # Due when the watermark is not at, but behind its time.
        waiting = events.append_column(DUE, pa.array(int64s(events, TIME) + 1))
        due = self._waiting.advance(tables, waiting, now)
        if due:
            fresh = pa.concat_tables(due).drop_columns([DUE]).combine_chunks()
            found = self._events(seen, fresh, self._read)
            chosen = np.flatnonzero(found.is_fresh)
            mine = fresh.take(pa.array(found.places[chosen] - (len(found.codes) - len(chosen))))
            given.append(self._results(found, chosen, mine, INSERT))
            seen = seen.put(fresh)
        if now is None or not seen.runs:
            return seen
        return seen.expire(TIME, now - self._until_us - self._length_us)

    def _correct(self, seen: Table, late: pa.Table, given: list[pa.Table]) -> Table:
        """Give late events, and those again that see them."""
        if not late.num_rows:
            return seen
        versions = pa.array(np.ones(late.num_rows, np.int64))
        late = late.set_column(late.column_names.index(VERSION), VERSION, versions)
        found = self._events(seen, late, self._kept.names)
        is_seeing = self._sees_fresh(found)
        again = np.flatnonzero(is_seeing & ~found.is_fresh)
        without = found.rows.filter(pa.array(~found.is_fresh))
        places = np.cumsum(~found.is_fresh) - 1
        before = _Events(
            found.keys,
            found.codes[~found.is_fresh],
            without,
            np.arange(without.num_rows),
            np.zeros(without.num_rows, np.bool_),
        )
        if len(again):
            mine = found.rows.take(pa.array(again))
            given.append(self._results(before, places[again], mine, RETRACT))
        versions = int64s(found.rows, VERSION) + (is_seeing & ~found.is_fresh)
        rows = found.rows.set_column(
            found.rows.column_names.index(VERSION), VERSION, pa.array(versions)
        )
        changed = np.flatnonzero(is_seeing)
        mine = rows.take(pa.array(changed))
        given.append(self._results(found, changed, mine, INSERT))
        keys = found.keys.take(pa.array(found.codes[changed]))
        return seen.put(mine.add_column(0, KEY, keys))

    def _sees_fresh(self, events: _Events) -> Bools:
        """Tell which events see one that has just come."""
        lows, highs = self._ranges(events)
        before = np.concatenate([[0], np.cumsum(events.is_fresh)])
        found: Bools = before[highs] > before[lows]
        return found

    def _events(self, seen: Table, fresh: pa.Table, columns: Sequence[str]) -> _Events:
        """Return some columns of fresh events and of all that their keys have seen."""
        keys = arrays.whole(fresh.column(KEY))
        codes, firsts = group(keys)
        keys = keys.take(pa.array(firsts))
        known = seen.find(keys, columns)
        rows = pa.concat_tables([known.rows, fresh.select(columns)]).combine_chunks()
        codes = np.concatenate([known.codes, codes])
        numbers = (int64s(rows, _NUMBER),) if _NUMBER in columns else ()
        order = np.lexsort((*numbers, int64s(rows, TIME), codes))
        is_fresh = np.arange(len(codes)) >= known.rows.num_rows
        return _Events(keys, codes[order], rows.take(pa.array(order)), order, is_fresh[order])

    def _ranges(self, events: _Events) -> tuple[Int64s, Int64s]:
        lows, highs = (np.empty(len(events.codes), np.int64) for _ in range(2))
        find_ranges(events.codes, int64s(events.rows, TIME), self._length_us, lows, highs)
        return lows, highs

    def _results(self, events: _Events, chosen: Int64s, mine: pa.Table, weight: int) -> pa.Table:
        """Return rows for some of the events, in their order; `mine` has all columns of these."""
        rows = events.rows
        if PARTITION in rows.column_names:
            partitions = rows.column(PARTITION).cast(pa.int32())
            rows = rows.set_column(rows.column_names.index(PARTITION), PARTITION, partitions)
        lows, highs = self._ranges(events)
        partials = aggregate_ranges(self._aggregations, rows, lows[chosen], highs[chosen])
        times = int64s(mine, TIME)
        keys = events.keys.take(pa.array(events.codes[chosen]))
        with overflow_named(keys, times - self._length_us):
            results = self._aggregations.finish(partials)
        found = result_rows(
            self.output,
            keys,
            times=times,
            weight=weight,
            versions=int64s(mine, VERSION),
            values=[*results, *(arrays.whole(mine.column(name)) for name in self._passed)],
        )
        topics = topic_ranks(arrays.whole(mine.column(TOPIC)))
        places = (topics, int64s(mine, PARTITION), int64s(mine, OFFSET), int64s(mine, _NUMBER))
        return found.take(pa.array(sorted_rows([times, *places])))

    def _as_kept(self, rows: pa.Table, first: int) -> pa.Table:
        """Return events as they lie in state, numbered from `first` on."""
        count = rows.num_rows
        columns = {KEY: rows.column(KEY), TIME: rows.column(TIME)}
        if TOPIC in rows.column_names:
            topics = arrays.whole(rows.column(TOPIC)).cast(pa.string())
            columns[_SOURCE] = pa.array(hashes(topics.fill_null("")).view(np.int64))
        else:
            topics = pa.nulls(count, pa.string())
            columns[_SOURCE] = pa.array(np.zeros(count, np.int64))
        columns[PARTITION] = rows.column(PARTITION).cast(pa.int64())
        columns[OFFSET] = rows.column(OFFSET)
        columns[_NUMBER] = pa.array(np.arange(first, first + count))
        columns[TOPIC] = topics
        columns[VERSION] = pa.array(np.zeros(count, np.int64))
        columns |= {name: rows.column(name) for name in self.inputs[0].names}
        return pa.table(columns, schema=pa.schema([(KEY, pa.binary()), *self._kept]))

    def _nothing(self) -> pa.Table:
        return pa.schema([(KEY, pa.binary()), *self._kept]).empty_table()
