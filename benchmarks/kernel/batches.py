"""How a query of the benchmark reads, and how its batches are timed.

This file alone decides that: what is timed are whole batches, into a sink that does nothing, and a
query's first one does not count. It knows no operator.
"""

import itertools
import shutil
import time
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.spark import Bench

BATCHES: Final = 3
"""How many batches of a query count."""

_WITHIN_S: Final = 600
_numbers = itertools.count()


class SlowQueryError(Exception):
    """A query has not run as many batches as it should."""


def read(bench: Bench, topic: str, batch_rows: int) -> DataFrame:
    """Read a topic from its beginning, by our source, in batches of so many rows."""
    return (
        bench.spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .load()
    )


def emitted(bench: Bench, rows: DataFrame, mode: str) -> pa.Table:
    """Run a query over all that there is; gives what it emits."""
    name = f"emitted_{next(_numbers)}"
    query = (
        rows.writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return bench.spark.table(name).toArrow()


def timed_batches(
    bench: Bench, rows: DataFrame, mode: str, batch_rows: int, batches: int = BATCHES
) -> list[float]:
    """Run a query for a few batches; gives the rows per second of each but the first.

    Args:
        bench: Where it runs.
        rows: The query.
        mode: Its output mode.
        batch_rows: How many rows of input a batch has.
        batches: How many batches count.
    """
    folder = bench.folder / f"checkpoint-{next(_numbers)}"
    query = (
        rows.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", str(folder))
        .trigger(processingTime="0 seconds")
        .start()
    )
    ends_s = time.monotonic() + _WITHIN_S
    try:
        while (query.lastProgress or {"batchId": -1})["batchId"] < batches:
            query.awaitTermination(1)
            if not query.isActive or time.monotonic() > ends_s:
                raise SlowQueryError(f"no {batches + 1} batches within {_WITHIN_S} s")
    finally:
        query.stop()
    # Spark may count the rows of a source twice where a query reads it twice.
    found = [each for each in query.recentProgress if each["numInputRows"] >= batch_rows * 0.99]
    # Tasks of the batch in which the query was stopped may still be there.
    shutil.rmtree(folder, ignore_errors=True)
    return [
        batch_rows / (each["durationMs"]["triggerExecution"] / 1000)
        for each in found[1 : batches + 1]
    ]
