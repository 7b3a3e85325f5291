"""What the columns of windows, aggregates and first rows are called. Nothing is read here."""

import functools
from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.streams.kernel import plan as kernel_plan
from headwater.streams.kernel.operator import Operator
from headwater.streams.kernel.plan import Prepared
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.measures import Measure

Transform = Callable[[DataFrame], DataFrame]
Asked = Callable[..., Transform]


def orders(spark: SparkSession) -> DataFrame:
    rows = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", "localhost:1")
        .option("subscribe", "orders")
        .load()
    )
    named = rows.select(
        *("topic", "partition", "offset", F.col("timestamp").alias("at"), "timestamp"),
        *(F.lit("x").alias("a"), F.lit("y").alias("b"), F.lit(1).alias("price")),
        *(F.lit(2).alias("tax"), F.lit("insert").alias("op"), F.lit(7).alias("version")),
        F.struct(F.lit("z").alias("a"), F.lit(3).alias("total")).alias("nested"),
        *(F.lit("dotted").alias("nested.a"), F.lit("w").alias("window")),
    )
    return named.transform(hf.watermark("at", "1 second"))


tumbling: Asked = functools.partial(hf.window, "at", "1 minute")
sliding: Asked = functools.partial(hf.window, "at", sliding="1 minute")
in_spark: Asked = functools.partial(hf.window, "at", "1 minute", engine="spark")
running: Asked = hf.aggregate


def first(*, by: Sequence[str], **_measures: Measure) -> Transform:
    return hf.top(1, order="price", by=by)


@pytest.mark.parametrize(
    "asked,by,measure,name,hint",
    [
        (tumbling, ["op"], "n", "op", "by="),
        (tumbling, ["version"], "n", "version", "by="),
        (tumbling, ["window"], "n", "window", "by="),
        (tumbling, [], "Version", "Version", "Version_1"),
        (tumbling, [], "window", "window", "window_1"),
        (tumbling, [], "__hw", "__hw", "__hw_1"),
        (tumbling, ["a"], "a", "a", "a_1"),
        (in_spark, ["a"], "window", "window", "window_1"),
        (sliding, [], "n", "op", "withColumnRenamed"),
        (running, ["op"], "n", "op", "by="),
        (running, [], "op", "op", "op_1"),
        (running, ["a"], "A", "A", "A_1"),
        (first, [], "n", "op", "withColumnRenamed"),
        *(
            (asked, ["a", "nested.a"], "n", "a", "by=")
            for asked in (tumbling, sliding, in_spark, running, first)
        ),
    ],
)
def test_two_columns_of_one_name_are_refused(
    spark: SparkSession,
    asked: Asked,
    by: list[str],
    measure: str,
    name: str,
    hint: str,
) -> None:
    with pytest.raises(WindowSettingError, match=f"two columns '{name}'") as raised:
        orders(spark).transform(asked(by=by, **{measure: hf.count()}))
    assert hint in raised.value.hint


def test_a_measure_may_not_be_called_as_a_column_that_events_keep(spark: SparkSession) -> None:
    rows = orders(spark).drop("op", "version", "nested.a")
    with pytest.raises(WindowSettingError, match="two columns 'price'"):
        rows.transform(sliding(by=[], price=hf.sum("price")))


def test_what_says_that_rows_are_changes_is_there_once(spark: SparkSession) -> None:
    rows = orders(spark).transform(tumbling(by=["a"], n=hf.count()))
    seen = rows.transform(hf.window("window", sliding="1 hour", by=["a"], most=hf.max("n")))
    assert seen.columns == ["a", "window", "n", "most", "op", "version", "__hw"]
    by_window = rows.transform(hf.aggregate(by=["window"], n=hf.sum("n")))
    assert by_window.columns == ["window", "n", "op", "version", "__hw"]


@pytest.mark.parametrize("asked", [tumbling, in_spark, running])
def test_a_dot_means_a_field_as_in_group_by(spark: SparkSession, asked: Asked) -> None:
    given = orders(spark).transform(asked(by=["nested.a"], total=hf.sum("nested.total")))
    grouped = orders(spark).groupBy("nested.a").agg(F.sum("nested.total").alias("total"))
    assert [name for name in given.columns if name in {"a", "total"}] == grouped.columns
    plain = orders(spark).transform(asked(by=["`nested.a`"], n=hf.count("`nested.a`")))
    assert "nested.a" in plain.columns


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Take down what is written of each operator."""
    found: list[dict[str, str]] = []
    write = kernel_plan.fingerprint

    def noted(
        operator: Operator, inputs: Sequence[Prepared], *, buckets: int, names: Sequence[str]
    ) -> dict[str, str]:
        found.append(write(operator, inputs, buckets=buckets, names=names))
        return found[-1]

    monkeypatch.setattr(kernel_plan, "fingerprint", noted)
    return found


@pytest.mark.parametrize("asked", [tumbling, running])
def test_measures_that_change_places_belong_to_another_state(
    spark: SparkSession, written: list[dict[str, str]], asked: Asked
) -> None:
    rows = orders(spark)
    sums = {"price": hf.sum("price"), "tax": hf.sum("tax")}
    for measures in (sums, sums, dict(reversed(sums.items()))):
        rows.transform(asked(by=["a"], **measures))

    assert written[0] == written[1]
    assert written[0] != written[2]


@pytest.mark.parametrize("asked", [tumbling, running, first])
def test_keys_that_change_places_belong_to_another_state(
    spark: SparkSession, written: list[dict[str, str]], asked: Asked
) -> None:
    rows = orders(spark).drop("op", "version", "nested.a")
    for by in (["a", "b"], ["a", "b"], ["b", "a"]):
        rows.transform(asked(by=by, n=hf.count()))

    assert written[0] == written[1]
    assert written[0] != written[2]


def test_columns_that_rows_keep_are_noted_too(
    spark: SparkSession, written: list[dict[str, str]]
) -> None:
    rows = orders(spark).select("at", "price", "tax", "__hw")
    rows.transform(hf.top(1, order="price", rank="place"))
    rows.transform(sliding(by=[], n=hf.count()))

    names = [[each[name] for name in each if name.startswith("result ")] for each in written]
    assert names == [["at", "price", "tax", "place"], ["n", "at", "price", "tax"]]
