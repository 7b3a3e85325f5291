"""Joins of DataFrames: `hf.join_interval`, `hf.join_latest`, `hf.join_asof`, `hf.join_tables`.

This file alone decides how joins are asked for and how they are put together of operators. What
belongs together, the operators decide.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.errors import hints_shown
from headwater.streams.formats.dead_letters import kept_apart
from headwater.streams.formats.types import quoted
from headwater.streams.joins.asof import AsofJoin
from headwater.streams.joins.errors import JoinOptionError
from headwater.streams.joins.identified import IdentifiedTables
from headwater.streams.joins.interval import IntervalJoin
from headwater.streams.joins.latest import LatestJoin
from headwater.streams.joins.rows import KINDS, Condition, TooLate, check_kind, outer_sides
from headwater.streams.joins.sides import (
    On,
    Side,
    check_is_events,
    check_joined_by_key,
    result,
    sides,
    signed_us,
    table_key,
)
from headwater.streams.joins.table_changes import table_changes
from headwater.streams.kernel.buckets import DEFAULT_BUCKETS
from headwater.streams.kernel.changes import Kind, check_versions, may_retract
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.keys import check_key_type
from headwater.streams.kernel.operator import VERSION, value_name
from headwater.streams.kernel.plan import Prepared, apply, new_counts
from headwater.streams.kernel.ways import OP
from headwater.streams.kernel.whole import check_alike
from headwater.streams.time.clocks import HIDDEN, clock_of, delays_us_of, reattach
from headwater.streams.time.durations import Duration
from headwater.streams.windows.late import Late, check_late, check_time, late_records, time_us
from headwater.streams.windows.lateness import Drop

_Transform = Callable[[DataFrame], DataFrame]

_STREAM_TABLE = ("inner", "left")
_SPARKS_NAMES = {
    "outer": "full",
    "full_outer": "full",
    "left_outer": "left",
    "right_outer": "right",
}
"""What Spark calls kinds of joins besides."""


def join_interval(
    other: DataFrame,
    on: On,
    *,
    lower: Duration,
    upper: Duration,
    how: str = "inner",
    where: Condition | None = None,
    late: Late = Late(),  # noqa: B008 - a value without state
    buckets: int = DEFAULT_BUCKETS,
) -> _Transform:
    """Join two streams: rows of one key whose times are not too far apart.

    A row of the left side belongs to each row of the right one with a time from `lower` to `upper`
    of its own, both inclusive; they may be negative: `lower="-5 minutes"`. A pair comes out as soon
    as both rows are there. An outer join gives a row without a partner when the watermark shows
    that none can come any more.

    The result has the columns of `on`, then those of the left side, of the right one, `op` and
    `version`. Both sides need `hf.watermark`; its columns stay usable for `hf.window`.

    Args:
        other: The right side; it may be the left one itself.
        on: The columns to join by; {"left": "right"} where their names differ.
        lower: How long after the left row its partner is at least.
        upper: How long after the left row its partner is at most.
        how: inner, left, right or full.
        where: What else must hold for a pair: a function that is given an Arrow table of pairs,
            with the columns of both sides but for `on`, and returns booleans.
        late: What becomes of rows that come when the watermark has passed them: `hf.drop()` or
            `hf.divert(topic)`. They are counted in any case.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.

    Raises:
        JoinOptionError: The kind or the interval cannot be.
        JoinColumnError: From the function: the columns do not fit.
        WatermarkMissingError: From the function: a side has no watermark.
    """
    with hints_shown():
        how = _kind(how)
        lower_us, upper_us = _interval_us(lower, upper)
        _check_condition(where)
        check_late(late)
        if late.rule != Drop():
            raise JoinOptionError(
                "a join by interval gives only what is certain, and has nothing to correct",
                hint="use hf.drop() or hf.divert(topic), and a larger delay in hf.watermark",
            )

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            both = sides(rows, other, on)
            for side in both:
                check_is_events(side)
            left, right = (side.prepared(needs_time=True) for side in both)
            operator = IntervalJoin(
                left.values,
                right.values,
                kind=how,
                lower_us=lower_us,
                upper_us=upper_us,
                condition=None if where is None else _named(where, both),
            )
            given = _with_late_rows(
                operator,
                both,
                (left, right),
                late,
                dropped={0: None, 1: None},
                outer=outer_sides(how),
                buckets=buckets,
            )
            # The watermark goes by the later row of a pair; the other may be so much older.
            behind_us = max(0, upper_us, -lower_us) - operator.hold_us
            given = reattach(given, clock_of(given), behind_us)
            return result(given, both, times=both[0].times() | both[1].times())

    return add


def _check_condition(where: object) -> None:
    if where is not None and not callable(where):
        raise JoinOptionError(
            f"where = {where!r} is no function",
            hint="give one of a table of pairs, as in "
            'where=lambda pairs: pc.greater(pairs["price"], pairs["limit"])',
        )


def _kind(how: str, allowed: Sequence[str] = KINDS) -> str:
    """Return the kind of a join that people ask for, by whichever of Spark's names for it."""
    kind = _SPARKS_NAMES.get(how, how)
    check_kind(kind, allowed)
    return kind


