"""Stream-stream join: rows of one key whose times are not too far apart.

This file alone decides which rows of two streams belong together, when it is certain that a row
will have no partner, and how long rows are kept. A left row belongs to each right row of its key
with a time from `lower_us` to `upper_us` of its own, both inclusive; either may be negative.

- A pair is given as soon as both rows are there. Its time is the later of theirs.
- A row is late if its time is before the watermark of the last batch. It is counted and not joined,
  even if a partner of it is still kept: else the answer would depend on what has been cleared away.
- Because of this a row of time t is without a partner for certain once the watermark has passed the
  latest time that a partner may have: a partner of that time would be late. Only then an outer join
  gives it, with nulls for the other side and its own time; and only then is the row forgotten.
- A row with a null in its key, or without a time, belongs to nothing; an outer join gives it at
  once.

State. Rows lie under their key and the stretch of time that they fall into. A stretch is as long as
the interval, so all partners of a row are in at most two of them, and what is read follows what is
found. For a side that is given without partners, a table by time tells which of its rows are still
alone. A key with n rows on one side and m on the other has n * m pairs, which must fit in memory:
they are counted first, before any condition is asked, and more than `pairs_max` in one step are an
error that names the key.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headwater.streams.joins.errors import JoinOptionError
from headwater.streams.joins.pairs import count_within
from headwater.streams.joins.places import due, stretch_keys, under_number
from headwater.streams.joins.rows import (
    LEFT,
    PAIRS_MAX,
    RIGHT,
    Condition,
    Input,
    Layout,
    Part,
    belonging,
    check_kind,
    check_pairs,
    check_plain,
    late_rows,
    outer_sides,
    pairs_of,
    read,
    taken,
)
from headwater.streams.kernel.arrays import Bools, Int64s, frozen, int64s, whole
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.operator import KEY, TIME, Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.time.durations import duration_text

_SIDES: Final = ("left", "right")
_ALONE: Final = ("left/alone", "right/alone")
_NUMBER: Final = "number"
_OWNER: Final = "owner"
_ORDER: Final = (TIME, _NUMBER)
_NEXT: Final = "next"

_REACH_US_MAX: Final = 2**61
"""Times are within 2**62, so that no sum overflows: 73,000 years."""


class _Rows(NamedTuple):
    """Rows of one side that a step looks at: the new ones, then those found in state.

    Attributes:
        new: How many are new.
        keys: The step's keys.
        codes: By row, which of the step's keys it has.
        times: By row.
        numbers: By row, its number in the order in which the bucket has seen them.
        values: c0, c1, ...
    """

    new: int
    keys: pa.BinaryArray
    codes: Int64s
    times: Int64s
    numbers: Int64s
    values: pa.Table


class _Search(NamedTuple):
    """The partners that the new rows of one side have among some rows of the other.

    Attributes:
        codes: The keys of the new rows.
        others: Which rows of the other side were searched, in order of key and time.
        starts: By new row, where its partners begin among those.
        counts: By new row, how many partners it has.
    """

    codes: Int64s
    others: Int64s
    starts: Int64s
    counts: Int64s

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Return the pairs: a new row and a row of the other side."""
        rows, partners = pairs_of(self.starts, self.counts)
        return rows, self.others[partners]


