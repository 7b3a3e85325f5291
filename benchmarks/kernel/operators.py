"""Windows and joins: exact sliding windows, sessions, as-of joins and joins of tables.

This file alone decides what these four compute, and beside what. Spark has sessions of its own; for
sliding windows the nearest that it offers is a call for each key; for the two joins it has nothing,
and their rows stand alone.

What they give of fewer rows is held against Spark's side first, or against DuckDB.

Times and keys of rows follow from where they are in the topic: half a millisecond apart, over so
many keys that a key has one row every five seconds, on average.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import duckdb
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import headwater as hw
from benchmarks.kernel.batches import BATCHES, emitted, read, timed_batches
from benchmarks.source.topics import Topic, fill
from benchmarks.spark import Bench
from benchmarks.table import Row as Line
from headwater import functions as hf
from headwater.base.record.codecs import Codec
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster

_KEYS: Final = 10_000
_STEP_US: Final = 500
_FIRST_US: Final = 1_700_000_000_000_000
_LENGTH: Final = "10 seconds"
_LENGTH_US: Final = 10_000_000
_ROWS_A_BATCH: Final = 500_000
# Spark's side takes longest of all here.
_ROWS_PER_KEY: Final = 10_000
_CHECKED_ROWS: Final = 40_000
# Further apart than where it is timed: within 200 s, the sessions of the first half all end.
_CHECKED_STEP_US: Final = 5_000
_VALUE_BYTES: Final = 16
_TABLE_KEYS: Final = 65_536
_CHANGES_A_BATCH: Final = 200_000
_FLUSH_S: Final = 60.0

_Query = Callable[[DataFrame], DataFrame]


class _Side(NamedTuple):
    """A query, and how many rows a batch of it has."""

    query: _Query
    batch_rows: int


class _LastSeconds(StatefulProcessor):
    """What PySpark offers for windows that slide with every event: a call for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._recent = handle.getListState("recent", "at long, number double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: ANN401, ARG002, N802, N803
        seen = [tuple(each) for each in self._recent.get()]
        first = 0
        for at, number in sorted((row.at_us, row.number) for row in rows):
            seen.append((at, number))
            while seen[first][0] < at - _LENGTH_US:
                first += 1
            last = [each[1] for each in seen[first:]]
            yield Row(group=key[0], at_us=at, n=len(last), total=sum(last))
        self._recent.put(seen[first:])

    def close(self) -> None:
        """Nothing is open."""


def _sliding(bench: Bench, rounds: int, scale: float) -> list[Line]:
    sides = {
        "ours": _Side(_ours_sliding, int(_ROWS_A_BATCH * scale)),
        "per key": _Side(_per_key_sliding, int(_ROWS_PER_KEY * scale)),
    }
    name = "exact sliding windows, beside Spark's per key: rows/s"
    return _compared(bench, "sliding", name, sides, rounds, ["group", "at_us", "n", "total"])


def _ours_sliding(rows: DataFrame) -> DataFrame:
    return _watermarked(rows).transform(
        hf.window("at", sliding=_LENGTH, by=["group"], n=hf.count(), total=hf.sum("number"))
    )


def _per_key_sliding(rows: DataFrame) -> DataFrame:
    output = "group long, at_us long, n long, total double"
    return (
        rows.select("group", "at_us", "number")
        .groupBy("group")
        .transformWithState(_LastSeconds(), output, "Append", "None")
    )


def _sessions(bench: Bench, rounds: int, scale: float) -> list[Line]:
    batch_rows = int(_ROWS_A_BATCH * scale)
    sides = {"ours": _Side(_ours_session, batch_rows), "native": _Side(_native_session, batch_rows)}
    name = "sessions, beside Spark's native: rows/s"
    return _compared(bench, "sessions", name, sides, rounds, ["group", "at_us", "n", "total"])


def _ours_session(rows: DataFrame) -> DataFrame:
    found = _watermarked(rows).transform(
        hf.window("at", session=_LENGTH, by=["group"], n=hf.count(), total=hf.sum("number"))
    )
    return found.withColumn("at_us", F.unix_micros("window.start"))


def _native_session(rows: DataFrame) -> DataFrame:
    window = F.session_window("at", _LENGTH)
    found = (
        rows.withWatermark("at", "0 seconds")
        .groupBy("group", window.alias("window"))
        .agg(F.count("*").alias("n"), F.sum("number").alias("total"))
    )
    return found.withColumn("at_us", F.unix_micros("window.start"))


def _asof(bench: Bench, rounds: int, scale: float) -> list[Line]:
    """Join events with the version of their key that held at their time; both come all the time."""
    batch_rows = int(_ROWS_A_BATCH * scale)
    names = ("events", "versions")
    for name in names:
        rows = batch_rows // 2 * (BATCHES + 1)
        fill(bench.bootstrap, Topic(name, _VALUE_BYTES, Codec.NONE, 2, rows))
    _check_asof(bench)
    rates = []
    for round_no in range(-1, rounds):
        # One source has both: their watermark then moves with every batch of it.
        both = _timed(read(bench, ",".join(names), batch_rows))
        found = timed_batches(bench, _ours_asof(both, *names), "append", batch_rows)
        if round_no >= 0:
            rates.append(statistics.median(found))
        bench.say(f"as-of join: round {round_no + 1} of {rounds}")
    return [Line("as-of join: rows/s", statistics.median(rates), math.nan, "rows/s", None)]


def _ours_asof(both: DataFrame, *names: str) -> DataFrame:
    marked = _watermarked(both)
    events, versions = (marked.where(F.col("topic") == name) for name in names)
    versions = versions.select("group", F.col("number").alias("rate"), "__hw")
    return events.select("group", "at", "at_us", "number", "__hw").transform(
        hf.join_asof(versions, on="group", time="at", how="left")
    )


def _check_asof(bench: Bench) -> None:
    """Make sure that the join gives what DuckDB gives of the same rows."""
    names = ("events-checked", "versions-checked")
    for name in names:
        fill(bench.bootstrap, Topic(name, _VALUE_BYTES, Codec.NONE, 2, _CHECKED_ROWS // 2))
    both = _timed(read(bench, ",".join(names), _CHECKED_ROWS // 4))
    ours = emitted(bench, _ours_asof(both, *names), "append")
    everything = (
        bench.spark.read.format("headwater")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", ",".join(names))
        .load()
    )
    read_at_once = _timed(everything).select("topic", "group", "at_us", "number").toArrow()
    with duckdb.connect() as database:
        database.register("ours", ours)
        database.register("all_rows", read_at_once)
        # Of a key's versions at one moment the last in its partition holds; here no two have both.
        different = database.sql(
            f"""
            WITH theirs AS (
                SELECT e."group", e.at_us, e.number, v.number AS rate
                FROM (FROM all_rows WHERE topic = '{names[0]}') e
                ASOF LEFT JOIN (FROM all_rows WHERE topic = '{names[1]}') v
                ON e."group" = v."group" AND e.at_us >= v.at_us
            ), given AS (
                SELECT "group", at_us, number, rate FROM ours WHERE op = 'insert'
            )
            (FROM given EXCEPT FROM theirs) UNION ALL
            (FROM theirs WHERE at_us < (SELECT max(at_us) FROM given) EXCEPT FROM given)
            """
        ).fetchall()
    assert len(ours), "as-of join: nothing came out"
    assert not different, f"as-of join: {len(different)} rows differ: {different[:4]}"


def _tables(bench: Bench, rounds: int, scale: float) -> list[Line]:
    """Join orders with their customers, of whom as many change as of the orders."""
    changes = int(_CHANGES_A_BATCH * scale)
    _check_tables(bench)
    _fill_tables(bench, "", changes // 2 * (BATCHES + 1))
    rates = []
    for round_no in range(-1, rounds):
        timed = timed_batches(bench, _ours_tables(bench, "", changes), "append", changes)
        if round_no >= 0:
            rates.append(statistics.median(timed))
        bench.say(f"join of tables: round {round_no + 1} of {rounds}")
    return [
        Line("join of tables: changes/s", statistics.median(rates), math.nan, "changes/s", None)
    ]


def _ours_tables(bench: Bench, ending: str, changes: int) -> DataFrame:
    wanted: Mapping[str, Mapping[str, Any]] = {
        "orders": {"schema": "id long, customer long, amount long", "key": "id"},
        "customers": {"schema": "customer long, name string", "key": "customer"},
    }
    wanted = {name: {"topic": name + ending, **said} for name, said in wanted.items()}
    options = {
        "kafka.bootstrap.servers": bench.bootstrap,
        "maxOffsetsPerTrigger": str(changes),
    }
    found = hw.tables(bench.spark, wanted, options=options)
    return found["orders"].transform(hf.join_tables(found["customers"], on="customer"))


def _check_tables(bench: Bench) -> None:
    """Make sure that the changes come to what DuckDB gives of each key's last row."""
    ending = "-checked"
    _fill_tables(bench, ending, _CHECKED_ROWS // 2)
    ours = emitted(bench, _ours_tables(bench, ending, _CHECKED_ROWS // 4), "append")
    everything = (
        bench.spark.read.format("headwater")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", f"orders{ending},customers{ending}")
        .load()
    )
    written = everything.selectExpr(
        "topic", "offset", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
    ).toArrow()
    with duckdb.connect() as database:
        database.register("ours", ours)
        database.register("written", written)
        # A key's records are in one partition.
        different = database.sql(
            f"""
            WITH kept AS (
                SELECT topic, last(value::JSON ORDER BY "offset") AS value
                FROM written GROUP BY topic, key
            ), orders AS (
                SELECT value->>'id' AS id, value->>'customer' AS customer,
                    value->>'amount' AS amount
                FROM kept WHERE topic = 'orders{ending}'
            ), customers AS (
                SELECT value->>'customer' AS customer, value->>'name' AS name
                FROM kept WHERE topic = 'customers{ending}'
            ), theirs AS (
                SELECT id::BIGINT, customer::BIGINT, amount::BIGINT, name
                FROM orders JOIN customers USING (customer)
            ), given AS (
                SELECT id, customer, amount, name FROM ours GROUP BY ALL
                HAVING sum(CASE op WHEN 'insert' THEN 1 ELSE -1 END) > 0
            )
            (FROM given EXCEPT FROM theirs) UNION ALL (FROM theirs EXCEPT FROM given)
            """
        ).fetchall()
    assert len(ours), "join of tables: nothing came out"
    assert not different, f"join of tables: {len(different)} rows differ: {different[:4]}"


def _fill_tables(bench: Bench, ending: str, count: int) -> None:
    _fill_table(bench, f"orders{ending}", count, '{{"id":{0},"customer":{1},"amount":{2}}}')
    customers = '{{"customer":{0},"name":"customer {2}"}}'
    _fill_table(bench, f"customers{ending}", count, customers)


def _fill_table(bench: Bench, topic: str, count: int, form: str) -> None:
    """Write changes of rows whose keys are spread as dice would; the last argument is their number.

    The first and the second argument of `form` are the key and another one of the same range.
    """
    with Cluster(bench.bootstrap, timeout_s=_FLUSH_S) as cluster:
        admin.create_topic(cluster, topic, partitions=2, configs={"flush.messages": str(2**63 - 1)})
        cluster.await_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": bench.bootstrap, "enable.idempotence": True})
    for number in range(count):
        key = number * 2_654_435_761 % _TABLE_KEYS
        other = (number * 40_503 + number // _TABLE_KEYS) % _TABLE_KEYS
        value = form.format(key, other, number)
        producer.produce(topic, value, str(key), key % 2)
        if number % 50_000 == 0:
            producer.flush(_FLUSH_S)
    assert producer.flush(_FLUSH_S) == 0, "the broker did not take all changes"


MEASURES: Final[dict[str, Callable[[Bench, int, float], list[Line]]]] = {
    "exact sliding windows": _sliding,
    "sessions": _sessions,
    "as-of join": _asof,
    "join of tables": _tables,
}


# --- both sides ---------------------------------------------------------------------------------


def _compared(
    bench: Bench,
    topic: str,
    title: str,
    sides: Mapping[str, _Side],
    rounds: int,
    columns: list[str],
) -> list[Line]:
    ours, theirs = sides
    rows = max(each.batch_rows for each in sides.values()) * (BATCHES + 1)
    fill(bench.bootstrap, Topic(topic, _VALUE_BYTES, Codec.NONE, 2, rows))
    _check(bench, topic, sides, columns)
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for round_no in range(-1, rounds):
        for name in sorted(sides, reverse=bool(round_no % 2)):
            query, size = sides[name]
            found = timed_batches(bench, query(_timed(read(bench, topic, size))), "append", size)
            if round_no >= 0:
                rates[name].append(statistics.median(found))
        bench.say(f"{topic}: round {round_no + 1} of {rounds}")
    middle = {name: statistics.median(found) for name, found in rates.items()}
    return [Line(title, middle[ours], middle[theirs], "rows/s", None)]


def _check(bench: Bench, topic: str, sides: Mapping[str, _Side], columns: list[str]) -> None:
    """Make sure that both sides compute the same, but for what either has not closed yet."""
    found = []
    length_us = _CHECKED_ROWS * _CHECKED_STEP_US
    checked = f"{topic}-checked"
    fill(bench.bootstrap, Topic(checked, _VALUE_BYTES, Codec.NONE, 2, _CHECKED_ROWS))
    for query, _ in sides.values():
        rows = _timed(read(bench, checked, _CHECKED_ROWS // 4), _CHECKED_STEP_US)
        given = emitted(bench, query(rows), "append").select(columns).to_pylist()
        closed = [row for row in given if row["at_us"] < _FIRST_US + length_us // 2]
        found.append({tuple(row.values()) for row in closed})
    assert found[0], f"{topic}: nothing came out"
    different = sorted(found[0] ^ found[1])
    assert not different, f"{topic}: {len(different)} rows differ: {different[:4]}"


def _timed(rows: DataFrame, step_us: int = _STEP_US) -> DataFrame:
    """Give rows times, keys and numbers by where they are, the same way whoever reads them."""
    place = F.col("offset") * 2 + F.col("partition")
    at_us = F.lit(_FIRST_US) + place * step_us
    # A key's rows are all in one partition. A call for each key takes rows as they come, and would
    # put them in the wrong windows where one partition is read further than the other.
    spread = F.pmod(F.xxhash64("topic", "partition", "offset"), F.lit(_KEYS // 2))
    return rows.withColumns(
        {
            "at_us": at_us,
            "at": F.timestamp_micros(at_us),
            "group": spread * 2 + F.col("partition"),
            "number": F.col("offset").cast("double"),
        }
    )


def _watermarked(rows: DataFrame) -> DataFrame:
    return rows.transform(hf.watermark("at", "0 seconds", future=None))
