"""Joins with tables of real topics, through Spark: what they come to is what a database says."""

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.joins.topics import (
    NOON_US,
    SECOND,
    WITHIN_S,
    Changes,
    Record,
    events,
    iso,
    send,
)
from tests.streams.queries import maybe_error

BUCKETS = 4


def options(near: Broker, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": near.bootstrap, **more}


def test_an_order_has_the_price_of_its_time_although_that_came_late(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    dice = random.Random(2)
    products = [f"product {number}" for number in range(6)]
    orders = [(dice.randint(0, 600 * SECOND), dice.choice(products), n) for n in range(60)]
    prices = [(dice.randint(0, 500 * SECOND), dice.choice(products), n) for n in range(20)]
    late = [(100 * SECOND, products[0], 1001), (250 * SECOND, products[1], 1002)]
    ordered, priced = near.topic("orders"), near.topic("prices")

    def write_orders(rows: list[tuple[int, str, int]]) -> None:
        send(near, ordered, [(None, {"us": us, "product": p, "id": n}) for us, p, n in rows])

    def write_prices(rows: list[tuple[int, str, int]]) -> None:
        records = [(p, {"product": p, "price": n, "since": iso(us)}) for us, p, n in rows]
        send(near, priced, records)

    # What is behind the end of everything lets the watermark pass.
    write_orders([*orders, (1200 * SECOND, "last", 0)])
    write_prices([*prices, (1200 * SECOND, "last", 0)])
    stream = events(spark, near, ordered, "product string, id long").transform(
        hf.watermark("at", "11 minutes")
    )
    table = hw.table(
        spark,
        priced,
        schema="product string, price long, since timestamp",
        key="product",
        valid_from="since",
        delay="11 minutes",
        options=options(near),
    )
    joined = stream.transform(
        hf.join_asof(
            table,
            on="product",
            time="at",
            how="left",
            late=hf.correct(until="1 hour"),
            buckets=BUCKETS,
        )
    )
    given = Changes(joined, tmp_path)
    given.run()
    first = len(given.rows())
    # A version is late, and orders that were given with the one before are given again.
    write_prices([*late, (1300 * SECOND, "last", 0)])
    write_orders([(1300 * SECOND, "last", 1)])
    given.run()

    database = duckdb.connect()
    for name, rows in (("orders", orders), ("prices", prices + late)):
        database.execute(f"CREATE TABLE {name} (t BIGINT, product VARCHAR, n BIGINT)")
        database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
    answer = database.execute(
        """SELECT orders.product, orders.n, prices.n FROM orders ASOF LEFT JOIN prices
        ON orders.product = prices.product AND orders.t >= prices.t"""
    ).fetchall()
    found = given.standing("product", "id", "price")
    assert {row: n for row, n in found.items() if row[0] != "last"} == Counter(answer)
    assert 0 < first < len(orders)
    later = {(row["op"], row["version"]) for row in given.rows()[first:]}
    assert later == {("insert", 0), ("retract", 0), ("insert", 1)}


class Timeline:
    """Who follows whom and who has posted what, and the records that say so."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.posts: dict[int, tuple[str, str]] = {}
        self.follows: set[tuple[str, str]] = set()
        self.post_records: list[Record] = []
        self.follow_records: list[Record] = []

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self._dice.choice([self._post, self._post, self._follow, self._follow, self._drop])()

    def _person(self) -> str:
        return f"person {self._dice.randint(0, 4)}"

    def _post(self) -> None:
        number = self._dice.randint(0, 30)
        self.posts[number] = (self._person(), f"text {self._dice.random()}")
        author, text = self.posts[number]
        self.post_records.append((str(number), {"id": number, "author": author, "text": text}))

    def _follow(self) -> None:
        pair = (self._person(), self._person())
        key = {"follower": pair[0], "followee": pair[1]}
        if pair in self.follows:
            self.follows.remove(pair)
            self.follow_records.append((json.dumps(key), None))
        else:
            self.follows.add(pair)
            self.follow_records.append((json.dumps(key), key))

    def _drop(self) -> None:
        if self.posts:
            number = self._dice.choice(sorted(self.posts))
            del self.posts[number]
            self.post_records.append((str(number), None))

    def in_duckdb(self) -> Counter[tuple[Any, ...]]:
        database = duckdb.connect()
        database.execute("CREATE TABLE posts (id BIGINT, author VARCHAR, text VARCHAR)")
        database.executemany(
            "INSERT INTO posts VALUES (?, ?, ?)", [(n, *post) for n, post in self.posts.items()]
        )
        database.execute("CREATE TABLE follows (follower VARCHAR, followee VARCHAR)")
        database.executemany("INSERT INTO follows VALUES (?, ?)", sorted(self.follows))
        question = """SELECT author, id, text, follower FROM posts LEFT JOIN follows
            ON author = followee"""
        return Counter(database.execute(question).fetchall())


def test_a_timeline_under_follow_unfollow_post_and_delete(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    posted, followed = near.topic("posts"), near.topic("follows")
    tables = hw.tables(
        spark,
        {
            "posts": {
                "topic": posted,
                "schema": "id long, author string, text string",
                "key": "id",
            },
            "follows": {
                "topic": followed,
                "schema": "follower string, followee string",
                "key": ["follower", "followee"],
            },
        },
        options=options(near, maxOffsetsPerTrigger="120"),
    )
    timeline = tables["posts"].transform(
        hf.join_tables(tables["follows"], on={"author": "followee"}, how="left", buckets=BUCKETS)
    )
    assert timeline.columns[:4] == ["author", "id", "text", "follower"]
    given = Changes(timeline, tmp_path)
    people = Timeline(3)
    people.go_on(200)
    send(near, posted, people.post_records)
    send(near, followed, people.follow_records)
    given.run()
    assert given.standing("author", "id", "text", "follower") == people.in_duckdb()
    assert "retract" in {row["op"] for row in given.rows()}


def test_a_visit_is_enriched_by_the_profile_as_it_is(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    visited, known = near.topic("visits"), near.topic("profiles")
    visits = events(spark, near, visited, "user long")
    profiles = hw.table(
        spark, known, schema="id long, name string", key="id", options=options(near)
    )
    enriched = visits.transform(
        hf.join_latest(profiles, on={"user": "id"}, how="left", buckets=BUCKETS)
    )
    given = Changes(enriched, tmp_path)
    send(near, known, [(str(n), {"id": n, "name": name}) for n, name in enumerate("abc")])
    send(near, visited, [(None, {"us": n, "user": n}) for n in range(4)])
    given.run()
    send(near, known, [("0", {"id": 0, "name": "A"}), ('{"id": 1}', None)])
    send(near, visited, [(None, {"us": 10 + n, "user": n}) for n in range(3)])
    given.run()
    assert sorted((row["us"], row["user"], row["name"]) for row in given.rows()) == [
        (0, 0, "a"),
        (1, 1, "b"),
        (2, 2, "c"),
        (3, 3, None),
        (10, 0, "A"),
        (11, 1, None),
        (12, 2, "c"),
    ]


NOON_MS = NOON_US // 1000
BEFORE, AFTER = {"name": "a", "n": 1}, {"name": "a", "n": 2}
PLAIN: list[Record] = [
    ("a", {"name": "a", "n": 1, "since": iso(SECOND)}),
    ("b", {"name": "b"}),
    ("a", None),
    ('{"name": "b"}', None),
    ('"a"', None),
    # Nobody can say which rows these are.
    ("c", {"n": 1}),
    (None, None),
]
TRUNCATED: Record = (None, {"op": "t", "before": None, "after": None, "ts_ms": NOON_MS + 3})
CAPTURED: list[Record] = [
    ("", {"op": "c", "before": None, "after": BEFORE, "ts_ms": NOON_MS}),
    ("", {"op": "u", "before": BEFORE, "after": AFTER, "ts_ms": NOON_MS + 1}),
    ("", {"op": "d", "before": AFTER, "after": None, "ts_ms": NOON_MS + 2}),
    ('{"name": "a"}', None),
    TRUNCATED,
]


def test_records_become_rows_of_tables(spark: SparkSession, near: Broker, tmp_path: Path) -> None:
    plain, captured = near.topic("plain"), near.topic("captured")
    send(near, plain, PLAIN)
    send(near, captured, CAPTURED)
    tables = hw.tables(
        spark,
        {
            "plain": {
                "topic": plain,
                "schema": "name string, n int, since timestamp",
                "key": "name",
                "valid_from": "since",
                "mode": "drop",
            },
            "captured": {
                "topic": captured,
                "schema": "name string, n int",
                "key": "name",
                "valid_from": "ts_ms",
                "format": "debezium",
                "mode": "drop",
            },
        },
        options=options(near),
    )
    assert tables["captured"].columns == ["name", "n", "ts_ms", "op", "__hw"]
    rows = [
        table.select(F.lit(name).alias("of"), "name", "n", F.unix_micros(time).alias("us"), "op")
        for name, table, time in (
            ("plain", tables["plain"], "since"),
            ("captured", tables["captured"], "ts_ms"),
        )
    ]
    given = Changes(rows[0].union(rows[1]), tmp_path)
    given.run()

    def seen(table: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values())[1:] for row in given.rows() if row["of"] == table]

    written = [row[2] for row in seen("plain") if row[3] == "delete"]
    assert seen("plain") == [
        ("a", 1, NOON_US + SECOND, "upsert"),
        ("b", None, None, "upsert"),
        ("a", None, written[0], "delete"),
        ("b", None, written[1], "delete"),
        ("a", None, written[2], "delete"),
    ]
    assert all(each > NOON_US + 86_400 * SECOND for each in written)
    # What stands behind a delete for compaction does not know when the row was deleted.
    assert seen("captured") == [
        ("a", 1, NOON_US, "upsert"),
        ("a", 2, NOON_US + 1000, "upsert"),
        ("a", 2, NOON_US + 2000, "delete"),
        ("a", None, None, "delete"),
    ]


def test_a_row_that_is_inserted_again_stands_although_its_end_was_written_later(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    captured, ordered = near.topic("captured"), near.topic("orders")
    now_ms = time.time_ns() // 1_000_000
    before, after = {"name": "a", "n": 1}, {"name": "a", "n": 2}
    minute_ms = 60_000

    def change(op: str, minutes: int, **rows: Any) -> Record:  # noqa: ANN401 - a row of JSON
        return "", {
            "op": op,
            "before": None,
            "after": None,
            "ts_ms": now_ms + minutes * minute_ms,
        } | rows

    # The record behind the delete is written now: later than the row is inserted again.
    changes = [
        change("c", -50, after=before),
        change("d", -30, before=before),
        ('{"name": "a"}', None),
        change("c", -25, after=after),
        change("c", 0, after={"name": "last", "n": 0}),
    ]
    send(near, captured, changes)
    noon_ms = now_ms - NOON_MS
    orders = [("a", -40), ("a", -27), ("a", -10), ("last", 0)]
    send(
        near,
        ordered,
        [
            (None, {"us": (noon_ms + minutes * minute_ms) * 1000, "name": name, "minute": minutes})
            for name, minutes in orders
        ],
    )
    table = hw.table(
        spark,
        captured,
        schema="name string, n int",
        key="name",
        valid_from="ts_ms",
        format="debezium",
        options=options(near),
    )
    stream = events(spark, near, ordered, "name string, minute long")
    joined = stream.transform(hf.watermark("at", "0 seconds")).transform(
        hf.join_asof(table, on="name", time="at", how="left", buckets=BUCKETS)
    )
    given = Changes(joined, tmp_path)
    given.run()

    assert given.standing("minute", "n") == Counter([(-40, 1), (-27, None), (-10, 2)])


def test_a_truncated_table_ends_the_query_by_name(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    captured = near.topic("captured")
    send(near, captured, [*CAPTURED[:1], TRUNCATED])
    table = hw.table(
        spark,
        captured,
        schema="name string, n int",
        key="name",
        format="debezium",
        options=options(near),
    )
    query = (
        table.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    assert "NOT_A_ROW: Debezium's op is t" in (maybe_error(query, WITHIN_S) or "")


def test_a_key_that_is_no_text_deletes_nothing_silently(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    plain, dead = near.topic("plain"), near.topic("dead")
    near.send(plain, [(b"a", b'{"name": "a", "n": 1}')])
    keys = [b'{"user_name":"a"}', b'{"NAME":"a"}', b'["a"]', b"\x00\x00\x00\x00\x01\x02a"]
    near.send(plain, [(key, None) for key in keys])
    table = hw.table(
        spark,
        plain,
        schema="name string, n int",
        key="name",
        dead_letters=dead,
        options=options(near),
    )
    query = (
        hf.with_dead_letters(table.transform(hf.to_json("op")), topic=near.topic("out"))
        .writeStream.format("headwater")
        .option("kafka.bootstrap.servers", near.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert maybe_error(query, WITHIN_S) is None
    letters = near.read(dead)
    assert [letter.key() for letter in letters] == keys
    errors = [str(dict(letter.headers() or [])["x-error"]) for letter in letters]
    assert all("its key does not say which: name" in error for error in errors)
    assert ["schema registry" in error for error in errors] == [False, False, False, True]


def test_a_join_that_ends_gives_its_last_rows(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    ordered, priced = near.topic("orders"), near.topic("prices")
    send(near, ordered, [(None, {"us": us * SECOND, "product": "p"}) for us in (50, 100)])
    send(
        near,
        priced,
        [("p", {"product": "p", "price": us, "since": iso(us * SECOND)}) for us in (0, 100)],
    )
    stream = events(spark, near, ordered, "product string").transform(
        hf.watermark("at", "10 seconds", at_end="close")
    )
    table = hw.table(
        spark,
        priced,
        schema="product string, price long, since timestamp",
        key="product",
        valid_from="since",
        at_end="close",
        options=options(near),
    )
    given = Changes(
        stream.transform(hf.join_asof(table, on="product", time="at", how="left", buckets=BUCKETS)),
        tmp_path,
    )
    given.run()

    assert sorted(row["price"] for row in given.rows()) == [0, 100]
