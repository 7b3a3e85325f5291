"""The queries that look at one bid at a time: q0, q1, q2, q10, q13, q14, q21 and q22.

This file alone decides how these eight are put. They are Spark's alone: nothing is kept.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from examples.nexmark.generator import side_input
from examples.nexmark.streaming.topic import Topic

_EUROS = "CAST(0.908 * price AS DECIMAL(23, 3))"


def q0(topic: Topic) -> DataFrame:
    """Give all bids as they are."""
    return topic.bids().select("auction", "bidder", "price", "date_time", "extra")


def q1(topic: Topic) -> DataFrame:
    """Give all bids in euros."""
    return topic.bids().selectExpr("auction", "bidder", f"{_EUROS} AS price", "date_time", "extra")


def q2(topic: Topic) -> DataFrame:
    """Give the bids for every 123rd auction."""
    return topic.bids().where("auction % 123 = 0").select("auction", "price")


def q10(topic: Topic) -> DataFrame:
    """Give all bids with the day and the minute that an archive would file them under."""
    return q0(topic).withColumns({"dt": day(), "hm": minute()})


def q13(topic: Topic) -> DataFrame:
    """Give all bids with what a table that never changes says of their auction."""
    table = topic.rows.sparkSession.createDataFrame(side_input())
    bids = topic.bids().drop("key", "value").withColumn("key", F.col("auction") % 10_000)
    return bids.join(F.broadcast(table), "key").select(
        "auction", "bidder", "price", "date_time", "value"
    )


def q14(topic: Topic) -> DataFrame:
    """Give the bids of more than one and less than fifty million in euros, with computations."""
    hour = F.hour("date_time")
    kind = (
        F.when(hour.between(8, 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
    )
    rows = topic.bids().where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    return rows.select(
        "auction",
        "bidder",
        F.expr(_EUROS).alias("price"),
        kind.alias("bid_time_type"),
        "date_time",
        "extra",
        F.regexp_count("extra", F.lit("c")).cast("long").alias("c_counts"),
    )


def q21(topic: Topic) -> DataFrame:
    """Give the bids whose channel has an id, with the id."""
    channel = F.lower("channel")
    said = F.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    number = F.nullif(said, F.lit(""))
    for each, name in enumerate(("apple", "google", "facebook", "baidu")):
        number = F.when(channel == name, str(each)).otherwise(number)
    rows = topic.bids().select("auction", "bidder", "price", "channel", number.alias("channel_id"))
    return rows.where("channel_id IS NOT NULL")


def q22(topic: Topic) -> DataFrame:
    """Give all bids with the folders of their URL."""
    folders = [
        F.split_part("url", F.lit("/"), F.lit(3 + number)).alias(f"dir{number}")
        for number in (1, 2, 3)
    ]
    return topic.bids().select("auction", "bidder", "price", "channel", *folders)


def day() -> Column:
    """Return the day of a bid."""
    return F.date_format("date_time", "yyyy-MM-dd")


def minute() -> Column:
    """Return the minute of a bid."""
    return F.date_format("date_time", "HH:mm")
