"""Tables of real topics under aggregates and first rows: what counts is what stands in them."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from headwater.base.errors import HeadwaterError
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.windows.errors import WindowSettingError
from tests.streams.brokers import Broker
from tests.streams.joins.topics import Changes, Record, send

BUCKETS = 4
COUNTRIES = ("DE", "FR", None)
SCHEMA = "id long, country string, points long"


def users(spark: SparkSession, near: Broker, topic: str, **more: Any) -> DataFrame:  # noqa: ANN401
    options = {"kafka.bootstrap.servers": near.bootstrap, "maxOffsetsPerTrigger": "25"}
    return hw.table(spark, topic, schema=SCHEMA, key="id", options=options, **more)


def user(number: int, country: str | None, points: int | None = 1) -> Record:
    return str(number), {"id": number, "country": country, "points": points}


def made(dice: random.Random, count: int) -> tuple[list[Record], Mapping[str, Any]]:
    """Return upserts and deletes of a few users, and the rows that stand behind them."""
    records: list[Record] = []
    standing: dict[str, Any] = {}
    for _ in range(count):
        key, row = user(dice.randint(0, 9), dice.choice(COUNTRIES), dice.choice([None, 1, 2, 3]))
        records.append((key, row if dice.random() < 0.7 else None))
        standing.pop(str(key), None)
        if records[-1][1] is not None:
            standing[str(key)] = row
    return records, standing


def asked(question: str, standing: Mapping[str, Any]) -> Counter[tuple[Any, ...]]:
    database = duckdb.connect()
    database.execute("CREATE TABLE users (id BIGINT, country VARCHAR, points BIGINT)")
    for row in standing.values():
        database.execute("INSERT INTO users VALUES (?, ?, ?)", list(row.values()))
    return Counter(database.execute(question).fetchall())


def test_who_is_upserted_three_times_and_deleted_is_counted_no_more(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic("users")
    send(near, topic, [*[user(1, "DE", n) for n in range(3)], ("1", None), user(2, "DE")])
    counted = users(spark, near, topic).transform(
        hf.aggregate(by=["country"], n=hf.count(), buckets=BUCKETS)
    )
    given = Changes(counted, tmp_path)
    given.run()
    assert given.standing("country", "n") == Counter([("DE", 1)])


def per_country(rows: DataFrame) -> DataFrame:
    return rows.transform(
        hf.aggregate(
            by=["country"],
            n=hf.count(),
            known=hf.count("points"),
            total=hf.sum("points"),
            buckets=BUCKETS,
        )
    )


def odd_and_even(rows: DataFrame) -> DataFrame:
    by = [(F.col("id") % 2).alias("id")]
    return rows.transform(hf.aggregate(by=by, total=hf.sum(F.col("points") * 2), buckets=BUCKETS))


def all_together(rows: DataFrame) -> DataFrame:
    return rows.transform(hf.aggregate(n=hf.count(), buckets=BUCKETS))


def first(rows: DataFrame) -> DataFrame:
    order = ["points desc", "id"]
    return rows.transform(hf.top(1, by=["country"], order=order, buckets=BUCKETS))


def of_countries(rows: DataFrame) -> DataFrame:
    """Aggregates that are aggregated again, although their versions were dropped."""
    counted = per_country(rows).drop("version")
    return counted.transform(hf.aggregate(sum=hf.sum("n"), groups=hf.count(), buckets=BUCKETS))


def of_large_countries(rows: DataFrame) -> DataFrame:
    """The same of some groups: one that becomes too small is taken back with what it was."""
    counted = per_country(rows).withColumn("many", F.col("n") >= 3).where("many")
    return counted.transform(hf.aggregate(sum=hf.sum("n"), groups=hf.count(), buckets=BUCKETS))


COUNTED = """SELECT country, count(*) AS n, count(points) AS known, sum(points)::BIGINT AS total
    FROM users GROUP BY country"""
FIRST = """SELECT country, id, points FROM users QUALIFY row_number()
    OVER (PARTITION BY country ORDER BY points DESC NULLS LAST, id) = 1"""


@pytest.mark.parametrize(
    "ask, more, columns, question",
    [
        (per_country, {}, ["country", "n", "known", "total"], COUNTED),
        (per_country, {"valid_from": "timestamp"}, ["country", "n", "known", "total"], COUNTED),
        (
            odd_and_even,
            {},
            ["id", "total"],
            "SELECT id % 2, sum(points * 2)::BIGINT FROM users GROUP BY ALL",
        ),
        (all_together, {}, ["n"], "SELECT count(*) FROM users"),
        (first, {}, ["country", "id", "points"], FIRST),
        (of_countries, {}, ["sum", "groups"], f"SELECT sum(n)::BIGINT, count(*) FROM ({COUNTED})"),
        (
            of_large_countries,
            {},
            ["sum", "groups"],
            f"SELECT sum(n)::BIGINT, count(*) FROM ({COUNTED}) WHERE n >= 3",
        ),
    ],
    ids=["by a column", "with times", "by an expression", "of all", "first rows", "twice", "some"],
)
def test_after_any_batches_the_answer_is_a_databases(
    spark: SparkSession,
    near: Broker,
    tmp_path: Path,
    ask: Callable[[DataFrame], DataFrame],
    more: dict[str, Any],
    columns: list[str],
    question: str,
) -> None:
    topic = near.topic("users")
    records, standing = made(random.Random(question), 90)
    send(near, topic, records)
    given = Changes(users(spark, near, topic, **more).transform(ask), tmp_path)
    given.run()
    assert len(given.batches) > 2
    answer = asked(question, standing)
    assert answer
    assert given.standing(*columns) == answer


def refused(rows: DataFrame, ask: Callable[[DataFrame], DataFrame]) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as raised:
        rows.transform(ask)
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize(
    "asked", [{"length": "1 hour"}, {"length": "1 hour", "engine": "spark"}, {"session": "1 hour"}]
)
def test_no_window_takes_a_table(spark: SparkSession, near: Broker, asked: dict[str, Any]) -> None:
    table = users(spark, near, "users", valid_from="timestamp")
    error = refused(table, hf.window("timestamp", **asked, n=hf.count()))
    assert isinstance(error, WindowSettingError)
    assert "rows that replace others" in error.message
    events = table.drop("op")
    assert "n" in events.transform(hf.window("timestamp", **asked, n=hf.count())).columns


def test_a_table_without_its_key_is_refused(spark: SparkSession, near: Broker) -> None:
    table = users(spark, near, "users").drop("id")
    for ask in (hf.aggregate(n=hf.count()), hf.top(1, order="points")):
        error = refused(table, ask)
        assert isinstance(error, WindowSettingError)
        assert "primary key" in error.message


def test_what_cannot_be_taken_back_is_refused_of_a_table(spark: SparkSession, near: Broker) -> None:
    error = refused(users(spark, near, "users"), hf.aggregate(most=hf.max("points")))
    assert isinstance(error, RetractionError)
    assert "most=hf.max" in error.message
