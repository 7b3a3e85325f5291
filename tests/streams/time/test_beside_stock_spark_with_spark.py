"""The same events by Spark's own watermark and by ours: what is dropped, and what never comes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.queries import maybe_error
from tests.streams.time.clocked import WITHIN_S, events, send

NOON = 1_793_534_400.0
YEAR_2099 = 4_070_908_800.0


def ours(rows: DataFrame, at_end: Literal["hold", "close"] = "hold") -> DataFrame:
    timed = rows.transform(hf.watermark("at", "5 seconds", idle="1 second", at_end=at_end))
    return timed.transform(hf.window("at", "10 seconds", buckets=1, n=hf.count()))


def stock(rows: DataFrame) -> DataFrame:
    timed = rows.withWatermark("at", "5 seconds")
    return timed.groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("n"))


def counted(
    windows: DataFrame, name: str, folder: Path, *, until: Callable[[int], bool] | None = None
) -> int:
    """Run a query to its end, or until so many events are in windows; gives their number."""
    writer = (
        windows.select("n")
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(folder / name))
    )
    spark = windows.sparkSession

    def total() -> int:
        return sum(row.n for row in spark.table(name).collect())

    if until is None:
        assert maybe_error(writer.trigger(availableNow=True).start(), WITHIN_S) is None
        return total()
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        end_s = time.monotonic() + WITHIN_S
        while not until(total()):
            assert query.isActive, query.exception()
            if time.monotonic() > end_s:
                break
            query.awaitTermination(1)
        return total()
    finally:
        query.stop()


def test_a_slow_partition_beside_a_fast_one(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic("events", partitions=2)
    # One partition is ten minutes behind the other, and both go on.
    send(near, topic, [NOON + 600 + each for each in range(0, 200, 10)], partition=0)
    send(near, topic, [NOON + each for each in range(0, 200, 10)], partition=1)
    rows = events(spark, near, topic, maxOffsetsPerTrigger="10")

    # By Spark's watermark all windows but the last two have closed, and of the slow partition's
    # events those are dropped that came when it had moved on, after two batches.
    assert counted(stock(rows), "stock_slow", tmp_path) <= 40 - 2 - 10
    # All windows that can have closed: those of the slow partition, but its last two.
    assert counted(ours(rows), "ours_slow", tmp_path) == 18


def test_an_event_of_2099(spark: SparkSession, near: Broker, tmp_path: Path) -> None:
    topic = near.topic("events")
    send(near, topic, [NOON, YEAR_2099, *(NOON + each for each in range(10, 200, 10))])
    rows = events(spark, near, topic, maxOffsetsPerTrigger="5")

    # What comes with the lie and in the batch behind it still counts, and nothing after: 2099 is
    # over.
    assert counted(stock(rows), "stock_2099", tmp_path) <= 10
    assert counted(ours(rows), "ours_2099", tmp_path) == 18


def test_a_topic_that_falls_silent_beside_one_that_goes_on(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    silent, lively = near.topic("silent"), near.topic("lively")
    send(near, silent, [NOON])
    send(near, lively, [NOON + each for each in range(0, 200, 10)])
    both = events(spark, near, f"{silent},{lively}")
    # Spark takes the minimum over streams, for which each needs a watermark of its own.
    one, other = (
        events(spark, near, topic).withWatermark("at", "5 seconds") for topic in (silent, lively)
    )
    merged = one.select("at").union(other.select("at"))
    windows = merged.groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("n"))

    assert counted(windows, "stock_silent", tmp_path) == 0
    found = counted(ours(both), "ours_silent", tmp_path, until=lambda total: total >= 19)
    assert found == 19


def test_a_stream_that_stops(spark: SparkSession, near: Broker, tmp_path: Path) -> None:
    topic = near.topic("events")
    send(near, topic, [NOON + each for each in range(0, 200, 10)])
    rows = events(spark, near, topic)

    # The last time less the delay is within the window before the last one: both wait for ever.
    assert counted(stock(rows), "stock_stops", tmp_path) == 18
    assert counted(ours(rows, at_end="close"), "ours_stops", tmp_path) == 20
