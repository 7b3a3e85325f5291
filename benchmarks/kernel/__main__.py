"""`make bench-kernel`: stateful operators beside Spark's own, on the same topics.

This file alone decides what is aggregated by key, how much state there is, and which bar each row
has to reach; windows and joins stand in `benchmarks.kernel.operators`. Both sides read the same
topic by our source in the same Spark session, in turn, and keep their state in RocksDB. Before they
are timed, all have to give the same groups.
"""

import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.kernel import operators
from benchmarks.kernel.batches import BATCHES, emitted, read, timed_batches
from benchmarks.source.topics import Topic, fill
from benchmarks.spark import Bench, parser_of, running
from benchmarks.table import Row as Line
from benchmarks.table import print_rows
from headwater import functions as hf
from headwater.base.record.codecs import Codec

_KEYS: Final = 65_536
_ROWS_A_BATCH: Final = 2_000_000
_ROWS_PER_KEY: Final = 20_000
_BARS: Final = {"native": 0.6, "per key": 50.0, "growth": 1.0}
_GROWTH: Final = (10_000, 10_000_000)
_CHANGED: Final = 100_000
_VALUE_BYTES: Final = 100
_CHECKED_ROWS: Final = 100_000
# Batches for each round: some of them share the machine with Spark's upkeep of a large state.
_CHANGING_A_ROUND: Final = 3
_BATCHES_MAX: Final = 10_000
_SCATTER: Final = 2_654_435_761

_Query = Callable[[DataFrame], DataFrame]


