"""The clocks of this process, and how rows keep theirs.

This file alone decides how an operator finds the clock of the rows that it is given. What links the
two is a name in the metadata of the hidden column `__hw`: it goes with the rows through select,
filter, withColumn and union. What belongs to the name is kept here: options have passwords in them.

Reports have another name, under which they are found again after a restart. Two clocks of one query
that see the same topic must not have the same, or one would follow the other's rows. So it is made
of the column, the rule for the future and a digest of how the rows come about, and of nothing else
that the process has done. The delay is not in it: a query may be started again with another. If the
plan is changed, the name is another one; the checkpoint remembers the one before.
"""

import functools
import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headwater.streams.client_options import client_options
from headwater.streams.options import bootstrap_of
from headwater.streams.time.errors import WatermarkError, WatermarkMissingError
from headwater.streams.time.query_positions import serve_positions
from headwater.streams.time.reader_options import time_reader_options
from headwater.streams.time.report import Reporter
from headwater.streams.time.sources import (
    Sources,
    metadata_of,
    sources_of,
    stable_plan_text,
    time_readers_of,
)

HIDDEN: Final = "__hw"
"""The column that says where a row comes from, and when it was."""

FAULT: Final = "fault"
"""The field of it that says why a row has no time; only rows of a source have it."""

CLOCK: Final = "headwater.clock"
HOLD: Final = "headwater.hold_us"
"""What the metadata of the hidden column says: names with commas between, and microseconds."""

# A name ends in a letter and a digest; those of earlier releases end in a number.
_DIGEST: Final = "p"
_DIGEST_BYTES: Final = 8

_ORIGIN: Final = frozenset({"partition", "offset", "time"})
"""What it has, whoever has made it."""


@dataclass(frozen=True)
class ClockSpec:
    """What a clock goes by."""

    sources: Sources
    column: str
    future: str
    delay_us: int
    idle_ms: int | None
    closes: bool = False


@dataclass(frozen=True)
class Clock:
    """What tells rows the time: one time reader, or several, of which the slowest counts.

    Attributes:
        names: Those of the time readers.
        holds_us: For each time reader, by how much rows may be older than the watermark that it
            reports, beside lateness.
    """

    names: tuple[str, ...]
    holds_us: tuple[int, ...]

    def held_back(self, more_us: int) -> "Clock":
        """Return the clock of rows that may be older by so much more."""
        return Clock(self.names, tuple(hold_us + more_us for hold_us in self.holds_us))

    def metadata(self) -> dict[str, object]:
        """Return what a column's metadata says of the clock."""
        return {CLOCK: ",".join(self.names), HOLD: ",".join(map(str, self.holds_us))}


class _Kept(NamedTuple):
    name: str
    spec: ClockSpec
    plan: str
    reports: str
    options: dict[str, str]
    frame: DataFrame


_lock = threading.Lock()
_kept: dict[str, _Kept] = {}


