"""Joins of real topics: how rows get into them, and what queries make of them, batch by batch.

This file alone decides how such a query is run: to the end of what is there, with what it gives
kept in memory. It judges nothing but that no row is taken back that is not there.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.queries import maybe_error

WITHIN_S = 240
SECOND = 1_000_000
# 2026-11-01 12:00:00
NOON_US = 1_793_534_400 * SECOND
HIDDEN = "__hw"

Record = tuple[str | None, Mapping[str, Any] | None]
"""The text of the key, and the value, which becomes JSON."""


def send(
    broker: Broker,
    topic: str,
    records: Iterable[Record],
    *,
    partition: int = 0,
    at_us: int | None = None,
) -> None:
    """Write records, as of a time after noon if it is given, else as of now."""
    at_ms = None if at_us is None else (NOON_US + at_us) // 1000
    pairs = [
        (
            None if key is None else key.encode(),
            None if value is None else json.dumps(value).encode(),
        )
        for key, value in records
    ]
    broker.send(topic, pairs, partition=partition, at_ms=at_ms)


def events(
    spark: SparkSession, broker: Broker, topic: str, schema: str, *, per_batch: int = 0
) -> DataFrame:
    """Read events, whose time is in `us`: microseconds behind noon."""
    reader = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if per_batch:
        reader = reader.option("maxOffsetsPerTrigger", per_batch)
    rows = reader.load().transform(hf.json(f"us long, {schema}"))
    return rows.withColumn("at", F.timestamp_micros(F.col("us") + NOON_US))


def iso(us: int) -> str:
    """Return a time behind noon as JSON has it."""
    assert 0 <= us < 3600 * SECOND
    return f"2026-11-01T12:{us // SECOND // 60:02}:{us // SECOND % 60:02}.{us % SECOND:06}Z"


class Changes:
    """What a query has given, in all its runs."""

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        self._frame, self._folder = frame.drop(HIDDEN), folder
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def run(self) -> None:
        """Run to the end of what is there."""
        query = (
            self._frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert maybe_error(query, WITHIN_S) is None

    def _take(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = [row.asDict(recursive=True) for row in frame.collect()]

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, in the order of their batches."""
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    def standing(self, *columns: str) -> Counter[tuple[Any, ...]]:
        """Return what stands when all changes are applied, and see that they could be."""
        found: Counter[tuple[Any, ...]] = Counter()
        for batch in sorted(self.batches):
            for row in self.batches[batch]:
                weight = {"insert": 1, "retract": -1}[row["op"]]
                found[tuple(row[name] for name in columns)] += weight
            assert all(count >= 0 for count in found.values()), found
            found = +found
        return found
