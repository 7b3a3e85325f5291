"""`make bench-sink`: our sink, which writes exactly once, beside Spark's own, which does not.

This file alone decides what is written, what is timed and which bar each row has to reach. Both
sinks write the same rows to the same broker in the same Spark session, in turn. What is timed is
what Spark reports of each batch but the first, from its trigger to its place in the commit log.
"""

import statistics
import sys
import tempfile
import uuid
from pathlib import Path
from typing import NamedTuple

from benchmarks.broker.brokers import delete_topic
from benchmarks.sink.nothing import NOTHING, NothingSource
from benchmarks.spark import OURS, THEIRS, Bench, can_run, parser_of, running
from benchmarks.table import Row, print_rows
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster

_BAR = 0.5
_WITHIN_S = 300


class Case(NamedTuple):
    """What is written."""

    name: str
    value_bytes: int
    batch_rows: int
    partitions: int
    codec: str = "none"
    batches: int = 3
    key: str = "cast(id as string)"
    unit: str = "rows/s"
    bar: float | None = _BAR
    ours: str = OURS


_CASES = (
    Case("stream, 100 B, 2 partitions", 100, 300_000, 2),
    Case("stream, 1000 B, 2 partitions", 1000, 100_000, 2),
    Case("stream, 100 B, lz4, 2 partitions", 100, 300_000, 2, "lz4"),
    Case("stream, 1000 B, lz4, 2 partitions", 1000, 100_000, 2, "lz4"),
    Case("stream, 100 B, 8 partitions", 100, 300_000, 8),
    Case("stream, 100 B, no key, 2 partitions", 100, 300_000, 2, key="cast(null as string)"),
    Case("stream, batches of 10 rows", 100, 10, 2, batches=10, unit="p50 ms", bar=None),
    # What of that is Spark's own price for a sink in Python.
    Case(
        "the same by a Python sink that does nothing",
        *(100, 10, 2),
        batches=10,
        unit="p50 ms",
        bar=None,
        ours=NOTHING,
    ),
)


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = parser_of("benchmarks.sink", rounds=5).parse_args()
    if not can_run("spark-kafka"):
        return 1
    rows: list[Row] = []
    with running("bench-sink", arguments.directory) as bench:
        bench.spark.dataSource.register(NothingSource)
        for case in _CASES:
            if arguments.only not in case.name:
                continue
            scaled = case._replace(batch_rows=max(10, int(case.batch_rows * arguments.scale)))
            rows.append(_compare(bench, scaled, arguments.rounds, warm_ups=0 if rows else 1))
            bench.say(f"{case.name}: {rows[-1].ratio:.2f}x")
    print_rows(rows)
    return 0


def _compare(bench: Bench, case: Case, rounds: int, *, warm_ups: int) -> Row:
    numbers = bench.folder / f"numbers-{case.batch_rows}-{case.batches}"
    if not numbers.exists():
        # Two files make a batch of two tasks.
        files = 2 * (case.batches + 1)
        bench.spark.range(0, case.batch_rows * files // 2, 1, files).write.parquet(str(numbers))
    measured: dict[str, list[float]] = {case.ours: [], THEIRS: []}
    for round_no in range(-warm_ups, rounds):
        contents = set()
        for sink in sorted(measured, reverse=bool(round_no % 2)):
            figure, content = _write(bench, numbers, case, sink)
            if sink != NOTHING:
                contents.add(content)
            if round_no >= 0:  # before that, the JVM compiles what runs often
                measured[sink].append(figure)
        assert len(contents) == 1, f"{case.name}: the sinks have written different rows: {contents}"
    return Row(
        f"{case.name}: {case.unit}",
        statistics.median(measured[case.ours]),
        statistics.median(measured[THEIRS]),
        case.unit,
        case.bar,
    )


def _write(bench: Bench, numbers: Path, case: Case, sink: str) -> tuple[float, tuple[object, ...]]:
    """Write all batches to a topic of their own; return the figure, and what is in the topic."""
    # Never the same name again: Spark's producer outlives its query and would create it anew.
    topic = f"written-{uuid.uuid4().hex[:8]}"
    with Cluster(bench.bootstrap) as cluster:
        admin.create_topic(cluster, topic, partitions=case.partitions)
    rows = (
        bench.spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 2)
        .parquet(str(numbers))
        .selectExpr(
            f"{case.key} as key",
            f"rpad(cast(id as string), {case.value_bytes}, 'abcdefghijklmnop') as value",
        )
    )
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as checkpoint:
        query = (
            rows.writeStream.format(sink)
            .option("kafka.bootstrap.servers", bench.bootstrap)
            .option("kafka.compression.type", case.codec)
            .option("topic", topic)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_WITHIN_S), "the query does not come to its end"
        took_ms = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
    content = _contents(bench, topic)
    delete_topic(bench.broker.port, topic)
    expected = 0 if sink == NOTHING else case.batch_rows * (case.batches + 1)
    assert content[0] == expected, f"{content} in the topic"
    steady_ms = took_ms[1 : case.batches + 1]
    if case.unit == "p50 ms":
        return statistics.median(steady_ms), content
    return case.batch_rows * len(steady_ms) * 1000 / sum(steady_ms), content


def _contents(bench: Bench, topic: str) -> tuple[object, ...]:
    """Return what equal sets of rows have in common and others hardly ever."""
    frame = (
        bench.spark.read.format(THEIRS)
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    hashed = "xxhash64(key, value)"
    (row,) = frame.selectExpr("count(*)", "sum(length(value))", f"bit_xor({hashed})").collect()
    return tuple(row)


if __name__ == "__main__":
    sys.exit(main())
