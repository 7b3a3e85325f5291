"""What windows, aggregates, first rows and own operators refuse before a query starts."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.base.errors import HeadwaterError
from headwater.streams.kernel.errors import BucketCountError, OwnOperatorError, RetractionError
from headwater.streams.time.errors import WatermarkError
from headwater.streams.windows.errors import WindowSettingError

Transform = Callable[[DataFrame], DataFrame]
Ask = Callable[[], Transform]


class Latest:
    """Gives rows as they come."""

    state = pa.schema([("at", pa.timestamp("us", "UTC"))])
    output = pa.schema([("at", pa.timestamp("us", "UTC")), ("price", pa.int32())])

    def step(
        self, state: pa.Table, rows: pa.Table, watermark_us: int | None
    ) -> tuple[pa.Table, pa.Table]:
        return state, rows.select(["at", "price"])


def tumbling(**changed: Any) -> Transform:  # noqa: ANN401 - as asked
    return hf.window("at", "1 minute", **{"n": hf.count(), **changed})


def in_spark(**changed: Any) -> Transform:  # noqa: ANN401 - as asked
    return tumbling(engine="spark", **changed)


def sessions(**changed: Any) -> Transform:  # noqa: ANN401 - as asked
    return hf.window("at", session="1 minute", **{"n": hf.count(), **changed})


def running(**changed: Any) -> Transform:  # noqa: ANN401 - as asked
    return hf.aggregate(**{"n": hf.count(), **changed})


def first(**changed: Any) -> Transform:  # noqa: ANN401 - as asked
    return hf.top(1, **{"order": "price", **changed})


def own(**changed: Any) -> Transform:  # noqa: ANN401 - as asked
    return hf.stateful(**{"operator": Latest(), "by": "shop", **changed})


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> DataFrame:
    """Orders without a watermark."""
    rows = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", "localhost:1")
        .option("subscribe", "orders")
        .load()
    )
    return rows.select(
        *("topic", "partition", "offset", F.col("timestamp").alias("at"), "timestamp"),
        *(F.lit("x").alias("shop"), F.lit(1).alias("price"), F.lit(1.5).alias("kilos")),
        F.struct(F.lit("z").alias("town")).alias("nested"),
    )


@pytest.fixture(scope="module")
def orders(plain: DataFrame) -> DataFrame:
    """The same with one."""
    return plain.transform(hf.watermark("at", "1 second"))


def refused(rows: DataFrame, ask: Ask, kind: type[HeadwaterError]) -> HeadwaterError:
    with pytest.raises(kind) as raised:
        rows.transform(ask())
    assert raised.value.hint
    # No plan of Spark's is in it.
    assert len(raised.value.message) < 200
    return raised.value


@pytest.mark.parametrize("buckets", [0, -1, "4"])
@pytest.mark.parametrize("asked", [tumbling, sessions, running, first, own])
def test_state_is_cut_into_one_bucket_or_more(
    orders: DataFrame, asked: Callable[..., Transform], buckets: object
) -> None:
    error = refused(orders, lambda: asked(buckets=buckets), BucketCountError)
    assert f"into {buckets!r} buckets" in error.message


@pytest.mark.parametrize("asked", [tumbling, in_spark, sessions, running, first])
@pytest.mark.parametrize("by", [["shpo"], "shpo"], ids=["several", "one"])
def test_no_column_to_group_by(
    orders: DataFrame, asked: Callable[..., Transform], by: object
) -> None:
    error = refused(orders, lambda: asked(by=by), WindowSettingError)
    assert error.message == "there is no column 'shpo' for by=; did you mean shop?"
    assert "shop, price, kilos, nested" in error.hint
    assert "__hw" not in error.hint


@pytest.mark.parametrize("asked", [tumbling, in_spark, sessions, running])
def test_no_column_to_measure(orders: DataFrame, asked: Callable[..., Transform]) -> None:
    error = refused(orders, lambda: asked(n=hf.sum("prise")), WindowSettingError)
    assert error.message == "there is no column 'prise' for n=; did you mean price?"


@pytest.mark.parametrize(
    "ask,words",
    [
        (lambda: running(n=hf.sum(F.col("prise") * 2)), "no column 'prise' for n="),
        (lambda: running(by=["nested.twon"]), "no column 'twon' for by=; did you mean town?"),
        (lambda: running(by=["`a.b`"]), "no column 'a.b' for by="),
        (
            lambda: hf.window("att", "1 minute", n=hf.count()),
            "there is no column 'att' that the watermark goes by; did you mean at?",
        ),
        (
            lambda: hf.window("timestamp", "1 minute", n=hf.count()),
            "'timestamp' is not what the watermark of these rows goes by",
        ),
        (
            lambda: first(order="prise desc"),
            "no column 'prise' beside keys to order rows by; did you mean price?",
        ),
    ],
)
def test_columns_that_are_not_there(orders: DataFrame, ask: Ask, words: str) -> None:
    assert words in refused(orders, ask, WindowSettingError).message


@pytest.mark.parametrize(
    "ask,words",
    [
        (lambda: own(by=["shpo"]), "there is no column 'shpo'; did you mean shop?"),
        (lambda: own(columns=["prise"]), "did you mean price?"),
        (
            lambda: own(time="att"),
            "the output has no column 'att' for the time; did you mean at?",
        ),
        (lambda: own(operator=Latest), "Latest is a class"),
        (lambda: own(operator=object()), "object has no `state`"),
    ],
)
def test_own_operators_that_do_not_fit(orders: DataFrame, ask: Ask, words: str) -> None:
    assert words in refused(orders, ask, OwnOperatorError).message


@pytest.mark.parametrize(
    "ask,words",
    [
        (lambda: tumbling(late="drop"), "late = 'drop' does not say"),
        (lambda: tumbling(late=hf.drop), "late = <function drop"),
        (lambda: tumbling(late=hf.max("price")), "late is an argument of this function"),
        (lambda: tumbling(every=hf.max("price")), "every is an argument of this function"),
        (lambda: running(by=hf.max("price")), "by is an argument of this function"),
    ],
)
def test_arguments_of_another_kind(orders: DataFrame, ask: Ask, words: str) -> None:
    assert words in refused(orders, ask, WindowSettingError).message


# --- what is taken back ---------------------------------------------------------------------------


def corrected(rows: DataFrame) -> DataFrame:
    late = hf.correct("1 hour")
    return rows.transform(tumbling(by=["shop"], late=late, kilos=hf.sum("kilos")))


def per_shop(rows: DataFrame) -> DataFrame:
    return rows.transform(running(by=["shop"], kilos=hf.sum("kilos")))


def firsts(rows: DataFrame) -> DataFrame:
    return rows.transform(first(by=["shop"])).withColumn("n", F.lit(1))


@pytest.mark.parametrize(
    "asked",
    [
        {"length": "1 hour"},
        {"length": "1 hour", "engine": "spark"},
        {"session": "1 hour"},
        {"sliding": "1 hour"},
    ],
)
def test_no_window_stands_behind_one_that_corrects(
    orders: DataFrame, asked: dict[str, Any]
) -> None:
    error = refused(
        corrected(orders), lambda: hf.window("window", **asked, total=hf.sum("n")), RetractionError
    )
    assert error.message.startswith("hf.window is given rows that are taken back")
    assert "late=hf.drop()" in error.hint


@pytest.mark.parametrize("changes", [corrected, per_shop, firsts])
def test_a_measure_that_can_take_nothing_back_is_named(
    orders: DataFrame, changes: Transform
) -> None:
    error = refused(changes(orders), lambda: running(most=hf.max("n")), RetractionError)
    assert error.message.startswith("most=hf.max(...) of hf.aggregate is given rows")
    assert "hf.count can" in error.hint


def test_doubles_are_among_them(orders: DataFrame) -> None:
    error = refused(corrected(orders), lambda: running(w=hf.avg("kilos")), RetractionError)
    assert "w=hf.avg(...)" in error.message


def test_what_is_final_may_stand_before_everything(orders: DataFrame) -> None:
    final = orders.transform(tumbling(by=["shop"]))
    assert "most" in final.transform(running(most=hf.max("n"))).columns
    assert "most" in final.transform(hf.window("window", "1 hour", most=hf.max("n"))).columns


def test_who_can_take_rows_back_may_stand_behind_everything(orders: DataFrame) -> None:
    summed = corrected(orders).transform(running(total=hf.sum("n")))
    assert "total" in summed.transform(first(order="total")).columns


# What hides from an operator that its rows may be taken back.
HIDING: dict[str, Transform] = {
    "drops the version": lambda rows: rows.drop("version"),
    "drops the operation": lambda rows: rows.drop("op"),
    "keeps the inserts without the operation": lambda rows: rows.where("op = 'insert'").drop("op"),
    "selects": lambda rows: rows.select("shop", "n", "__hw"),
    "selects with SQL": lambda rows: rows.selectExpr("shop", "n", "__hw AS __hw"),
    "renames the operation": lambda rows: rows.withColumnRenamed("op", "operation"),
    "renames the version": lambda rows: rows.withColumnRenamed("version", "revision"),
    "casts both": lambda rows: rows.withColumns(
        {"op": F.col("op").cast("binary"), "version": F.col("version").cast("string")}
    ),
    "sets the operation": lambda rows: rows.withColumn("op", F.lit("insert")),
    "renames the hidden column twice": lambda rows: (
        rows.drop("op").withColumnRenamed("__hw", "h").withColumnRenamed("h", "__hw")
    ),
    "makes the hidden column anew": lambda rows: rows.drop("op").withColumn(
        "__hw", F.struct("__hw.partition", "__hw.offset", "__hw.time")
    ),
    "explodes": lambda rows: rows.drop("op").withColumn("each", F.explode(F.array("n"))),
    "joins a table of Spark": lambda rows: rows.drop("op").crossJoin(
        rows.sparkSession.createDataFrame([(1,)], "one int")
    ),
    "takes several steps": lambda rows: (
        rows.withColumn("n", F.col("n") + 1).where("n > 1").alias("a").drop("version").distinct()
    ),
    "calls a function": lambda rows: rows.drop("op").mapInArrow(
        lambda batches: batches, rows.drop("op").schema
    ),
}


@pytest.mark.parametrize("changes", [per_shop, firsts])
@pytest.mark.parametrize("hiding", HIDING.values(), ids=HIDING)
def test_what_takes_rows_back_cannot_be_hidden(
    orders: DataFrame, changes: Transform, hiding: Transform
) -> None:
    rows = hiding(changes(orders))
    error = refused(rows, lambda: running(most=hf.max("n"), by=["shop"]), RetractionError)
    assert "taken back" in error.message


def final(rows: DataFrame) -> DataFrame:
    return rows.transform(tumbling(by=["shop"], kilos=hf.sum("kilos")))


@pytest.mark.parametrize(
    "together",
    [
        lambda one, other: one.union(other),
        lambda one, other: other.union(one),
        lambda one, other: other.drop("op").unionByName(one, allowMissingColumns=True),
    ],
    ids=["first", "last", "with columns missing"],
)
def test_nor_by_a_union(orders: DataFrame, together: Callable[..., DataFrame]) -> None:
    rows = together(corrected(orders), final(orders))
    refused(rows, lambda: running(most=hf.max("n")), RetractionError)


@pytest.mark.parametrize("name", ["drops the operation", "sets the operation", "casts both"])
def test_without_the_operation_nothing_can_be_taken_back(orders: DataFrame, name: str) -> None:
    rows = HIDING[name](corrected(orders))
    for ask in (lambda: running(total=hf.sum("n")), lambda: first(order="n")):
        error = refused(rows, ask, RetractionError)
        assert "'op'" in error.message
        assert "keep 'op' as it is" in error.hint


def test_an_aggregate_and_the_first_rows_need_no_version(orders: DataFrame) -> None:
    rows = per_shop(orders).drop("version")
    assert "total" in rows.transform(running(total=hf.sum("n"))).columns
    assert "n" in rows.transform(first(order="n")).columns


def test_changes_do_not_become_events_by_losing_the_hidden_column(plain: DataFrame) -> None:
    # They still have topic, partition and offset, which rows of a source have.
    rows = plain.drop("nested").transform(first(by=["shop"])).drop("__hw")
    for ask in (running, lambda: running(most=hf.max("price"))):
        refused(rows, ask, RetractionError)


def test_final_changes_are_events_without_their_operation(orders: DataFrame) -> None:
    rows = final(orders).drop("op", "version")
    assert "most" in rows.transform(running(most=hf.max("n"), by=["shop"])).columns


def test_an_own_operator_is_given_the_operation_or_nothing(orders: DataFrame) -> None:
    columns = {"at": F.lit(None).cast("timestamp"), "price": F.lit(1)}
    rows = per_shop(orders).withColumns(columns)
    assert "price" in rows.transform(own()).columns
    for each, ask in ((rows.drop("op"), own), (rows, lambda: own(columns=["at", "price"]))):
        error = refused(each, ask, RetractionError)
        assert error.message.startswith("hf.stateful is given rows")
        assert "'op'" in error.hint


# --- whose time it is -----------------------------------------------------------------------------


def test_behind_an_own_operator_the_time_is_to_be_named(orders: DataFrame) -> None:
    rows = orders.transform(own())
    error = refused(rows, tumbling, WindowSettingError)
    assert "'at' is not what the watermark of these rows goes by" in error.message
    assert "hf.stateful" in error.hint
    assert 'time="at"' in error.hint
    timed = orders.transform(own(time="at"))
    assert "n" in timed.transform(tumbling()).columns


def test_a_time_that_was_made_anew_is_to_be_kept(orders: DataFrame) -> None:
    rows = orders.withColumn("at", F.col("at") + F.expr("interval 1 hour"))
    assert "as it is" in refused(rows, tumbling, WindowSettingError).hint


def watermarked() -> Transform:
    return hf.watermark("at", "1 second")


def test_a_second_watermark_is_not_the_way_to_a_time(orders: DataFrame) -> None:
    error = refused(orders.transform(own()), watermarked, WatermarkError)
    assert 'hf.stateful(..., time="at")' in error.hint


def test_a_watermark_comes_before_operators(plain: DataFrame) -> None:
    error = refused(plain.transform(own()), watermarked, WatermarkError)
    assert "in front of it" in error.hint


@pytest.mark.parametrize("ask", [watermarked, tumbling, running])
@pytest.mark.parametrize("value", ["1", "struct(1 AS time)"])
def test_a_column_with_the_name_of_the_hidden_one(plain: DataFrame, ask: Ask, value: str) -> None:
    error = refused(plain.withColumn("__hw", F.expr(value)), ask, WatermarkError)
    assert "'__hw', which is what hf.watermark calls its own" in error.message
    assert "withColumnRenamed" in error.hint
