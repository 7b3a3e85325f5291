"""The two sides that run in Spark: our streams, and Spark's own operators.

This file alone decides how either reads the topic, and what of a run is timed: whole batches, of
which the first does not count. Both read by our source, in the same batches, into a sink that does
nothing; stock Spark decodes by its own `from_json`.
"""

import itertools
import shutil
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from benchmarks.nexmark.answers import BATCH, WEIGHT
from benchmarks.nexmark.load import Load
from benchmarks.spark import Bench
from examples.nexmark.generator import side_input
from examples.nexmark.model import AUCTION, BID, PERSON
from examples.nexmark.queries import QUERIES, Emits
from examples.nexmark.stock_spark import REWRITTEN, TAKEN
from examples.nexmark.streaming import STREAMING, Topic

OURS: Final = "ours"
STOCK: Final = "stock Spark"
DELAY: Final = "4 seconds"
_WITHIN_S: Final = 600
_NOT_IN_JSON: Final = ("append_time", "partition", "offset")
_VIEWS: Final = (
    ("person", "person", PERSON, "date_time"),
    ("auction", "auction", AUCTION, "date_time"),
    ("bid", "bid", BID, "date_time"),
    ("bids_in", "bid", BID, "append_time"),
)
_numbers = itertools.count()


class Asked(NamedTuple):
    """A query as a side runs it."""

    rows: DataFrame
    mode: str


class SlowQueryError(Exception):
    """A query did not end in time."""


def ask(bench: Bench, load: Load, side: str, name: str, batches: int) -> Asked:
    """Put a query of Nexmark to a side."""
    rows = (
        bench.spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", load.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_events(load, batches))
        .load()
    )
    if side == OURS:
        return Asked(STREAMING[name](Topic(rows, DELAY)), "append")
    stock = (TAKEN | REWRITTEN)[name]
    _create_views(rows)
    return Asked(bench.spark.sql(stock.sql), stock.mode)


def batch_events(load: Load, batches: int) -> int:
    """Tell how many events a batch has, for so many batches; what closes windows comes behind."""
    return -(-load.full // batches)


def emitted(bench: Bench, asked: Asked, side: str, name: str) -> pa.Table:
    """Run a query to the end of the topic; gives all that it emits, as `answers.check` takes it."""
    query = QUERIES[name]
    changes = ["op"] if side == OURS and query.emits is Emits.CHANGES else []
    batches: dict[int, pa.Table] = {}

    def take(batch: DataFrame, number: int) -> None:
        batches[number] = batch.toArrow()

    rows = asked.rows.select(*query.answer.names, *changes)
    _run(bench, asked._replace(rows=rows), lambda frame: frame.writeStream.foreachBatch(take))
    found = []
    for number, batch in sorted(batches.items()):
        given = batch.select(query.answer.names).cast(query.answer)
        if side != OURS and asked.mode == "update":
            given = given.append_column(BATCH, pa.array([number] * len(batch), pa.int64()))
        else:
            ops = batch["op"].to_pylist() if changes else ["insert"] * len(batch)
            weights = [{"insert": 1, "retract": -1}[op] for op in ops]
            given = given.append_column(WEIGHT, pa.array(weights, pa.int64()))
        found.append(given)
    return pa.concat_tables(found)


def timed(bench: Bench, asked: Asked, load: Load, batches: int) -> float:
    """Run a query to the end of the topic; gives events per second of its full batches.

    The first of them does not count.
    """
    query = _run(bench, asked, lambda frame: frame.writeStream.format("noop"))
    took_ms: int = sum(
        each["durationMs"]["triggerExecution"]
        for each in query.recentProgress
        if 0 < each["batchId"] < batches
    )
    return (batches - 1) * batch_events(load, batches) / (took_ms / 1000)


def _run(bench: Bench, asked: Asked, written: Callable[[DataFrame], object]) -> StreamingQuery:
    folder = bench.folder / f"checkpoint-{next(_numbers)}"
    writer = written(asked.rows)
    query: StreamingQuery = (
        writer.outputMode(asked.mode)  # type: ignore[attr-defined]
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(_WITHIN_S):
            raise SlowQueryError(f"a query took more than {_WITHIN_S} s")
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return query


def _create_views(rows: DataFrame) -> None:
    rows.sparkSession.createDataFrame(side_input()).createOrReplaceTempView("side_input")
    for view, kind, columns, time in _VIEWS:
        fields = [pa.field(f.name, f.type) for f in columns if f.name not in _NOT_IN_JSON]
        schema = StructType([StructField(kind, from_arrow_schema(pa.schema(fields)))])
        decoded = rows.select(
            F.from_json(F.col("value").cast("string"), schema).alias("event"),
            F.col("timestamp").alias("append_time"),
            "partition",
            "offset",
        )
        decoded.where(f"event.{kind} IS NOT NULL").select(
            f"event.{kind}.*", "append_time", "partition", "offset"
        ).withWatermark(time, DELAY).createOrReplaceTempView(view)
