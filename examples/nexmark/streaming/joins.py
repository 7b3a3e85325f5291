"""The queries that join streams: q3, q4, q6, q9 and q20.

This file alone decides how these five are put.
"""

from typing import Final

from pyspark.sql import DataFrame

from examples.nexmark.streaming.topic import HIDDEN, Topic
from headwater import functions as hf

_EVER: Final = "36500 days"
"""However much later the other comes: nothing is forgotten."""

_OPEN_MAX: Final = "1 day"
"""No auction is open for longer. It and its bids are forgotten then."""

_OF_AUCTION: Final = (
    "item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra"
)


def q3(topic: Topic) -> DataFrame:
    """Give who sells in Oregon, Idaho or California in category 10, and in which auctions."""
    events = topic.timed("person", "auction")
    sellers = events.where("person.state IN ('OR', 'ID', 'CA')").selectExpr(
        "person.id AS seller", "person.name", "person.city", "person.state", HIDDEN
    )
    auctions = events.where("auction.category = 10").selectExpr(
        "auction.seller", "auction.id", HIDDEN
    )
    return auctions.transform(
        hf.join_interval(
            sellers, on="seller", lower=f"-{_EVER}", upper=_EVER, buckets=topic.buckets
        )
    ).select("name", "city", "state", "id")


def q4(topic: Topic) -> DataFrame:
    """Give what auctions of each category sell for, on average."""
    return _won(topic, "category").transform(
        hf.aggregate(by=["category"], buckets=topic.buckets, avg_final=hf.avg("price"))
    )


def q6(topic: Topic) -> DataFrame:
    """Give what the last ten auctions of each seller sold for, on average."""
    last = hf.top(10, by=["seller"], order=["expires desc", "id desc"], buckets=topic.buckets)
    average = hf.aggregate(by=["seller"], buckets=topic.buckets, avg_price=hf.avg("price"))
    return _won(topic, "seller").transform(last).transform(average)


def q9(topic: Topic) -> DataFrame:
    """Give the winning bid of each auction."""
    names = _OF_AUCTION.split(", ")
    won = _won(topic, *names, of_bid=("bidder", "extra"))
    return won.selectExpr(
        "id",
        *names,
        "id AS auction",
        "bid_bidder AS bidder",
        "price",
        "bid_date_time",
        "bid_extra",
        "op",
        "version",
    )


def q20(topic: Topic) -> DataFrame:
    """Give the bids for auctions of category 10, with all about the auction."""
    events = topic.timed("auction", "bid")
    bids = events.where("bid IS NOT NULL").selectExpr(
        "bid.auction",
        "bid.bidder",
        "bid.price",
        "bid.channel",
        "bid.url",
        "bid.date_time AS bid_date_time",
        "bid.extra AS bid_extra",
        HIDDEN,
    )
    renamed = {"date_time": "auction_date_time", "extra": "auction_extra"}
    fields = [f"auction.{name} AS {renamed.get(name, name)}" for name in _OF_AUCTION.split(", ")]
    auctions = events.where("auction.category = 10").selectExpr(
        "auction.id AS auction", *fields, HIDDEN
    )
    joined = bids.transform(
        hf.join_interval(
            auctions, on="auction", lower=f"-{_EVER}", upper=_EVER, buckets=topic.buckets
        )
    )
    return joined.drop("op", "version")


def _won(topic: Topic, *of_auction: str, of_bid: tuple[str, ...] = ()) -> DataFrame:
    """Return each auction beside the bid that wins it so far, as changes.

    They have `id`, `expires` and other columns of the auction, `price` and other columns of the
    bid, the latter with `bid_` before their names.
    """
    events = topic.timed("auction", "bid")
    columns = dict.fromkeys(("id", "expires", *of_auction))
    auctions = events.where("auction IS NOT NULL").selectExpr(
        *(f"auction.{name}" for name in columns), HIDDEN
    )
    bids = events.where("bid IS NOT NULL").selectExpr(
        "bid.auction AS id",
        "bid.price",
        *(f"bid.{name} AS bid_{name}" for name in ("date_time", *of_bid)),
        "partition AS bid_partition",
        "offset AS bid_offset",
        HIDDEN,
    )
    in_time = (
        auctions.transform(
            hf.join_interval(
                bids, on="id", lower="0 seconds", upper=_OPEN_MAX, buckets=topic.buckets
            )
        )
        .where("bid_date_time <= expires")
        # Without these the pairs are events: none of them is ever taken back.
        .drop("op", "version")
    )
    best = ["price desc", "bid_date_time", "bid_partition", "bid_offset"]
    return in_time.transform(hf.top(1, by=["id"], order=best, buckets=topic.buckets))
