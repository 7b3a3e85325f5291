"""The first rows of each key, by columns that are asked for.

This file alone decides which rows these are, and what is taken back when others come before them.
It knows no time: nothing is late, and nothing is ever finished.

Of events, only the rows that are given are kept: none that is not among the first now will be among
them later. Rows that are equal in what they are ordered by stand as in the log: by topic, partition
and offset. Of changes, all rows are kept, because any of the first may be taken back and let the
next one in; each batch reads all rows of the keys that it changes. Where they come from says
nothing any more, so equal ones stand by the bytes of all their values, which is no order that means
anything, but always the same.

Rows may be given with their rank, 1 for the first: then a row that falls back is taken back, and
given again with the rank that it has.

`version` counts how often the rows of a key have changed. It is kept with the rows, so when the
newest of a key go and none come, all keys of the bucket go on from there: of one key, what is given
later has a higher version.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bools, Int64s, int64s
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.grouping import group
from headwater.streams.kernel.keys import encode_keys
from headwater.streams.kernel.operator import (
    KEY,
    OFFSET,
    PARTITION,
    TOPIC,
    WEIGHT,
    Step,
    Time,
    value_name,
)
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table
from headwater.streams.windows.aggregation import Places
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.ordered import topic_ranks
from headwater.streams.windows.ranking import (
    Order,
    check_order_type,
    places_within,
    ranks_of,
    sort_keys,
    sorted_rows,
)
from headwater.streams.windows.results import (
    INSERT,
    RETRACT,
    canonical_order,
    refuse_retractions,
    result_rows,
    together,
)

_ROWS: Final = "rows"
_NEXT: Final = "next"
_NUMBER: Final = "number"
_VERSION: Final = "version"
_FLOOR: Final = "floor"
"""The least version that is given; 0 as long as no key has lost its newest rows."""

_PLACE: Final = ((TOPIC, pa.string()), (PARTITION, pa.int32()), (OFFSET, pa.int64()))
_NOT_GIVEN: Final = -1


class _Candidates(NamedTuple):
    """The rows of the keys that a batch changes, in their order.

    Attributes:
        rows: Their columns of state; what is new has the number -1 and the version -1.
        codes: By row, which of the step's keys it has; ascending.
        stays: By row, whether it is there after the batch.
        was: By row, its rank before the batch, 0 where it was not among the first.
        now: By row, its rank after the batch, 0 where it is not among the first.
    """

    rows: pa.Table
    codes: Int64s
    stays: Bools
    was: Int64s
    now: Int64s


class TopRows:
    """The operator for the first rows of each key."""

    hold_us = 0

    def __init__(
        self,
        count: int,
        order: Sequence[Order],
        values: pa.Schema,
        *,
        ranked: bool = False,
        retracts: bool = False,
    ) -> None:
        """Prepare the operator.

        Args:
            count: How many rows of each key are given.
            order: What they are ordered by; of `values`.
            values: The columns of rows.
            ranked: Whether rows are given with their rank, behind their values.
            retracts: Whether the input takes rows back: `weight` says so.
        """
        if count < 1:
            raise WindowSettingError(f"the first {count} rows are none", hint="ask for one or more")
        for column, _ in order:
            check_order_type(column, values.field(column).type)
        self._count, self._order = count, tuple(order)
        self._ranked, self._retracts = ranked, retracts
        types = [*values.types, *([pa.int64()] if ranked else [])]
        self.inputs = (values,)
        self.output = pa.schema([(value_name(number), kind) for number, kind in enumerate(types)])
        place = () if retracts else _PLACE
        self._kept = pa.schema([(_NUMBER, pa.int64()), (_VERSION, pa.int64()), *place, *values])
        self.parameters = {
            "rows of each key": count,
            "order": ", ".join(f"{name}{' desc' * descending}" for name, descending in order),
            "input": "changes" if retracts else "events",
        }

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""
        return State({_ROWS: Table.empty(self._kept, order=[_NUMBER])}, {_NEXT: 0})

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Leave out events that cannot be among the first."""
        if self._retracts:
            return rows
        refuse_retractions(rows, "hf.top of events")
        codes = group(arrays.whole(rows.column(KEY))).codes
        order = sorted_rows([codes, *sort_keys(rows, self._order), *_log_places(rows)])
        first = order[places_within(codes[order]) < self._count]
        return rows.take(pa.array(np.sort(first)))

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:  # noqa: ARG002
        """Take rows in."""
        (rows,) = inputs
        if not rows.num_rows:
            return Step(state, together(self.output, []))
        codes, firsts = group(arrays.whole(rows.column(KEY)))
        keys = arrays.whole(rows.column(KEY)).take(pa.array(firsts))
        # Which row of a key comes first depends on what `combine` has left out.
        order = canonical_order(keys)
        codes = np.argsort(order)[codes]
        keys = keys.take(pa.array(order))
        found = self._candidates(state.tables[_ROWS], keys, rows, codes)
        floor = cast("int", state.values.get(_FLOOR, 0))
        versions = np.maximum(
            _next_versions(found.codes, int64s(found.rows, _VERSION), len(keys)), floor
        )
        state = self._changed(state, keys, found, versions)
        return Step(state, self._given(keys, found, versions))

    def _candidates(self, table: Table, keys: pa.Array, rows: pa.Table, new: Int64s) -> _Candidates:
        old = table.find(keys)
        parts = [old.rows, self._as_kept(rows)]
        both = pa.concat_tables([part.select(self._kept.names) for part in parts]).combine_chunks()
        codes = np.concatenate([old.codes, new])
        is_new = np.arange(len(codes)) >= len(old.codes)
        ties = self._ties(both)
        numbers = int64s(both, _NUMBER)
        compared = [codes, *sort_keys(both, self._order), *ties]
        order = sorted_rows([*compared, is_new.astype(np.int64), numbers, np.arange(len(codes))])
        both, codes, is_new = both.take(pa.array(order)), codes[order], is_new[order]
        stays = np.ones(len(codes), np.bool_)
        if self._retracts:
            weights = np.ones(len(codes), np.int64)
            weights[is_new] = _weights(rows)[order[is_new.nonzero()] - len(old.codes)]
            stays = _left(codes, ties[0][order], weights)
        was = self._ranks(codes, ~is_new)
        now = self._ranks(codes, stays)
        if not self._retracts:
            stays = now > 0
        return _Candidates(both, codes, stays, was, now)

    def _as_kept(self, rows: pa.Table) -> pa.Table:
        nothing = pa.array(np.full(rows.num_rows, -1, np.int64))
        columns: dict[str, Any] = {_NUMBER: nothing, _VERSION: nothing}
        if not self._retracts:
            places = Places(rows)
            columns |= {
                TOPIC: places.topics,
                PARTITION: places.partitions,
                OFFSET: places.offsets,
            }
        columns |= {name: rows.column(name) for name in self.inputs[0].names}
        return pa.table(columns)

    def _ties(self, rows: pa.Table) -> list[Int64s]:
        if not self._retracts:
            return _log_places(rows)
        values = [arrays.whole(rows.column(name)) for name in self.inputs[0].names]
        return [ranks_of(encode_keys(values, rows.num_rows))]

    def _ranks(self, codes: Int64s, there: Bools) -> Int64s:
        """Return the ranks of the rows that are there, 0 for those that are not among the first."""
        ranks = np.zeros(len(codes), np.int64)
        ranks[there] = 1 + places_within(codes[there])
        ranks[ranks > self._count] = 0
        return ranks

    def _come(self, found: _Candidates) -> Bools:
        same = (found.was == found.now) if self._ranked else (found.was > 0)
        return (found.now > 0) & ~same

    def _gone(self, found: _Candidates) -> Bools:
        same = (found.was == found.now) if self._ranked else (found.now > 0)
        return (found.was > 0) & ~same

    def _changed(self, state: State, keys: pa.Array, found: _Candidates, new: Int64s) -> State:
        numbers, versions = int64s(found.rows, _NUMBER).copy(), int64s(found.rows, _VERSION)
        is_new = numbers < 0
        removed = found.rows.filter(pa.array(~is_new & ~found.stays)).select([_NUMBER])
        codes = found.codes[~is_new & ~found.stays]
        table = state.tables[_ROWS]
        table = table.remove(removed.add_column(0, KEY, keys.take(pa.array(codes))))

        begin = cast("int", state.values[_NEXT])
        added = is_new & found.stays
        numbers[added] = np.arange(begin, begin + added.sum())
        come = self._come(found)
        versions = np.where(found.now == 0, _NOT_GIVEN, np.where(come, new[found.codes], versions))
        written = found.stays & (is_new | (versions != int64s(found.rows, _VERSION)))
        columns = dict(zip(found.rows.column_names, found.rows.columns, strict=True))
        columns[_NUMBER], columns[_VERSION] = pa.array(numbers), pa.array(versions)
        columns[KEY] = keys.take(pa.array(found.codes))
        table = table.put(pa.table(columns).filter(pa.array(written)))
        left = np.where(found.stays, versions, _NOT_GIVEN)
        forgotten = new[_next_versions(found.codes, left, len(keys)) < new]
        floor = int(forgotten.max(initial=cast("int", state.values.get(_FLOOR, 0))))
        values = {_NEXT: begin + int(added.sum())} | ({_FLOOR: floor} if floor else {})
        return State({_ROWS: table}, values)

    def _given(self, keys: pa.Array, found: _Candidates, new: Int64s) -> pa.Table:
        parts = []
        for chosen, weight in ((self._gone(found), RETRACT), (self._come(found), INSERT)):
            codes = found.codes[chosen]
            rows = found.rows.filter(pa.array(chosen))
            values = [arrays.whole(rows.column(name)) for name in self.inputs[0].names]
            ranks = (found.was if weight == RETRACT else found.now)[chosen]
            parts.append(
                result_rows(
                    self.output,
                    keys.take(pa.array(codes)),
                    times=pa.nulls(len(codes), pa.int64()),
                    weight=weight,
                    versions=int64s(rows, _VERSION) if weight == RETRACT else new[codes],
                    values=[*values, *([ranks] if self._ranked else [])],
                )
            )
        return together(self.output, parts)


