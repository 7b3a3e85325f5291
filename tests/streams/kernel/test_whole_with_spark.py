"""What may be done to changes and to tables in front of those who take rows back."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from headwater.streams.joins.errors import JoinColumnError
from headwater.streams.kernel.changes import Kind, kind_of
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.windows.errors import WindowSettingError
from tests.streams.brokers import Broker
from tests.streams.queries import maybe_error

WITHIN_S = 240

Change = Callable[[DataFrame], DataFrame]

OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}


def source(spark: SparkSession, schema: str) -> DataFrame:
    reader = spark.readStream.format("headwater").options(**OPTIONS).option("subscribe", "rows")
    return reader.load().transform(hf.json(schema))


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    """How often a user came, and all that they paid."""
    rows = source(spark, "user long, paid long")
    return rows.transform(hf.aggregate(by=["user"], n=hf.count(), paid=hf.sum("paid")))


@pytest.fixture(scope="module")
def corrected(spark: SparkSession) -> DataFrame:
    """Windows of which some are taken back."""
    rows = source(spark, "user long, at timestamp").transform(hf.watermark("at", "1 second"))
    late = hf.correct("1 hour")
    return rows.transform(hf.window("at", "1 minute", by=["user"], late=late, n=hf.count()))


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    """Users."""
    schema = "user long, country string, tags array<string>"
    return hw.table(spark, "users", schema=schema, key="user", options=OPTIONS)


@pytest.fixture(scope="module")
def visits(spark: SparkSession) -> DataFrame:
    return source(spark, "user long, page string")


def again(rows: DataFrame) -> DataFrame:
    return rows.transform(hf.aggregate(n=hf.count()))


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def static(rows: DataFrame, columns: str) -> DataFrame:
    return rows.sparkSession.createDataFrame([], columns)


def with_sql(rows: DataFrame, query: str) -> DataFrame:
    rows.createOrReplaceTempView("given")
    return rows.sparkSession.sql(query)


LOSING: dict[str, tuple[Change, str]] = {
    "mapInArrow": (lambda rows: rows.mapInArrow(same, rows.schema), "mapInArrow"),
    "mapInPandas": (lambda rows: rows.mapInPandas(same, rows.schema), "mapInPandas"),
    "dropDuplicates": (lambda rows: rows.dropDuplicates(["user"]), "dropDuplicates"),
    "distinct": (lambda rows: rows.distinct(), "distinct"),
    "sample": (lambda rows: rows.sample(0.5), "sample"),
    "limit": (lambda rows: rows.limit(3), "limit"),
    "explode": (lambda rows: rows.withColumn("x", F.explode(F.array("user"))), "explode"),
    "join": (lambda rows: rows.join(static(rows, "user long"), "user"), "join"),
    "semi join": (lambda rows: rows.join(static(rows, "user long"), "user", "left_semi"), "join"),
    "with": (
        lambda rows: with_sql(rows, "WITH a AS (SELECT DISTINCT * FROM given) SELECT * FROM a"),
        "DISTINCT",
    ),
    "random": (lambda rows: rows.where(F.rand() < 0.5), "rand("),
    "today": (lambda rows: rows.where("user > day(current_date())"), "current_date"),
    "subquery": (lambda rows: rows.where("user IN (SELECT 1)"), "IN"),
}


@pytest.mark.parametrize("step, name", LOSING.values(), ids=LOSING)
@pytest.mark.parametrize("given", ["changes", "corrected", "table"])
def test_a_step_that_may_leave_out_that_a_row_is_gone_is_refused(
    request: pytest.FixtureRequest, given: str, step: Change, name: str
) -> None:
    rows = step(request.getfixturevalue(given))
    with pytest.raises(RetractionError) as raised:
        again(rows)
    assert name in raised.value.message
    assert len(raised.value.message) < 250
    assert raised.value.hint


ONE_OF_TWO: dict[str, tuple[Change, str]] = {
    "op": (lambda rows: rows.where("op = 'insert'"), "op"),
    "version": (lambda rows: rows.where("version = 0"), "version"),
    "hidden": (lambda rows: rows.where("__hw.partition = 0"), "__hw"),
    "made of op": (
        lambda rows: rows.withColumn("new", F.col("op") == "insert").where("new"),
        "op",
    ),
    "op and a value": (lambda rows: rows.where("n > 1 AND op = 'insert'"), "op"),
    "version in a view": (
        lambda rows: with_sql(rows, "SELECT * FROM given WHERE version < 1"),
        "version",
    ),
    "in front of a new name": (
        lambda rows: (
            rows.where("op = 'insert'")
            .withColumnRenamed("__hw", "h")
            .withColumnRenamed("h", "__hw")
        ),
        "op",
    ),
    "in a query with a name": (
        lambda rows: with_sql(
            rows,
            "WITH a AS (SELECT *, op AS what FROM given) SELECT * FROM a WHERE what = 'insert'",
        ),
        "op",
    ),
    "in one side of a union": (lambda rows: rows.union(rows.where("version < 1")), "version"),
    "behind a union": (lambda rows: rows.union(rows).where("op = 'insert'"), "op"),
    "a random column": (
        lambda rows: rows.withColumn("r", F.rand()).where("r < 0.5"),
        "not the same in every batch",
    ),
}


@pytest.mark.parametrize("step, name", ONE_OF_TWO.values(), ids=ONE_OF_TWO)
@pytest.mark.parametrize("given", ["changes", "corrected"])
def test_what_appears_is_not_chosen_without_what_is_taken_back(
    request: pytest.FixtureRequest, given: str, step: Change, name: str
) -> None:
    rows = step(request.getfixturevalue(given))
    with pytest.raises(RetractionError, match="were chosen by") as raised:
        again(rows)
    assert name in raised.value.message
    assert raised.value.hint


KEEPING: dict[str, Change] = {
    "nothing": lambda rows: rows,
    "by a value": lambda rows: rows.where("n > 1"),
    "by the key": lambda rows: rows.where("user % 2 = 0"),
    "by a column made of values": lambda rows: rows.withColumn("m", F.expr("n * 2")).where("m > 3"),
    "by what has a value": lambda rows: rows.na.drop(subset=["n"]),
    "a view": lambda rows: with_sql(rows, "SELECT *, n + 1 AS m FROM given WHERE n > 1"),
    "a query with a name": lambda rows: with_sql(
        rows,
        "WITH a AS (SELECT * FROM given), b AS (SELECT * FROM a WHERE n > 1) SELECT * FROM b",
    ),
    "one that is used twice": lambda rows: with_sql(
        rows, "WITH a AS (SELECT * FROM given) SELECT * FROM a UNION ALL SELECT * FROM a"
    ),
    "spread": lambda rows: rows.repartition(3).coalesce(1).repartition("user").alias("a"),
    "observed": lambda rows: rows.observe("seen", F.count(F.lit(1))),
    "put together": lambda rows: rows.union(rows.where("n > 1")),
    "put together with what is missing": lambda rows: rows.unionByName(
        rows.drop("n").where("user = 1"), allowMissingColumns=True
    ),
}


@pytest.mark.parametrize("step", KEEPING.values(), ids=KEEPING)
@pytest.mark.parametrize("given", ["changes", "corrected"])
def test_what_treats_both_alike_may_stand_in_front(
    request: pytest.FixtureRequest, given: str, step: Change
) -> None:
    rows = step(request.getfixturevalue(given))
    assert "total" in rows.transform(hf.aggregate(total=hf.sum("n"))).columns


def dated(rows: DataFrame) -> DataFrame:
    return rows.withColumn("seen", F.current_timestamp())


def drawn() -> int:
    return 7


UNLIKE: dict[str, tuple[Change, str]] = {
    "a key of now": (
        lambda rows: dated(rows).transform(hf.aggregate(by=["seen"], n=hf.count())),
        "'seen'.*not the same in every batch, current_timestamp",
    ),
    "a value drawn by lot": (
        lambda rows: rows.withColumn("r", F.expr("n * rand()").cast("long")).transform(
            hf.aggregate(total=hf.sum("r"))
        ),
        r"'total'.*not the same in every batch, .*rand\(",
    ),
    "a function that gives now this and now that": (
        lambda rows: rows.withColumn("r", F.udf(drawn, "long").asNondeterministic()()).transform(
            hf.aggregate(total=hf.sum("r"))
        ),
        "'total'.*drawn",
    ),
    "one side of a union": (
        lambda rows: (
            rows.withColumn("s", F.lit(None).cast("timestamp"))
            .union(rows.withColumn("s", F.current_timestamp()))
            .transform(hf.aggregate(by=["s"], n=hf.count()))
        ),
        "'s'.*current_timestamp",
    ),
    "rows that are kept": (
        lambda rows: dated(rows).transform(hf.top(3, order="n")),
        "'seen'",
    ),
    "a count by op": (
        lambda rows: rows.transform(hf.aggregate(n=hf.count(F.when(F.col("op") == "insert", 1)))),
        "'n' is made of op",
    ),
    "a key by op": (
        lambda rows: rows.withColumn("new", F.col("op") == "insert").transform(
            hf.aggregate(by=["new"], n=hf.count())
        ),
        "'new' is made of op",
    ),
    "of whatever took it back": (
        lambda rows: rows.withColumn("at_offset", F.col("__hw.offset")).transform(
            hf.top(1, order="at_offset")
        ),
        "'at_offset' is made of __hw",
    ),
    "what it is joined by": (
        lambda rows: rows.withColumn("day", F.current_date()).transform(
            hf.join_tables(
                other(rows).withColumn("day", F.current_date()),
                on="day",
                key="user",
                other_key="other",
            )
        ),
        "'day'.*current_date",
    ),
    "what tells it apart": (
        lambda rows: rows.withColumn("id", F.uuid()).transform(
            hf.join_tables(other(rows), on={"user": "other"}, key="id", other_key="other")
        ),
        r"'id'.*uuid\(",
    ),
    "the key of the latest": (
        lambda rows: source(rows.sparkSession, "page string, day date").transform(
            hf.join_latest(other(rows).withColumn("day", F.current_date()), on="day")
        ),
        "'day'.*current_date",
    ),
}


def other(rows: DataFrame) -> DataFrame:
    return rows.select(F.col("user").alias("other"), "op", "version", "__hw")


@pytest.mark.parametrize("ask, words", UNLIKE.values(), ids=UNLIKE)
def test_what_is_taken_back_has_the_values_that_were_given(
    changes: DataFrame, ask: Change, words: str
) -> None:
    with pytest.raises(RetractionError, match=words) as raised:
        ask(changes)
    assert len(raised.value.message) < 250
    assert "after this function" in raised.value.hint


ALIKE: dict[str, Change] = {
    "left behind": lambda rows: dated(rows).transform(hf.aggregate(by=["user"], n=hf.count())),
    "of values": lambda rows: rows.withColumn("m", F.expr("n * 2 + version")).transform(
        hf.aggregate(by=[F.expr("user % 2").alias("odd")], total=hf.sum("m"))
    ),
    "carried by a row that its key tells apart": lambda rows: dated(rows).transform(
        hf.join_tables(other(rows), on={"user": "other"}, key="user", other_key="other")
    ),
    "carried by the latest row": lambda rows: source(rows.sparkSession, "id long").transform(
        hf.join_latest(dated(other(rows)), on={"id": "other"})
    ),
}


@pytest.mark.parametrize("ask", ALIKE.values(), ids=ALIKE)
def test_what_is_not_asked_for_again_may_be_anything(changes: DataFrame, ask: Change) -> None:
    assert "op" in ask(changes).columns


def test_what_is_final_or_of_a_table_may_have_other_values(
    spark: SparkSession, table: DataFrame
) -> None:
    rows = source(spark, "user long, at timestamp").transform(hf.watermark("at", "1 second"))
    windows = rows.transform(hf.window("at", "1 minute", by=["user"], n=hf.count()))
    for each in (windows, table):
        seen = dated(each).withColumn("is_new", F.col("op") == "insert")
        assert "seen" in seen.transform(hf.aggregate(by=["seen", "is_new"], n=hf.count())).columns


def test_of_changes_put_together_all_have_to_say_which_are_taken_back(changes: DataFrame) -> None:
    rows = changes.unionByName(changes.drop("op"), allowMissingColumns=True)
    with pytest.raises(RetractionError, match="their column 'op' was dropped"):
        again(rows)


def test_what_an_aggregate_gives_may_be_chosen_of_a_table(table: DataFrame) -> None:
    again(with_sql(table, "WITH a AS (SELECT * FROM given) SELECT * FROM a WHERE user > 7"))
    for by in ("user > 7", "user IS NOT NULL"):
        chosen = table.select("user", "country", "op", "topic", "partition", "offset").where(by)
        counted = chosen.repartition(2).transform(hf.aggregate(by=["country"], n=hf.count()))
        assert "groups" in counted.where("n > 3").transform(hf.aggregate(groups=hf.count())).columns


def test_a_cast_to_the_type_that_it_has_leaves_a_column_as_it_is(
    changes: DataFrame, table: DataFrame, visits: DataFrame
) -> None:
    cast = {name: F.col(name).cast(kind) for name, kind in (("user", "long"), ("op", "string"))}
    rows = table.withColumns(cast)
    for each in (rows, rows.where("user > 7").withColumnRenamed("user", "id")):
        again(each)
        key = each.columns[0]
        assert "page" in visits.transform(hf.join_latest(each, on={"user": key})).columns
    again(changes.withColumns(cast))
    for other_type in (table.withColumn("user", F.col("user").cast("int")), rows.drop("user")):
        with pytest.raises(WindowSettingError, match="primary key were dropped or made anew"):
            again(other_type)
    with pytest.raises(RetractionError, match="chosen by user"):
        again(table.withColumn("user", F.col("user").cast("int")).where("user > 7"))


OF_TABLES: dict[str, tuple[Change, str]] = {
    "by a column": (lambda rows: rows.where("country = 'DE'"), "chosen by country"),
    "by what is deleted": (lambda rows: rows.where("op = 'upsert'"), "chosen by op"),
    "by a part of a struct": (
        lambda rows: rows.select(F.struct("*").alias("s")).where("s.country = 'DE'").select("s.*"),
        "chosen by s",
    ),
    "union": (lambda rows: rows.union(rows), r"union\(\)"),
    "union of a query with a name": (
        lambda rows: with_sql(
            rows, "WITH a AS (SELECT * FROM given) SELECT * FROM a UNION ALL SELECT * FROM a"
        ),
        r"union\(\)",
    ),
    "union with another kind": (
        lambda rows: (
            rows.drop("op").withColumn("op", F.lit("upsert")).union(rows.where("user = 1"))
        ),
        r"union\(\)",
    ),
}


@pytest.mark.parametrize("step, words", OF_TABLES.values(), ids=OF_TABLES)
@pytest.mark.parametrize("ask", ["aggregate", "join_latest"])
def test_a_table_is_given_whole(
    table: DataFrame, visits: DataFrame, step: Change, words: str, ask: str
) -> None:
    rows = step(table)
    asked: dict[str, Callable[[], Any]] = {
        "aggregate": lambda: again(rows),
        "join_latest": lambda: visits.transform(hf.join_latest(rows, on="user")),
    }
    with pytest.raises(RetractionError, match=words) as raised:
        asked[ask]()
    assert raised.value.hint


RENAMED: dict[str, Change] = {
    "renamed": lambda rows: rows.withColumnRenamed("op", "change"),
    "in capitals": lambda rows: rows.withColumn("OP", F.col("op")),
    "copied": lambda rows: rows.withColumn("change", F.col("op")).drop("op"),
}


@pytest.mark.parametrize("step", RENAMED.values(), ids=RENAMED)
def test_a_table_does_not_become_events_by_another_name_for_what_is_deleted(
    table: DataFrame, visits: DataFrame, step: Change
) -> None:
    rows = step(table)
    name = "OP" if "OP" in rows.columns else "change"
    for ask in (again, lambda rows: visits.transform(hf.join_latest(rows, on="user"))):
        with pytest.raises(RetractionError, match=f"is called '{name}' here") as raised:
            ask(rows)
        assert f'drop("{name}")' in raised.value.hint
    assert "n" in again(rows.drop(name)).columns
    deleted = table.withColumn("is_gone", F.col("op") == "delete").drop("op")
    assert "n" in again(deleted).columns


# --- plans that are cut off -----------------------------------------------------------------------


def cut(rows: DataFrame) -> DataFrame:
    """Give rows as `foreachBatch` does: as columns that come from nowhere."""
    spark = rows.sparkSession
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), rows.schema)


class All:
    """Gives rows as they come."""

    state = output = pa.schema([("user", pa.int64())])

    def step(
        self, state: pa.Table, rows: pa.Table, watermark_us: int | None
    ) -> tuple[pa.Table, pa.Table]:
        return state, rows


def seen(rows: DataFrame, tmp_path: Path) -> list[str]:
    """Return what each operator says of rows in `foreachBatch`."""
    said = []

    def ask(batch: DataFrame, _: int) -> None:
        batch.collect()
        for asked in (
            hf.window("at", "1 minute", n=hf.count()),
            hf.stateful(All(), by="user", columns=["user"]),
            hf.aggregate(most=hf.max("n")),
        ):
            with pytest.raises(RetractionError) as raised:
                batch.transform(asked)
            said.append(raised.value.message)

    query = rows.writeStream.foreachBatch(ask).option("checkpointLocation", str(tmp_path))
    assert maybe_error(query.trigger(availableNow=True).start(), WITHIN_S) is None
    return said


def test_a_batch_still_says_what_may_be_taken_back(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic("visits")
    near.send(topic, [(None, b'{"user": 1}')])
    reader = spark.readStream.format("headwater").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", near.bootstrap)
    rows = reader.option("startingOffsets", "earliest").load().transform(hf.json("user long"))
    counted = rows.transform(hf.aggregate(by=["user"], buckets=1, n=hf.count()))
    said = seen(counted, tmp_path)
    assert said
    assert all("taken back" in each for each in said)


@pytest.mark.parametrize("given", ["changes", "corrected"])
def test_rows_that_were_an_rdd_still_say_it(request: pytest.FixtureRequest, given: str) -> None:
    rows = cut(request.getfixturevalue(given))
    assert kind_of(rows.where("n > 1")) is Kind.CHANGES
    with pytest.raises(RetractionError, match="were chosen by op"):
        again(rows.where("op = 'insert'"))
    with pytest.raises(RetractionError, match=r"hf\.window is given rows"):
        rows.transform(hf.window("at", "1 minute", n=hf.count()))


def test_so_do_those_of_a_table(table: DataFrame) -> None:
    rows = cut(table)
    assert kind_of(rows.where("user > 7")) is Kind.TABLE
    with pytest.raises(RetractionError, match="chosen by country"):
        kind_of(rows.where("country = 'DE'"))


def test_every_change_of_a_table_may_be_taken_for_an_event(table: DataFrame) -> None:
    rows = table.drop("op").where("country = 'DE'").withColumn("tag", F.explode("tags"))
    assert "n" in again(rows).columns


def test_changes_that_were_put_together_have_no_key_that_is_known(table: DataFrame) -> None:
    joined = table.drop("tags").transform(
        hf.join_tables(
            table.selectExpr("user AS other", "country", "op", "topic", "partition", "offset"),
            on="country",
        )
    )
    likes = joined.selectExpr("user AS liked", "other AS by", "country", "op", "version", "__hw")
    assert "liked" in joined.transform(hf.join_tables(likes, on="country")).columns
    with pytest.raises(JoinColumnError, match="tell the rows of the right side apart"):
        joined.transform(hf.join_tables(likes.union(likes), on="country"))


# --- what Spark counts itself ---------------------------------------------------------------------


def timed(rows: DataFrame) -> DataFrame:
    return dated(rows).withWatermark("seen", "1 second")


COUNTED: dict[str, tuple[Change, str]] = {
    "an aggregate": (lambda rows: rows.groupBy("user").count(), r"groupBy\(\)"),
    "an aggregate by the key, without op": (
        lambda rows: rows.drop("op").groupBy("user").agg(F.sum("n")),
        r"groupBy\(\)",
    ),
    "windows": (
        lambda rows: timed(rows).groupBy(F.window("seen", "1 minute")).count(),
        r"groupBy\(\)",
    ),
    "an aggregate of some, chosen by their values": (
        lambda rows: rows.where("n > 1").groupBy("user").count().where("user > 7"),
        r"groupBy\(\)",
    ),
    "duplicates": (lambda rows: rows.dropDuplicates(["user", "n"]), r"dropDuplicates\(\)"),
    "duplicates for a while": (
        lambda rows: timed(rows).dropDuplicatesWithinWatermark(["user"]),
        "WithinWatermark",
    ),
    "a join": (
        lambda rows: rows.join(
            source(rows.sparkSession, "user long, page string").select("user", "page"), "user"
        ),
        r"join\(\)",
    ),
}


@pytest.mark.parametrize("step, words", COUNTED.values(), ids=COUNTED)
@pytest.mark.parametrize("given", ["changes", "corrected"])
def test_a_pipeline_in_which_spark_counts_what_is_taken_back_is_refused(
    request: pytest.FixtureRequest, given: str, step: Change, words: str
) -> None:
    rows = step(request.getfixturevalue(given))
    with pytest.raises(RetractionError, match=words) as raised:
        hw.pipeline("counted", rows)
    assert "hf.aggregate" in raised.value.hint
    assert 'groupBy(..., "op")' in raised.value.hint


def test_nor_does_spark_count_the_changes_of_a_table(table: DataFrame) -> None:
    with pytest.raises(RetractionError, match=r"groupBy\(\)"):
        hw.pipeline("counted", table.groupBy("country").count())
    for events in (
        table.drop("op").groupBy("country").count(),
        table.groupBy("op").count(),
        table.where("op = 'delete'").groupBy("country").count(),
        table.dropDuplicates(["partition", "offset"]),
    ):
        hw.pipeline("counted", events)


SEEN: dict[str, Change] = {
    "changes": lambda rows: rows,
    "some of them": lambda rows: rows.where("op = 'insert'").drop("__hw"),
    "with names": lambda rows: rows.join(static(rows, "user long, name string"), "user"),
    "the difference": lambda rows: rows.groupBy("user").agg(
        F.sum(F.when(F.col("op") == "insert", 1).otherwise(-1))
    ),
    "those that appear": lambda rows: rows.where("op = 'insert'").groupBy("user").count(),
    "each that has appeared": lambda rows: (
        rows.withColumn("new", F.col("op") == "insert").where("new").dropDuplicates(["user"])
    ),
    "how many of each": lambda rows: rows.groupBy(F.col("op").alias("kind")).count(),
}


@pytest.mark.parametrize("step", SEEN.values(), ids=SEEN)
def test_a_pipeline_that_gives_what_is_taken_back_is_not(changes: DataFrame, step: Change) -> None:
    hw.pipeline("seen", step(changes))


def test_spark_may_count_what_is_final(spark: SparkSession) -> None:
    rows = source(spark, "user long, at timestamp").transform(hf.watermark("at", "1 second"))
    windows = rows.transform(hf.window("at", "1 minute", by=["user"], n=hf.count()))
    hw.pipeline("final", windows.groupBy("user").agg(F.max("n")))
