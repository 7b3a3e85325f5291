"""The watermark of a stream: `hf.watermark`.

This file alone decides what is added to rows so that operators know their time, and what is refused
before anything runs. It is made of Spark's own expressions: no row passes through Python for it.

`__hw`, the hidden column, is a struct:

- `partition`, `offset`, and `topic` where there may be several: where the row comes from.
- `time`: when the event was, in microseconds; null where it has no time that can be believed.
- `fault`: why not: `no time`, or `future`; null where it has one.
- `claimed`: the time that is not believed, in microseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.client_options import client_options
from headwater.streams.connecting import connect
from headwater.streams.errors import hints_shown
from headwater.streams.formats.types import quoted
from headwater.streams.naming import no_column
from headwater.streams.time.clocks import (
    CLOCK,
    FAULT,
    HIDDEN,
    ClockSpec,
    check_hidden,
    hidden_names,
    make_clock,
)
from headwater.streams.time.durations import Duration, duration_us
from headwater.streams.time.errors import WatermarkError
from headwater.streams.time.faults import CLAIMED
from headwater.streams.time.sources import Sources, sources_of

NO_TIME: Final = "no time"
FUTURE: Final = "future"

_ORIGIN: Final = ("topic", "partition", "offset")
_STAMP: Final = "timestamp"
# What Kafka's record format has in place of a timestamp where there is none.
_NO_TIMESTAMP_MS: Final = -1


@dataclass(frozen=True)
class Clamp:
    """What `hf.clamp` gives: events from the future are dated back."""

    length: Duration


def clamp(length: Duration) -> Clamp:
    """Have events that are dated further ahead than this count as of when they came.

    For the argument `future` of `hf.watermark`. The time column of such events is then the record's
    own `timestamp`.
    """
    return Clamp(length)


def watermark(
    column: str,
    delay: Duration,
    idle: Duration | None = "30 seconds",
    future: Duration | Clamp | None = "1 hour",
    at_end: Literal["hold", "close"] = "hold",
) -> Callable[[DataFrame], DataFrame]:
    """Say by which column events have their time, and how long they may be on their way.

    The watermark is the time before which all events are believed to have come: of each partition
    the largest time seen, of these the smallest, less `delay`. It is decided once for each batch,
    and kept in the checkpoint. Put it behind the source and before columns are dropped:
    `rows.transform(hf.watermark("at", "10 seconds"))`.

    Args:
        column: A column of timestamps.
        delay: By how much events may come out of order.
        idle: How long to wait for a partition from which no event time comes although the query
            reads it, to its end or through rows without a time. None: for ever.
        future: Events that are dated so much later than their records' `timestamp` have no time:
            they move no watermark. With `hf.clamp(...)` they get that timestamp instead. For
            records without a timestamp (-1), the time of their batch counts. None: every time is
            believed.
        at_end: What becomes of windows that are open when a query that ends by itself
            (`availableNow`, `--once`) has read everything: "hold" keeps them for its next run,
            "close" ends the stream, and gives their results. There is no next run on this
            checkpoint then, as soon as there is more to read: all of it would be late.

    Returns:
        A function for `DataFrame.transform`; it adds the hidden column `__hw`.

    Raises:
        DurationError: A length of time cannot be read.
        WatermarkError: `at_end` is something else; from the function: the rows are none that can
            have a watermark.
    """
    with hints_shown():
        delay_us = duration_us(delay, "delay")
        idle_ms = None if idle is None else duration_us(idle, "idle") // 1000
        length = future.length if isinstance(future, Clamp) else future
        future_us = None if length is None else duration_us(length, "future")
        if at_end not in {"hold", "close"}:
            raise WatermarkError(
                f"at_end is {at_end!r}", hint='use at_end="hold" or at_end="close"'
            )
    clamped = isinstance(future, Clamp)

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            sources = _checked(rows, column, has_future=future_us is not None)
            if at_end == "close":
                _check_end(sources)
            # Options of the client that do not work here are found out before anything runs.
            connect("localhost", client_options(sources.client)).close()
            rule = "any" if future_us is None else f"{'clamp' if clamped else 'mark'} {future_us}"
            closes = at_end == "close"
            spec = ClockSpec(sources, column, rule, delay_us, idle_ms, closes=closes)
            clock = make_clock(rows, spec)
            time = F.col(quoted(column))
            is_future = _is_future(time, future_us)
            if clamped:
                time = F.when(is_future, _came()).otherwise(time)
                is_future = F.lit(False)
            marked = time.alias(column, metadata=clock.metadata())
            hidden = _hidden(time, is_future, sources).alias(HIDDEN, metadata=clock.metadata())
            return rows.withColumns({column: marked, HIDDEN: hidden})

    return add


def _checked(rows: DataFrame, column: str, *, has_future: bool) -> Sources:
    if not hasattr(rows, "_jdf"):
        raise WatermarkError(
            "a watermark needs a session in this process, and this one uses Spark Connect",
            hint="use hw.session()",
        )
    if not rows.isStreaming:
        raise WatermarkError(
            "these rows do not stream: all of them are there", hint="read with spark.readStream"
        )
    sources = sources_of(rows)
    check_hidden(rows)
    if HIDDEN in rows.columns:
        raise _hidden_already(rows)
    if column not in rows.columns:
        raise no_column(WatermarkError, column, rows.columns)
    kind = rows.schema[column].dataType.simpleString()
    if kind != "timestamp":
        made = "F.to_timestamp" if kind == "string" else "a cast"
        raise WatermarkError(
            f"{column!r} is of type {kind}, not timestamp", hint=f"make it one with {made} before"
        )
    needed = (*_ORIGIN, _STAMP) if has_future else _ORIGIN
    missing = [name for name in needed if name not in rows.columns]
    if missing:
        hint = "put hf.watermark before select()"
        if missing == [_STAMP]:
            hint += ", or switch the check of the future off: future=None"
        raise WatermarkError(f"columns of the source were dropped: {', '.join(missing)}", hint=hint)
    return sources


def _hidden_already(rows: DataFrame) -> WatermarkError:
    """Say why rows have the hidden column, and what to do."""
    if CLOCK not in rows.schema[HIDDEN].metadata:
        return WatermarkError(
            "these rows come of an operator that was given no watermark",
            hint="put hf.watermark in front of it, behind the source",
        )
    hint = "leave the second hf.watermark out"
    if FAULT not in hidden_names(rows):
        hint += '; the time of what hf.stateful gives is named there: hf.stateful(..., time="at")'
    return WatermarkError("these rows have a watermark already", hint=hint)


def _check_end(sources: Sources) -> None:
    """Refuse to look for the end of what is read in parts: it must be read by one batch."""
    if any(read.bounded or read.held for read in sources.reads):
        raise WatermarkError(
            "the end of a stream that is read in parts is not noticed",
            hint='leave maxOffsetsPerTrigger and minOffsetsPerTrigger out, or at_end="close"',
        )


def _is_future(time: Column, future_us: int | None) -> Column:
    if future_us is None:
        return F.lit(False)
    time_us, stamp_us = F.unix_micros(time), F.unix_micros(_came())
    # A difference that 64 bits cannot hold is of centuries.
    ahead = F.try_subtract(time_us, stamp_us) > F.lit(future_us)
    return F.coalesce(ahead, time_us > stamp_us, F.lit(False))


def _came() -> Column:
    """Return when a record came: by its timestamp, or, if it has none, by the time of its batch.

    The time of a batch is in Spark's checkpoint, so it is the same when the batch is repeated.
    """
    stamp = F.col(_STAMP)
    is_missing = F.unix_millis(stamp) == F.lit(_NO_TIMESTAMP_MS)
    return F.when(is_missing, F.current_timestamp()).otherwise(stamp)


def _hidden(time: Column, is_future: Column, sources: Sources) -> Column:
    fault = F.when(time.isNull(), F.lit(NO_TIME)).when(is_future, F.lit(FUTURE))
    fields = [
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("long").alias("offset"),
        F.when(~is_future, F.unix_micros(time)).alias("time"),
        fault.alias(FAULT),
        F.when(is_future, F.unix_micros(time)).alias(CLAIMED),
    ]
    if sources.topic() is None:
        fields.insert(0, F.col("topic").alias("topic"))
    return F.struct(*fields)
