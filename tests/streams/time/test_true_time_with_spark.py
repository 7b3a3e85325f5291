"""Three clocks, beside the same sums in Python's own dates."""

import datetime as dt
import itertools
import random
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
US = dt.timedelta(microseconds=1)
HOUR_US = 3_600_000_000
NOW_US = (dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC) - EPOCH) // US
FIRST_US = (dt.datetime.min.replace(tzinfo=dt.UTC) - EPOCH) // US
LAST_US = (dt.datetime.max.replace(tzinfo=dt.UTC) - EPOCH) // US
EDGES = (None, FIRST_US, -1, 0, NOW_US, NOW_US + HOUR_US, LAST_US)

Moments = tuple[int | None, int | None, int | None]


def moment(us: int | None) -> dt.datetime | None:
    return None if us is None else EPOCH + us * US


def expected(event: int | None, sent: int | None, received: int | None) -> tuple[Any, ...]:
    """Say the same by dates, which end where years have four digits."""
    at, left, came = moment(event), moment(sent), moment(received)
    skew_ms = None
    if sent is not None and received is not None:
        skew_ms = sent // 1000 - received // 1000
    if came is None:
        return event, skew_ms, "no_received_time"
    if at is None or left is None:
        return received, skew_ms, "no_device_time"
    try:
        corrected = came - (left - at)
    except OverflowError:
        return received, skew_ms, "clock_changed"
    if at > left:
        return received, skew_ms, "clock_changed"
    return (corrected - EPOCH) // US, skew_ms, "corrected"


def told(spark: SparkSession, moments: list[Moments]) -> list[tuple[Any, ...]]:
    schema = "number int, event long, sent long, received long"
    rows = [(number, *each) for number, each in enumerate(moments)]
    clocks = [F.timestamp_micros(name).alias(name) for name in ("event", "sent", "received")]
    found = (
        spark.createDataFrame(rows, schema)
        .select("number", *clocks)
        .select("number", hf.true_time("event", F.col("sent"), "received").alias("found"))
        .orderBy("number")
        .selectExpr("unix_micros(found.time)", "found.skew_ms", "found.quality")
        .collect()
    )
    return [tuple(row) for row in found]


def test_it_is_what_dates_say(spark: SparkSession) -> None:
    dice = random.Random(9)
    moments: list[Moments] = list(itertools.product(EDGES, EDGES, EDGES))
    for _ in range(500):
        near = [NOW_US + dice.randint(-HOUR_US, HOUR_US) for _ in range(3)]
        moments.append((near[0], near[1], near[2]))
    assert told(spark, moments) == [expected(*each) for each in moments]


def test_a_clock_that_is_an_hour_ahead_makes_nothing_late_or_early(spark: SparkSession) -> None:
    """Recorded, kept for ten minutes without a network, sent."""
    truly_us, waited_us = NOW_US, 600_000_000
    received_us = truly_us + waited_us
    (row,) = told(spark, [(truly_us + HOUR_US, received_us + HOUR_US, received_us)])
    assert row == (truly_us, 3_600_000, "corrected")


def test_what_is_no_time_is_refused_before_anything_runs(spark: SparkSession) -> None:
    numbers = spark.range(1).selectExpr("id", "current_timestamp() as now")
    with pytest.raises(AnalysisException, match="DATATYPE_MISMATCH"):
        numbers.select(hf.true_time("id", "now", "now"))
