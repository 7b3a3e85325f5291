"""Operators in plans of Spark: their state in other tasks, and what they cannot do without."""

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.streams.kernel.buckets import bucket_ids
from headwater.streams.kernel.errors import RowOriginError, StateStoreError
from headwater.streams.kernel.plan import prepare
from tests.streams.brokers import Broker
from tests.streams.windows.topics import (
    LAST,
    SECOND,
    counts,
    found,
    in_duckdb,
    made,
    read,
    run,
    send,
)

STORE = "spark.sql.streaming.stateStore.providerClass"


def test_the_number_of_tasks_is_changed_by_sparks_own_means(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic, out = near.topic(partitions=2), near.topic("out")
    events = made(random.Random(3), 400)
    rows = read(spark, near, topic).transform(hf.watermark("at", "5 seconds"))
    windows = rows.transform(
        hf.window("at", "10 seconds", by=["name"], buckets=8, n=hf.count(), total=hf.sum("number"))
    )
    send(near, topic, events[:250])
    run(counts(windows), near, out, tmp_path)
    spark._streamingCheckpointManager.repartition(str(tmp_path / "checkpoint"), 3)
    send(near, topic, events[250:] + LAST)
    run(counts(windows), near, out, tmp_path)

    given = Counter((row["name"], row["start"], row["n"], row["total"]) for row in found(near, out))
    assert given == in_duckdb(events, 10 * SECOND)


def test_numbers_of_buckets_spread_by_sparks_hash(spark: SparkSession) -> None:
    ids = spark.createDataFrame([(each,) for each in bucket_ids(64)], "bucket int")
    for tasks in (2, 4, 8, 64):
        spread = ids.groupBy(F.pmod(F.hash("bucket"), F.lit(tasks))).count().collect()
        assert [row["count"] for row in spread] == [64 // tasks] * tasks


def test_a_session_with_another_store_is_refused_before_anything_runs(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    rows = rows.selectExpr("value", "'t' as topic", "0 as partition", "value as offset")
    before = spark.conf.get(STORE)
    spark.conf.unset(STORE)
    try:
        with pytest.raises(StateStoreError, match="RocksDB") as raised:
            rows.transform(hf.aggregate(n=hf.count()))
    finally:
        spark.conf.set(STORE, before or "")
    assert "hw.session()" in raised.value.hint


def test_rows_without_an_origin_are_refused_before_anything_runs(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    with pytest.raises(RowOriginError, match="topic, partition, offset were dropped"):
        rows.transform(hf.aggregate(n=hf.count()))


@pytest.mark.parametrize("topics", ["one", "one,two"])
def test_the_name_of_a_topic_travels_only_where_there_are_several(
    spark: SparkSession, topics: str
) -> None:
    """It tells rows of the same partition and offset apart, and costs as much as a value."""
    rows = spark.readStream.format("headwater").option("subscribe", topics).load()
    prepared = prepare(rows, {"key": F.col("key")}, [], needs_time=False)
    assert ("topic" in prepared.schema.names) == ("," in topics)
    assert "time" not in prepared.schema.names
    assert prepared.rows(marks_null_keys=True).names[-2:] == ["time", "null_key"]
