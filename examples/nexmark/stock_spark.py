"""The queries as stock Spark's structured streaming takes them, without Headwater.

This file alone decides how they are put to it, and which of them it refuses. It starts no Spark.

The SQL reads streaming views `person`, `auction` and `bid` with a watermark on `date_time`,
`bids_in` (the same bids with a watermark on `append_time`) and the table `side_input`, in a session
whose time zone is UTC. Columns are those of the answers in `examples.nexmark.queries`.
"""

from typing import Final, NamedTuple


class Stock(NamedTuple):
    """A query that Spark takes, and the output mode in which it does.

    In the mode `update`, a later row takes the place of an earlier one with the same identity.
    """

    sql: str
    mode: str


def _counts(what: str, count: str) -> str:
    """Counts of all and of each level of price; `count` has room for what is filtered."""
    levels = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
    columns = [f"{count.format('')} AS total_{what}"]
    for rank, level in enumerate(levels, start=1):
        filtered = count.format(f" FILTER (WHERE {level})")
        columns.append(f"{filtered} AS rank{rank}_{what}")
    return ", ".join(columns)


_DAY: Final = "date_format(date_time, 'yyyy-MM-dd') AS day"
_MINUTE: Final = "max(date_format(date_time, 'HH:mm')) AS minute"
_BIDS: Final = _counts("bids", "count(*){}")
_DISTINCT: Final = ", ".join(
    [
        _counts("bidders", "count(DISTINCT bidder){}"),
        _counts("auctions", "count(DISTINCT auction){}"),
    ]
)
# A set of all that were seen, kept in the state of its row, does what Spark's count does not.
_SETS: Final = ", ".join(
    [
        _counts("bidders", "CAST(size(collect_set(bidder){}) AS BIGINT)"),
        _counts("auctions", "CAST(size(collect_set(auction){}) AS BIGINT)"),
    ]
)
_BID: Final = "auction, bidder, price, channel, url, date_time, extra"
_OF_AUCTION: Final = (
    "id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra"
)
_IN_TIME: Final = """
    FROM auction AS A JOIN bid AS B
    ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    """
_HOPS: Final = """
    SELECT auction, count(*) AS num, window
    FROM (SELECT auction, window(date_time, '10 seconds', '2 seconds') AS window FROM bid)
    GROUP BY auction, window
    """

TAKEN: Final = {
    "q0": Stock("SELECT auction, bidder, price, date_time, extra FROM bid", "append"),
    "q1": Stock(
        """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, date_time, extra
        FROM bid
        """,
        "append",
    ),
    "q2": Stock("SELECT auction, price FROM bid WHERE auction % 123 = 0", "append"),
    "q3": Stock(
        """
        SELECT P.name, P.city, P.state, A.id
        FROM auction AS A JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
        """,
        "append",
    ),
    "q5": Stock(
        f"""
        SELECT A.auction, A.num, A.window.start AS window_start, A.window.end AS window_end
        FROM ({_HOPS}) AS A
        JOIN (SELECT max(num) AS most, window FROM ({_HOPS}) GROUP BY window) AS M
        ON A.window = M.window AND A.num >= M.most
        """,
        "append",
    ),
    "q7": Stock(
        """
        SELECT B.auction, B.bidder, B.price, B.date_time, B.extra
        FROM bid AS B
        JOIN (
            SELECT highest, window_time(window) AS last
            FROM (
                SELECT max(price) AS highest, window
                FROM (SELECT price, window(date_time, '10 seconds') AS window FROM bid)
                GROUP BY window
            )
        ) AS M
        ON B.price = M.highest
            AND B.date_time > M.last - INTERVAL 10 SECONDS AND B.date_time <= M.last
        """,
        "append",
    ),
    "q8": Stock(
        """
        SELECT P.id, P.name, P.window.start AS window_start
        FROM (
            SELECT id, name, window(date_time, '10 seconds') AS window
            FROM person GROUP BY id, name, window(date_time, '10 seconds')
        ) AS P
        JOIN (
            SELECT seller, window(date_time, '10 seconds') AS window
            FROM auction GROUP BY seller, window(date_time, '10 seconds')
        ) AS A
        ON P.id = A.seller AND P.window = A.window
        """,
        "append",
    ),
    "q10": Stock(
        """
        SELECT auction, bidder, price, date_time, extra,
            date_format(date_time, 'yyyy-MM-dd') AS dt, date_format(date_time, 'HH:mm') AS hm
        FROM bid
        """,
        "append",
    ),
    "q11": Stock(
        """
        SELECT bidder, count(*) AS bid_count, session_window.start AS start_time,
            session_window.end AS end_time
        FROM bid GROUP BY bidder, session_window(date_time, '10 seconds')
        """,
        "append",
    ),
    "q12": Stock(
        """
        SELECT bidder, count(*) AS bid_count, window.start AS start_time, window.end AS end_time
        FROM bids_in GROUP BY bidder, window(append_time, '10 seconds')
        """,
        "append",
    ),
    "q13": Stock(
        """
        SELECT bid.auction, bid.bidder, bid.price, bid.date_time, side_input.value
        FROM bid JOIN side_input ON bid.auction % 10000 = side_input.key
        """,
        "append",
    ),
    "q14": Stock(
        """
        SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE
                WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bid_time_type,
            date_time, extra,
            CAST(length(extra) - length(replace(extra, 'c', '')) AS BIGINT) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
        """,
        "append",
    ),
    "q17": Stock(
        f"""
        SELECT auction, {_DAY}, {_BIDS}, min(price) AS min_price, max(price) AS max_price,
            avg(price) AS avg_price, sum(price) AS sum_price
        FROM bid GROUP BY 1, 2
        """,
        "update",
    ),
    "q20": Stock(
        """
        SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time AS bid_date_time,
            B.extra AS bid_extra, A.item_name, A.description, A.initial_bid, A.reserve,
            A.date_time AS auction_date_time, A.expires, A.seller, A.category,
            A.extra AS auction_extra
        FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10
        """,
        "append",
    ),
    "q21": Stock(
        """
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE lower(channel)
                    WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                    ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')
                END AS channel_id
            FROM bid
        ) WHERE channel_id IS NOT NULL
        """,
        "append",
    ),
    "q22": Stock(
        """
        SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
            split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
        FROM bid
        """,
        "append",
    ),
}
"""What Spark takes as it is asked."""

