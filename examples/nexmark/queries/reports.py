"""The queries that keep a report of all bids so far: q15 to q19.

This file alone decides what these five ask, and where the levels of price are.
"""

from typing import Final

import pyarrow as pa

from examples.nexmark.queries.query import BIGINT, DOUBLE, TEXT, TIME, Emits, query

_LEVELS: Final = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _counts(what: str, counted: str) -> str:
    """Counts of all and of each level of price, as columns."""
    levels = [
        f"count({counted}) FILTER ({when}) AS {name}_{what}" for name, when in _LEVELS.items()
    ]
    return ", ".join([f"count({counted}) AS total_{what}", *levels])


def _count_columns(*whats: str) -> dict[str, pa.DataType]:
    return {f"{name}_{what}": BIGINT for what in whats for name in ("total", *_LEVELS)}


_ALL_COUNTS: Final = ", ".join(
    [
        _counts("bids", "*"),
        _counts("bidders", "DISTINCT bidder"),
        _counts("auctions", "DISTINCT auction"),
    ]
)


@query(
    {"day": TEXT, **_count_columns("bids", "bidders", "auctions")},
    emits=Emits.CHANGES,
    identity="day",
)
def q15() -> str:
    """How many bids, bidders and auctions each day has seen, at three levels of price.

    Distinct bidders and auctions are counted exactly; the levels are below 10,000, below
    1,000,000, and above.
    """
    return f"""
        SELECT strftime(date_time, '%Y-%m-%d') AS day, {_ALL_COUNTS}
        FROM bid
        GROUP BY day
        """


@query(
    {
        "channel": TEXT,
        "day": TEXT,
        "minute": TEXT,
        **_count_columns("bids", "bidders", "auctions"),
    },
    emits=Emits.CHANGES,
    identity="channel day",
)
def q16() -> str:
    """The same as q15 for each channel, with the last minute in which there was a bid."""
    return f"""
        SELECT channel, strftime(date_time, '%Y-%m-%d') AS day,
            max(strftime(date_time, '%H:%M')) AS minute, {_ALL_COUNTS}
        FROM bid
        GROUP BY channel, day
        """


@query(
    {
        "auction": BIGINT,
        "day": TEXT,
        **_count_columns("bids"),
        "min_price": BIGINT,
        "max_price": BIGINT,
        "avg_price": DOUBLE,
        "sum_price": BIGINT,
    },
    emits=Emits.CHANGES,
    identity="auction day",
)
def q17() -> str:
    """How many bids each auction had on each day, and the lowest, highest, mean and total price."""
    return f"""
        SELECT auction, strftime(date_time, '%Y-%m-%d') AS day, {_counts("bids", "*")},
            min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
            sum(price) AS sum_price
        FROM bid
        GROUP BY auction, day
        """


@query(
    {
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": BIGINT,
        "channel": TEXT,
        "url": TEXT,
        "date_time": TIME,
        "extra": TEXT,
    },
    emits=Emits.CHANGES,
    identity="bidder auction",
)
def q18() -> str:
    """The last bid of each person for each auction.

    The latest in time; of equal ones the last in the log.
    """
    return """
        SELECT auction, bidder, price, channel, url, date_time, extra
        FROM bid
        QUALIFY 1 = row_number() OVER (
            PARTITION BY bidder, auction
            ORDER BY date_time DESC, "partition" DESC, "offset" DESC
        )
        """


@query(
    {
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": BIGINT,
        "channel": TEXT,
        "url": TEXT,
        "date_time": TIME,
        "extra": TEXT,
        "rank_number": BIGINT,
    },
    emits=Emits.CHANGES,
    identity="auction rank_number",
)
def q19() -> str:
    """The ten highest bids of each auction, with their rank.

    Of equal ones the first in the log comes first.
    """
    return """
        SELECT auction, bidder, price, channel, url, date_time, extra,
            row_number() OVER (
                PARTITION BY auction ORDER BY price DESC, "partition", "offset"
            ) AS rank_number
        FROM bid
        QUALIFY rank_number <= 10
        """