def make_clock(rows: DataFrame, spec: ClockSpec) -> Clock:
    """Return the clock for rows; the same one for the same rows."""
    plan = stable_plan_text(rows)
    with _lock:
        for known in _kept.values():
            if known.spec == spec and known.plan == plan and _is_of_session(known, rows):
                return Clock((known.name,), (0,))
        digest = hashlib.blake2b(plan.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        reports = f"{spec.column}/{spec.future}/{_DIGEST}{digest}"
        options = time_reader_options(
            spec.sources.client,
            name=reports,
            delay_us=spec.delay_us,
            idle_ms=spec.idle_ms,
            reads=spec.sources.reads,
            driver=serve_positions(rows.sparkSession),
            closes=spec.closes,
        )
        frame = rows.sparkSession.readStream.format("headwater").options(**options).load()
        name = f"clock.{len(_kept) + 1}"
        _kept[name] = _Kept(name, spec, plan, reports, options, frame)
    return Clock((name,), (0,))


def _is_of_session(known: _Kept, rows: DataFrame) -> bool:
    return known.frame.sparkSession is rows.sparkSession


def hidden_names(rows: DataFrame) -> list[str]:
    """Return the fields of the hidden column; none where there is no such column."""
    if HIDDEN not in rows.columns:
        return []
    hidden = rows.schema[HIDDEN].dataType
    return hidden.names if isinstance(hidden, StructType) else []


# --- for operators ------------------------------------------------------------------------------


def clock_of(rows: DataFrame) -> Clock:
    """Return the clock of rows.

    Raises:
        WatermarkMissingError: They have none, or have lost it.
    """
    if HIDDEN not in rows.columns:
        if re.search(rf"{HIDDEN}\b", stable_plan_text(rows)):
            raise WatermarkMissingError(
                f"the watermark is lost: select() has left out {HIDDEN}",
                hint=f'keep it, as in rows.select("{HIDDEN}", ...), or use withColumn and drop',
            )
        raise WatermarkMissingError(
            "these rows have no watermark",
            hint='say what time is: rows.transform(hf.watermark("COLUMN", "10 seconds"))',
        )
    check_hidden(rows)
    metadata = rows.schema[HIDDEN].metadata
    names = _names(metadata)
    holds_us = str(metadata.get(HOLD, "")).split(",")
    if len(holds_us) != len(names) or not all(name in _kept for name in names):
        raise WatermarkMissingError(
            f"{HIDDEN} does not say any more which watermark it belongs to",
            hint="put hf.watermark behind functions that make rows anew, as mapInArrow",
        )
    clock = Clock(names, tuple(map(int, holds_us)))
    _check_whole(rows, clock)
    return clock


def check_hidden(rows: DataFrame) -> None:
    """Refuse rows with a column of their own that has the name of the hidden one.

    Raises:
        WatermarkError: They have one.
    """
    if HIDDEN in rows.columns and not set(hidden_names(rows)) >= _ORIGIN:
        raise WatermarkError(
            f"these rows have a column {HIDDEN!r}, which is what hf.watermark calls its own",
            hint=f'rename yours: withColumnRenamed("{HIDDEN}", "hw")',
        )


def _names(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(metadata.get(CLOCK, "")).split(","))


def _check_whole(rows: DataFrame, clock: Clock) -> None:
    """Refuse rows that have another clock as well: they came by a union, which keeps one name."""
    known = [_kept[name] for name in clock.names]
    if FAULT in hidden_names(rows):
        reads = [read for each in known for read in each.spec.sources.reads]
        is_whole = all(read in reads for read in sources_of(rows).reads)
    else:
        # What an operator gives: its inputs have brought their time readers with them.
        options = [each.options for each in known]
        is_whole = all(reader in options for reader in time_readers_of(rows))
    names = {name for made in metadata_of(rows, HIDDEN) for name in _names(made)}
    if not is_whole or not names <= set(clock.names):
        raise WatermarkMissingError(
            "these rows have watermarks of their own, and were put together",
            hint="put hf.watermark behind union(), or use the rows one by one",
        )


def merged(clocks: Sequence[Clock]) -> Clock:
    """Return the clock of rows that come of several inputs: the slowest of theirs.

    The time readers are in the order of the inputs, which is the same in every process: Spark finds
    what its checkpoint has of each by their order.
    """
    holds_us: dict[str, int] = {}
    for clock in clocks:
        for name, hold_us in zip(clock.names, clock.holds_us, strict=True):
            holds_us[name] = max(hold_us, holds_us.get(name, hold_us))
    return Clock(tuple(holds_us), tuple(holds_us.values()))


def clock_frame(clock: Clock, buckets: Sequence[int]) -> DataFrame:
    """Return what the time readers of a clock say, once for each bucket.

    The columns are `bucket int, clock string, watermark long, idle boolean, hold long`. Whoever
    asks, a clock has one time reader in a query: all operators are told the same, and each holds
    the watermark back by its own.
    """
    wanted = F.array(*(F.lit(bucket) for bucket in buckets))
    frames = [
        _kept[name].frame.select(
            F.explode(wanted).alias("bucket"),
            "clock",
            "watermark",
            "idle",
            F.lit(hold_us).cast("long").alias("hold"),
        )
        for name, hold_us in zip(clock.names, clock.holds_us, strict=True)
    ]
    return functools.reduce(DataFrame.union, frames)


def columns_of(clock: Clock) -> str:
    """Return the columns that a clock goes by, for people."""
    return ", ".join(dict.fromkeys(_kept[name].spec.column for name in clock.names))


def delays_us_of(clock: Clock) -> list[int]:
    """Return by how much events may come out of order, by each of the time readers."""
    return [_kept[name].spec.delay_us for name in clock.names]


def reporter_of(clock: Clock) -> Reporter:
    """Return what tasks report by that read rows of the clock from their source.

    Raises:
        WatermarkError: The rows are those of several clocks: they come of an operator.
    """
    if len(clock.names) != 1:
        raise WatermarkError(
            "rows of several clocks report to none",
            hint="operators report for the rows of their sources alone",
        )
    known = _kept[clock.names[0]]
    client = known.spec.sources.client
    return Reporter(
        bootstrap_of(client), client_options(client), known.reports, known.spec.sources.topic()
    )


def reattach(rows: DataFrame, clock: Clock, hold_us: int) -> DataFrame:
    """Mark what an operator gives with its clock.

    Args:
        rows: Rows with the hidden column.
        clock: The clock of the operator's inputs.
        hold_us: By how much the operator's rows may be older than its watermark.
    """
    metadata = clock.held_back(hold_us).metadata()
    return rows.withColumn(HIDDEN, F.col(HIDDEN).alias(HIDDEN, metadata=metadata))