class IntervalJoin:
    """Joins two streams by key and by how far their times are apart."""

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        *,
        kind: str,
        lower_us: int,
        upper_us: int,
        condition: Condition | None = None,
        pairs_max: int = PAIRS_MAX,
    ) -> None:
        """Prepare the join.

        Args:
            left: The values of the left side.
            right: The values of the right side.
            kind: inner, left, right or full.
            lower_us: How long after the left row its partner is at least.
            upper_us: How long after the left row its partner is at most.
            condition: What else must hold for a pair.
            pairs_max: How many pairs one step may look at.
        """
        check_kind(kind)
        if not -_REACH_US_MAX <= lower_us <= upper_us <= _REACH_US_MAX:
            raise JoinOptionError(
                f"an interval from {lower_us} us to {upper_us} us",
                hint="its lower end must not be above its upper end",
            )
        self.inputs = (left, right)
        # What a function says cannot be compared, only whether there is one.
        self.parameters = {
            "kind": kind,
            "interval": f"{duration_text(lower_us)} to {duration_text(upper_us)}",
            "further condition": condition is not None,
        }
        self._layout = Layout(left, right)
        self.output = self._layout.values
        self._outer = outer_sides(kind)
        # By side: how long after its time a row may have partners.
        self._reach = ((lower_us, upper_us), (-upper_us, -lower_us))
        self._stretch_us = upper_us - lower_us + 1
        self._condition = condition
        self._pairs_max = pairs_max
        ends = [reach[1] for reach, outer in zip(self._reach, self._outer, strict=True) if outer]
        self.hold_us = max(0, *ends) if ends else 0

    def start(self) -> State:
        """Return a state without rows."""
        tables = {}
        for name, alone, values, outer in zip(
            _SIDES, _ALONE, self.inputs, self._outer, strict=True
        ):
            order = [pa.field(column, pa.int64()) for column in _ORDER]
            tables[name] = Table.empty(pa.schema([*order, *values]), _ORDER)
            if outer:
                owner = pa.field(_OWNER, pa.binary())
                tables[alone] = Table.empty(pa.schema([*order, owner]), _ORDER)
        return State(tables, {_NEXT: 0})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - nothing to combine
        """Return the rows as they are: each of them counts."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Join the new rows with each other and with those kept; let go of what is certain."""
        late = 0
        new: list[Input] = []
        nowhere: list[Part] = []
        for side, rows in enumerate(inputs):
            check_plain(rows, _SIDES[side])
            is_late, _ = late_rows(rows, time.previous)
            late += int(is_late.sum())
            admitted = read(rows, self.inputs[side]).where(~is_late)
            new.append(admitted.where(admitted.matchable))
            if self._outer[side]:
                rest = admitted.where(~admitted.matchable)
                nowhere.append(_alone(side, rest.keys, rest.times, rest.values))

        tables = dict(state.tables)
        parts = self._joined(state, tables, new, time) if any(map(len, new)) else []
        parts += nowhere
        for side in (LEFT, RIGHT):
            parts += self._let_go(tables, side, time)
        number = cast("int", state.values[_NEXT]) + len(new[LEFT]) + len(new[RIGHT])
        return Step(State(tables, {_NEXT: number}), self._layout.assembled(parts), late)

    def _joined(
        self, state: State, tables: dict[str, Table], new: Sequence[Input], time: Time
    ) -> list[Part]:
        """Return the pairs that new rows are in, and new rows that nothing can be paired with."""
        sides = self._gather(state, new)
        pairs = self._pairs(sides)
        parts = [_matched(sides, pairs)]
        for side, rows in enumerate(sides):
            has_partner = np.zeros(len(rows.codes), np.bool_)
            has_partner[pairs[side]] = True
            may_come = np.arange(len(has_partner)) < rows.new
            if time.now is not None:
                may_come &= rows.times >= time.now - self._reach[side][1]
            if self._outer[side]:
                parts.append(self._settle(tables, side, rows, has_partner, may_come))
            self._keep(tables, side, rows, may_come)
        return parts

    def _gather(self, state: State, new: Sequence[Input]) -> tuple[_Rows, _Rows]:
        """Return, of each side, the new rows and those kept that the other's new ones may need."""
        keys = pa.concat_arrays([new[LEFT].keys, new[RIGHT].keys])
        groups = group(keys)
        keys = keys.take(pa.array(groups.firsts))
        codes = (groups.codes[: len(new[LEFT])], groups.codes[len(new[LEFT]) :])
        first = cast("int", state.values[_NEXT])
        sides = []
        for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
            reach = self._reach[other]
            stretches = [(new[other].times + far) // self._stretch_us for far in reach]
            owners, places = _distinct(np.tile(codes[other], 2), np.concatenate(stretches))
            found = state.tables[_SIDES[side]].find(
                under_number(keys.take(pa.array(owners)), places)
            )
            kept = found.rows.select(self.inputs[side].names)
            numbers = np.arange(first, first + len(new[side]))
            rows = _Rows(
                len(new[side]),
                keys,
                frozen(np.concatenate([codes[side], owners[found.codes]])),
                frozen(np.concatenate([new[side].times, int64s(found.rows, TIME)])),
                frozen(np.concatenate([numbers, int64s(found.rows, _NUMBER)])),
                pa.concat_tables([new[side].values, kept]).combine_chunks(),
            )
            sides.append(rows)
            first += len(new[side])
        return sides[LEFT], sides[RIGHT]

    def _pairs(self, sides: tuple[_Rows, _Rows]) -> tuple[Int64s, Int64s]:
        """Return which left rows belong to which right ones; in each pair one is new."""
        left, right = sides
        both_new = self._search(LEFT, sides, _new_in_order(right))
        new_left = self._search(LEFT, sides, np.arange(right.new, len(right.codes)))
        new_right = self._search(RIGHT, sides, np.arange(left.new, len(left.codes)))
        counted = [(search.codes, search.counts) for search in (both_new, new_left, new_right)]
        check_pairs(left.keys, counted, self._pairs_max)
        found = [both_new.pairs(), new_left.pairs(), new_right.pairs()[::-1]]
        lefts, rights = (np.concatenate(rows) for rows in zip(*found, strict=True))
        if self._condition is None or not len(lefts):
            return lefts, rights
        keep = belonging(self._condition, (left.values, lefts), (right.values, rights))
        return lefts[keep], rights[keep]

    def _search(self, side: int, sides: tuple[_Rows, _Rows], others: Int64s) -> _Search:
        rows, other = sides[side], sides[1 - side]
        lower, upper = self._reach[side]
        codes, times = rows.codes[: rows.new], rows.times[: rows.new]
        search = _Search(codes, others, np.empty(rows.new, np.int64), np.empty(rows.new, np.int64))
        count_within(
            (codes, times),
            lower,
            upper,
            (frozen(other.codes[others]), frozen(other.times[others])),
            (search.starts, search.counts),
        )
        return search

    def _settle(
        self,
        tables: dict[str, Table],
        side: int,
        rows: _Rows,
        has_partner: Bools,
        may_come: Bools,
    ) -> Part:
        """Note which rows are still alone; return the new ones that will stay so."""
        new = np.arange(len(rows.codes)) < rows.new
        table = tables[_ALONE[side]]
        joined = rows.times[~new & has_partner], rows.numbers[~new & has_partner]
        table = table.remove(_by_time(*joined))
        waiting = may_come & ~has_partner
        owners = rows.keys.take(pa.array(rows.codes[waiting]))
        still = _by_time(rows.times[waiting], rows.numbers[waiting])
        tables[_ALONE[side]] = table.put(still.append_column(_OWNER, owners))
        chosen = np.flatnonzero(new & ~may_come & ~has_partner)
        owners = rows.keys.take(pa.array(rows.codes[chosen]))
        return _alone(side, owners, rows.times[chosen], taken(rows.values, chosen))

    def _keep(self, tables: dict[str, Table], side: int, rows: _Rows, may_come: Bools) -> None:
        """Keep the new rows that may still have partners."""
        chosen = np.flatnonzero(may_come)
        times = rows.times[chosen]
        owners = rows.keys.take(pa.array(rows.codes[chosen]))
        places = under_number(owners, times // self._stretch_us)
        columns = [places, pa.array(times), pa.array(rows.numbers[chosen])]
        values = taken(rows.values, chosen)
        tables[_SIDES[side]] = tables[_SIDES[side]].put(
            pa.table([*columns, *values.columns], names=[KEY, *_ORDER, *values.column_names])
        )

    def _let_go(self, tables: dict[str, Table], side: int, time: Time) -> list[Part]:
        """Forget the rows that no partner can come for; return those that have had none."""
        if time.now is None:
            return []
        upper = self._reach[side][1]
        name, alone = _SIDES[side], _ALONE[side]
        parts = []
        if self._outer[side]:
            since = None if time.previous is None else time.previous - upper
            rows = due(tables[alone], since, time.now - upper)
            if rows.num_rows:
                parts.append(self._waited(tables[name], side, rows))
            tables[alone] = tables[alone].expire(TIME, time.now - upper)
        tables[name] = tables[name].expire(TIME, time.now - upper)
        return parts

    def _waited(self, table: Table, side: int, rows: pa.Table) -> Part:
        """Return rows that were kept until now and have had no partner."""
        owners = whole(rows.column(_OWNER))
        times = int64s(rows, TIME)
        places = under_number(owners, times // self._stretch_us)
        kept = table.find(places.take(pa.array(group(places).firsts))).rows
        numbers = int64s(kept, _NUMBER)
        order = np.argsort(numbers, kind="stable")
        at = order[np.searchsorted(numbers[order], int64s(rows, _NUMBER))]
        return _alone(side, owners, times, taken(kept.select(self.inputs[side].names), at))


def _matched(sides: tuple[_Rows, _Rows], pairs: tuple[Int64s, Int64s]) -> Part:
    (left, right), (lefts, rights) = sides, pairs
    return Part(
        left.keys.take(pa.array(left.codes[lefts])),
        np.maximum(left.times[lefts], right.times[rights]),
        taken(left.values, lefts),
        taken(right.values, rights),
    )


def _alone(side: int, keys: pa.BinaryArray, times: Int64s, values: pa.Table) -> Part:
    return Part(keys, times, *((values, None) if side == LEFT else (None, values)))


def _by_time(times: Int64s, numbers: Int64s) -> pa.Table:
    columns = [stretch_keys(times), pa.array(times), pa.array(numbers)]
    return pa.table(columns, names=[KEY, *_ORDER])


def _new_in_order(rows: _Rows) -> Int64s:
    """Return the new rows in order of key and time, as those found in state are already."""
    return np.lexsort((rows.times[: rows.new], rows.codes[: rows.new]))


def _distinct(codes: Int64s, stretches: Int64s) -> tuple[Int64s, Int64s]:
    """Return each pair once, in order."""
    order = np.lexsort((stretches, codes))
    codes, stretches = codes[order], stretches[order]
    first = np.ones(len(codes), np.bool_)
    first[1:] = (codes[1:] != codes[:-1]) | (stretches[1:] != stretches[:-1])
    return codes[first], stretches[first]
