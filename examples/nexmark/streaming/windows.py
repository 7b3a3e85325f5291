"""The queries with windows: q5, q7, q8, q11 and q12.

This file alone decides how these five are put.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from examples.nexmark.streaming.topic import Topic
from headwater import functions as hf

_WINDOW = "10 seconds"
_WINDOW_US = 10_000_000


def q5(topic: Topic) -> DataFrame:
    """Give the auctions with the most bids in the last ten seconds, every two seconds.

    Of the windows that end at one moment, all are in one window of the second stage.
    """
    counts = topic.timed_bids().transform(
        hf.window(
            "date_time",
            _WINDOW,
            every="2 seconds",
            by=["auction"],
            buckets=topic.buckets,
            num=hf.count(),
        )
    )
    most = counts.transform(
        hf.window(
            "window",
            "2 seconds",
            buckets=topic.buckets,
            most=hf.max("num"),
            all=hf.collect(F.struct("auction", "num", "window.start", "window.end")),
        )
    )
    first = F.expr("explode(filter(all, each -> each.num = most))").alias("first")
    return most.select(first).selectExpr(
        "first.auction", "first.num", "first.start AS window_start", "first.end AS window_end"
    )


def q7(topic: Topic) -> DataFrame:
    """Give the highest bids of every ten seconds.

    Bids are joined with the highest price of their window, which comes with its end.
    """
    at_us = F.unix_micros("date_time")
    start = F.timestamp_micros(at_us - F.pmod(at_us, F.lit(_WINDOW_US)))
    bids = topic.timed_bids()
    highest = bids.transform(
        hf.window("date_time", _WINDOW, buckets=topic.buckets, price=hf.max("price"))
    )
    highest = highest.select(F.col("window.start").alias("start"), "price", "__hw")
    return (
        bids.withColumn("start", start)
        .transform(
            hf.join_interval(
                highest,
                on=["start", "price"],
                lower="0 seconds",
                upper=_WINDOW,
                buckets=topic.buckets,
            )
        )
        .select("auction", "bidder", "price", "date_time", "extra")
    )


def q8(topic: Topic) -> DataFrame:
    """Give the people who came and opened an auction in the same ten seconds.

    One window takes both in: whoever has a name in it came, and others may be sellers alone.
    """
    events = topic.timed("person", "auction")
    return (
        events.transform(
            hf.window(
                "date_time",
                _WINDOW,
                by=[F.coalesce("person.id", "auction.seller").alias("id")],
                buckets=topic.buckets,
                name=hf.first("person.name"),
                auctions=hf.count("auction.id"),
            )
        )
        .where("name IS NOT NULL AND auctions > 0")
        .selectExpr("id", "name", "window.start AS window_start")
    )


def q11(topic: Topic) -> DataFrame:
    """Count the bids that a person made in each session."""
    return _counts(
        topic.timed_bids().transform(
            hf.window(
                "date_time",
                session=_WINDOW,
                by=["bidder"],
                buckets=topic.buckets,
                bid_count=hf.count(),
            )
        )
    )


def q12(topic: Topic) -> DataFrame:
    """Count the bids of a person that the log took in, every ten seconds."""
    return _counts(
        topic.timed_bids("timestamp").transform(
            hf.window(
                "timestamp", _WINDOW, by=["bidder"], buckets=topic.buckets, bid_count=hf.count()
            )
        )
    )


def _counts(windows: DataFrame) -> DataFrame:
    return windows.selectExpr(
        "bidder", "bid_count", "window.start AS start_time", "window.end AS end_time"
    )
