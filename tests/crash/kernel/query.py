"""Windows with late events among them, and places inside the kernel at which something dies.

This file alone decides what the query is and where these places are. Events come from a topic; by
ten seconds and key they are counted and added up, and late ones correct what was given before.

    packed         a task has its rows in blobs, and has not said how far it came
    before step    a bucket has its rows and its state
    after step     it has the next state, of which the store has nothing yet
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.streams.kernel.operator import Step, Time
from headwater.streams.kernel.state import State
from headwater.streams.windows import plan
from headwater.streams.windows.aligned import AlignedWindows
from tests.crash.sink.failing import reach

IN: Final = "events"
PHASES: Final = ("packed", "before step", "after step")
LENGTH_S: Final = 10
ROWS_A_BATCH: Final = 30
"""No more than what is added at a time, so that there are as many batches at least."""

_BUCKETS: Final = 4


class _DyingWindows(AlignedWindows):
    """Windows that die where it is ordered."""

    orders: Path | None = None

    def combine(self, which: int, rows: pa.Table) -> pa.Table:
        combined = super().combine(which, rows)
        if rows.num_rows:
            self._reach("packed")
        return combined

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        self._reach("before step")
        step = super().step(state, inputs, time)
        self._reach("after step")
        return step

    def _reach(self, phase: str) -> None:
        context = TaskContext.get()
        if context is not None and self.orders is not None:
            batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
            reach(self.orders, phase, batch_id)


def windows(session: SparkSession, bootstrap: str, orders: Path, tasks: int) -> DataFrame:
    """Return the query; its operator dies as ordered."""

    def dying(*given: Any) -> _DyingWindows:  # noqa: ANN401 - as the operator's
        operator = _DyingWindows(*given)
        operator.orders = orders
        return operator

    plan.__dict__["AlignedWindows"] = dying
    rows = (
        session.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.request.timeout.ms", "8000")
        .option("subscribe", IN)
        .option("startingOffsets", "earliest")
        .option("minPartitions", tasks)
        .option("maxOffsetsPerTrigger", ROWS_A_BATCH)
        .load()
        .transform(hf.json("at long, name string, number long"))
        .withColumn("at", F.timestamp_seconds("at"))
        .transform(hf.watermark("at", "0 seconds", future=None))
        .transform(
            hf.window(
                "at",
                f"{LENGTH_S} seconds",
                by=["name"],
                late=hf.correct("3650 days"),
                buckets=_BUCKETS,
                n=hf.count(),
                total=hf.sum("number"),
            )
        )
    )
    start: Column = F.unix_seconds("window.start").alias("start")
    return rows.select(
        # All changes of a window are in one partition, in the order in which they were given.
        F.concat_ws("/", "name", start).alias("key"),
        F.to_json(F.struct("name", start, "n", "total", "op", "version")).alias("value"),
    )
