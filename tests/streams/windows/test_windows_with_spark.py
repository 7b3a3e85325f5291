"""Windows of real topics, through Spark, beside the answer that DuckDB gives of the same events."""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from headwater import functions as hf
from headwater.streams.running.progress import batch_of
from tests.streams.brokers import Broker
from tests.streams.queries import maybe_error
from tests.streams.windows.topics import (
    LAST,
    NOON_US,
    SECOND,
    WITHIN_S,
    counts,
    found,
    in_duckdb,
    made,
    read,
    run,
    send,
)

YEAR_2099_US = 4_070_908_800 * SECOND


def test_windows_are_those_of_a_database_and_what_has_no_time_is_counted_apart(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic, out = near.topic(partitions=2), near.topic("out")
    events = made(random.Random(1), 1000)
    send(near, topic, events + LAST)
    untimed: list[int | None] = [None, YEAR_2099_US, None, YEAR_2099_US + 1, None]
    values = [json.dumps({"at_us": at_us, "name": "key 1", "number": 1}) for at_us in untimed]
    near.send(topic, [(None, value.encode()) for value in values], partition=0)
    rows = read(spark, near, topic, per_batch=300).transform(hf.watermark("at", "5 seconds"))
    windows = rows.transform(
        hf.window("at", "10 seconds", by=["name"], n=hf.count(), total=hf.sum("number"))
    )
    progress = [json.loads(each.json) for each in run(counts(windows), near, out, tmp_path)]

    given = Counter((row["name"], row["start"], row["n"], row["total"]) for row in found(near, out))
    assert given == in_duckdb(events, 10 * SECOND)
    batches = [batch_of("p", each) for each in progress]
    total = {name: sum(batch[name] for batch in batches) for name in batches[0] if "rows" in name}
    assert total["rows"] == len(events + LAST + untimed), "the clock's own rows are none"
    assert (total["late_rows"], total["no_time_rows"], total["future_rows"]) == (0, 3, 2)
    assert batches[-1]["watermark"] == "2026-11-01T12:59:55.000Z"
    names = [name for each in progress for name in each["observedMetrics"]]
    assert any(name.startswith("headwater.late.") for name in names)
    assert any(re.fullmatch(r"headwater\.time\.\d+\.at", name) for name in names)


def test_late_events_correct_results_and_what_is_later_still_goes_to_a_topic(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic, out, too_late = near.topic(), near.topic("out"), near.topic("late")
    # A row is late against the watermark of the batch before its own, and each has its own here.
    events = [(0, us * SECOND, "a", us) for us in (1, 2, 15, 40, 3, 300, 4, 5, 301)]
    send(near, topic, events)
    rows = read(spark, near, topic, per_batch=1).transform(hf.watermark("at", "0 seconds"))
    late = hf.correct("1 minute", beyond=hf.divert(too_late))
    windows = rows.transform(
        hf.window(
            "at",
            "10 seconds",
            by=["name"],
            late=late,
            buckets=1,
            n=hf.count(),
            total=hf.sum("number"),
        )
    )
    with_letters = hf.with_dead_letters(counts(windows), topic=out)
    query = (
        with_letters.writeStream.format("headwater")
        .option("kafka.bootstrap.servers", near.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert maybe_error(query, WITHIN_S) is None

    changes = [
        ((row["start"] - NOON_US) // SECOND, row["op"], row["version"], row["n"], row["total"])
        for row in found(near, out)
    ]
    assert sorted(changes) == [
        (0, "insert", 0, 2, 3),
        (0, "insert", 1, 3, 6),
        (0, "insert", 2, 4, 10),
        (0, "retract", 0, 2, 3),
        (0, "retract", 1, 3, 6),
        (10, "insert", 0, 1, 15),
        (40, "insert", 0, 1, 40),
    ]
    letters = near.read(too_late)
    assert [json.loads(each.value() or b"")["number"] for each in letters] == [5]
    headers = [dict(each.headers() or []) for each in letters]
    assert [each["x-original-offset"] for each in headers] == [b"7"]
    assert [each["x-error"] for each in headers] == [b"LATE: its window closed 230.000000 s ago"]
    late_counts = [
        sum(
            row["late"] or 0
            for name, row in each["observedMetrics"].items()
            if name.startswith("headwater.late.")
        )
        for each in query.recentProgress
    ]
    assert sum(late_counts) == 1


def test_sessions_sliding_windows_and_windows_of_windows(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic(partitions=2)
    dice = random.Random(7)
    # All times differ, so that a database and we agree about ties without being told how.
    seconds = dice.sample(range(600), 120)
    events = [(us % 2, us * SECOND, f"k{us % 3}", us) for us in seconds]
    send(near, topic, events)
    rows = read(spark, near, topic).transform(hf.watermark("at", "600 seconds", at_end="close"))
    sums: dict[str, Any] = {
        "n": hf.count(),
        "total": hf.sum("number"),
        "kinds": hf.distinct("number"),
    }
    results = {
        "sessions": rows.transform(
            hf.window("at", session="20 seconds", by=["name"], buckets=2, **sums)
        ).selectExpr("name", "unix_micros(window.start)", "unix_micros(window.end)", "n", "total"),
        "sliding": rows.transform(
            hf.window("at", sliding="60 seconds", by=["name"], buckets=2, **sums)
        ).selectExpr("name", "at_us", "n", "total"),
        "hopping": rows.transform(
            hf.window("at", "60 seconds", every="20 seconds", by=["name"], buckets=2, **sums)
        )
        .transform(hf.window("window", "10 minutes", buckets=2, largest=hf.max("total")))
        .selectExpr("unix_micros(window.start)", "largest"),
    }
    given = {}
    for name, frame in results.items():
        query = (
            frame.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        assert maybe_error(query, WITHIN_S) is None
        given[name] = sorted(tuple(row) for row in spark.table(name).collect())

    database = duckdb.connect()
    database.execute("CREATE TABLE events (us BIGINT, name VARCHAR, number BIGINT)")
    database.executemany(
        "INSERT INTO events VALUES (?, ?, ?)", [(NOON_US + us, key, n) for _, us, key, n in events]
    )
    assert given["sessions"] == sorted(database.execute(SESSIONS).fetchall())
    assert given["sliding"] == sorted(database.execute(SLIDING).fetchall())
    assert given["hopping"] == sorted(database.execute(HOPPING).fetchall())


SESSIONS = """
    WITH marked AS (
      SELECT *, coalesce(us - lag(us) OVER key > 20000000, true) AS begins FROM events
      WINDOW key AS (PARTITION BY name ORDER BY us)),
    numbered AS (
      SELECT *, sum(begins::INT) OVER (PARTITION BY name ORDER BY us) AS session FROM marked)
    SELECT name, min(us), max(us) + 20000000, count(*), sum(number)::BIGINT
    FROM numbered GROUP BY name, session"""
SLIDING = """
    SELECT name, us, count(*) OVER key, (sum(number) OVER key)::BIGINT FROM events
    WINDOW key AS (
      PARTITION BY name ORDER BY us RANGE BETWEEN 60000000 PRECEDING AND CURRENT ROW)"""
HOPPING = """
    WITH starts AS (
      SELECT name, number, unnest(range(us - us % 20000000 - 40000000, us + 1, 20000000)) AS start
      FROM events),
    sums AS (SELECT name, start, sum(number) AS total FROM starts GROUP BY ALL)
    SELECT (start + 59999999) - (start + 59999999) % 600000000 AS outer_start, max(total)::BIGINT
    FROM sums GROUP BY outer_start"""


def test_sparks_own_windows_are_there_for_the_asking(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic()
    events = [(0, us * SECOND, "a", us) for us in (1, 2, 15, 40)]
    send(near, topic, events)
    rows = read(spark, near, topic).transform(hf.watermark("at", "0 seconds"))
    windows = rows.transform(hf.window("at", "10 seconds", engine="spark", n=hf.count()))
    query = (
        windows.selectExpr("unix_micros(window.start)", "n")
        .writeStream.format("memory")
        .queryName("native")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert maybe_error(query, WITHIN_S) is None
    found_rows = sorted(tuple(row) for row in spark.table("native").collect())
    assert found_rows == [(NOON_US, 2), (NOON_US + 10 * SECOND, 1)]
