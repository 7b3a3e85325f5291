"""Small streams of auctions that are full of ties.

This file alone decides what they look like: few ids, few prices, times at and beside the ends of
windows, any order in the log. The generator's own streams hardly ever have such luck.
"""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import pyarrow as pa

from examples.nexmark.model import AUCTION, BID, PERSON, Events

# Just before midnight, so that a stream can have two days and several minutes.
BEGIN: Final = datetime(2015, 7, 15, 23, 58, 50, tzinfo=UTC)
PRICES: Final = [1, 9_999, 10_000, 10_001, 999_999, 1_000_000, 1_000_001, 50_000_000]
TEXTS: Final = ["", "c", "abcc"]
CHANNELS: Final = ["Apple", "channel-1"]


class Shape:
    """How many of what: few auctions have ties, many give sellers more than ten."""

    def __init__(self, dice: Random) -> None:
        self.people = dice.choice([0, 2, 4])
        self.prices = dice.sample(PRICES, dice.choice([2, len(PRICES)]))
        self.auctions, self.bids = dice.choice([(0, 10), (2, 1), (2, 40), (3, 60), (20, 80)])
        self.open_s = [60] if self.auctions > 10 else [0, 2, 10, 60]
        self.steps = 2 if self.auctions > 10 else dice.choice([2, 8, 60])


def tied_stream(seed: int) -> Events:
    """Give a stream; records of all kinds share partitions, and each has a place of its own."""
    dice = Random(seed)
    shape = Shape(dice)
    people = [_person(dice, shape, 1 + number) for number in range(shape.people)]
    auctions = [_auction(dice, shape, 1 + number) for number in range(shape.auctions)]
    bids = [_bid(dice, shape) for _ in range(shape.bids)]
    rows = [*people, *auctions, *bids]
    # Offsets count within a partition, so those of two partitions are often the same.
    free = [(number % 2, number // 2) for number in range(len(rows))]
    dice.shuffle(free)
    for row, (partition, offset) in zip(rows, free, strict=True):
        row.update(partition=partition, offset=offset, append_time=_time(dice, shape))
    return Events(
        pa.Table.from_pylist(people, PERSON),
        pa.Table.from_pylist(auctions, AUCTION),
        pa.Table.from_pylist(bids, BID),
    )


def _time(dice: Random, shape: Shape) -> datetime:
    """Whole steps of 2 s and the milliseconds on both sides of them."""
    beside_ms = dice.choice([0, 0, 0, -1, 1])
    return BEGIN + timedelta(seconds=2 * dice.randrange(shape.steps), milliseconds=beside_ms)


def _person(dice: Random, shape: Shape, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": dice.choice(TEXTS),
        "email_address": "",
        "credit_card": "",
        "city": dice.choice(TEXTS),
        "state": dice.choice(["OR", "ID", "CA", "WA"]),
        "date_time": _time(dice, shape),
        "extra": "",
    }


def _auction(dice: Random, shape: Shape, number: int) -> dict[str, Any]:
    begin = _time(dice, shape)
    return {
        "id": number,
        "item_name": dice.choice(TEXTS),
        "description": dice.choice(TEXTS),
        "initial_bid": dice.choice(PRICES),
        "reserve": dice.choice(PRICES),
        "date_time": begin,
        "expires": begin + timedelta(seconds=dice.choice(shape.open_s)),
        "seller": dice.choice([1, 1, 1, 1, 2]),
        "category": dice.choice([10, 11]),
        "extra": dice.choice(TEXTS),
    }


def _bid(dice: Random, shape: Shape) -> dict[str, Any]:
    return {
        "auction": dice.randint(1, max(shape.auctions, 2)),
        "bidder": dice.randint(1, 3),
        "price": dice.choice(shape.prices),
        "channel": dice.choice(CHANNELS),
        "url": "https://www.nexmark.com/a/b_b/c/item.htm?query=1",
        "date_time": _time(dice, shape),
        "extra": f"bid {dice.random()}",
    }
