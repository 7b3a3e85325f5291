"""Every function for DataFrames, given a table and changes: a right answer, or a refusal by name.

Nothing is read here. That answers are right is shown where rows run; here it is shown that none of
the functions takes such rows for events unnoticed.
"""

import functools
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from headwater.base.errors import HeadwaterError
from headwater.streams.joins.errors import JoinColumnError
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.time.errors import WatermarkError
from headwater.streams.windows.errors import WindowSettingError

Transform = Callable[[DataFrame], DataFrame]
Expected = type[HeadwaterError] | None
"""The error by which rows are refused; None where they are taken for what they are."""

PLAIN: Final = {"Late", "clamp", "correct", "divert", "drop", "true_time"}
"""What takes no DataFrame, besides the measures."""

MEASURES: Final = {
    *("approx_distinct", "avg", "collect", "count", "distinct", "first", "heavy_hitters", "last"),
    *("max", "min", "percentile", "stddev", "sum", "variance"),
}
# Of one row they make one row, whatever it says.
FORMATS: Final = {"avro", "json", "protobuf", "to_avro", "to_json", "to_protobuf"}


class Seen:
    """Gives rows as they come."""

    state = pa.schema([("id", pa.int64())])
    output = pa.schema([("id", pa.int64())])

    def step(
        self, state: pa.Table, rows: pa.Table, watermark_us: int | None
    ) -> tuple[pa.Table, pa.Table]:
        return state, rows.select(["id"])


@functools.cache
def orders(spark: SparkSession) -> DataFrame:
    """Events."""
    rows = spark.readStream.format("headwater").option("subscribe", "orders").load()
    rows = rows.transform(hf.json("id long, at timestamp, amount long"))
    return rows.transform(hf.watermark("at", "1 second"))


@functools.cache
def users(spark: SparkSession) -> DataFrame:
    """Another table."""
    schema = "id long, name string, from timestamp"
    return hw.table(spark, "others", schema=schema, key="id", valid_from="from")


@functools.cache
def table(spark: SparkSession) -> DataFrame:
    """A table, whose rows are upserted and deleted."""
    schema = "id long, n long, since timestamp"
    return hw.table(spark, "users", schema=schema, key="id", valid_from="since")


@functools.cache
def changes(spark: SparkSession) -> DataFrame:
    """Results that may be taken back, with a watermark and a time."""
    late = hf.correct("1 hour")
    rows = orders(spark).transform(
        hf.window("at", sliding="1 hour", by=["id"], late=late, n=hf.count())
    )
    return rows.select("id", "n", F.col("at").alias("since"), "op", "version", "__hw")


GIVEN: Final = {"table": table, "changes": changes}
ASKED: Final[dict[str, Callable[[SparkSession], Transform]]] = {
    "aggregate": lambda _: hf.aggregate(total=hf.sum("n")),
    "aggregate, max": lambda _: hf.aggregate(most=hf.max("n")),
    "top": lambda _: hf.top(1, order="n"),
    "window": lambda _: hf.window("since", "1 hour", n=hf.count()),
    "window, spark": lambda _: hf.window("since", "1 hour", engine="spark", n=hf.count()),
    "window, session": lambda _: hf.window("since", session="1 hour", n=hf.count()),
    "window, sliding": lambda _: hf.window("since", sliding="1 hour", m=hf.count()),
    "stateful": lambda _: hf.stateful(Seen(), by="id"),
    "stateful, columns": lambda _: hf.stateful(Seen(), by="id", columns=["id"]),
    "watermark": lambda _: hf.watermark("since", "1 second"),
    "join_interval": lambda spark: hf.join_interval(
        orders(spark), on="id", lower="0 s", upper="1 s"
    ),
    "join_interval, right": lambda spark: (
        lambda rows: orders(spark).transform(
            hf.join_interval(rows, on="id", lower="0 s", upper="1 s")
        )
    ),
    "join_latest": lambda spark: hf.join_latest(users(spark), on="id"),
    "join_latest, right": lambda spark: (
        lambda rows: orders(spark).transform(hf.join_latest(rows, on="id"))
    ),
    "join_asof": lambda spark: hf.join_asof(users(spark), on="id", time="since"),
    "join_asof, right": lambda spark: (
        lambda rows: orders(spark).transform(hf.join_asof(rows, on="id", time="at"))
    ),
    "join_tables": lambda spark: hf.join_tables(users(spark), on="id", key="id"),
    "join_tables, right": lambda spark: (
        lambda rows: users(spark).transform(hf.join_tables(rows, on="id", other_key="id"))
    ),
    "with_dead_letters": lambda _: hf.with_dead_letters,
}

