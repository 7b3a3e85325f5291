"""`make bench-source`: our source beside Spark's own Kafka connector, on the same topics.

This file alone decides which topics are read, what is timed and which bar each row has to reach.
Both connectors read from the same broker in the same Spark session, in turn; what is timed is a
query that touches every row's key, value and offset. Before that, each has to give the same rows.
"""

import statistics
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.broker.brokers import delete_topic
from benchmarks.source.topics import Topic, fill
from benchmarks.spark import OURS, THEIRS, Bench, can_run, parser_of, running
from benchmarks.table import Row, print_rows
from headwater.base.record.codecs import Codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BAR = 1.0
# The JVM compiles what it has run often; a first reading takes three times as long as a fourth.
# What it has compiled for one topic serves the next.
_WARM_UPS, _WARM_UPS_LATER = 3, 1
# A second or two of reading each, beside which planning a query is little.
_ROWS = {100: 2_000_000, 1000: 500_000}
_GRID = [
    (value_bytes, codec, partitions)
    for value_bytes in (100, 1000)
    for codec, counts in ((Codec.NONE, (1, 2, 8)), (Codec.LZ4, (1, 2, 8)), (Codec.ZSTD, (2,)))
    for partitions in counts
]


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = parser_of("benchmarks.source", rounds=5).parse_args()
    if not can_run("spark-kafka"):
        return 1
    rows: list[Row] = []
    with running("bench-source", arguments.directory) as bench:
        for value_bytes, codec, partitions in _GRID:
            name = f"{value_bytes} B, {codec.name.lower()}, {partitions} partitions"
            if arguments.only not in name:
                continue
            share = int(_ROWS[value_bytes] * arguments.scale)
            topic = Topic(f"t{len(rows)}", value_bytes, codec, partitions, share)
            written = fill(bench.bootstrap, topic)
            warm_ups = _WARM_UPS_LATER if rows else _WARM_UPS
            rounds = range(-warm_ups, arguments.rounds)
            rows.append(_compare(bench, topic, written, name, rounds))
            delete_topic(bench.broker.port, topic.name)
            bench.say(f"{name}: {rows[-1].ratio:.2f}x")
    print_rows(rows)
    return 0


def _compare(bench: Bench, topic: Topic, written: int, name: str, rounds: range) -> Row:
    frames = {
        each: bench.spark.read.format(each)
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", topic.name)
        .load()
        for each in (OURS, THEIRS)
    }
    contents = {each: _contents(frame) for each, frame in frames.items()}
    assert contents[OURS] == contents[THEIRS], f"{name}: {contents}"
    assert contents[OURS][0] == written, f"{name}: {written} rows were written"
    rates: dict[str, list[float]] = {each: [] for each in frames}
    for round_no in rounds:
        for each in sorted(frames, reverse=bool(round_no % 2)):
            took_s = _timed(frames[each], written)
            if round_no >= 0:
                rates[each].append(written / took_s)
    return Row(
        f"{name}: rows/s",
        statistics.median(rates[OURS]),
        statistics.median(rates[THEIRS]),
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
