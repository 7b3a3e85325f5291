"""What nobody wants to have in a stream, in real queries: right answers, or errors that say why."""

import datetime as dt
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from headwater.streams.kernel.buckets import bucket_ids, bucket_of
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.keys import encode_keys
from tests.streams.brokers import Broker
from tests.streams.queries import maybe_error

WITHIN_S = 240
MILLION = 1_000_000
BUCKETS = 2
# 2026-11-01 12:00:00
NOON_US = 1_793_534_400 * MILLION
YEAR_1_US = -62_135_596_800 * MILLION
YEAR_9999_US = 253_402_300_799 * MILLION + 999_999
HOUR_US = 3600 * MILLION


@pytest.fixture(scope="module")
def crowded(near: Broker) -> str:
    """Give a topic with a million rows and two, half of them in each of two partitions."""
    topic = near.topic(partitions=2)
    settings = {"queue.buffering.max.messages": 2 * MILLION, "linger.ms": 50}
    producer = Producer({"bootstrap.servers": near.bootstrap} | settings)
    for number in range(MILLION + 2):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(60) == 0
    return topic


def read(spark: SparkSession, near: Broker, topic: str) -> DataFrame:
    return (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", near.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def numbered(spark: SparkSession, near: Broker, topic: str) -> DataFrame:
    """Read rows that have a number, and a time that is as many microseconds after noon."""
    rows = read(spark, near, topic)
    rows = rows.withColumn("number", F.col("offset") * 2 + F.col("partition"))
    return rows.withColumn("at", F.timestamp_micros(F.col("number") + NOON_US))


def run(frame: DataFrame, folder: Path, take: Callable[[DataFrame], None]) -> str | None:
    """Run a query to the end of what is there; return what it failed of."""
    query = (
        frame.drop("__hw")
        .writeStream.foreachBatch(lambda rows, _: take(rows))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return maybe_error(query, WITHIN_S)


def workers_peak_bytes() -> int:
    """Return the most memory that one of the Python workers of this process has had at once."""
    parents: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            told = dict(line.split(":", 1) for line in status.read_text().splitlines())
            is_worker = b"worker_daemon" in (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(told["PPid"])
        if is_worker:
            peaks[int(status.parent.name)] = int(told["VmHWM"].split()[0]) * 1024

    def ancestors(process: int) -> Iterator[int]:
        while process in parents:
            process = parents[process]
            yield process

    return max(peak for process, peak in peaks.items() if os.getpid() in ancestors(process))


def test_a_key_with_a_million_rows_in_a_batch(
    spark: SparkSession, near: Broker, crowded: str, tmp_path: Path
) -> None:
    profiles = near.topic("profiles")
    near.send(profiles, [(b"hot", b'{"name": "hot", "weight": 3}')])
    table = hw.table(
        spark,
        profiles,
        schema="name string, weight long",
        key="name",
        options={"kafka.bootstrap.servers": near.bootstrap},
    )
    rows = numbered(spark, near, crowded).withColumn("name", F.lit("hot"))
    rows = rows.transform(hf.watermark("at", "0 seconds", future=None))
    joined = rows.transform(hf.join_latest(table, on="name", buckets=BUCKETS))
    windows = joined.transform(
        hf.window(
            "at",
            "1 second",
            by=["name"],
            buckets=BUCKETS,
            n=hf.count(),
            total=hf.sum("number"),
            weights=hf.sum("weight"),
        )
    )
    totals = rows.withColumn("weight", F.lit(1)).transform(
        hf.aggregate(
            by=["name"],
            buckets=BUCKETS,
            n=hf.count(),
            total=hf.sum("number"),
            weights=hf.sum("weight"),
        )
    )
    columns = ("name", "n", "total", "weights")
    found: list[tuple[Any, ...]] = []
    error = run(
        windows.select(*columns).unionByName(totals.where("op = 'insert'").select(*columns)),
        tmp_path,
        lambda given: found.extend(map(tuple, given.collect())),
    )
    assert error is None
    in_window = sum(range(MILLION))
    everything = sum(range(MILLION + 2))
    assert sorted(found) == [
        ("hot", MILLION, in_window, 3 * MILLION),
        ("hot", MILLION + 2, everything, MILLION + 2),
    ]
    if Path("/proc/self/status").exists():
        # About 1.2 GB: a worker has all rows of its bucket at once, those that come and those that
        # go, in Spark's hands and in ours, beside a quarter of a gigabyte of compiled code.
        assert workers_peak_bytes() < 2 * 1024**3


def test_a_million_keys_in_a_batch(
    spark: SparkSession, near: Broker, crowded: str, tmp_path: Path
) -> None:
    rows = numbered(spark, near, crowded).transform(hf.aggregate(by=["number"], n=hf.count()))
    sums = (F.count("*"), F.sum("number"), F.sum("n"), F.max("version"))
    found: list[tuple[Any, ...]] = []
    error = run(rows, tmp_path, lambda given: found.extend(map(tuple, given.agg(*sums).collect())))
    assert error is None
    assert found == [(MILLION + 2, sum(range(MILLION + 2)), MILLION + 2, 0)]


# --- values that are not what they seem ---------------------------------------------------------

ODD: list[tuple[str | None, str | None, int]] = [
    # Name, number and microseconds; JSON has no word for what is no number.
    (None, "1.5", NOON_US),
    (None, "1.5", NOON_US + 1),
    (None, None, NOON_US),
    ("a", None, NOON_US),
    ("a", "NaN", NOON_US),
    ("a", "nan", NOON_US + 2),
    ("a", "0.0", NOON_US),
    ("a", "-0.0", NOON_US + 5),
    ("", "0.0", NOON_US),
    ("a", "Infinity", NOON_US),
    ("a", "-Infinity", YEAR_1_US),
    ("a", "4.9e-324", YEAR_1_US),
    ("a", "0.0", YEAR_1_US),
    ("a", "0.0", YEAR_9999_US),
    ("a", "-0.0", YEAR_9999_US - 1),
]
# Behind all windows, so that they close.
END = ("end", "1.0", YEAR_9999_US + 2 * HOUR_US)
ODD_COLUMNS = "name string, text string, us long"


def doubles(rows: DataFrame) -> DataFrame:
    return rows.withColumn("x", F.expr("cast(text as double)")).drop("text")


def shown(*columns: str | Column) -> Column:
    """Return columns as JSON, in which a double is its text, and a zero has no sign."""
    number = (F.col("x") + 0.0).cast("string").alias("x")
    return F.to_json(F.struct("name", number, *columns)).alias("value")


def in_spark(rows: DataFrame) -> Counter[str]:
    """Say of all rows at once which windows and which pairs there are, by Spark's own rules."""
    start = F.col("us") - F.pmod("us", F.lit(HOUR_US))
    windows = rows.groupBy("name", "x", start.alias("start")).agg(F.count("*").alias("n"))
    others = rows.withColumnsRenamed({"name": "other_name", "x": "other_x", "us": "other_us"})
    near = F.col("other_us").between(F.col("us"), F.col("us") + 10)
    same = (F.col("name") == F.col("other_name")) & (F.col("x") == F.col("other_x"))
    pairs = rows.join(others, same & near, "left")
    shown_rows = windows.select(shown("start", "n")).union(pairs.select(shown("us", "other_us")))
    return Counter(row.value for row in shown_rows.collect())


def test_null_keys_nan_minus_zero_and_the_first_and_the_last_year(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic()
    names = [column.split()[0] for column in ODD_COLUMNS.split(", ")]
    values = [json.dumps(dict(zip(names, row, strict=True))).encode() for row in [*ODD, END]]
    near.send(topic, [(None, value) for value in values])
    rows = read(spark, near, topic).transform(hf.json(ODD_COLUMNS)).transform(doubles)
    rows = rows.withColumn("at", F.timestamp_micros("us"))
    rows = rows.transform(hf.watermark("at", "0 seconds", future=None))
    windows = rows.transform(
        hf.window("at", "1 hour", by=["name", "x"], buckets=BUCKETS, n=hf.count())
    )
    others = rows.withColumnsRenamed({"us": "other_us", "at": "other_at"})
    pairs = rows.transform(
        hf.join_interval(
            others,
            on=["name", "x"],
            lower="0 seconds",
            upper=dt.timedelta(microseconds=10),
            how="left",
            buckets=BUCKETS,
        )
    )
    start = F.unix_micros("window.start").alias("start")
    given = windows.select(shown(start, "n")).unionByName(pairs.select(shown("us", "other_us")))
    found: list[str] = []
    error = run(given, tmp_path, lambda batch: found.extend(row[0] for row in batch.collect()))
    assert error is None
    whole = spark.createDataFrame(ODD, ODD_COLUMNS).transform(doubles)
    assert Counter(each for each in found if '"end"' not in each) == in_spark(whole)


# --- types that change --------------------------------------------------------------------------


def summed(rows: DataFrame, kind: str) -> DataFrame:
    rows = rows.withColumn("number", F.col("number").cast(kind))
    return rows.transform(
        hf.aggregate(by=["name"], buckets=BUCKETS, n=hf.count(), total=hf.sum("number"))
    )


def named_into(bucket: int) -> str:
    """Return a name that falls into a bucket."""
    names = pa.array([f"name {number}" for number in range(20)])
    buckets = bucket_of(hashes(encode_keys([names], len(names))), BUCKETS)
    return str(names[int((buckets == bucket).argmax())])


def test_a_type_that_changed_between_restarts_is_refused_and_nothing_is_lost(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic()
    rows = read(spark, near, topic).transform(hf.json("name string, number long"))
    ones, others = named_into(0), named_into(BUCKETS - 1)
    found: list[tuple[Any, ...]] = []

    def go_on(frame: DataFrame) -> str | None:
        given = frame.select("op", "name", "n", "total")
        return run(given, tmp_path, lambda batch: found.extend(map(tuple, batch.collect())))

    for name, change in ((others, None), (ones, "int64 became double")):
        value = json.dumps({"name": name, "number": 7}).encode()
        near.send(topic, [(None, value)])
        # The second one comes where there is no state yet that could tell what it was.
        error = go_on(summed(rows, "long" if change is None else "double"))
        assert (error is None) == (change is None), error
        assert change is None or "StateMismatchError: the checkpoint has the state" in str(error)
        assert change is None or f"value 1: {change}" in str(error)
    assert found == [("insert", others, 1, 7)]
    assert go_on(summed(rows, "long")) is None
    assert found[1:] == [("insert", ones, 1, 7)]


def named_elsewhere(before: int, now: int) -> str:
    """Return a name that comes to a place without state when the number of buckets changes."""
    for number in range(1000):
        name = f"name {number}"
        key = hashes(encode_keys([pa.array([name])], 1))
        old, new = (bucket_ids(each)[int(bucket_of(key, each)[0])] for each in (before, now))
        if new not in {old, bucket_ids(before)[0]}:
            return name
    raise AssertionError("there is no such name")


@pytest.mark.parametrize("before, now", [(1, 2), (64, 8)])
def test_another_number_of_buckets_is_refused_and_nothing_is_lost(
    spark: SparkSession, near: Broker, tmp_path: Path, before: int, now: int
) -> None:
    topic = near.topic()
    rows = read(spark, near, topic).transform(hf.json("name string, number long"))
    name = named_elsewhere(before, now)
    found: list[tuple[Any, ...]] = []

    def go_on(buckets: int) -> str | None:
        near.send(topic, [(None, json.dumps({"name": name}).encode())])
        counted = rows.transform(hf.aggregate(by=["name"], buckets=buckets, n=hf.count()))
        given = counted.select("op", "name", "n")
        return run(given, tmp_path, lambda batch: found.extend(map(tuple, batch.collect())))

    assert go_on(before) is None
    error = go_on(now)
    assert f"number of buckets: {before} became {now}" in str(error)
    assert found == [("insert", name, 1)]
    assert go_on(before) is None
    assert found[-1] == ("insert", name, 3)
