"""What the page about Nexmark says of stock Spark is so: what it refuses, and what it can do."""

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from examples.nexmark.generator import generate, side_input
from examples.nexmark.model import ROUND, Events, Settings
from examples.nexmark.queries import QUERIES
from examples.nexmark.stock_spark import REFUSED, REWRITTEN, TAKEN
from tests.nexmark.oracle import ask, bag

# Ten events a second: windows of 10 s hold a hundred, and a stream of 2,500 has 25 of them.
SETTINGS: Final = Settings(seed=7, delay_us=100_000, in_flight_auctions=5, active_people=3)
DELAY: Final = "4 seconds"
VIEWS: Final = (
    ("person", "person", "date_time"),
    ("auction", "auction", "date_time"),
    ("bid", "bid", "date_time"),
    ("bids_in", "bid", "append_time"),
)

WINDOW_FUNCTION: Final = "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING"
MODE: Final = "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"
OTHER: Final = "_LEGACY_ERROR_TEMP_3102"
# By query: what append, update and complete are answered.
REFUSALS: Final = {
    "q4": (MODE, OTHER, OTHER),
    "q6": (MODE, WINDOW_FUNCTION, OTHER),
    "q9": (WINDOW_FUNCTION, WINDOW_FUNCTION, MODE),
    "q15": (MODE, OTHER, OTHER),
    "q16": (MODE, OTHER, OTHER),
    "q18": (WINDOW_FUNCTION, WINDOW_FUNCTION, MODE),
    "q19": (WINDOW_FUNCTION, WINDOW_FUNCTION, MODE),
}
# Of windows that are taken: what update and complete are answered.
OTHER_MODES: Final = {
    "q5": (OTHER, OTHER),
    "q7": (OTHER, OTHER),
    "q8": (OTHER, OTHER),
    "q11": (MODE, None),
}


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(SETTINGS, 0, 2500)


@pytest.fixture(scope="module")
def folder(events: Events, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with all events, and at last one of each kind that closes all windows."""
    folder = tmp_path_factory.mktemp("nexmark")
    later = replace(SETTINGS, first_time=SETTINGS.first_time + timedelta(days=1))
    # Of other ids: no bid of theirs belongs to an auction of theirs or of the stream.
    closing = generate(later, 1010 * ROUND, 5)
    for name, table in events._asdict().items():
        (folder / name).mkdir()
        half = len(table) // 2
        parts = (table.slice(0, half), table.slice(half), getattr(closing, name))
        for number, part in enumerate(parts):
            path = folder / name / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (number, number))  # Spark reads the oldest file first
    return folder


def with_streams(spark: SparkSession, folder: Path, schemas: Events) -> SparkSession:
    """Give a session of its own with views of the streams in a folder."""
    session = with_side_input(spark)
    for view, name, time in VIEWS:
        schema = from_arrow_schema(getattr(schemas, name).schema)
        (folder / name).mkdir(parents=True, exist_ok=True)
        stream = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(folder / name))
        rows.withWatermark(time, DELAY).createOrReplaceTempView(view)
    return session


def with_side_input(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.createDataFrame(side_input()).createOrReplaceTempView("side_input")
    return session


@pytest.fixture(scope="module")
def empty(spark: SparkSession, events: Events, folder: Path) -> SparkSession:
    """Give a session with streams on which nothing ever comes."""
    return with_streams(spark, folder / "empty", events)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, events: Events) -> SparkSession:
    """Give a session with all events as tables."""
    session = with_side_input(spark)
    for view, name, _ in VIEWS:
        session.createDataFrame(getattr(events, name)).createOrReplaceTempView(view)
    return session


def test_every_query_is_taken_or_refused() -> None:
    assert TAKEN.keys() | REFUSED.keys() == QUERIES.keys()
    assert not TAKEN.keys() & REFUSED.keys()
    assert REFUSED.keys() == REWRITTEN.keys() == REFUSALS.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, empty: SparkSession) -> None:
    rows = empty.sql(REFUSED[name])
    answers = []
    for mode in ("append", "update", "complete"):
        with pytest.raises(AnalysisException) as refused:
            rows.writeStream.format("noop").outputMode(mode).start()
        answers.append(refused.value.getCondition())
    assert tuple(answers) == REFUSALS[name]


@pytest.mark.parametrize("name", [*TAKEN, *REWRITTEN])
def test_taken(name: str, empty: SparkSession, tmp_path: Path) -> None:
    stock = (TAKEN | REWRITTEN)[name]
    writer = empty.sql(stock.sql).writeStream.format("noop").outputMode(stock.mode)
    writer.option("checkpointLocation", str(tmp_path)).start().stop()


@pytest.mark.parametrize("name", OTHER_MODES)
def test_windows_in_other_modes(name: str, empty: SparkSession, tmp_path: Path) -> None:
    rows = empty.sql(TAKEN[name].sql)
    answers: list[str | None] = []
    for mode in ("update", "complete"):
        writer = rows.writeStream.format("noop").outputMode(mode)
        try:
            writer.option("checkpointLocation", str(tmp_path / mode)).start().stop()
        except AnalysisException as refused:
            answers.append(refused.getCondition())
        else:
            answers.append(None)
    assert tuple(answers) == OTHER_MODES[name]


@pytest.mark.parametrize("name", [*TAKEN, *REWRITTEN])
def test_what_is_taken_gives_the_answer(name: str, tables: SparkSession, events: Events) -> None:
    """What the SQL means is asked of tables, which is much quicker."""
    answer = tables.sql((TAKEN | REWRITTEN)[name].sql).toArrow()
    assert bag(answer.cast(QUERIES[name].answer)) == bag(ask(QUERIES[name], events))


@pytest.mark.parametrize("name", ["q6", "q11"])
def test_streamed(
    name: str, events: Events, spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """An aggregate of a join in update mode, and sessions."""
    query, stock = QUERIES[name], (TAKEN | REWRITTEN)[name]
    batches: list[pa.Table] = []
    running = (
        with_streams(spark, folder, events)
        .sql(stock.sql)
        .writeStream.foreachBatch(lambda batch, _: batches.append(batch.toArrow()))
        .outputMode(stock.mode)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    emitted = pa.concat_tables([batch.cast(query.answer) for batch in batches])
    if stock.mode == "update":
        emitted = last_of_each(emitted, query.identity)
    assert bag(emitted) == bag(ask(query, events))


def last_of_each(rows: pa.Table, identity: tuple[str, ...]) -> pa.Table:
    names = [rows[name].to_pylist() for name in identity]
    last = {key: number for number, key in enumerate(zip(*names, strict=True))}
    return rows.take(list(last.values()))
