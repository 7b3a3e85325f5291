"""The queries over windows of time: q5, q7, q8, q11 and q12.

This file alone decides what these five ask, and how long their windows are.
"""

from examples.nexmark.queries.query import BIGINT, TEXT, TIME, Emits, query


@query(
    {"auction": BIGINT, "num": BIGINT, "window_start": TIME, "window_end": TIME},
    emits=Emits.WINDOWS,
    identity="window_start auction",
)
def q5() -> str:
    """The auctions with the most bids in the last ten seconds, every two seconds.

    Hopping windows of 10 s that begin every 2 s; of each window with a bid in it, all auctions
    that have as many bids as the first. Two stages: counts per auction and window, then the
    largest per window.
    """
    return """
        WITH counts AS (
            SELECT auction, count(*) AS num,
                time_bucket(INTERVAL 2 SECOND, date_time, TIMESTAMP '1970-01-01')
                    - hop * INTERVAL 2 SECOND AS window_start
            FROM bid, range(5) AS hops(hop)
            GROUP BY auction, window_start
        )
        SELECT auction, num, window_start, window_start + INTERVAL 10 SECOND AS window_end
        FROM counts
        QUALIFY num = max(num) OVER (PARTITION BY window_start)
        """


@query(
    {"auction": BIGINT, "bidder": BIGINT, "price": BIGINT, "date_time": TIME, "extra": TEXT},
    emits=Emits.WINDOWS,
)
def q7() -> str:
    """The highest bids of every ten seconds.

    Tumbling windows of 10 s; of each, all bids at its highest price. (The published SQL also
    takes a bid at that price from the very moment in which the next window begins.)
    """
    return """
        SELECT auction, bidder, price, date_time, extra
        FROM bid
        QUALIFY price = max(price) OVER (
            PARTITION BY time_bucket(INTERVAL 10 SECOND, date_time, TIMESTAMP '1970-01-01')
        )
        """


@query(
    {"id": BIGINT, "name": TEXT, "window_start": TIME},
    emits=Emits.WINDOWS,
    reads="person auction",
    identity="id",
)
def q8() -> str:
    """The people who came and opened an auction in the same ten seconds.

    Tumbling windows of 10 s on both sides, each person once, however many auctions.
    """
    return """
        SELECT DISTINCT person.id, person.name,
            time_bucket(INTERVAL 10 SECOND, person.date_time, TIMESTAMP '1970-01-01')
                AS window_start
        FROM person JOIN auction ON person.id = auction.seller
            AND time_bucket(INTERVAL 10 SECOND, person.date_time, TIMESTAMP '1970-01-01')
              = time_bucket(INTERVAL 10 SECOND, auction.date_time, TIMESTAMP '1970-01-01')
        """


@query(
    {"bidder": BIGINT, "bid_count": BIGINT, "start_time": TIME, "end_time": TIME},
    emits=Emits.WINDOWS,
    identity="bidder start_time",
)
def q11() -> str:
    """How many bids a person made in each session.

    A session ends 10 s after its last bid; a bid at that very moment still belongs to it, as in
    Flink and Spark.
    """
    return """
        WITH gaps AS (
            SELECT bidder, date_time,
                coalesce(
                    date_time > INTERVAL 10 SECOND + lag(date_time) OVER (
                        PARTITION BY bidder ORDER BY date_time, "partition", "offset"
                    ),
                    true
                ) AS begins,
                "partition", "offset"
            FROM bid
        ),
        sessions AS (
            SELECT bidder, date_time,
                count(*) FILTER (begins) OVER (
                    PARTITION BY bidder ORDER BY date_time, "partition", "offset"
                ) AS session
            FROM gaps
        )
        SELECT bidder, count(*) AS bid_count, min(date_time) AS start_time,
            max(date_time) + INTERVAL 10 SECOND AS end_time
        FROM sessions
        GROUP BY bidder, session
        """


@query(
    {"bidder": BIGINT, "bid_count": BIGINT, "start_time": TIME, "end_time": TIME},
    emits=Emits.WINDOWS,
    identity="bidder start_time",
)
def q12() -> str:
    """How many bids of a person the log took in, every ten seconds.

    Tumbling windows of 10 s in processing time. So that the answer is one and the same however
    often it is computed, that is the time at which the log appended the record.
    """
    return """
        SELECT bidder, count(*) AS bid_count, start_time,
            start_time + INTERVAL 10 SECOND AS end_time
        FROM (
            SELECT bidder,
                time_bucket(INTERVAL 10 SECOND, append_time, TIMESTAMP '1970-01-01') AS start_time
            FROM bid
        )
        GROUP BY bidder, start_time
        """