REFUSED: Final = {
    "q4": f"""
        SELECT category, avg(final) AS avg_final
        FROM (SELECT A.category, max(B.price) AS final {_IN_TIME} GROUP BY A.id, A.category)
        GROUP BY category
        """,
    "q6": f"""
        SELECT seller, avg(price) AS avg_price
        FROM (
            SELECT *, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS nth
            FROM (
                SELECT A.seller, A.expires, A.id, max(B.price) AS price
                {_IN_TIME} GROUP BY A.seller, A.expires, A.id
            )
        )
        WHERE nth <= 10 GROUP BY seller
        """,
    "q9": f"""
        SELECT * FROM (
            SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time,
                B.extra AS bid_extra,
                row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time) AS nth
            {_IN_TIME}
        ) WHERE nth = 1
        """,
    "q15": f"SELECT {_DAY}, {_BIDS}, {_DISTINCT} FROM bid GROUP BY 1",
    "q16": f"SELECT channel, {_DAY}, {_MINUTE}, {_BIDS}, {_DISTINCT} FROM bid GROUP BY 1, 2",
    "q18": f"""
        SELECT {_BID} FROM (
            SELECT *,
                row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS nth
            FROM bid
        ) WHERE nth = 1
        """,
    "q19": f"""
        SELECT {_BID}, rank_number FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
            FROM bid
        ) WHERE rank_number <= 10
        """,
}
"""What Spark refuses in every output mode."""

REWRITTEN: Final = {
    "q4": Stock(
        f"""
        SELECT category,
            aggregate(finals, 0L, (sum, each) -> sum + each) / size(finals) AS avg_final
        FROM (
            SELECT category,
                transform(
                    array_distinct(transform(bids, bid -> bid.id)),
                    id -> array_max(
                        transform(filter(bids, bid -> bid.id = id), bid -> bid.price)
                    )
                ) AS finals
            FROM (
                SELECT A.category, collect_list(struct(A.id, B.price)) AS bids
                {_IN_TIME} GROUP BY A.category
            )
        )
        """,
        "update",
    ),
    "q6": Stock(
        f"""
        SELECT seller,
            aggregate(last, 0L, (sum, each) -> sum + each.price) / size(last) AS avg_price
        FROM (
            SELECT seller,
                slice(
                    sort_array(
                        transform(
                            array_distinct(transform(bids, bid -> struct(bid.expires, bid.id))),
                            won -> struct(
                                won.expires, won.id,
                                array_max(
                                    transform(
                                        filter(bids, bid -> bid.id = won.id), bid -> bid.price
                                    )
                                ) AS price
                            )
                        ),
                        false
                    ),
                    1, 10
                ) AS last
            FROM (
                SELECT A.seller, collect_list(struct(A.id, A.expires, B.price)) AS bids
                {_IN_TIME} GROUP BY A.seller
            )
        )
        """,
        "update",
    ),
    "q9": Stock(
        f"""
        SELECT {", ".join(f"a.{name}" for name in _OF_AUCTION.split(", "))}, b.auction, b.bidder,
            b.price, b.date_time AS bid_date_time, b.extra AS bid_extra
        FROM (
            SELECT A.id,
                first(struct({", ".join(f"A.{name}" for name in _OF_AUCTION.split(", "))})) AS a,
                max_by(
                    struct(B.auction, B.bidder, B.price, B.date_time, B.extra),
                    struct(B.price, -unix_micros(B.date_time), -B.partition, -B.offset)
                ) AS b
            {_IN_TIME} GROUP BY A.id
        )
        """,
        "update",
    ),
    "q15": Stock(f"SELECT {_DAY}, {_BIDS}, {_SETS} FROM bid GROUP BY 1", "update"),
    "q16": Stock(
        f"SELECT channel, {_DAY}, {_MINUTE}, {_BIDS}, {_SETS} FROM bid GROUP BY 1, 2", "update"
    ),
    "q18": Stock(
        """
        SELECT auction, bidder, last.price, last.channel, last.url, last.date_time, last.extra
        FROM (
            SELECT auction, bidder,
                max(struct(date_time, partition, offset, price, channel, url, extra)) AS last
            FROM bid GROUP BY auction, bidder
        )
        """,
        "update",
    ),
    "q19": Stock(
        """
        SELECT auction, bid.bidder, bid.price, bid.channel, bid.url, bid.date_time, bid.extra,
            CAST(rank + 1 AS BIGINT) AS rank_number
        FROM (
            SELECT auction,
                posexplode(
                    max_by(
                        struct(bidder, price, channel, url, date_time, extra),
                        struct(price, -partition, -offset),
                        10
                    )
                ) AS (rank, bid)
            FROM bid GROUP BY auction
        )
        """,
        "update",
    ),
}
"""What Spark takes instead, with the same answers: one aggregate whose arrays do the rest."""
