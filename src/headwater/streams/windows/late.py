"""What people want to become of late events: `hf.drop()`, `hf.divert(topic)`, `hf.correct(until)`.

This file alone decides how that is said, and how events that are diverted become records of a
topic: as they came, where the query still has them as they came, else as JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.base.topic_names import maybe_name_problem
from headwater.streams.errors import hints_shown
from headwater.streams.formats import letters
from headwater.streams.formats.batches import ERROR
from headwater.streams.formats.dead_letters import kept_apart
from headwater.streams.formats.writing import json_text
from headwater.streams.kernel.late_rows import Judge, LateRows
from headwater.streams.kernel.operator import value_name
from headwater.streams.kernel.plan import apply, prepare
from headwater.streams.naming import no_column
from headwater.streams.time.clocks import (
    CLOCK,
    FAULT,
    HIDDEN,
    Clock,
    clock_of,
    hidden_names,
    merged,
)
from headwater.streams.time.durations import Duration, duration_us
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.lateness import Correct, Drop, Lateness

BEHIND: Final = "%.6f s behind the watermark"
CLOSED: Final = "its window closed %.6f s ago"
"""How it is told by how much an event is late, where that is its own distance from the watermark,
and where it is that of the window that it belongs to."""

_HEADERS: Final = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True)
class Late:
    """What becomes of late events.

    Attributes:
        rule: What the operator does with them.
        topic: Where those go that it has no use for; none: they are only counted.
    """

    rule: Lateness = Drop()  # noqa: RUF009 - a value without state
    topic: str | None = None


def drop() -> Late:
    """Count late events, and forget them."""
    return Late()


def divert(topic: str) -> Late:
    """Write late events to a topic, each once, with how late they are in the header `x-error`.

    `hw.pipeline(...).to(...)` writes them beside its rows, in the same transaction;
    `hf.with_dead_letters` does it where a query is written by hand.

    Raises:
        WindowSettingError: No topic can have this name.
    """
    with hints_shown():
        problem = maybe_name_problem(topic)
        if problem is not None:
            raise WindowSettingError(
                f"hf.divert({topic!r}) names no topic: {problem}",
                hint="use letters, digits, dots, underscores and hyphens",
            )
    return Late(topic=topic)


def correct(until: Duration, beyond: Late | None = None) -> Late:
    """Correct results for a while: take them back, and give them again with late events in them.

    Args:
        until: How far the watermark may be past the end of a window for it to be corrected.
        beyond: What becomes of events that are later still: `hf.drop()` or `hf.divert(topic)`.

    Raises:
        WindowSettingError: It makes no sense.
        DurationError: `until` is no length of time.
    """
    with hints_shown():
        if beyond is not None:
            check_late(beyond, "beyond")
        rule = Correct(duration_us(until, "until"))
        if beyond is not None and beyond.rule != Drop():
            raise WindowSettingError(
                "what comes too late to correct anything cannot be corrected",
                hint="beyond=hf.drop() or beyond=hf.divert(topic)",
            )
    return Late(rule, None if beyond is None else beyond.topic)


def check_late(late: object, argument: str = "late") -> None:
    """Refuse what does not say what becomes of late events.

    Raises:
        WindowSettingError: It does not.
    """
    if not isinstance(late, Late):
        raise WindowSettingError(
            f"{argument} = {late!r} does not say what becomes of late events",
            hint=f'as in {argument}=hf.drop() or {argument}=hf.divert("TOPIC")'
            + (' or late=hf.correct("1 hour")' if argument == "late" else ""),
        )


def check_time(rows: DataFrame, time: str) -> None:
    """Make sure that a column is the one that the watermark goes by.

    Raises:
        WatermarkMissingError: There is no watermark.
        WindowSettingError: It goes by another column.
    """
    clock = clock_of(rows)
    if time in rows.columns and rows.schema[time].metadata.get(CLOCK) == clock.metadata()[CLOCK]:
        return
    known = [
        field.name
        for field in rows.schema
        if field.metadata.get(CLOCK) == clock.metadata()[CLOCK] and field.name != HIDDEN
    ]
    if time not in rows.columns and known:
        raise no_column(WindowSettingError, time, known, why=" that the watermark goes by")
    if known:
        hint = f"use {' or '.join(map(repr, known))}"
    elif FAULT in hidden_names(rows):
        hint = "keep the column that hf.watermark was told as it is"
    else:
        hint = (
            f'if hf.stateful gives them, say which column their time is: time="{time}"; '
            "what hf.aggregate and hf.top give has none"
        )
    raise WindowSettingError(f"{time!r} is not what the watermark of these rows goes by", hint=hint)


def time_us(rows: DataFrame, time: str) -> Column | None:
    """Return when rows were by a column; None where the hidden column knows, as for windows."""
    is_moment = rows.schema[time].dataType.simpleString() == "timestamp"
    return F.unix_micros(time) if is_moment else None


def keep_late_rows(
    rows: DataFrame,
    keys: Mapping[str, Column],
    operator: Judge,
    topic: str,
    *,
    time: str,
    said: str,
    counts: str,
    buckets: int,
) -> None:
    """Have the rows that an operator calls late found by the sink.

    Args:
        rows: What the operator is given.
        keys: What it brings rows together by.
        operator: It.
        topic: Where late rows go.
        time: By which column it has its time.
        said: How it is told by how much they are late.
        counts: Under which name it counts them.
        buckets: Into how many parts state is cut.
    """
    moments = time_us(rows, time)
    found = late_records(rows, keys, operator, time=moments, said=said, buckets=buckets)
    kept_apart(counts, found, topic)


def late_records(
    rows: DataFrame,
    keys: Mapping[str, Column],
    judge: Judge,
    *,
    which: int = 0,
    time: Column | None = None,
    clocks: Sequence[Clock] = (),
    said: str = BEHIND,
    buckets: int,
) -> DataFrame:
    """Return the rows of an input that are late, as the records that they were, and why.

    Args:
        rows: What an operator is given.
        keys: What it brings rows together by.
        judge: Says what is late.
        which: Of which of the operator's inputs rows are.
        time: When rows were, if not when the hidden column says.
        clocks: By which clocks the operator goes beside that of the rows.
        said: How it is told by how much they are late: `BEHIND` or `CLOSED`.
        buckets: Into how many parts state is cut.
    """
    record = _record(rows)
    values = list(record.values())
    prepared = prepare(rows, keys, values, time=time, counts_faults=False)
    if prepared.clock is not None and clocks:
        prepared = prepared._replace(clock=merged([prepared.clock, *clocks]))
    late = LateRows(judge, prepared.values, which=which)
    given = apply(late, [prepared], buckets=buckets)
    columns = {name: F.col(value_name(number)) for number, name in enumerate(record)}
    late_us = F.col(value_name(len(record)))
    why = F.when(
        columns[FAULT].isNotNull(), F.concat(F.lit(f"{letters.NO_TIME}: "), columns[FAULT])
    ).otherwise(F.format_string(f"{letters.LATE}: {said}", late_us / F.lit(1e6)))
    columns = {name: column.alias(name) for name, column in columns.items() if name != FAULT}
    return given.select(*columns.values(), why.alias(ERROR))


def _record(rows: DataFrame) -> dict[str, Column]:
    """Return a late row as the record that it was, as far as it is still known."""
    present = set(rows.columns)
    hidden = hidden_names(rows)
    others = [name for name in rows.columns if name != HIDDEN]
    nothing = F.lit(None)
    return {
        "key": (F.col("key") if {"key", "value"} <= present else nothing).cast("binary"),
        "value": (F.col("value") if "value" in present else json_text(F.struct(*others))).cast(
            "binary"
        ),
        "headers": (F.col("headers") if "headers" in present else nothing).cast(_HEADERS),
        "topic": (F.col("topic") if "topic" in present else nothing).cast("string"),
        "partition": F.col(f"{HIDDEN}.partition"),
        "offset": F.col(f"{HIDDEN}.offset"),
        "timestamp": (F.col("timestamp") if "timestamp" in present else nothing).cast("timestamp"),
        FAULT: (F.col(f"{HIDDEN}.{FAULT}") if FAULT in hidden else nothing).cast("string"),
    }