class _CountAndSum(StatefulProcessor):
    """What PySpark offers for state of one's own: a call for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", "n long, total double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: ANN401, ARG002, N802, N803
        count, total = self._state.get() or (0, 0.0)
        for row in rows:
            count, total = count + 1, total + row.number
        self._state.update((count, total))
        yield Row(group=key[0], n=count, total=total)

    def close(self) -> None:
        """Nothing is open."""


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = parser_of("benchmarks.kernel", rounds=5).parse_args()
    rows: list[Line] = []
    with running("bench-kernel", arguments.directory) as bench:
        scale = arguments.scale
        measures = {"keyed aggregate": _keyed, "growth": _growth, **operators.MEASURES}
        for name, measure in measures.items():
            if arguments.only in name:
                found = measure(bench, arguments.rounds, scale)
                for row in found:
                    beside = "" if math.isnan(row.theirs) else f" beside {row.theirs:,.2f}"
                    bench.say(f"{row.name}: {row.ours:,.2f}{beside}")
                rows += found
    print_rows(rows)
    return 0


# --- keyed aggregate ----------------------------------------------------------------------------


def _keyed(bench: Bench, rounds: int, scale: float) -> list[Line]:
    batch_rows = int(_ROWS_A_BATCH * scale)
    topic = Topic("keyed", _VALUE_BYTES, Codec.NONE, 2, batch_rows * (BATCHES + 1))
    fill(bench.bootstrap, topic)
    _check(bench)
    rates: dict[str, list[float]] = {"ours": [], "native": [], "per key": []}
    queries: dict[str, tuple[_Query, str, int]] = {
        "ours": (_ours, "append", batch_rows),
        "native": (_native, "update", batch_rows),
        "per key": (_per_key, "update", int(_ROWS_PER_KEY * scale)),
    }
    for round_no in range(-1, rounds):
        for name in sorted(queries, reverse=bool(round_no % 2)):
            query, mode, size = queries[name]
            rows = read(bench, topic.name, size).transform(_grouped(_KEYS))
            found = timed_batches(bench, query(rows), mode, size)
            if round_no >= 0:
                rates[name].append(statistics.median(found))
        bench.say(f"keyed aggregate: round {round_no + 1} of {rounds}")
    # Of as many rows a batch the calls for each key have more to do: once, as it takes so long.
    rows = read(bench, topic.name, batch_rows).transform(_grouped(_KEYS))
    rates["per key, batches as large"] = timed_batches(
        bench, _per_key(rows), "update", batch_rows, batches=1
    )
    middle = {name: statistics.median(found) for name, found in rates.items()}
    return [
        Line(
            f"keyed aggregate, beside Spark's {name}: rows/s",
            middle["ours"],
            middle[name],
            "rows/s",
            _BARS.get(name),
        )
        for name in middle
        if name != "ours"
    ]


def _ours(rows: DataFrame) -> DataFrame:
    return rows.transform(hf.aggregate(by=["group"], n=hf.count(), total=hf.sum("number")))


def _native(rows: DataFrame) -> DataFrame:
    return rows.groupBy("group").agg(F.count("*").alias("n"), F.sum("number").alias("total"))


def _per_key(rows: DataFrame) -> DataFrame:
    return (
        rows.select("group", "number")
        .groupBy("group")
        .transformWithState(_CountAndSum(), "group long, n long, total double", "Update", "None")
    )


def _grouped(keys: int) -> Callable[[DataFrame], DataFrame]:
    """Spread rows over keys as dice would, the same way whoever reads them."""

    def add(rows: DataFrame) -> DataFrame:
        group: Column = F.pmod(F.xxhash64("partition", "offset"), F.lit(keys))
        return rows.withColumns({"group": group, "number": F.col("offset").cast("double")})

    return add


def _check(bench: Bench) -> None:
    """Make sure that all sides compute the same, of a small topic."""
    topic = Topic("checked", _VALUE_BYTES, Codec.NONE, 2, _CHECKED_ROWS)
    fill(bench.bootstrap, topic)
    rows = read(bench, topic.name, _CHECKED_ROWS // 3).transform(_grouped(1000))
    native = emitted(bench, _native(rows), "complete")
    wanted = {row["group"]: (row["n"], row["total"]) for row in native.to_pylist()}
    # Of a group's rows the newest is that with the largest count.
    for query, mode in ((_ours, "append"), (_per_key, "update")):
        given = emitted(bench, query(rows), mode).to_pylist()
        inserted = [row for row in given if row.get("op") != "retract"]
        newest: dict[int, tuple[int, float]] = {}
        for row in sorted(inserted, key=lambda row: row["n"]):
            newest[row["group"]] = (row["n"], row["total"])
        assert newest == wanted, f"{query.__name__} does not give the groups of Spark's aggregate"


# --- growth of state ----------------------------------------------------------------------------


def _growth(bench: Bench, rounds: int, scale: float) -> list[Line]:
    """Time batches that change as many keys, with little and with much state behind them."""
    took_s = {}
    # What is large warms up what is small: it must not look flat for want of that.
    for keys in sorted(_GROWTH, reverse=True):
        held, changed = int(keys * scale), int(_CHANGED * scale)
        took_s[keys] = _changing(bench, f"growth{keys}", held, changed, rounds)
        bench.say(f"growth: {held:,} keys: {took_s[keys]:.2f} s a batch")
    small, large = (took_s[keys] for keys in _GROWTH)
    name = f"{_CHANGED:,} changed keys of {_GROWTH[1]:,}, beside twice the time of {_GROWTH[0]:,}"
    return [Line(f"{name}: s", large, 2 * small, "s", _BARS["growth"])]


def _changing(bench: Bench, name: str, held: int, changed: int, rounds: int) -> float:
    """Put in each key once, then change some of them in every batch; gives the seconds of these."""
    topic = Topic(name, 16, Codec.NONE, 2, held)
    folder = bench.folder / f"checkpoint-{name}"
    filled = fill(bench.bootstrap, topic)
    found = _run_to_end(_keyed_by_place(bench, name, held, _ROWS_A_BATCH), folder)
    bench.say(f"growth: {held:,} keys are there")
    # All distinct keys within a batch: the multiplier has no divisor in common with what is held.
    rows = changed * (rounds * _CHANGING_A_ROUND + 1)
    filled += fill(bench.bootstrap, topic._replace(rows=rows), exists=True)
    changes = _run_to_end(_keyed_by_place(bench, name, held, changed), folder)
    standing = [each["observedMetrics"]["standing"] for each in (*found, *changes)]
    sums = sum(each["groups"] or 0 for each in standing), sum(each["n"] or 0 for each in standing)
    assert sums == (held, filled), f"growth: {sums} are counted of {held} keys and {filled} rows"
    times_s: list[float] = [
        each["durationMs"]["triggerExecution"] / 1000
        for each in changes
        if each["numInputRows"] >= changed * 0.99
    ]
    return statistics.median(times_s[1:])


def _keyed_by_place(bench: Bench, name: str, held: int, batch_rows: int) -> DataFrame:
    rows = read(bench, name, batch_rows)
    place = F.col("offset") * 2 + F.col("partition")
    group = F.when(place < held, place).otherwise(F.pmod(place * F.lit(_SCATTER), F.lit(held)))
    return rows.withColumns({"group": group, "number": F.lit(1.0)})


def _run_to_end(rows: DataFrame, folder: Path) -> list[Any]:
    """Run our aggregate; gives the progress of its batches, with what they add to all groups."""
    # Of more batches than that, the sums would miss some.
    rows.sparkSession.conf.set("spark.sql.streaming.numRecentProgressUpdates", _BATCHES_MAX)
    weight = F.when(F.col("op") == "insert", 1).otherwise(-1)
    groups, n = F.sum(weight).alias("groups"), F.sum(weight * F.col("n")).alias("n")
    query = (
        _ours(rows)
        .observe("standing", groups, n)
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.processAllAvailable()
    query.stop()
    return list(query.recentProgress)


if __name__ == "__main__":
    sys.exit(main())