def _interval_us(lower: Duration, upper: Duration) -> tuple[int, int]:
    lower_us, upper_us = signed_us(lower, "lower"), signed_us(upper, "upper")
    if lower_us > upper_us:
        raise JoinOptionError(
            f"an interval from {lower} to {upper} has nothing in it",
            hint="lower must not be above upper",
        )
    return lower_us, upper_us


def join_latest(
    table: DataFrame, on: On, *, how: str = "inner", buckets: int = DEFAULT_BUCKETS
) -> _Transform:
    """Join events with what a table says when they come.

    Nothing waits, and no watermark is needed: each event gets the row that stands in the table once
    the changes of the same batch are in. So the answer depends on when rows happen to be read;
    `hf.join_asof` gives one that does not.

    Args:
        table: What `hw.table` gives, or changes with at most one row for what is joined by, such as
            those of `hf.aggregate`, or rows of which each replaces the one before it.
        on: The columns to join by, which are the table's primary key; {"left": "right"} where their
            names differ.
        how: inner, or left: events without a row in the table come out with nulls.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.

    Raises:
        JoinOptionError: There is no such kind of join.
        JoinColumnError: From the function: the columns do not fit.
        RetractionError: From the function: the join key of changes is computed from something that
            differs when a row is taken back. From the query: changes have several rows for one key.
    """
    with hints_shown():
        how = _kind(how, _STREAM_TABLE)

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            both = sides(rows, table, on)
            check_is_events(both[0])
            check_joined_by_key(both[1])
            if both[1].kind is Kind.CHANGES:
                check_alike(table, both[1].keys())
            left, right = (side.prepared(needs_time=False) for side in both)
            right = _without_clock(right, left)
            changes = both[1].kind is Kind.CHANGES and may_retract(table)
            operator = LatestJoin(left.values, right.values, kind=how, changes=changes)
            given = apply(operator, [left, right], buckets=buckets, names=_value_names(both))
            return result(given, both, times=both[0].times())

    return add


