"""The two sides of a join as DataFrames.

This file alone decides which columns of a side take part and under which names they come out, and
what is refused before a query starts. A source's own columns (`key`, `value`, `offset` and so on)
stay behind, unless they were made something else or are what the watermark goes by: they would
travel and lie in state, and nobody asked for them.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.formats.types import quoted
from headwater.streams.joins.errors import JoinColumnError
from headwater.streams.kernel.changes import (
    Kind,
    change_columns,
    key_metadata,
    kind_of,
    primary_key,
    refuse_retracted,
    weight_of,
)
from headwater.streams.kernel.operator import VERSION, value_name
from headwater.streams.kernel.packing import key_name
from headwater.streams.kernel.plan import Prepared, prepare
from headwater.streams.kernel.ways import OP
from headwater.streams.naming import no_column
from headwater.streams.time.clocks import CLOCK, HIDDEN
from headwater.streams.time.durations import Duration, duration_us

On = str | Sequence[str] | Mapping[str, str]
"""One column, several, or those of the left side with what they are called on the right."""

_SOURCE_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}


class Side(NamedTuple):
    """One side of a join.

    Attributes:
        name: left or right.
        frame: Its rows.
        kind: What they are.
        on: The columns that it is joined by.
        names: What these are called in the result.
        values: Its other columns.
    """

    name: str
    frame: DataFrame
    kind: Kind
    on: tuple[str, ...]
    names: tuple[str, ...]
    values: tuple[str, ...]

    def keys(self) -> dict[str, Column]:
        """Return what rows are brought together by, under its names in the result."""
        named = zip(self.names, self.on, strict=True)
        return {name: F.col(quoted(column)) for name, column in named}

    def prepared(
        self, *, needs_time: bool, time: Column | None = None, versions: bool = False
    ) -> Prepared:
        """Reduce the rows to what an operator needs; the last value is their version, if asked."""
        values = [F.col(quoted(name)) for name in self.values]
        if versions:
            values.append(F.col(VERSION).cast("long"))
        return prepare(
            self.frame,
            self.keys(),
            values,
            time=time,
            weight=weight_of(self.kind),
            needs_time=needs_time,
        )

    def renamed(self, column: str) -> str:
        """Return what a column is called in the result."""
        return dict(zip(self.on, self.names, strict=True)).get(column, column)

    def times(self) -> set[str]:
        """Return what columns are called in the result that the watermark goes by."""
        return {
            self.renamed(name)
            for name in (*self.on, *self.values)
            if CLOCK in self.frame.schema[name].metadata
        }


def sides(left: DataFrame, right: DataFrame, on: On) -> tuple[Side, Side]:
    """Return the sides of a join.

    Raises:
        JoinColumnError: Columns are missing, of two types, or of one name on both sides.
    """
    pairs = _pairs(on)
    names = tuple(name for name, _ in pairs)
    found = (
        _side("left", left, names, names),
        _side("right", right, tuple(name for _, name in pairs), names),
    )
    for one, other in pairs:
        kinds = [
            side.frame.schema[name].dataType.simpleString()
            for side, name in zip(found, (one, other), strict=True)
        ]
        if kinds[0] != kinds[1]:
            raise JoinColumnError(
                f"{one!r} is of type {kinds[0]} on the left, {other!r} of type {kinds[1]} on the "
                "right",
                hint=f'cast one of them, as in withColumn("{other}", '
                f'F.col("{other}").cast("{kinds[0]}"))',
            )
    taken = {name.lower(): name for name in (*names, *found[0].values)}
    both = [name for name in found[1].values if name.lower() in taken]
    if both:
        raise JoinColumnError(
            f"both sides have columns with the names {', '.join(both)}",
            hint=f'rename those of the right side, as in withColumnRenamed("{both[0]}", '
            f'"{both[0]}_2"), or drop them',
        )
    return found


def result(
    given: DataFrame,
    both: tuple[Side, Side],
    *,
    times: AbstractSet[str] = frozenset(),
    key: Sequence[str] = (),
    retracts: bool = False,
) -> DataFrame:
    """Give what an operator gives the names that people know.

    Args:
        given: The operator's columns.
        both: The sides.
        times: The columns that a window may go by.
        key: The columns that tell the rows of the result apart, if they are known.
        retracts: Whether rows may be taken back.
    """
    left, right = both
    columns = {name: key_name(number) for number, name in enumerate(left.names)}
    values = (*left.values, *right.values)
    columns |= {name: value_name(number) for number, name in enumerate(values)}
    clock = given.schema[HIDDEN].metadata
    chosen = []
    for name, inner in columns.items():
        metadata: dict[str, Any] = key_metadata(name, key)
        if name in times and CLOCK in clock:
            metadata |= clock
        renamed = F.col(inner)
        chosen.append(renamed.alias(name, metadata=metadata) if metadata else renamed.alias(name))
    return given.select(*chosen, *change_columns(given, retracts=retracts))


def table_key(side: Side, said: str | Sequence[str] | None, argument: str) -> tuple[str, ...]:
    """Return the primary key of a side: what was said, or what it has noted itself.

    Raises:
        JoinColumnError: It is not known, or names a column that there is not.
    """
    key = (
        primary_key(side.frame)
        if said is None
        else tuple([said] if isinstance(said, str) else said)
    )
    if not key:
        raise JoinColumnError(
            f"it is not known which columns tell the rows of the {side.name} side apart",
            hint=f"read it with hw.table and keep its key columns, or say {argument}=[...]",
        )
    _check_there(side.name, side.frame, key)
    for column in key:
        if column not in (*side.on, *side.values):
            raise JoinColumnError(
                f"{argument} = {column!r} is a column of the source itself, which is left behind",
                hint=f'give it a name of its own: withColumn("id", F.col("{column}"))',
            )
    return key


def check_joined_by_key(side: Side) -> None:
    """Refuse a table that may have several rows under what it is joined by.

    Raises:
        JoinColumnError: It is joined by something else than its primary key.
    """
    key = primary_key(side.frame)
    if key is None and side.kind is Kind.TABLE:
        raise JoinColumnError(
            "columns of the table's primary key were dropped or made anew",
            hint="keep them as they are until the join",
        )
    if key is not None and OP not in side.frame.columns:
        raise JoinColumnError(
            f"the table's column {OP!r} was dropped, which says what is deleted",
            hint="keep it until the join",
        )
    if key is not None and set(key) != set(side.on):
        raise JoinColumnError(
            f"the table's primary key is {', '.join(key)}, but it is joined by "
            f"{', '.join(side.on)}",
            hint="join by the primary key, or use hf.join_tables for two tables",
        )


def check_is_events(side: Side) -> None:
    """Refuse a table, and rows that may be taken back, where rows are taken for events.

    Raises:
        JoinColumnError: The side is a table.
        RetractionError: Its rows may be taken back.
    """
    refuse_retracted(side.frame, f"the {side.name} side of this join")
    if side.kind is Kind.TABLE:
        raise JoinColumnError(
            f"the {side.name} side is a table, and this join takes events",
            hint=f'use hf.join_tables, or take its changes for events: drop("{OP}")',
        )


def signed_us(given: Duration, what: str) -> int:
    """Return a length of time that may be negative, in microseconds.

    Raises:
        DurationError: It cannot be read.
    """
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration_us(given.strip()[1:], what)
    if isinstance(given, dt.timedelta) and given < dt.timedelta():
        return -duration_us(-given, what)
    return duration_us(given, what)


def _pairs(on: On) -> list[tuple[str, str]]:
    if isinstance(on, str):
        pairs = [(on, on)]
    elif isinstance(on, Mapping):
        pairs = list(on.items())
    else:
        pairs = [(name, name) for name in on]
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise JoinColumnError(
            f"on = {on!r} names no columns",
            hint='as in on="id", on=["id", "day"] or on={"id": "its name on the right"}',
        )
    for names in zip(*pairs, strict=True):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise JoinColumnError(
                f"on = {on!r} names a column twice: {twice[0]}", hint="name each column once"
            )
    return pairs


def _side(name: str, frame: DataFrame, on: tuple[str, ...], names: tuple[str, ...]) -> Side:
    _check_there(name, frame, on)
    kind = kind_of(frame)
    own = {HIDDEN} if kind is Kind.EVENTS else {HIDDEN, OP, VERSION}
    if kind is Kind.TABLE:
        own.discard(VERSION)
    values = tuple(
        column
        for column in frame.columns
        if column not in own and column not in on and not _is_sources(frame, column)
    )
    reserved = [column for column in (*names, *values) if column.lower() in {OP, VERSION}]
    if reserved:
        raise JoinColumnError(
            f"the {name} side has a column {reserved[0]!r}, which is what a join calls its own",
            hint=f'rename it: withColumnRenamed("{reserved[0]}", "{reserved[0]}_1")',
        )
    return Side(name, frame, kind, on, names, values)


def _is_sources(frame: DataFrame, column: str) -> bool:
    """Tell whether a column is still as the source gives it, and nobody's time."""
    field = frame.schema[column]
    is_same = _SOURCE_COLUMNS.get(column) == field.dataType.simpleString()
    return is_same and CLOCK not in field.metadata


def _check_there(side: str, frame: DataFrame, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in frame.columns:
            raise no_column(JoinColumnError, column, frame.columns, where=f"the {side} side has")