def _log_places(rows: pa.Table) -> list[Int64s]:
    """Return where rows stand in the log, as numbers to sort by."""
    places = Places(rows)
    return [
        topic_ranks(places.topics),
        arrays.numbers(places.partitions, np.int32).astype(np.int64),
        arrays.numbers(places.offsets, np.int64),
    ]


def _next_versions(codes: Int64s, versions: Int64s, keys: int) -> Int64s:
    """Return, for each key, one more than the versions of its rows."""
    found = np.full(keys, _NOT_GIVEN, np.int64)
    np.maximum.at(found, codes, versions)
    return found + 1


def _left(codes: Int64s, values: Int64s, weights: Int64s) -> Bools:
    """Tell which rows are left, of rows whose equals stand together, the old ones before the new.

    Raises:
        RetractionError: More rows are taken back than there are.
    """
    begins = np.r_[True, (codes[1:] != codes[:-1]) | (values[1:] != values[:-1])][: len(codes)]
    runs = np.cumsum(begins) - 1
    left = np.zeros(runs[-1] + 1, np.int64)
    np.add.at(left, runs, weights)
    if (left < 0).any():
        raise RetractionError(
            "a row is taken back that is not there",
            hint="changes must be those of one table, all of them and each once",
        )
    # Rows that take others back are none themselves; of the others the first are left.
    appears = weights > 0
    before: Int64s = np.cumsum(appears) - appears
    firsts = np.flatnonzero(begins)
    stays: Bools = appears & (before - before[firsts][runs] < left[runs])
    return stays


def _weights(rows: pa.Table) -> Int64s:
    found: Int64s = arrays.numbers(arrays.whole(rows.column(WEIGHT)), np.int8).astype(np.int64)
    return found
