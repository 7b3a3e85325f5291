"""Any part of the stream of people, auctions and bids, as Arrow tables.

This file alone decides what the events say: who bids for what, at which price, when. An event
follows from the settings and its number alone, so that parts can be made anywhere, in any sizes.

Ids are consecutive, so the latest person and auction of a moment follow from its number. Bids and
auctions refer to recent ids and to a few that do not exist yet: then the reference comes before
what it refers to. All is as published by Apache Beam and by the Nexmark project, except that text
comes from other dice, and that the second of two places where the latter adds 1000 to a bidder is
left out: bidders are people.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.dice import Dice
from examples.nexmark.loops import Int64s
from examples.nexmark.model import (
    AUCTION,
    AUCTIONS_PER_ROUND,
    BID,
    CATEGORIES,
    FIRST_CATEGORY,
    FIRST_ID,
    PERSON,
    PERSONS_PER_ROUND,
    ROUND,
    SIDE_INPUT,
    Events,
    Settings,
)

_FIRST_NAMES: Final = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES: Final = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
_CITIES: Final = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_STATES: Final = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS: Final = ["Google", "Facebook", "Baidu", "Apple"]
_RARE_CHANNELS: Final = 10_000

# Of so many people or auctions in a row, one is hot.
_HOT_EVERY: Final = 100
# How many ids may be referred to before they exist.
_LEAD: Final = 10
_SIDE_INPUT_ROWS: Final = 10_000
_US_PER_MS: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# What the published sizes count for the numbers of a row.
_PERSON_NUMBERS_BYTES: Final = 8
_AUCTION_NUMBERS_BYTES: Final = 48
_BID_NUMBERS_BYTES: Final = 32


def generate(settings: Settings, first: int, count: int) -> Events:
    """Give the events that arrive as number `first` and the `count - 1` after it."""
    return Generator(settings).events(first, count)


def side_input() -> pa.Table:
    """Give the table that q13 looks auctions up in: numbers and their names."""
    keys = pa.array(range(_SIDE_INPUT_ROWS), pa.int64())
    return pa.table([keys, keys.cast(pa.string())], schema=SIDE_INPUT)


class Generator:
    """The stream of some settings; keeps what all parts share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._dice = Dice(settings.seed)
        self._channels, self._urls = _channels(self._dice)

    def events(self, first: int, count: int) -> Events:
        """Give the events that arrive as number `first` and the `count - 1` after it."""
        if first < 0 or count < 0:
            raise ValueError("neither the first event nor the count can be negative")
        arrivals = np.arange(first, first + count, dtype=np.int64)
        run = self.settings.run
        numbers = arrivals - arrivals % run + arrivals * self.settings.stride % run
        within = numbers % ROUND
        is_person = within < PERSONS_PER_ROUND
        is_bid = within >= PERSONS_PER_ROUND + AUCTIONS_PER_ROUND
        is_auction = ~(is_person | is_bid)
        return Events(
            self._people(numbers[is_person], arrivals[is_person]),
            self._auctions(numbers[is_auction], arrivals[is_auction]),
            self._bids(numbers[is_bid], arrivals[is_bid]),
        )

    def _people(self, numbers: Int64s, arrivals: Int64s) -> pa.Table:
        dice = self._dice
        name = _joined(
            " ",
            self._pick("person first name", numbers, _FIRST_NAMES),
            self._pick("person last name", numbers, _LAST_NAMES),
        )
        mailbox = dice.words("person mailbox", numbers, 7)
        email = _joined("@", mailbox, dice.words("person host", numbers, 5))
        email = _joined("", email, ".com")
        fours = [dice.below(f"person card {n}", numbers, 10_000) for n in range(4)]
        card = _joined(" ", *(_four_digits().take(pa.array(four)) for four in fours))
        city = self._pick("person city", numbers, _CITIES)
        state = self._pick("person state", numbers, _STATES)
        size = _PERSON_NUMBERS_BYTES + _lengths(name, email, card, city, state)
        return pa.table(
            [
                _latest_person(numbers) + FIRST_ID,
                name,
                email,
                card,
                city,
                state,
                self._time(numbers),
                self._extra("person", numbers, size, self.settings.person_bytes),
                *self._place(arrivals),
            ],
            schema=PERSON,
        )

    def _auctions(self, numbers: Int64s, arrivals: Int64s) -> pa.Table:
        dice, settings = self._dice, self.settings
        hot = dice.below("auction seller hot", numbers, settings.hot_seller_ratio) > 0
        hot_seller = _latest_person(numbers) // _HOT_EVERY * _HOT_EVERY
        seller = np.where(hot, hot_seller, self._person("auction seller", numbers))
        item_name = dice.words("auction item name", numbers, 20)
        description = dice.words("auction description", numbers, 100)
        initial_bid = dice.price("auction initial bid", numbers)
        size = _AUCTION_NUMBERS_BYTES + _lengths(item_name, description)
        return pa.table(
            [
                _latest_auction(numbers) + FIRST_ID,
                item_name,
                description,
                initial_bid,
                initial_bid + dice.price("auction reserve", numbers),
                self._time(numbers),
                self._time(numbers) + self._open_for_us(numbers),
                seller + FIRST_ID,
                FIRST_CATEGORY + dice.below("auction category", numbers, CATEGORIES),
                self._extra("auction", numbers, size, settings.auction_bytes),
                *self._place(arrivals),
            ],
            schema=AUCTION,
        )

    def _bids(self, numbers: Int64s, arrivals: Int64s) -> pa.Table:
        dice, settings = self._dice, self.settings
        latest = _latest_auction(numbers)
        oldest = np.maximum(latest - settings.in_flight_auctions, 0)
        any_auction = oldest + dice.below("bid auction", numbers, latest - oldest + 1 + _LEAD)
        hot = dice.below("bid auction hot", numbers, settings.hot_auction_ratio) > 0
        auction = np.where(hot, latest // _HOT_EVERY * _HOT_EVERY, any_auction)
        hot = dice.below("bid bidder hot", numbers, settings.hot_bidder_ratio) > 0
        # The one after the hot seller, so that they are two.
        hot_bidder = _latest_person(numbers) // _HOT_EVERY * _HOT_EVERY + 1
        bidder = np.where(hot, hot_bidder, self._person("bid bidder", numbers))
        hot = dice.below("bid channel hot", numbers, settings.hot_channel_ratio) > 0
        channel = np.where(
            hot,
            _RARE_CHANNELS + dice.below("bid hot channel", numbers, len(_HOT_CHANNELS)),
            dice.below("bid channel", numbers, _RARE_CHANNELS),
        )
        size = np.full(len(numbers), _BID_NUMBERS_BYTES)
        return pa.table(
            [
                auction + FIRST_ID,
                bidder + FIRST_ID,
                dice.price("bid price", numbers),
                self._channels.take(pa.array(channel)),
                self._urls.take(pa.array(channel)),
                self._time(numbers),
                self._extra("bid", numbers, size, settings.bid_bytes),
                *self._place(arrivals),
            ],
            schema=BID,
        )

    def _time(self, numbers: Int64s) -> Int64s:
        """When events happen, in microseconds since 1970."""
        passed_ms = numbers * self.settings.delay_us // _US_PER_MS
        return (self.settings.first_time - _EPOCH) // _MICROSECOND + passed_ms * _US_PER_MS

    def _place(self, arrivals: Int64s) -> list[pa.Array]:
        """Where the log puts events that arrive in this order, if it has one partition."""
        append_time = self._time(arrivals) + self.settings.append_lag_us
        return [append_time, np.zeros(len(arrivals), np.int32), arrivals]

    def _open_for_us(self, numbers: Int64s) -> Int64s:
        """How long auctions are open: so that the wanted number is open at a time, on average."""
        ahead = self.settings.in_flight_auctions * ROUND // AUCTIONS_PER_ROUND
        horizon_ms = (self._time(numbers + ahead) - self._time(numbers)) // _US_PER_MS
        bound = np.maximum(horizon_ms * 2, 1)
        return (1 + self._dice.below("auction length", numbers, bound)) * _US_PER_MS

    def _person(self, name: str, numbers: Int64s) -> Int64s:
        """Anybody of the active people, or of those that come next."""
        people = _latest_person(numbers) + 1
        active = np.minimum(people, self.settings.active_people)
        return people - active + self._dice.below(name, numbers, active + _LEAD)

    def _extra(self, name: str, numbers: Int64s, size: Int64s, average: int) -> pa.StringArray:
        """Letters that make a row as large as asked for, on average, within a fifth of them."""
        missing = np.maximum(average - size, 0)
        fifth = (2 * missing + 5) // 10
        some = self._dice.below(f"{name} extra length", numbers, 2 * fifth)
        return self._dice.letters(f"{name} extra", numbers, missing - fifth + some)

    def _pick(self, name: str, numbers: Int64s, choices: list[str]) -> pa.StringArray:
        chosen = self._dice.below(name, numbers, len(choices))
        return pa.array(choices, pa.string()).take(pa.array(chosen))


def _latest_person(numbers: Int64s) -> Int64s:
    """The person that an event is, or the last before it, counted from 0."""
    return numbers // ROUND * PERSONS_PER_ROUND


def _latest_auction(numbers: Int64s) -> Int64s:
    """The auction that an event is, or the last before it, counted from 0."""
    of_round = np.minimum(numbers % ROUND - PERSONS_PER_ROUND, AUCTIONS_PER_ROUND - 1)
    return numbers // ROUND * AUCTIONS_PER_ROUND + of_round


def _channels(dice: Dice) -> tuple[pa.StringArray, pa.StringArray]:
    """The rare channels and then the hot ones, and the URL of each."""
    count = _RARE_CHANNELS + len(_HOT_CHANNELS)
    numbers = np.arange(count, dtype=np.int64)
    folders = [dice.words(f"channel folder {n}", numbers, 5, blank="_") for n in range(3)]
    urls = _joined("/", "https://www.nexmark.com", *folders, "item.htm?query=1")
    # One of ten rare channels does not say its id.
    says_id = (dice.below("channel says id", numbers, 10) > 0) & (numbers < _RARE_CHANNELS)
    ids = pa.array([f"&channel_id={_reversed_bits(n)}" for n in range(count)], pa.string())
    urls = _joined("", urls, pc.if_else(pa.array(says_id), ids, ""))
    rare = [f"channel-{n}" for n in range(_RARE_CHANNELS)]
    return pa.array([*rare, *_HOT_CHANNELS], pa.string()), urls


def _reversed_bits(number: int) -> int:
    """The 32-bit number that has the bits of this one in reverse."""
    return int(f"{number:032b}"[::-1], 2)


def _four_digits() -> pa.StringArray:
    return pa.array([f"{n:04d}" for n in range(10_000)], pa.string())


def _joined(separator: str, *parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, separator)


def _lengths(*columns: pa.StringArray) -> Int64s:
    """By row, the characters of all columns together."""
    lengths = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        lengths += np.asarray(pc.binary_length(column))
    return lengths
