"""The pipeline that is measured: from topic to topic, nothing computed between.

This file alone decides how the two connectors are asked for the same, and how long a batch is said
to take. It knows no record.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.spark import THEIRS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Real-Time Mode's own default: long enough that no batch ends while it is measured.
_REAL_TIME_BATCH = "5 minutes"
_WITHIN_S = 300


class Route(NamedTuple):
    """Where records come from and go to, and by which connector."""

    connector: str
    bootstrap: str
    from_topic: str
    to_topic: str


@contextmanager
def steady(
    spark: "SparkSession", route: Route, trigger_s: float | None
) -> Iterator["StreamingQuery"]:
    """Run it from now on, with this trigger interval, or as soon as it can; stop it at the end."""
    writer = _writer(spark, route, {"startingOffsets": "latest"})
    if trigger_s is not None:
        writer = writer.trigger(processingTime=f"{int(trigger_s * 1000)} milliseconds")
    with _stopped(spark, writer) as query:
        yield query


@contextmanager
def real_time(spark: "SparkSession", route: Route) -> Iterator["StreamingQuery"]:
    """Run it from now on in Real-Time Mode, which Spark's own connector alone has."""
    assert route.connector == THEIRS
    writer = _writer(spark, route, {"startingOffsets": "latest"}).outputMode("update")
    # Its type hints do not know this trigger yet.
    writer = writer.trigger(realTime=_REAL_TIME_BATCH)  # type: ignore[call-overload]
    with _stopped(spark, writer) as query:
        yield query


def saturated(
    spark: "SparkSession", route: Route, starting: list[int], batch_rows: int
) -> list[tuple[int, float]]:
    """Work off what is there in batches of so many rows; gives rows and seconds of each batch."""
    offsets = {route.from_topic: {str(part): start for part, start in enumerate(starting)}}
    reading = {
        "startingOffsets": json.dumps(offsets),
        "maxOffsetsPerTrigger": str(batch_rows),
    }
    writer = _writer(spark, route, reading).trigger(availableNow=True)
    with _stopped(spark, writer) as query:
        assert query.awaitTermination(_WITHIN_S), "the backlog does not come to its end"
        return [
            (each["numInputRows"], each["durationMs"]["triggerExecution"] / 1000)
            for each in query.recentProgress
            if each["numInputRows"]
        ]


def check(query: "StreamingQuery") -> None:
    """Raise what the query has died of, if it has."""
    if error := query.exception():
        raise error


def _writer(spark: "SparkSession", route: Route, reading: dict[str, str]) -> "DataStreamWriter":
    rows = (
        spark.readStream.format(route.connector)
        .option("kafka.bootstrap.servers", route.bootstrap)
        .option("subscribe", route.from_topic)
        .options(**reading)
        .load()
    )
    return (
        rows.select("key", "value")
        .writeStream.format(route.connector)
        .option("kafka.bootstrap.servers", route.bootstrap)
        .option("topic", route.to_topic)
    )


@contextmanager
def _stopped(spark: "SparkSession", writer: "DataStreamWriter") -> Iterator["StreamingQuery"]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as checkpoint:
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            # Tasks under way say at length that they were interrupted.
            spark.sparkContext.setLogLevel("OFF")
            query.stop()
            spark.sparkContext.setLogLevel("ERROR")
