"""Joins of real topics, through Spark, beside the answer that DuckDB gives of the same rows."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.joins.topics import SECOND, Changes, events, send

BUCKETS = 4


def duck(question: str, **tables: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Ask DuckDB about tables whose columns are a, b, c..."""
    database = duckdb.connect()
    for name, rows in tables.items():
        letters = "abcdefgh"[: len(rows[0])]
        types = ["BIGINT" if isinstance(value, int) else "VARCHAR" for value in rows[0]]
        columns = ", ".join(f"{each} {kind}" for each, kind in zip(letters, types, strict=True))
        database.execute(f"CREATE TABLE {name} ({columns})")
        marks = ", ".join("?" * len(letters))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    return Counter(database.execute(question).fetchall())


def test_the_click_that_never_came(spark: SparkSession, near: Broker, tmp_path: Path) -> None:
    dice = random.Random(1)
    searches = [
        (us, f"user {dice.randint(0, 15)}", number)
        for number, us in enumerate(sorted(dice.randint(0, 600 * SECOND) for _ in range(200)))
    ]
    clicks = [
        (us + dice.randint(-5, 60) * SECOND, user, 1000 + number)
        for us, user, number in searches
        if dice.random() < 0.5
    ]
    # What is behind the end of everything lets the last rows be certain.
    last = [(1200 * SECOND, "last", 0)]
    searched, clicked = near.topic("searches"), near.topic("clicks")
    for topic, rows in ((searched, searches + last), (clicked, clicks + last)):
        send(near, topic, [(None, {"us": us, "user": u, "id": n}) for us, u, n in rows])
    schema = "user string, id long"
    left = (
        events(spark, near, searched, schema, per_batch=120)
        .withColumnsRenamed({"id": "search", "us": "search_us"})
        .transform(hf.watermark("at", "70 seconds"))
    )
    right = (
        events(spark, near, clicked, schema, per_batch=60)
        .withColumnsRenamed({"id": "click", "us": "click_us", "at": "clicked_at"})
        .transform(hf.watermark("clicked_at", "70 seconds"))
    )
    joined = left.transform(
        hf.join_interval(
            right, on="user", lower="-2 seconds", upper="30 seconds", how="full", buckets=BUCKETS
        )
    )
    assert joined.columns == [
        *("user", "search_us", "search", "at"),
        *("click_us", "click", "clicked_at", "op", "version", "__hw"),
    ]
    given = Changes(joined, tmp_path)
    given.run()
    answer = duck(
        f"""SELECT coalesce(l.b, r.b), l.c, r.c FROM l FULL JOIN r
        ON l.b = r.b AND r.a BETWEEN l.a - {2 * SECOND} AND l.a + {30 * SECOND}
        WHERE coalesce(l.b, r.b) != 'last'""",
        l=searches,
        r=[*clicks, *last],
    )
    found = given.standing("user", "search", "click")
    assert found - Counter({("last", 0, 0): 1}) == answer
    assert {row["op"] for row in given.rows()} == {"insert"}
    assert sum(map(bool, given.batches.values())) > 1


def test_a_window_by_the_time_of_the_search_counts_all_of_them(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    searched, clicked = near.topic("searches"), near.topic("clicks")
    # The first minute is long over when it becomes certain that the second search has no click.
    rows = [(10, "a"), (50, "b"), (70, "a"), (1200, "last")]
    send(near, searched, [(None, {"us": s * SECOND, "user": user}) for s, user in rows])
    rows = [(100, "a"), (1200, "last")]
    send(near, clicked, [(None, {"us": s * SECOND, "user": user}) for s, user in rows])
    left = events(spark, near, searched, "user string", per_batch=2)
    right = events(spark, near, clicked, "user string")
    right = right.withColumnsRenamed({"at": "clicked", "us": "clicked_us"})
    joined = left.transform(hf.watermark("at", "0 seconds")).transform(
        hf.join_interval(
            right.transform(hf.watermark("clicked", "0 seconds")),
            on="user",
            lower="0 seconds",
            upper="100 seconds",
            how="left",
            buckets=BUCKETS,
        )
    )
    counted = joined.transform(
        hf.window("at", "1 minute", n=hf.count(), clicks=hf.count("clicked"), buckets=BUCKETS)
    )
    given = Changes(counted, tmp_path)
    given.run()
    found = [(row["window"]["start"].minute, row["n"], row["clicks"]) for row in given.rows()]
    assert sorted(found) == [(0, 2, 1), (1, 1, 1)]