EXPECTED: Final[dict[str, dict[str, Expected]]] = {
    "table": {
        "aggregate": None,
        "aggregate, max": RetractionError,
        "top": None,
        "window": WindowSettingError,
        "window, spark": WindowSettingError,
        "window, session": WindowSettingError,
        "window, sliding": WindowSettingError,
        "stateful": None,
        "stateful, columns": RetractionError,
        "watermark": WatermarkError,
        "join_interval": JoinColumnError,
        "join_interval, right": JoinColumnError,
        "join_latest": JoinColumnError,
        "join_latest, right": None,
        "join_asof": JoinColumnError,
        "join_asof, right": None,
        "join_tables": None,
        "join_tables, right": None,
        "with_dead_letters": None,
    },
    "changes": {
        "aggregate": None,
        "aggregate, max": RetractionError,
        "top": None,
        "window": RetractionError,
        "window, spark": RetractionError,
        "window, session": RetractionError,
        "window, sliding": RetractionError,
        "stateful": None,
        "stateful, columns": RetractionError,
        "watermark": WatermarkError,
        "join_interval": RetractionError,
        "join_interval, right": RetractionError,
        "join_latest": RetractionError,
        "join_latest, right": None,
        "join_asof": RetractionError,
        "join_asof, right": RetractionError,
        "join_tables": None,
        "join_tables, right": None,
        "with_dead_letters": None,
    },
}


def test_no_function_is_left_out() -> None:
    asked = {name.partition(",")[0] for name in ASKED}
    assert asked | FORMATS | MEASURES | PLAIN == set(hf.__all__)
    for expected in EXPECTED.values():
        assert expected.keys() == ASKED.keys()


def check(spark: SparkSession, rows: DataFrame, asked: str, expected: Expected) -> None:
    if expected is None:
        assert rows.transform(ASKED[asked](spark)).columns
        return
    with pytest.raises(expected) as raised:
        rows.transform(ASKED[asked](spark))
    assert raised.value.hint


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("given", GIVEN)
def test_a_table_and_changes_are_taken_for_what_they_are(
    spark: SparkSession, given: str, asked: str
) -> None:
    check(spark, GIVEN[given](spark), asked, EXPECTED[given][asked])


# What loses what functions go by: who could take the rows refuses them, too.
LOSSES: Final[dict[str, tuple[str, Transform]]] = {
    "changes without the operation": ("changes", lambda rows: rows.drop("op")),
    "changes with another operation": (
        "changes",
        lambda rows: rows.withColumn("op", F.upper("op")),
    ),
    "a table with another operation": ("table", lambda rows: rows.withColumn("op", F.upper("op"))),
    "chosen rows of a table": ("table", lambda rows: rows.where("n > 1")),
    "upserts of a table": ("table", lambda rows: rows.where("op = 'upsert'")),
    "upserts of a table under other names": (
        "table",
        lambda rows: rows.where("op = 'upsert'").withColumn("m", F.col("n")).alias("a"),
    ),
}
STATELESS: Final = {"with_dead_letters"}


@pytest.mark.parametrize("asked", sorted(ASKED.keys() - STATELESS))
@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_is_noticed(spark: SparkSession, loss: str, asked: str) -> None:
    given, lose = LOSSES[loss]
    rows = lose(GIVEN[given](spark))
    if asked == "stateful" and "op" in rows.columns:
        # An operator of one's own is given the column, and decides itself.
        assert rows.transform(ASKED[asked](spark)).columns
        return
    with pytest.raises(HeadwaterError) as raised:
        rows.transform(ASKED[asked](spark))
    assert raised.value.hint


def test_rows_of_a_table_may_be_chosen_by_its_key(spark: SparkSession) -> None:
    chosen = table(spark).where("id % 2 = 0")
    for asked in ("aggregate", "top", "join_tables", "join_latest, right", "join_asof, right"):
        check(spark, chosen, asked, None)


def test_a_table_is_events_without_its_operation(spark: SparkSession) -> None:
    events = table(spark).drop("op").where("n > 1")
    for asked in ("aggregate, max", "top", "window", "stateful", "join_interval"):
        check(spark, events, asked, None)
