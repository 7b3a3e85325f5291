"""Stream-table join as of event time: each row with what the table said at its time.

This file alone decides which version of a table's row belongs to a row of a stream, when that is
certain, and what a version that comes late corrects. The table is the right side: each row is a
version that holds from its time on; a row with weight -1, whatever its values, says that from its
time on there is none. A row of the stream gets, of the versions of its key that are not later than
itself, the one with the largest (time, topic, partition, offset).

- A row of time t waits until the watermark is above t. While it is t, a version of time t may still
  come on time (late is what is before the watermark), and it would be the one that counts.
- Late is what is before the watermark of the last batch, on either side; it is counted.
- Rows that were given are kept for `until_us` behind the watermark. A late version corrects those
  of them that it changes: the old one is taken back, the new one appears with the next version
  number. With `until_us` of 0 nothing is kept and nothing is corrected.
- A late version always holds for whatever is not given yet, and for what is kept: to lose it would
  leave the table wrong for good.
- A late row of the stream is joined at once if it is not more than `until_us` behind the watermark,
  with version 1, because it is not on time; else it is dropped.
- Versions that no such row can ask for any more are forgotten: those that another one has followed.
- So is the end of a row, but only `ends_kept_us` after nobody can ask for it. A version that is
  dated before an end may come late, and must not bring the row back. It cannot be refused instead:
  a version of long ago that is the first of its key looks just the same, and would be missed. Only
  a version that is dated before an end, and comes when that is forgotten, brings the row back.

Rows with a null in their key, or without a time, belong to nothing: a left join gives them at once.
A version without a time is ignored: nobody could say from when it holds.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headwater.streams.joins.errors import JoinOptionError
from headwater.streams.joins.pairs import find_last
from headwater.streams.joins.places import due, stretch_keys
from headwater.streams.joins.rows import (
    LEFT,
    NO_TIME,
    RIGHT,
    Input,
    Layout,
    Part,
    TooLate,
    check_kind,
    check_plain,
    late_rows,
    outer_sides,
    read,
    taken,
    weights_of,
)
from headwater.streams.kernel.arrays import Bools, Int64s, frozen, int64s, whole
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import (
    KEY,
    OFFSET,
    PARTITION,
    TIME,
    TOPIC,
    VERSION,
    Step,
    Time,
)
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.time.durations import duration_text

_VERSIONS: Final = "versions"
_WAITING: Final = "waiting"
_GIVEN: Final = "given"

_SOURCE: Final = "source"
_NUMBER: Final = "number"
_END: Final = "end"
_IS_END: Final = "is_end"
_OWNER: Final = "owner"
_LEFT_ORDER: Final = (TIME, _NUMBER)
_VERSION_ORDER: Final = (TIME, _SOURCE, OFFSET, _NUMBER)
_NEXT: Final = "next"
_TOPICS: Final = "topics"

ENDS_KEPT_US: Final = 86_400_000_000
"""A day: as long as a compacted topic keeps a record that deletes (Kafka's delete.retention.ms)."""

_FOREVER: Final = np.iinfo(np.int64).max
_TOPIC_SHIFT: Final = 32


class _Lefts(NamedTuple):
    """Rows of the stream.

    Attributes:
        keys: Their keys.
        times: By row.
        numbers: By row, its number in the order in which the bucket has seen them.
        values: c0, c1, ...
    """

    keys: pa.BinaryArray
    times: Int64s
    numbers: Int64s
    values: pa.Table

    def at(self, rows: Int64s) -> "_Lefts":
        """Return some of the rows."""
        return _Lefts(
            self.keys.take(pa.array(rows)),
            self.times[rows],
            self.numbers[rows],
            taken(self.values, rows),
        )


class _Versions(NamedTuple):
    """Versions of some keys, in order of code, time and where they come from.

    Attributes:
        codes: By version, which of the step's keys it has.
        rows: The columns of the table of versions.
        identity: By version, a number that no other version in the step has.
    """

    codes: Int64s
    rows: pa.Table
    identity: Int64s

    def as_of(self, codes: Int64s, times: Int64s) -> Int64s:
        """Return which version belongs to each row; -1 where there is none."""
        found = np.empty(len(codes), np.int64)
        find_last((frozen(codes), frozen(times)), (self.codes, int64s(self.rows, TIME)), found)
        is_end = _bools(self.rows, _IS_END)
        if len(is_end):
            found[(found >= 0) & is_end[found]] = -1
        return found

    def identities(self, found: Int64s) -> Int64s:
        """Return the identity of versions; -1 for none."""
        return np.where(found >= 0, self.identity[found], -1) if len(self.identity) else found


class AsofJoin:
    """Joins the rows of a stream with the versions of a table that held at their times."""

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        *,
        kind: str,
        until_us: int = 0,
        ends_kept_us: int = ENDS_KEPT_US,
    ) -> None:
        """Prepare the join.

        Args:
            left: The values of the stream.
            right: The values of the table.
            kind: inner or left.
            until_us: How far behind the watermark results are corrected; 0 for not at all.
            ends_kept_us: For how long behind that it is known that a row of the table has ended.
        """
        check_kind(kind, ("inner", "left"))
        if until_us < 0:
            raise JoinOptionError(f"corrections until {until_us} us behind the watermark")
        self.inputs = (left, right)
        self.parameters = {"kind": kind, "results are corrected for": duration_text(until_us)}
        self._layout = Layout(left, right)
        self.output = self._layout.values
        self.hold_us = until_us
        self._until_us = until_us
        self._ends_kept_us = ends_kept_us
        self._too_late = TooLate(until_us, outer_sides(kind))
        self._outer = kind == "left"

    def start(self) -> State:
        """Return a state without rows and versions."""
        left = self.inputs[LEFT]
        owner = pa.field(_OWNER, pa.binary())
        tables = {
            _VERSIONS: Table.empty(self._version_schema(), _VERSION_ORDER),
            _WAITING: Table.empty(
                pa.schema([*_int64_fields(*_LEFT_ORDER), owner, *left]), _LEFT_ORDER
            ),
        }
        if self._until_us:
            schema = pa.schema([*_int64_fields(*_LEFT_ORDER, VERSION), *left])
            tables[_GIVEN] = Table.empty(schema, _LEFT_ORDER)
        return State(tables, {_NEXT: 0, _TOPICS: []})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - nothing to combine
        """Return the rows as they are: each of them counts."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Take versions in, correct what they change, and give the rows whose time has come."""
        check_plain(inputs[LEFT], "left")
        late = sum(int(late_rows(rows, time.previous)[0].sum()) for rows in inputs)
        tables = dict(state.tables)
        first = cast("int", state.values[_NEXT])
        topics = [*cast("list[str]", state.values[_TOPICS])]
        admitted = self._admitted(inputs[LEFT], time)
        ready = self._ready(tables, admitted.where(admitted.matchable), first, time)
        arrived = self._arrived(inputs[RIGHT], first + len(admitted), topics)

        parts: list[Part] = []
        if arrived.num_rows or len(ready.times):
            parts += self._joined(tables, ready, arrived, topics, time.previous)
        if self._outer:
            alone = admitted.where(~admitted.matchable)
            parts.append(Part(alone.keys, alone.times, alone.values, None))
        if time.now is not None:
            horizon = time.now - self._until_us
            tables[_VERSIONS] = tables[_VERSIONS].expire(_END, horizon + 1)
            if self._until_us:
                tables[_GIVEN] = tables[_GIVEN].expire(TIME, horizon)
        values = {_NEXT: first + len(admitted) + arrived.num_rows, _TOPICS: topics}
        return Step(State(tables, values), self._layout.assembled(parts), late)

    def _joined(
        self,
        tables: dict[str, Table],
        ready: _Lefts,
        arrived: pa.Table,
        topics: Sequence[str],
        previous: int | None,
    ) -> list[Part]:
        """Return what new versions correct, and the rows whose time has come."""
        keys = pa.concat_arrays([whole(arrived.column(KEY)), ready.keys])
        groups = group(keys)
        keys = keys.take(pa.array(groups.firsts))
        codes, ready_codes = np.split(groups.codes, [arrived.num_rows])
        found = tables[_VERSIONS].find(keys)
        before = _in_order(found.codes, found.rows, topics)
        after = _in_order(
            np.concatenate([found.codes, codes]),
            pa.concat_tables([found.rows, arrived.drop_columns([KEY])]),
            topics,
        )
        parts: list[Part] = []
        if self._until_us and previous is not None:
            late = np.unique(codes[int64s(arrived, TIME) < previous])
            parts += self._corrected(tables, keys, late, before, after)
        parts.append(self._given(tables, ready, after, ready_codes, previous))
        if arrived.num_rows:
            _keep(tables, keys, after, len(found.codes), self._ends_kept_us)
        return parts

    def _admitted(self, rows: pa.Table, time: Time) -> Input:
        """Return the rows of the stream that are not too late to be joined."""
        admitted = read(rows, self.inputs[LEFT])
        too_late, _ = self._too_late.late(LEFT, rows, time.previous)
        return admitted.where(~too_late)

    def _ready(self, tables: dict[str, Table], new: Input, first: int, time: Time) -> _Lefts:
        """Return the rows whose time has come, and let the others wait."""
        names = self.inputs[LEFT].names
        rows = _Lefts(new.keys, new.times, np.arange(first, first + len(new)), new.values)
        waits = np.ones(len(new), np.bool_) if time.now is None else new.times >= time.now
        later = rows.at(np.flatnonzero(waits))
        columns = [stretch_keys(later.times), pa.array(later.times), pa.array(later.numbers)]
        table = tables[_WAITING].put(
            pa.table(
                [*columns, later.keys, *later.values.columns],
                names=[KEY, *_LEFT_ORDER, _OWNER, *names],
            )
        )
        tables[_WAITING] = table
        ready = rows.at(np.flatnonzero(~waits))
        if time.now is None:
            return ready
        waited = due(table, time.previous, time.now)
        tables[_WAITING] = table.expire(TIME, time.now)
        both = _Lefts(
            pa.concat_arrays([whole(waited.column(_OWNER)), ready.keys]),
            np.concatenate([int64s(waited, TIME), ready.times]),
            np.concatenate([int64s(waited, _NUMBER), ready.numbers]),
            pa.concat_tables([waited.select(names), ready.values]),
        )
        return both.at(np.lexsort((both.numbers, both.times)))

    def _arrived(self, rows: pa.Table, first: int, topics: list[str]) -> pa.Table:
        """Return the new versions as the table keeps them; topics that are new are noted."""
        versions = read(rows, self.inputs[RIGHT])
        chosen = np.flatnonzero(versions.matchable)
        versions = versions.where(versions.matchable)
        columns = {KEY: versions.keys, TIME: pa.array(versions.times)}
        if len(chosen):
            columns[_SOURCE] = pa.array(_sources(rows, topics)[chosen])
            columns[OFFSET] = rows.column(OFFSET).cast(pa.int64()).take(pa.array(chosen))
        else:
            columns[_SOURCE] = columns[OFFSET] = pa.array([], pa.int64())
        columns[_NUMBER] = pa.array(np.arange(first, first + len(chosen)))
        columns[_END] = pa.array(np.full(len(chosen), _FOREVER))
        is_end = weights_of(rows)[chosen] < 0
        columns[_IS_END] = pa.array(is_end)
        # Nobody is given the values of an end, whatever they are.
        values = taken(versions.values, np.where(is_end, -1, np.arange(len(chosen))))
        columns |= dict(zip(values.column_names, values.columns, strict=True))
        return pa.table(columns, schema=pa.schema([(KEY, pa.binary()), *self._version_schema()]))

    def _corrected(
        self,
        tables: dict[str, Table],
        keys: pa.BinaryArray,
        changed: Int64s,
        before: _Versions,
        after: _Versions,
    ) -> list[Part]:
        """Take back what late versions have changed, and give it anew."""
        given = tables[_GIVEN].find(keys.take(pa.array(changed)))
        codes, times = changed[given.codes], int64s(given.rows, TIME)
        old, new = before.as_of(codes, times), after.as_of(codes, times)
        rows = np.flatnonzero(before.identities(old) != after.identities(new))
        old, new, times = old[rows], new[rows], times[rows]
        left = taken(given.rows, rows)
        owners = keys.take(pa.array(codes[rows]))
        versions = int64s(left, VERSION)
        place = left.schema.get_field_index(VERSION)
        left = left.set_column(place, left.schema.field(VERSION), pa.array(versions + 1))
        tables[_GIVEN] = tables[_GIVEN].put(left.add_column(0, KEY, owners))
        lefts = _Lefts(owners, times, int64s(left, _NUMBER), left.select(self.inputs[LEFT].names))
        return [
            self._part(lefts, before, old, -1, versions),
            self._part(lefts, after, new, 1, versions + 1),
        ]

    def _given(
        self,
        tables: dict[str, Table],
        ready: _Lefts,
        versions: _Versions,
        codes: Int64s,
        previous: int | None,
    ) -> Part:
        """Join the rows whose time has come, and keep them for as long as they may change."""
        late = ready.times < (NO_TIME if previous is None else previous)
        numbers = late.astype(np.int64)
        if self._until_us:
            columns = [ready.keys, pa.array(ready.times), pa.array(ready.numbers)]
            values = ready.values
            tables[_GIVEN] = tables[_GIVEN].put(
                pa.table(
                    [*columns, pa.array(numbers), *values.columns],
                    names=[KEY, *_LEFT_ORDER, VERSION, *values.column_names],
                )
            )
        found = versions.as_of(codes, ready.times)
        return self._part(ready, versions, found, 1, numbers)

    def _part(
        self, lefts: _Lefts, versions: _Versions, found: Int64s, weight: int, numbers: Int64s
    ) -> Part:
        if not self._outer:
            rows = np.flatnonzero(found >= 0)
            lefts, found, numbers = lefts.at(rows), found[rows], numbers[rows]
        right = taken(versions.rows.select(self.inputs[RIGHT].names), found)
        return Part(lefts.keys, lefts.times, lefts.values, right, weight, numbers)

    def _version_schema(self) -> pa.Schema:
        return pa.schema(
            [
                *_int64_fields(*_VERSION_ORDER, _END),
                pa.field(_IS_END, pa.bool_()),
                *self.inputs[RIGHT],
            ]
        )


