"""Spark's own Kafka connector reads and writes both brokers: it is written for Apache Kafka."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests import peers
from tests.streams.brokers import Broker

HERE = Path(__file__).resolve().parent
ROWS = [(f"key-{i}".encode(), f"value-{i}".encode()) for i in range(500)]


@pytest.fixture(autouse=True)
def connector() -> None:
    peers.require("spark-kafka")


@pytest.fixture
def filled(broker: Broker) -> str:
    topic = broker.topic("connector-in", partitions=3)
    broker.send(topic, ROWS)
    return topic


def pairs(frame: DataFrame) -> list[tuple[bytes, bytes]]:
    rows = frame.select("key", "value").collect()
    return sorted((bytes(row.key), bytes(row.value)) for row in rows)


def test_batch_reads_all_that_is_there(spark: SparkSession, broker: Broker, filled: str) -> None:
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", filled)
        .load()
    )
    assert pairs(frame) == sorted(ROWS)
    spans = frame.groupBy("partition").agg(F.count("*"), F.min("offset"), F.max("offset")).collect()
    assert len(spans) == 3
    assert all(low == 0 and high == count - 1 for _, count, low, high in spans)


def test_batch_reads_only_what_was_committed(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic("connector-committed")
    broker.send_aborted(topic, [(b"never", b"never")])
    broker.send(topic, ROWS[:10])
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .load()
    )
    assert pairs(frame) == sorted(ROWS[:10])


def test_batch_writes_keys_values_and_headers(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic("connector-out", partitions=2)
    frame = spark.range(300).select(
        F.col("id").cast("string").alias("key"),
        F.concat(F.lit("v"), F.col("id")).alias("value"),
        F.array(F.struct(F.lit("h").alias("key"), F.lit("x").cast("binary").alias("value"))).alias(
            "headers"
        ),
    )
    (
        frame.write.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", topic)
        .save()
    )
    messages = broker.read(topic)
    written = sorted((each.key(), each.value()) for each in messages)
    assert written == sorted((b"%d" % i, b"v%d" % i) for i in range(300))
    assert all(each.headers() == [("h", b"x")] for each in messages)


def test_micro_batches_from_topic_to_topic(
    spark: SparkSession, broker: Broker, filled: str, tmp_path: Path
) -> None:
    out = broker.topic("connector-out", partitions=2)

    def run() -> None:
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", filled)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "200")
            .load()
            .select("key", F.upper(F.col("value").cast("string")).alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", out)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert query.exception() is None

    run()
    more = [(b"more", b"more-%d" % i) for i in range(50)]
    broker.send(filled, more)
    run()
    assert broker.values(out) == sorted(value.upper() for _, value in [*ROWS, *more])


def test_real_time_mode(broker: Broker, filled: str, tmp_path: Path) -> None:
    """Real-Time Mode in a session of its own: its long batches occupy every core of one."""
    out = broker.topic("connector-real-time")
    plan = {
        "bootstrap": broker.bootstrap,
        "from": filled,
        "to": out,
        "rows": len(ROWS),
        "jars": [str(path) for path in peers.spark_connector()],
        "folder": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "real_time_mode.py"), json.dumps(plan)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["batches while rows arrived"] == 0, "rows were to arrive before a batch had ended"
    assert broker.values(out) == sorted(value.upper() for _, value in ROWS)