def join_asof(
    table: DataFrame,
    on: On,
    *,
    time: str,
    how: str = "inner",
    late: Late = Late(),  # noqa: B008 - a value without state
    buckets: int = DEFAULT_BUCKETS,
) -> _Transform:
    """Join events with what a table said at their time.

    Each event gets the version of its key that is the last one not later than itself. It waits
    until the watermark, the slower one of both sides, has passed it.

    Args:
        table: What `hw.table` gives with `valid_from`, or rows with a watermark, of which each is a
            version that holds from its time on.
        on: The columns to join by, which are the table's primary key; {"left": "right"} where their
            names differ.
        time: The events' column that `hf.watermark` was told.
        how: inner, or left: events without a version come out with nulls.
        late: With `hf.correct(until)`, versions that come late take results back and give new ones,
            as long as these are not older than that behind the watermark. By default a late version
            counts for events to come only, and late events are dropped. With `hf.divert(topic)`,
            alone or as `beyond`, events that are dropped are written to a topic.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.

    Raises:
        JoinOptionError: There is no such kind of join.
        JoinColumnError: From the function: the columns do not fit.
        WatermarkMissingError: From the function: a side has no watermark.
        WindowSettingError: From the function: the watermark goes by another column.
    """
    with hints_shown():
        how = _kind(how, _STREAM_TABLE)
        check_late(late)

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            both = sides(rows, table, on)
            check_is_events(both[0])
            check_joined_by_key(both[1])
            if both[1].kind is Kind.CHANGES:
                raise RetractionError(
                    "the right side takes rows back, which says nothing about when they held",
                    hint="write it to a topic, and read that with hw.table(..., valid_from=...)",
                )
            if both[1].kind is Kind.TABLE and HIDDEN not in table.columns:
                raise JoinOptionError(
                    "it is not known from when on the rows of the table hold",
                    hint='say which column tells: hw.table(..., valid_from="COLUMN")',
                )
            check_time(rows, time)
            moments = time_us(rows, time)
            left = both[0].prepared(needs_time=True, time=moments)
            right = both[1].prepared(needs_time=True)
            left = _held_for(left, right)
            operator = AsofJoin(left.values, right.values, kind=how, until_us=late.rule.until_us)
            given = _with_late_rows(
                operator,
                both,
                (left, right),
                late,
                # A version that comes late is never lost: it holds for what comes behind it.
                dropped={0: moments},
                outer=outer_sides(how),
                buckets=buckets,
            )
            retracts = late.rule != Drop()
            return result(given, both, times={both[0].renamed(time)}, retracts=retracts)

    return add


def join_tables(
    other: DataFrame,
    on: On,
    *,
    how: str = "inner",
    key: str | Sequence[str] | None = None,
    other_key: str | Sequence[str] | None = None,
    buckets: int = DEFAULT_BUCKETS,
) -> _Transform:
    """Join two tables, and say what every change of either changes in the join.

    What comes out are changes: `op` is "insert" for a row that appears and "retract" for one that
    is taken back. Whoever applies them has the join of the tables as they are. They may be joined
    again.

    Args:
        other: The right side. Both are what `hw.table` gives, or changes such as this function and
            `hf.aggregate` give.
        on: The columns to join by, any of the table's; {"left": "right"} where their names differ.
        how: inner, left, right or full.
        key: The primary key of the left side, where it was not read by `hw.table`.
        other_key: The same of the right side.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.

    Raises:
        JoinOptionError: There is no such kind of join.
        JoinColumnError: From the function: the columns do not fit, or no primary key is known.
        RetractionError: From the function: rows may be taken back, and their join key or primary
            key is computed from something that differs by then.
    """
    with hints_shown():
        how = _kind(how)

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            named = sides(rows, other, on)
            keys = (table_key(named[0], key, "key"), table_key(named[1], other_key, "other_key"))
            frames = [
                _changes(side, its_key, buckets) for side, its_key in zip(named, keys, strict=True)
            ]
            both = sides(frames[0], frames[1], on)
            left, right = (side.prepared(needs_time=False, versions=True) for side in both)
            identities = (_identity(both[0], left, keys[0]), _identity(both[1], right, keys[1]))
            operator = IdentifiedTables(left.values, right.values, identities=identities, kind=how)
            given = apply(operator, [left, right], buckets=buckets, names=_value_names(both))
            renamed = [
                side.renamed(name)
                for side, its_key in zip(both, keys, strict=True)
                for name in its_key
            ]
            return result(given, both, key=tuple(dict.fromkeys(renamed)), retracts=True)

    return add


