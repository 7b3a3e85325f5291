"""`make bench-sink`: our sink, which writes exactly once, beside Spark's own, which does not.

This file alone decides what is written, what is timed and which bar each row has to reach. Both
sinks write the same rows to the same broker in the same Spark session, in turn. What is timed is
what Spark reports of each batch but the first, from its trigger to its place in the commit log.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.broker.brokers import Headwater, closing_broker, delete_topic, scratch
from benchmarks.table import Row, options, print_rows, say
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.streams.session import session
from tests import peers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = "headwater"
_THEIRS = "kafka"
_BAR = 0.5
_BATCHES = 5
_WITHIN_S = 300


class Case(NamedTuple):
    """What is written."""

    name: str
    value_bytes: int
    batch_rows: int
    partitions: int
    codec: str = "none"
    key: str = "cast(id as string)"
    unit: str = "rows/s"
    bar: float | None = _BAR


_CASES = (
    Case("stream, 100 B, 2 partitions", 100, 400_000, 2),
    Case("stream, 1000 B, 2 partitions", 1000, 100_000, 2),
    Case("stream, 100 B, lz4, 2 partitions", 100, 400_000, 2, "lz4"),
    Case("stream, 1000 B, lz4, 2 partitions", 1000, 100_000, 2, "lz4"),
    Case("stream, 100 B, 8 partitions", 100, 400_000, 8),
    Case("stream, 100 B, no key, 2 partitions", 100, 400_000, 2, key="cast(null as string)"),
    Case("stream, batches of 10 rows", 100, 10, 2, unit="p50 ms", bar=None),
)


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = _parse()
    if reason := peers.missing("spark-kafka"):
        print(reason, file=sys.stderr)
        return 1
    began = time.monotonic()
    rows: list[Row] = []
    with (
        scratch(arguments.directory) as folder,
        closing_broker(Headwater(folder / "broker")) as broker,
    ):
        broker.start()
        spark = session(
            "bench-sink",
            master="local[2]",
            config={
                "spark.jars": ",".join(map(str, peers.spark_connector())),
                "spark.driver.memory": "2g",
                "spark.local.dir": str(folder),
            },
        )
        try:
            for case in _CASES:
                if arguments.only and arguments.only not in case.name:
                    continue
                scaled = case._replace(batch_rows=max(10, int(case.batch_rows * arguments.scale)))
                rows.append(_compare(spark, broker.port, folder, scaled, arguments.rounds))
                say(f"{case.name}: {rows[-1].ratio:.2f}x", began)
        finally:
            spark.stop()
    print_rows(rows)
    return 0


def _parse() -> argparse.Namespace:
    parser = options("benchmarks.sink", seconds=1.0)
    parser.add_argument("--only", help="those whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    return parser.parse_args()


def _compare(spark: "SparkSession", port: int, folder: Path, case: Case, rounds: int) -> Row:
    numbers = folder / f"numbers-{case.batch_rows}"
    if not numbers.exists():
        # Two files make a batch of two tasks.
        count = case.batch_rows * (_BATCHES + 1)
        spark.range(0, count, 1, 2 * (_BATCHES + 1)).write.parquet(str(numbers))
    measured: dict[str, list[float]] = {_OURS: [], _THEIRS: []}
    for round_no in range(rounds + 1):
        contents = set()
        for sink in sorted(measured, reverse=bool(round_no % 2)):
            figure, content = _write(spark, port, numbers, case, sink)
            contents.add(content)
            if round_no:  # the first warms the JVM's compiler
                measured[sink].append(figure)
        assert len(contents) == 1, f"{case.name}: the sinks have written different rows: {contents}"
    return Row(
        f"{case.name}: {case.unit}",
        statistics.median(measured[_OURS]),
        statistics.median(measured[_THEIRS]),
        case.unit,
        case.bar,
    )


def _write(
    spark: "SparkSession", port: int, numbers: Path, case: Case, sink: str
) -> tuple[float, tuple[object, ...]]:
    """Write all batches to a topic of their own; return the figure, and what is in the topic."""
    bootstrap, topic = f"127.0.0.1:{port}", "written"
    with Cluster(bootstrap) as cluster:
        admin.create_topic(cluster, topic, partitions=case.partitions)
    rows = (
        spark.readStream.schema("id long")
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
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.compression.type", case.codec)
            .option("topic", topic)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_WITHIN_S), "the query does not come to its end"
        took_ms = [each["durationMs"]["triggerExecution"] for each in query.recentProgress]
    content = _contents(spark, bootstrap, topic)
    delete_topic(port, topic)
    assert content[0] == case.batch_rows * (_BATCHES + 1), f"{content} in the topic"
    steady_ms = took_ms[1 : _BATCHES + 1]
    if case.unit == "p50 ms":
        return statistics.median(steady_ms), content
    return case.batch_rows * len(steady_ms) * 1000 / sum(steady_ms), content


def _contents(spark: "SparkSession", bootstrap: str, topic: str) -> tuple[object, ...]:
    """Return what equal sets of rows have in common and others hardly ever."""
    frame = (
        spark.read.format(_THEIRS)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    hashed = "xxhash64(key, value)"
    (row,) = frame.selectExpr("count(*)", "sum(length(value))", f"bit_xor({hashed})").collect()
    return tuple(row)


if __name__ == "__main__":
    sys.exit(main())
