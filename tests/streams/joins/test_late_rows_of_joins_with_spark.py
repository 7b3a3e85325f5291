"""Rows that come too late for a join, in a topic of their own; and operators that run twice."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.joins.topics import SECOND, WITHIN_S, Changes, events, iso, send
from tests.streams.queries import maybe_error


def written(near: Broker, topic: str, seconds: Sequence[int | None]) -> str:
    """Write an event of one user for each of the times, in seconds after noon."""
    times = [None if each is None else each * SECOND for each in seconds]
    send(near, topic, [(None, {"us": each, "user": "a"}) for each in times])
    return topic


def one_by_one(spark: SparkSession, near: Broker, topic: str, time: str) -> DataFrame:
    """Read events, each in a batch of its own: so each is late by the watermark before it."""
    rows = events(spark, near, topic, "user string", per_batch=1)
    rows = rows.withColumnsRenamed({"at": time, "us": f"{time}_us"})
    return rows.transform(hf.watermark(time, "0 seconds"))


class Ran:
    """What a query has written, what it has diverted, and how many rows it has called late."""

    def __init__(self, frame: DataFrame, near: Broker, late: str, folder: Path) -> None:
        out = near.topic("out")
        query = (
            hf.with_dead_letters(frame, topic=out)
            .writeStream.format("headwater")
            .option("kafka.bootstrap.servers", near.bootstrap)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert maybe_error(query, WITHIN_S) is None
        self.rows: list[dict[str, Any]] = [
            json.loads(message.value() or b"") for message in near.read(out)
        ]
        self.late = Counter(map(_told, near.read(late)))
        self.counted = sum(
            row["late"] or 0
            for each in query.recentProgress
            for name, row in each["observedMetrics"].items()
            if name.startswith("headwater.late.")
        )


def _told(letter: Message) -> tuple[int | None, str]:
    headers = dict(letter.headers() or [])
    row: dict[str, Any] = json.loads(letter.value() or b"")
    (us,) = (value for name, value in row.items() if name.endswith("_us"))
    second = None if us is None else us // SECOND
    why = headers["x-error"]
    assert isinstance(why, bytes)
    return second, why.decode()


def test_rows_that_are_late_for_a_join_of_streams(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    late = near.topic("late")
    # The event at 500 s is late by the clock of its own side, but not by the slower one of both.
    searches = written(near, near.topic("searches"), [10, 1000, 1001, 500, 20, None])
    clicks = written(near, near.topic("clicks"), [12, 100, 101, 503, 15])
    joined = one_by_one(spark, near, searches, "searched").transform(
        hf.join_interval(
            one_by_one(spark, near, clicks, "clicked"),
            on="user",
            lower="0 seconds",
            upper="5 seconds",
            late=hf.divert(late),
            buckets=1,
        )
    )
    ran = Ran(
        joined.select(F.to_json(F.struct("searched_us")).alias("value")), near, late, tmp_path
    )

    assert sorted(row["searched_us"] // SECOND for row in ran.rows) == [10, 500]
    assert ran.late == Counter(
        {
            (20, "LATE: 81.000000 s behind the watermark"): 1,
            (15, "LATE: 86.000000 s behind the watermark"): 1,
            # Nothing can be made of it, but it is not late.
            (None, "NO_TIME: no time"): 1,
        }
    )
    assert ran.counted == 2


def test_events_that_are_too_late_to_be_joined_as_of_their_time(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    late, prices = near.topic("late"), near.topic("prices")
    rows = [("a", {"user": "a", "price": each, "since": iso(each * SECOND)}) for each in (0, 3000)]
    send(near, prices, rows)
    table = hw.table(
        spark,
        prices,
        schema="user string, price long, since timestamp",
        key="user",
        valid_from="since",
        options={"kafka.bootstrap.servers": near.bootstrap},
    )
    orders = written(near, near.topic("orders"), [10, 100, 101, 20, 90])
    correct = hf.correct(until="30 seconds", beyond=hf.divert(late))
    joined = one_by_one(spark, near, orders, "at").transform(
        hf.join_asof(table, on="user", time="at", late=correct, buckets=1)
    )
    value = F.to_json(F.struct("at_us", "price", "version")).alias("value")
    ran = Ran(joined.select(value), near, late, tmp_path)

    given = {(row["at_us"] // SECOND, row["price"], row["version"]) for row in ran.rows}
    assert given == {(10, 0, 0), (100, 0, 0), (90, 0, 1)}
    assert ran.late == Counter({(20, "LATE: 80.000000 s behind the watermark"): 1})


def test_windows_that_are_used_twice_call_an_event_late_once(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    late = near.topic("late")
    topic = written(near, near.topic(), [1, 50, 51, 2])
    windows = one_by_one(spark, near, topic, "at").transform(
        hf.window("at", "10 seconds", late=hf.divert(late), buckets=1, n=hf.count())
    )
    twice = windows.unionByName(windows)
    ran = Ran(twice.select(F.to_json(F.struct("n")).alias("value")), near, late, tmp_path)

    assert ran.rows == [{"n": 1}, {"n": 1}]
    assert ran.late == Counter({(2, "LATE: its window closed 40.000000 s ago"): 1})
    assert ran.counted == 1


def test_a_table_that_keeps_state_can_be_joined_with_itself(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic()
    users = "aabbcabdddcc"
    counts = events(spark, near, topic, "user string", per_batch=3).transform(
        hf.aggregate(by=["user"], buckets=2, n=hf.count())
    )
    others = counts.withColumnRenamed("user", "other")
    same = counts.transform(
        hf.join_tables(others, on="n", key="user", other_key="other", buckets=2)
    )
    given = Changes(same, tmp_path)
    for part in (users[:7], users[7:]):
        send(near, topic, [(None, {"us": 0, "user": user}) for user in part])
        given.run()
        read = users[: users.index(part) + len(part)]
        answer = duckdb.execute(
            """WITH counts AS (SELECT user_, count(*) AS n FROM
            (SELECT unnest(string_split(?, '')) AS user_) GROUP BY user_)
            SELECT l.n, l.user_, r.user_ FROM counts l JOIN counts r ON l.n = r.n""",
            [read],
        ).fetchall()
        assert given.standing("n", "user", "other") == Counter(answer)