def _keep(
    tables: dict[str, Table],
    keys: pa.BinaryArray,
    versions: _Versions,
    known: int,
    ends_kept_us: int,
) -> None:
    """Keep versions with the time at which the next one follows: when they can be forgotten."""
    times = int64s(versions.rows, TIME)
    ends = np.full(len(times), _FOREVER)
    followed = versions.codes[1:] == versions.codes[:-1]
    ends[:-1][followed] = times[1:][followed]
    # An end is as good as nothing once nobody can ask for its own time, and nothing older comes.
    is_end = _bools(versions.rows, _IS_END)
    ends[is_end] = np.minimum(ends[is_end], times[is_end] + 1 + ends_kept_us)
    is_new = versions.identity >= known
    rows = np.flatnonzero(is_new | (ends != int64s(versions.rows, _END)))
    place = versions.rows.schema.get_field_index(_END)
    changed = taken(versions.rows.set_column(place, _END, pa.array(ends)), rows)
    owners = keys.take(pa.array(versions.codes[rows]))
    tables[_VERSIONS] = tables[_VERSIONS].put(changed.add_column(0, KEY, owners))


def _in_order(codes: Int64s, rows: pa.Table, topics: Sequence[str]) -> _Versions:
    """Put versions in order; topics count by their names, not by which was seen first."""
    sources = int64s(rows, _SOURCE)
    if len(topics) > 1:
        ranks = np.argsort(np.argsort(np.array(topics)))
        lower = sources & ((1 << _TOPIC_SHIFT) - 1)
        sources = (ranks[sources >> _TOPIC_SHIFT] << _TOPIC_SHIFT) | lower
    offsets, numbers = int64s(rows, OFFSET), int64s(rows, _NUMBER)
    order = np.lexsort((numbers, offsets, sources, int64s(rows, TIME), codes))
    return _Versions(frozen(codes[order]), taken(rows, order).combine_chunks(), order)


def _sources(rows: pa.Table, topics: list[str]) -> Int64s:
    """Return topic and partition of each row as one number; topics that are new are added."""
    partitions = whole(rows.column(PARTITION)).cast(pa.int64())
    partitions = partitions.to_numpy(zero_copy_only=False)
    names = rows.column(TOPIC) if TOPIC in rows.column_names else pa.repeat("", rows.num_rows)
    encoded = whole(names).dictionary_encode()
    named = encoded.dictionary.to_pylist()
    topics += sorted(set(named) - set(topics))
    places = np.array([topics.index(name) for name in named], np.int64)
    sources: Int64s = (places[encoded.indices.to_numpy()] << _TOPIC_SHIFT) | partitions
    return sources


def _int64_fields(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.int64()) for name in names]


def _bools(rows: pa.Table, name: str) -> Bools:
    return np.asarray(whole(rows.column(name)).to_numpy(zero_copy_only=False), np.bool_)
