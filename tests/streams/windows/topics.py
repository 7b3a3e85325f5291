"""Events in topics, windows of them in other topics, and what a database says of the same.

This file alone decides how such tests look: what an event is, how it is read, and how results are
written and found. It judges nothing.
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.queries import maybe_error

WITHIN_S = 240
SECOND = 1_000_000
# 2026-11-01 12:00:00
NOON_US = 1_793_534_400 * SECOND

Event = tuple[int, int, str, int]
"""Partition, microseconds after noon, key and number."""


def send(broker: Broker, topic: str, events: list[Event]) -> None:
    for partition in sorted({each[0] for each in events}):
        values = [
            json.dumps({"at_us": NOON_US + us, "name": key, "number": number}).encode()
            for where, us, key, number in events
            if where == partition
        ]
        broker.send(topic, [(None, value) for value in values], partition=partition)


def read(spark: SparkSession, broker: Broker, topic: str, *, per_batch: int = 0) -> DataFrame:
    reader = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
    )
    if per_batch:
        reader = reader.option("maxOffsetsPerTrigger", per_batch)
    return (
        reader.load()
        .transform(hf.json("at_us long, name string, number long"))
        .withColumn("at", F.timestamp_micros("at_us"))
    )


def run(rows: DataFrame, broker: Broker, out: str, folder: Path) -> list[StreamingQueryProgress]:
    """Write everything that there is, then come to an end; gives what Spark tells of it."""
    query = (
        rows.writeStream.format("headwater")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", out)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert maybe_error(query, WITHIN_S) is None
    return query.recentProgress


def found(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value() or b"") for message in broker.read(topic)]


def counts(rows: DataFrame) -> DataFrame:
    return rows.select(
        F.to_json(
            F.struct(
                "name",
                F.unix_micros("window.start").alias("start"),
                "n",
                "total",
                "op",
                "version",
            )
        ).alias("value")
    )


def in_duckdb(events: list[Event], length_us: int) -> Counter[tuple[Any, ...]]:
    database = duckdb.connect()
    database.execute("CREATE TABLE events (us BIGINT, key VARCHAR, number BIGINT)")
    database.executemany(
        "INSERT INTO events VALUES (?, ?, ?)",
        [(NOON_US + us, key, number) for _, us, key, number in events],
    )
    rows = database.execute(
        "SELECT key, us - us % $1 AS start, count(*), sum(number) FROM events GROUP BY ALL",
        [length_us],
    ).fetchall()
    return Counter((key, start, n, int(total)) for key, start, n, total in rows)


def made(dice: random.Random, count: int) -> list[Event]:
    """Events in two partitions, one of them far behind the other."""
    events = []
    for number in range(count):
        partition = number % 2
        us = number * SECOND // 4 + dice.randint(-SECOND, SECOND) - 60 * SECOND * partition
        events.append((partition, us, f"key {dice.randint(0, 20)}", number))
    return events


LAST: list[Event] = [(partition, 3600 * SECOND, "last", 0) for partition in (0, 1)]
"""What is behind the end of all windows lets the last of them close."""