def _with_late_rows(
    operator: IntervalJoin | AsofJoin,
    both: tuple[Side, Side],
    prepared: tuple[Prepared, Prepared],
    late: Late,
    *,
    dropped: Mapping[int, Column | None],
    outer: tuple[bool, bool],
    buckets: int,
) -> DataFrame:
    """Return what a join gives, and have the sink find what it drops, if that goes to a topic.

    Args:
        operator: The join.
        both: The sides.
        prepared: The same as the join is given them.
        late: What becomes of late rows.
        dropped: Of which sides rows are dropped, and when these were.
        outer: Of which sides rows come out without a partner.
        buckets: Into how many parts state is cut.
    """
    counts = new_counts(operator)
    if late.topic is not None:
        found = [
            late_records(
                both[which].frame,
                both[which].keys(),
                TooLate(late.rule.until_us, outer),
                which=which,
                time=time,
                # Both sides are late by the watermark of the join: the slower one of theirs.
                clocks=[each.clock for each in prepared if each.clock is not None],
                buckets=buckets,
            )
            for which, time in dropped.items()
        ]
        kept_apart(counts, functools.reduce(DataFrame.unionByName, found), late.topic)
    names = _value_names(both)
    return apply(operator, list(prepared), buckets=buckets, counts=counts, names=names)


def _changes(side: Side, key: tuple[str, ...], buckets: int) -> DataFrame:
    """Return the rows of a table as changes: what its upserts take back, and what they give."""
    if side.kind is Kind.CHANGES:
        check_versions(side.frame)
        check_alike(side.frame, {name: F.col(quoted(name)) for name in (*side.on, *key)})
        return side.frame
    columns = (*side.on, *side.values)
    values = {name: F.col(quoted(name)) for name in columns if name not in key}
    changes = table_changes(side.frame, key, values, buckets=buckets)
    return changes.select(*map(quoted, columns), OP, VERSION, HIDDEN)


def _identity(side: Side, prepared: Prepared, key: Sequence[str]) -> list[str]:
    """Return the values that tell the rows of one join key apart."""
    found = []
    for name in key:
        if name not in side.on:
            inner = value_name(side.values.index(name))
            check_key_type(name, prepared.values.field(inner).type)
            found.append(inner)
    return found


def _without_clock(table: Prepared, events: Prepared) -> Prepared:
    """Let a table that is not asked for its time hold nobody back by it."""
    if table.clock is None or table.reporter is None:
        return table
    if events.clock is not None and set(table.clock.names) <= set(events.clock.names):
        return table
    return table._replace(clock=None, reporter=None)


def _held_for(events: Prepared, table: Prepared) -> Prepared:
    """Hold the watermark of the events back by the delay of the table, too.

    While the table is idle, the events alone decide. All that it has was read by then, but a
    version that is written so much after its time is not there yet. The watermark of the table
    has its own delay in it already.
    """
    assert events.clock is not None
    assert table.clock is not None
    more_us = max(0, max(delays_us_of(table.clock)) - min(delays_us_of(events.clock)))
    return events._replace(clock=events.clock.held_back(more_us))


def _value_names(both: tuple[Side, Side]) -> list[str]:
    """Return what people call the values: two of one type that are exchanged are other values."""
    return [*both[0].values, *both[1].values]


def _named(where: Condition, both: tuple[Side, Side]) -> Condition:
    """Return a condition that sees pairs under the names that people know."""
    names = _value_names(both)

    def ask(pairs: pa.Table) -> Any:  # noqa: ANN401 - as the condition's
        answers = where(pairs.rename_columns(names))
        if not hasattr(answers, "__len__") or len(answers) != pairs.num_rows:
            found = len(answers) if hasattr(answers, "__len__") else repr(answers)
            raise JoinOptionError(
                f"where gave {found} for {pairs.num_rows} pairs, not a boolean for each",
                hint="return an Arrow array of booleans, as the functions of pyarrow.compute do",
            )
        return answers

    return ask
