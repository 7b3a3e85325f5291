"""What `hf.top` makes of DataFrames, and what it refuses. Nothing is read here."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.streams.kernel.errors import KeyTypeError
from headwater.streams.windows.errors import WindowSettingError


def bids(spark: SparkSession) -> DataFrame:
    rows = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", "localhost:1")
        .option("subscribe", "bids")
        .load()
    )
    return rows.select(
        "topic",
        "partition",
        "offset",
        F.lit("a").alias("name"),
        F.lit(1).alias("price"),
        F.array("offset").alias("many"),
    )


def test_columns_are_the_keys_then_the_others_then_the_rank(spark: SparkSession) -> None:
    rows = bids(spark).drop("many")
    best = rows.transform(hf.top(3, by=["name"], order=["price DESC", "offset"], rank="place"))
    assert best.columns[:2] == ["name", "topic"]
    assert best.columns[-5:] == ["price", "place", "op", "version", "__hw"]
    assert [best.schema[name].dataType for name in ("name", "offset", "price")] == [
        rows.schema[name].dataType for name in ("name", "offset", "price")
    ]
    # Of what it gives, more can be asked.
    again = best.transform(hf.top(1, order="price")).transform(hf.aggregate(n=hf.count()))
    assert again.columns == ["n", "op", "version", "__hw"]


@pytest.mark.parametrize(
    "asked,words",
    [
        (hf.top(1, order="prize"), "no column 'prize'.*did you mean price"),
        (hf.top(1, by=["price"], order="price"), "no column 'price' beside keys"),
        (hf.top(1, order="many"), "cannot be ordered by many"),
        (hf.top(0, order="price"), "the first 0 rows are none"),
        (hf.top(1, order="price", rank="name"), "two columns 'name'"),
        (hf.top(1, order="price", rank="op"), "two columns 'op'"),
    ],
)
def test_what_cannot_be_is_refused(
    spark: SparkSession, asked: Callable[[DataFrame], DataFrame], words: str
) -> None:
    with pytest.raises(WindowSettingError, match=words):
        bids(spark).transform(asked)


def test_changes_must_be_such_that_they_can_be_told_apart(spark: SparkSession) -> None:
    best = bids(spark).transform(hf.top(1, order="price"))
    with pytest.raises(KeyTypeError, match="many"):
        best.transform(hf.top(1, order="price"))
