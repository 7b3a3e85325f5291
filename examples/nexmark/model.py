"""What people, auctions and bids look like, and the numbers that shape a stream of them.

This file alone decides names and types of columns and the defaults of the generator. It makes no
event.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import gcd
from typing import Final, NamedTuple

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")

# Where the log has put the event; q12 takes the time of appending as processing time.
_PLACE: Final = [
    pa.field("append_time", TIME, nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
]


def _table(**columns: pa.DataType) -> pa.Schema:
    fields = [pa.field(name, type_, nullable=False) for name, type_ in columns.items()]
    return pa.schema([*fields, *_PLACE])


PERSON: Final = _table(
    id=pa.int64(),
    name=pa.string(),
    email_address=pa.string(),
    credit_card=pa.string(),
    city=pa.string(),
    state=pa.string(),
    date_time=TIME,
    extra=pa.string(),
)
AUCTION: Final = _table(
    id=pa.int64(),
    item_name=pa.string(),
    description=pa.string(),
    initial_bid=pa.int64(),
    reserve=pa.int64(),
    date_time=TIME,
    expires=TIME,
    seller=pa.int64(),
    category=pa.int64(),
    extra=pa.string(),
)
BID: Final = _table(
    auction=pa.int64(),
    bidder=pa.int64(),
    price=pa.int64(),
    channel=pa.string(),
    url=pa.string(),
    date_time=TIME,
    extra=pa.string(),
)
SIDE_INPUT: Final = pa.schema(
    [pa.field("key", pa.int64(), nullable=False), pa.field("value", pa.string(), nullable=False)]
)

PERSONS_PER_ROUND: Final = 1
AUCTIONS_PER_ROUND: Final = 3
BIDS_PER_ROUND: Final = 46
ROUND: Final = PERSONS_PER_ROUND + AUCTIONS_PER_ROUND + BIDS_PER_ROUND
"""Of this many events in a row, the first is a person, the next three are auctions."""

FIRST_ID: Final = 1000
"""Ids of people and of auctions begin here."""
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5

_SHUFFLE: Final = 953
"""The stride of the published disorder; it visits all of a run whose length it has no factor of."""


class Events(NamedTuple):
    """A part of the stream, by kind; each table in the order of arrival."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table


@dataclass(frozen=True, slots=True)
class Settings:
    """What shapes a stream; the defaults are the published ones.

    Attributes:
        seed: Another seed gives other events of the same shape.
        first_time: When event number 0 happens.
        delay_us: How long after each event the next one happens; times are cut to milliseconds.
        run: The events of every run of this many arrive in another order than they happened.
        append_lag_us: How long after an undisturbed event its record is appended to the log.
        hot_auction_ratio: One bid of so many goes to any auction, the others to a hot one.
        hot_bidder_ratio: One bid of so many is anybody's, the others come from a hot bidder.
        hot_seller_ratio: One auction of so many is anybody's, the others are a hot seller's.
        hot_channel_ratio: One bid of so many comes by a rare channel.
        in_flight_auctions: How many auctions are open at a time, on average.
        active_people: How many of the latest people bid and sell.
        person_bytes: The size of a person, on average; `extra` fills what is missing.
        auction_bytes: The same of an auction.
        bid_bytes: The same of a bid.
    """

    seed: int = 0
    first_time: datetime = datetime(2015, 7, 15, tzinfo=UTC)
    delay_us: int = 100
    run: int = 1
    append_lag_us: int = 1_000_000
    hot_auction_ratio: int = 2
    hot_bidder_ratio: int = 4
    hot_seller_ratio: int = 4
    hot_channel_ratio: int = 2
    in_flight_auctions: int = 100
    active_people: int = 1000
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100

    def __post_init__(self) -> None:
        if self.run < 1 or gcd(self.run, _SHUFFLE) > 1:
            message = f"run is {self.run}: it must be at least 1 and no multiple of {_SHUFFLE}"
            raise ValueError(message)
        if self.stride == 1:
            message = f"run is {self.run}: it must not divide {_SHUFFLE - 1}, which keeps the order"
            raise ValueError(message)
        if self.delay_us < 0 or self.append_lag_us < 0:
            raise ValueError("delay_us and append_lag_us must not be negative")
        smallest = min(
            self.hot_auction_ratio,
            self.hot_bidder_ratio,
            self.hot_seller_ratio,
            self.hot_channel_ratio,
            self.in_flight_auctions,
            self.active_people,
        )
        if smallest < 1:
            raise ValueError("ratios, in_flight_auctions and active_people must be at least 1")

    @property
    def stride(self) -> int:
        """How far apart in a run the events are that arrive one after the other."""
        return _SHUFFLE % self.run

    @property
    def disorder_us(self) -> int:
        """No event is older than the newest that arrived before it by more than this."""
        return 0 if self.run == 1 else (self.run - 1) * self.delay_us + 1000
