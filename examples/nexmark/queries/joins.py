"""The queries that join tables which grow: q3, q4, q6, q9 and q20.

This file alone decides what these five ask, and which bid wins an auction.
"""

from typing import Final

from examples.nexmark.queries.query import BIGINT, DOUBLE, TEXT, TIME, Emits, query

# Each auction beside the bid that wins it.
_WON: Final = """
    FROM auction JOIN bid
        ON auction.id = bid.auction
        AND bid.date_time BETWEEN auction.date_time AND auction.expires
    QUALIFY 1 = row_number() OVER (
        PARTITION BY auction.id
        ORDER BY bid.price DESC, bid.date_time, bid."partition", bid."offset"
    )
    """


@query(
    {"name": TEXT, "city": TEXT, "state": TEXT, "id": BIGINT},
    emits=Emits.PAIRS,
    reads="auction person",
    identity="id",
)
def q3() -> str:
    """Who sells in Oregon, Idaho or California in category 10, and in which auctions.

    A join of auctions and their sellers, whichever comes first and however much later the other.
    """
    return """
        SELECT person.name, person.city, person.state, auction.id
        FROM auction JOIN person ON auction.seller = person.id
        WHERE auction.category = 10 AND person.state IN ('OR', 'ID', 'CA')
        """


@query(
    {"category": BIGINT, "avg_final": DOUBLE},
    emits=Emits.CHANGES,
    reads="auction bid",
    identity="category",
)
def q4() -> str:
    """What auctions of each category sell for, on average.

    An auction sells for the highest bid from its beginning to its expiry, both included; one
    without a bid does not count. It counts from its first bid, or from its expiry.
    """
    return f"""
        SELECT category, avg(price) AS avg_final
        FROM (SELECT auction.category, bid.price {_WON})
        GROUP BY category
        """


@query(
    {"seller": BIGINT, "avg_price": DOUBLE},
    emits=Emits.CHANGES,
    reads="auction bid",
    identity="seller",
)
def q6() -> str:
    """What the last ten auctions of each seller sold for, on average.

    Those that expire last, and of equal expiry those with the largest ids; fewer than ten if
    there are no more with a bid.
    """
    return f"""
        SELECT seller, avg(price) AS avg_price
        FROM (
            SELECT seller, price
            FROM (SELECT auction.seller, auction.expires, auction.id, bid.price {_WON})
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10
        )
        GROUP BY seller
        """


@query(
    {
        "id": BIGINT,
        "item_name": TEXT,
        "description": TEXT,
        "initial_bid": BIGINT,
        "reserve": BIGINT,
        "date_time": TIME,
        "expires": TIME,
        "seller": BIGINT,
        "category": BIGINT,
        "extra": TEXT,
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": BIGINT,
        "bid_date_time": TIME,
        "bid_extra": TEXT,
    },
    emits=Emits.CHANGES,
    reads="auction bid",
    identity="id",
)
def q9() -> str:
    """The winning bid of each auction.

    The highest from its beginning to its expiry, both included; of equal ones the earliest, then
    the first in the log.
    """
    return f"""
        SELECT auction.id, auction.item_name, auction.description, auction.initial_bid,
            auction.reserve, auction.date_time, auction.expires, auction.seller,
            auction.category, auction.extra, bid.auction, bid.bidder, bid.price,
            bid.date_time AS bid_date_time, bid.extra AS bid_extra
        {_WON}
        """


@query(
    {
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": BIGINT,
        "channel": TEXT,
        "url": TEXT,
        "bid_date_time": TIME,
        "bid_extra": TEXT,
        "item_name": TEXT,
        "description": TEXT,
        "initial_bid": BIGINT,
        "reserve": BIGINT,
        "auction_date_time": TIME,
        "expires": TIME,
        "seller": BIGINT,
        "category": BIGINT,
        "auction_extra": TEXT,
    },
    emits=Emits.PAIRS,
    reads="bid auction",
)
def q20() -> str:
    """The bids for auctions of category 10, with all about the auction.

    A join of bids and auctions, whichever comes first and however much later the other; whether
    the auction was open does not matter.
    """
    return """
        SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url,
            bid.date_time AS bid_date_time, bid.extra AS bid_extra, auction.item_name,
            auction.description, auction.initial_bid, auction.reserve,
            auction.date_time AS auction_date_time, auction.expires, auction.seller,
            auction.category, auction.extra AS auction_extra
        FROM bid JOIN auction ON bid.auction = auction.id
        WHERE auction.category = 10
        """
