"""`make bench-source`: our source beside Spark's own Kafka connector, on the same topics.

This file alone decides which topics are read, what is timed and which bar each row has to reach.
Both connectors read from the same broker in the same Spark session, in turn; what is timed is a
query that touches every row's key, value and offset. Before that, each has to give the same rows.
"""

import argparse
import statistics
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.broker.brokers import Headwater, closing_broker, delete_topic, scratch
from benchmarks.source.topics import Topic, fill
from benchmarks.table import Row, options, print_rows, say
from headwater.base.record.codecs import Codec
from headwater.streams.session import session
from tests import peers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OURS = "headwater"
_THEIRS = "kafka"
_BAR = 1.0
# The JVM compiles what it has run often; a first reading takes three times as long as a fourth.
_WARM_UPS = 3
# A second or two of reading each, beside which planning a query is little.
_ROWS = {100: 3_000_000, 1000: 700_000}
_GRID = [
    (value_bytes, codec, partitions)
    for value_bytes in (100, 1000)
    for codec, counts in ((Codec.NONE, (1, 2, 8)), (Codec.LZ4, (1, 2, 8)), (Codec.ZSTD, (2,)))
    for partitions in counts
]


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
        bootstrap = f"127.0.0.1:{broker.port}"
        spark = session(
            "bench-source",
            master="local[2]",
            config={
                "spark.jars": ",".join(map(str, peers.spark_connector())),
                "spark.driver.memory": "2g",
                "spark.local.dir": str(folder),
            },
        )
        try:
            for value_bytes, codec, partitions in _GRID:
                name = f"{value_bytes} B, {codec.name.lower()}, {partitions} partitions"
                if arguments.only and arguments.only not in name:
                    continue
                share = int(_ROWS[value_bytes] * arguments.scale)
                topic = Topic(f"t{len(rows)}", value_bytes, codec, partitions, share)
                written = fill(bootstrap, topic)
                rows.append(_compare(spark, bootstrap, topic, written, name, arguments.rounds))
                delete_topic(broker.port, topic.name)
                say(f"{name}: {rows[-1].ratio:.2f}x", began)
        finally:
            spark.stop()
    print_rows(rows)
    return 0


def _parse() -> argparse.Namespace:
    parser = options("benchmarks.source", seconds=1.0)
    parser.add_argument("--only", help="those whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    return parser.parse_args()


def _compare(
    spark: "SparkSession", bootstrap: str, topic: Topic, written: int, name: str, rounds: int
) -> Row:
    frames = {
        each: spark.read.format(each)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic.name)
        .load()
        for each in (_OURS, _THEIRS)
    }
    contents = {each: _contents(frame) for each, frame in frames.items()}
    assert contents[_OURS] == contents[_THEIRS], f"{name}: {contents}"
    assert contents[_OURS][0] == written, f"{name}: {written} rows were written"
    rates: dict[str, list[float]] = {each: [] for each in frames}
    for round_no in range(-_WARM_UPS, rounds):
        for each in sorted(frames, reverse=bool(round_no % 2)):
            took_s = _timed(frames[each], written)
            if round_no >= 0:
                rates[each].append(written / took_s)
    return Row(
        f"{name}: rows/s",
        statistics.median(rates[_OURS]),
        statistics.median(rates[_THEIRS]),
        "rows/s",
        _BAR,
    )


def _contents(frame: "DataFrame") -> tuple[object, ...]:
    """Return what two equal sets of rows have in common and others hardly ever."""
    hashed = "xxhash64(key, value, topic, partition, offset, timestamp, timestampType)"
    (row,) = frame.selectExpr(
        "count(*)",
        "sum(length(value))",
        f"bit_xor({hashed})",
        f"sum(cast({hashed} as decimal(20, 0)))",
    ).collect()
    return tuple(row)


def _timed(frame: "DataFrame", written: int) -> float:
    began = time.perf_counter()
    (row,) = frame.selectExpr(
        "count(*)", "sum(length(key))", "sum(length(value))", "max(offset)"
    ).collect()
    took_s = time.perf_counter() - began
    assert row[0] == written
    return took_s


if __name__ == "__main__":
    sys.exit(main())
