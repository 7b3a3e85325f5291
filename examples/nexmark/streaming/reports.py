"""The queries that keep a report of all bids so far: q15 to q19.

This file alone decides how these five are put.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from examples.nexmark.streaming.rows import day, minute
from examples.nexmark.streaming.topic import Topic
from headwater import functions as hf
from headwater.streams.windows.measures import Measure

_LEVELS: Final = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
_BID: Final = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")


def q15(topic: Topic) -> DataFrame:
    """Count the bids, bidders and auctions of each day, at three levels of price."""
    return topic.bids().transform(
        hf.aggregate(by=[day().alias("day")], buckets=topic.buckets, **_bids(), **_distinct())
    )


def q16(topic: Topic) -> DataFrame:
    """Count the same for each channel, with the last minute in which there was a bid."""
    return topic.bids().transform(
        hf.aggregate(
            by=["channel", day().alias("day")],
            buckets=topic.buckets,
            minute=hf.max(minute()),
            **_bids(),
            **_distinct(),
        )
    )


def q17(topic: Topic) -> DataFrame:
    """Count the bids of each auction on each day; give lowest, highest, mean and total price."""
    return topic.bids().transform(
        hf.aggregate(
            by=["auction", day().alias("day")],
            buckets=topic.buckets,
            **_bids(),
            min_price=hf.min("price"),
            max_price=hf.max("price"),
            avg_price=hf.avg("price"),
            sum_price=hf.sum("price"),
        )
    )


def q18(topic: Topic) -> DataFrame:
    """Give the last bid of each person for each auction."""
    last = ["date_time desc", "partition desc", "offset desc"]
    bids = topic.bids().drop("timestamp")
    return bids.transform(
        hf.top(1, by=["bidder", "auction"], order=last, buckets=topic.buckets)
    ).select(*_BID, "op", "version")


def q19(topic: Topic) -> DataFrame:
    """Give the ten highest bids of each auction, with their rank."""
    bids = topic.bids().drop("timestamp")
    return bids.transform(
        hf.top(10, by=["auction"], order=["price desc"], rank="rank_number", buckets=topic.buckets)
    ).select(*_BID, "rank_number", "op", "version")


def _bids() -> dict[str, Measure]:
    return {
        f"{name}_bids": hf.count(F.when(F.expr(when), F.lit(1))) for name, when in _LEVELS.items()
    }


def _distinct() -> dict[str, Measure]:
    return {
        f"{name}_{column}s": hf.distinct(F.when(F.expr(when), F.col(column)))
        for column in ("bidder", "auction")
        for name, when in _LEVELS.items()
    }
