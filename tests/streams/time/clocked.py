"""Queries that do nothing but tell what time it was in each of their batches.

This file alone decides how such a query is built: rows report as an operator's would, and are then
dropped; what the clock says goes to the test. It judges nothing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.streams.time.clocks import HIDDEN, clock_frame, clock_of, reporter_of
from headwater.streams.time.fold import Reach
from headwater.streams.time.report import Reporter
from tests.streams.brokers import Broker

WITHIN_S = 120
COLUMNS = "bucket int, clock string, watermark long, idle boolean, hold long"
_Batches = Iterator[pa.RecordBatch]


class Said(NamedTuple):
    """What the clock said in one batch; seconds since the epoch."""

    watermark: float | None
    idle: bool


def events(
    spark: SparkSession, broker: Broker, topic: str, source: str = "headwater", **options: str
) -> DataFrame:
    """Read a topic whose values are event times: whole microseconds in text, or nothing."""
    rows = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )
    return rows.withColumn(
        "at", F.expr("timestamp_micros(try_cast(cast(value as string) as long))")
    )


def send(broker: Broker, topic: str, seconds: list[float], *, partition: int = 0) -> None:
    """Write events."""
    values = [(None, str(round(each * 1_000_000)).encode()) for each in seconds]
    broker.send(topic, values, partition=partition)


def told(rows: DataFrame) -> DataFrame:
    """Have rows report, and return what their clock says."""
    clock = clock_of(rows)
    reported = rows.select(HIDDEN).mapInArrow(_reporting(reporter_of(clock)), COLUMNS)
    return reported.union(clock_frame(clock, [3, 5]))


def _reporting(reporter: Reporter) -> Callable[[_Batches], _Batches]:
    def report(batches: _Batches) -> _Batches:
        reached: dict[tuple[str, int], Reach] = {}
        for batch in batches:
            for row in batch.column(0).to_pylist():
                place = (row.get("topic") or "", row["partition"])
                known = reached.get(place, Reach(None, row["offset"], row["offset"]))
                times = [each for each in (known.time_us, row["time"]) if each is not None]
                reached[place] = Reach(
                    max(times, default=None),
                    min(known.first, row["offset"]),
                    max(known.last, row["offset"]),
                )
        reporter.report(reached)
        yield pa.RecordBatch.from_pylist([], schema=_SCHEMA)

    return report


_SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("clock", pa.string()),
        ("watermark", pa.int64()),
        ("idle", pa.bool_()),
        ("hold", pa.int64()),
    ]
)


class Clocked:
    """A query on a checkpoint, and what the clock has said in each batch of all its runs."""

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        self.frame, self.checkpoint = frame, folder / "checkpoint"
        self.said: dict[int, list[Said]] = {}
        self.rows: list[list[Any]] = []
        self._changed = threading.Condition()

    def start(self, **trigger: Any) -> StreamingQuery:  # noqa: ANN401 - as Spark's
        return (
            self.frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start()
        )

    def run(self) -> None:
        """Run to the end of what is there."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(WITHIN_S)
        finally:
            query.stop()

    def await_that(self, done: Callable[[Said], bool]) -> None:
        """Wait until the clock has said so."""
        end_s = time.monotonic() + WITHIN_S
        with self._changed:
            while not any(done(each) for said in self.said.values() for each in said):
                assert self._changed.wait(end_s - time.monotonic()), self.said

    def watermarks(self) -> list[float | None]:
        """Return what was said, batch by batch, without repetitions."""
        found: list[float | None] = []
        for batch in sorted(self.said):
            for each in self.said[batch]:
                if not found or found[-1] != each.watermark:
                    found.append(each.watermark)
        return found

    def forget_last_commit(self) -> int:
        """Leave the checkpoint as a driver that was killed before its last batch ended."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last

    def _take(self, frame: DataFrame, batch: int) -> None:
        found = frame.collect()
        self.rows.append(found)
        with self._changed:
            for row in found:
                seconds = None if row.watermark is None else row.watermark / 1_000_000
                self.said.setdefault(batch, []).append(Said(seconds, row.idle))
            self._changed.notify_all()
