"""The queries that look at one bid at a time: q0, q1, q2, q10, q13, q14, q21 and q22.

This file alone decides what these eight ask.
"""

from examples.nexmark.queries.query import BIGINT, EUROS, TEXT, TIME, Emits, query


@query(
    {"auction": BIGINT, "bidder": BIGINT, "price": BIGINT, "date_time": TIME, "extra": TEXT},
    emits=Emits.ROWS,
)
def q0() -> str:
    """All bids as they are.

    What it costs to read and write, and nothing else.
    """
    return "SELECT auction, bidder, price, date_time, extra FROM bid"


@query(
    {"auction": BIGINT, "bidder": BIGINT, "price": EUROS, "date_time": TIME, "extra": TEXT},
    emits=Emits.ROWS,
)
def q1() -> str:
    """All bids in euros.

    A dollar is 0.908 euros, in exact decimals.
    """
    return """
        SELECT auction, bidder, (0.908 * price)::DECIMAL(23, 3) AS price, date_time, extra
        FROM bid
        """


@query({"auction": BIGINT, "price": BIGINT}, emits=Emits.ROWS)
def q2() -> str:
    """The bids for every 123rd auction.

    Those whose auction is a multiple of 123.
    """
    return "SELECT auction, price FROM bid WHERE auction % 123 = 0"


@query(
    {
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": BIGINT,
        "date_time": TIME,
        "extra": TEXT,
        "dt": TEXT,
        "hm": TEXT,
    },
    emits=Emits.ROWS,
)
def q10() -> str:
    """All bids, with the day and the minute that an archive would file them under.

    The published query writes files by day and minute; here the rows go to a topic.
    """
    return """
        SELECT auction, bidder, price, date_time, extra,
            strftime(date_time, '%Y-%m-%d') AS dt, strftime(date_time, '%H:%M') AS hm
        FROM bid
        """


@query(
    {"auction": BIGINT, "bidder": BIGINT, "price": BIGINT, "date_time": TIME, "value": TEXT},
    emits=Emits.ROWS,
    reads="bid side_input",
)
def q13() -> str:
    """All bids with what a table that never changes says of their auction.

    The table has the keys 0 to 9,999; an auction's key is the rest of its id by 10,000.
    """
    return """
        SELECT bid.auction, bid.bidder, bid.price, bid.date_time, side_input.value
        FROM bid JOIN side_input ON bid.auction % 10000 = side_input.key
        """


@query(
    {
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": EUROS,
        "bid_time_type": TEXT,
        "date_time": TIME,
        "extra": TEXT,
        "c_counts": BIGINT,
    },
    emits=Emits.ROWS,
)
def q14() -> str:
    """The bids of more than one and less than fifty million in euros, with a few computations.

    Whether the bid came by day (8 to 18 o'clock), by night (20 to 6) or between, and how many
    times its extra text has a c.
    """
    return """
        SELECT auction, bidder, (0.908 * price)::DECIMAL(23, 3) AS price,
            CASE
                WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bid_time_type,
            date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
        """


@query(
    {"auction": BIGINT, "bidder": BIGINT, "price": BIGINT, "channel": TEXT, "channel_id": TEXT},
    emits=Emits.ROWS,
)
def q21() -> str:
    """The bids whose channel has an id, with the id.

    The four large channels have the ids 0 to 3, others say theirs in the URL, or have none.
    """
    return """
        SELECT auction, bidder, price, channel, channel_id
        FROM (
            SELECT *,
                CASE lower(channel)
                    WHEN 'apple' THEN '0'
                    WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2'
                    WHEN 'baidu' THEN '3'
                    ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
                END AS channel_id
            FROM bid
        )
        WHERE channel_id IS NOT NULL
        """


@query(
    {
        "auction": BIGINT,
        "bidder": BIGINT,
        "price": BIGINT,
        "channel": TEXT,
        "dir1": TEXT,
        "dir2": TEXT,
        "dir3": TEXT,
    },
    emits=Emits.ROWS,
)
def q22() -> str:
    """All bids with the folders of their URL.

    The three parts after the host.
    """
    return """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
        """
