"""Watermarks in a real Spark: slow, silent and lying partitions, stops, repeats, both sources."""

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.streams.time.clocks import clock_frame, clock_of
from headwater.streams.time.watermark import clamp, watermark
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.time.clocked import WITHIN_S, Clocked, Said, events, send, told

NOW = float(int(time.time()))
YEAR_2099 = 4_070_908_800.0


@pytest.fixture
def topic(near: Broker) -> str:
    return near.topic("events", partitions=2)


def test_a_slow_partition_beside_a_fast_one_and_a_replay(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    send(near, topic, [NOW + each for each in range(20)], partition=0)
    send(near, topic, [NOW - 1000 + each for each in range(20)], partition=1)
    rows = events(spark, near, topic).transform(watermark("at", "10 seconds"))
    query = Clocked(told(rows), tmp_path)
    query.run()
    assert query.watermarks() == [None, NOW - 991]
    assert {each.idle for said in query.said.values() for each in said} == {False}
    before = dict(query.said)
    # A driver that died before the last batch was done: it is repeated, and has the same time,
    # although there is more to know now.
    send(near, topic, [NOW - 500], partition=1)
    repeated = query.forget_last_commit()
    query.said.clear()
    query.run()
    assert query.said[repeated] == before[repeated]
    assert query.watermarks()[1:] == [NOW - 510]


def test_a_stream_that_stops_closes_what_is_open(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    rows = events(spark, near, topic).transform(watermark("at", "10 seconds", idle="2 seconds"))
    query = Clocked(told(rows), tmp_path)
    send(near, topic, [NOW], partition=0)
    send(near, topic, [NOW - 1000], partition=1)
    running = query.start(processingTime="100 milliseconds")
    try:
        query.await_that(lambda said: said.watermark == NOW - 1010)
        query.await_that(lambda said: said == Said(NOW - 10, idle=True))
        # Partition 1 stays silent; partition 0 goes on, and time with it.
        send(near, topic, [NOW + 50], partition=0)
        query.await_that(lambda said: said.watermark == NOW + 40)
        running.processAllAvailable()
        batches = len(query.rows)
        running.processAllAvailable()
        assert len(query.rows) - batches <= 1, "what stands still is no reason for batches"
        assert running.exception() is None
    finally:
        running.stop()
    watermarks = [each for each in query.watermarks() if each is not None]
    assert watermarks == sorted(watermarks)


def test_an_event_of_2099_moves_nothing(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    for number in range(2):
        send(near, topic, [NOW, YEAR_2099, NOW - 5], partition=number)
    near.send(topic, [(None, b"no time")], partition=0)
    source = events(spark, near, topic)
    rows = source.transform(watermark("at", "10 seconds"))
    query = Clocked(told(rows), tmp_path / "default")
    query.run()
    assert query.watermarks() == [None, NOW - 10]
    credulous = source.transform(watermark("at", "10 seconds", future=None))
    query = Clocked(told(credulous), tmp_path / "none")
    query.run()
    assert query.watermarks() == [None, YEAR_2099 - 10]


def test_records_without_a_timestamp_are_compared_with_the_time_of_their_batch(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topic = near.topic("undated")
    with Cluster(near.bootstrap) as known, Producer(known) as producer:
        for seconds in (NOW, YEAR_2099):
            producer.send(topic, b"%d" % round(seconds * 1e6), timestamp_ms=-1)
    source = events(spark, near, topic)
    for name, future in {"marked": "1 hour", "clamped": clamp("1 hour")}.items():
        rows = source.transform(watermark("at", "1 second", future=future))  # type: ignore[arg-type]
        query = rows.selectExpr("__hw.*", "unix_millis(timestamp) as stamp_ms").writeStream
        query.format("memory").queryName(name).trigger(availableNow=True).option(
            "checkpointLocation", str(tmp_path / name)
        ).start().awaitTermination(120)
        present, future_one = spark.sql(f"select * from {name} order by offset").collect()
        assert present.stamp_ms == future_one.stamp_ms == -1
        assert (present.fault, present.time) == (None, round(NOW * 1e6))
        if name == "marked":
            assert (future_one.fault, future_one.time) == ("future", None)
        else:
            assert future_one.fault is None
            assert NOW <= future_one.time / 1e6 <= time.time()


def test_what_rows_are_given(spark: SparkSession, near: Broker, tmp_path: Path) -> None:
    first_us, last_us = -62_135_596_800_000_000, 253_402_300_799_999_999
    topic, other = near.topic("rows"), near.topic("rows")
    values = [b"%d" % first_us, b"%d" % last_us, b"%d" % round(NOW * 1e6), b"", b"x"]
    near.send(topic, [(None, value) for value in values])
    source = events(spark, near, f"{topic},{other}")
    found = {}
    for name, future in {"mark": "1 hour", "clamp": clamp("1 hour"), "any": None}.items():
        rows = source.transform(watermark("at", "1 second", future=future))  # type: ignore[arg-type]
        shown = rows.selectExpr(
            "__hw.*", "unix_micros(at) as at_us", "unix_micros(timestamp) as stamp_us"
        )
        shown.writeStream.format("memory").queryName(name).trigger(availableNow=True).option(
            "checkpointLocation", str(tmp_path / name)
        ).start().awaitTermination(120)
        found[name] = spark.sql(f"select * from {name} order by offset").collect()
    now_us = round(NOW * 1e6)
    for name, rows_found in found.items():
        assert [(row.topic, row.partition, row.offset) for row in rows_found] == [
            (topic, 0, offset) for offset in range(5)
        ]
        stamp_us = rows_found[1].stamp_us
        of_last = {"mark": None, "clamp": stamp_us, "any": last_us}[name]
        assert [row.time for row in rows_found] == [first_us, of_last, now_us, None, None]
        faults = [None, "future" if name == "mark" else None, None, "no time", "no time"]
        assert [row.fault for row in rows_found] == faults
        shown_us = last_us if name != "clamp" else stamp_us
        assert [row.at_us for row in rows_found] == [first_us, shown_us, now_us, None, None]


def test_two_operators_hear_one_time_reader(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    send(near, topic, [NOW], partition=0)
    send(near, topic, [NOW], partition=1)
    rows = events(spark, near, topic).transform(watermark("at", "10 seconds"))
    frame = told(rows).union(clock_frame(clock_of(rows), [7])).union(told(rows.filter("true")))
    query = Clocked(frame, tmp_path)
    query.run()
    for said in query.said.values():
        assert len(said) == 5
        assert len(set(said)) == 1
    offsets = sorted((query.checkpoint / "offsets").glob("[0-9]*"))
    kept = {line for line in offsets[-1].read_text().splitlines() if '"clock"' in line}
    assert len(kept) == 1
    assert json.loads(kept.pop())["watermark"] == round((NOW - 10) * 1e6)


def test_topics_of_two_clusters_may_have_one_name(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    with EmbeddedBroker() as running:
        far = Broker(HEADWATER, running.bootstrap_servers)
        far.create(topic)
        send(near, topic, [NOW + each for each in range(20)], partition=0)
        send(near, topic, [NOW], partition=1)
        send(far, topic, [NOW - 1000])
        ten = watermark("at", "10 seconds")
        here, there = (told(events(spark, each, topic).transform(ten)) for each in (near, far))
        query = Clocked(here.union(there), tmp_path)
        query.run()
        assert {NOW - 10, NOW - 1010} <= set(query.watermarks())


def test_sparks_own_source_has_the_same_time(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    if not peers.spark_connector():
        pytest.skip("Spark's own connector is not here; make peers fetches it")
    send(near, topic, [NOW], partition=0)
    send(near, topic, [NOW - 1000], partition=1)
    rows = events(spark, near, topic, "kafka", maxOffsetsPerTrigger="1").transform(
        watermark("at", "10 seconds")
    )
    query = Clocked(told(rows), tmp_path)
    query.run()
    assert query.watermarks() == [None, NOW - 1010]


def test_a_partition_whose_rows_are_all_filtered_out_does_not_stop_bounded_batches(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    """Though the query falls behind, and will never have read it to its end."""
    rows = events(spark, near, topic, maxOffsetsPerTrigger="20").filter("partition = 0")
    query = Clocked(told(rows.transform(watermark("at", "10 seconds", idle="1 second"))), tmp_path)
    for number in range(2):
        send(near, topic, [NOW - 9000 + each for each in range(100)], partition=number)
    running = query.start(processingTime="0 seconds")
    try:
        begun_s = time.monotonic()
        while not any(each.watermark for said in list(query.said.values()) for each in said):
            assert time.monotonic() < begun_s + WITHIN_S
            for number in range(2):
                send(near, topic, [NOW - 8000 + each for each in range(6)], partition=number)
            time.sleep(0.1)
    finally:
        running.stop()
    watermarks = [each for each in query.watermarks() if each is not None]
    assert watermarks == sorted(watermarks)


def test_in_bounded_batches_rows_behind_others_that_are_filtered_out_are_not_late(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    send(near, topic, [NOW + each for each in range(100)], partition=0)
    send(near, topic, [NOW - 1] * 900 + [NOW + each for each in range(100)], partition=1)
    rows = events(spark, near, topic, maxOffsetsPerTrigger="20")
    kept = rows.filter(F.col("at") >= F.timestamp_seconds(F.lit(NOW)))
    query = Clocked(told(kept.transform(watermark("at", "0 seconds", idle="500 ms"))), tmp_path)
    running = query.start(processingTime="0 seconds")
    try:
        query.await_that(lambda said: said.watermark is not None)
        assert len(query.rows) > 900 // 20, "the others before them were read first"
    finally:
        running.stop()
