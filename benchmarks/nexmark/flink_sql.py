"""The queries in Flink's SQL, and the tables that they read.

This file alone decides how Flink is asked. The queries are those of the published Nexmark, where
these mean the same as ours; rows that are equal in what is ordered by stand as in the log. It runs
nothing.
"""

from pathlib import Path
from typing import Final

import pyarrow as pa

from examples.nexmark.model import AUCTION, BID, PERSON

_PLACE: Final = ("append_time", "partition", "offset")
_KINDS: Final = {"person": PERSON, "auction": AUCTION, "bid": BID}
_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "STRING"}
_TIME: Final = "TIMESTAMP_LTZ(3)"
_LEVELS: Final = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def tables(bootstrap: str, topic: str, side_input: Path) -> list[str]:
    """Return the statements that make the tables and views which the queries read."""
    file = f"'connector' = 'filesystem', 'path' = '{side_input.as_uri()}', 'format' = 'csv'"
    statements = [
        _events("events", "date_time", bootstrap, topic),
        _events("events_in", "append_time", bootstrap, topic),
        f"CREATE TABLE side_input (`key` BIGINT, `value` STRING) WITH ({file})",
    ]
    views = [(kind, "events", kind) for kind in _KINDS] + [("bids_in", "events_in", "bid")]
    for view, table, kind in views:
        fields = [
            "date_time" if field.name == "date_time" else f"{kind}.`{field.name}`"
            for field in _KINDS[kind]
            if field.name not in _PLACE
        ]
        columns = ", ".join([*fields, *(f"`{name}`" for name in _PLACE)])
        number = list(_KINDS).index(kind)
        statements.append(
            f"CREATE VIEW {view} AS SELECT {columns} FROM {table} WHERE event_type = {number}"
        )
    return statements


def _events(name: str, time: str, bootstrap: str, topic: str) -> str:
    kinds = ", ".join(f"{kind} ROW<{_fields(columns)}>" for kind, columns in _KINDS.items())
    return f"""
        CREATE TABLE {name} (
            event_type INT, {kinds},
            append_time {_TIME} METADATA FROM 'timestamp' VIRTUAL,
            `partition` INT METADATA VIRTUAL,
            `offset` BIGINT METADATA VIRTUAL,
            date_time AS CASE event_type
                WHEN 0 THEN person.date_time WHEN 1 THEN auction.date_time ELSE bid.date_time END,
            WATERMARK FOR {time} AS {time} - INTERVAL '4' SECOND
        ) WITH (
            'connector' = 'kafka', 'topic' = '{topic}',
            'properties.bootstrap.servers' = '{bootstrap}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
            'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'
        )
        """


def _fields(columns: pa.Schema) -> str:
    return ", ".join(
        f"`{field.name}` {_TYPES.get(field.type, _TIME)}"
        for field in columns
        if field.name not in _PLACE
    )


def _counts(what: str, counted: str) -> str:
    columns = [f"COUNT({counted}) AS total_{what}"]
    for rank, level in enumerate(_LEVELS, start=1):
        columns.append(f"COUNT({counted}) FILTER (WHERE {level}) AS rank{rank}_{what}")
    return ", ".join(columns)


_PLAIN: Final = "CAST(date_time AS TIMESTAMP(3))"
_DAY: Final = f"DATE_FORMAT({_PLAIN}, 'yyyy-MM-dd')"
_MINUTE: Final = f"DATE_FORMAT({_PLAIN}, 'HH:mm')"
_EUROS: Final = "CAST(0.908 * price AS DECIMAL(23, 3))"
_BID: Final = "auction, bidder, price, channel, url, date_time, extra"
_OF_AUCTION: Final = (
    "id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra"
)
_IN_TIME: Final = """
    FROM auction AS A JOIN bid AS B
    ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    """
_ALL_COUNTS: Final = ", ".join(
    [
        _counts("bids", "*"),
        _counts("bidders", "DISTINCT bidder"),
        _counts("auctions", "DISTINCT auction"),
    ]
)
_HOPS: Final = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(
        HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    )
    GROUP BY auction, window_start, window_end
    """


def _tumble(table: str, columns: str, time: str = "date_time") -> str:
    return f"""
        SELECT {columns}, window_start, window_end
        FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' SECOND))
        """


ANSWERS: Final = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": f"SELECT auction, bidder, {_EUROS}, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT P.name, P.city, P.state, A.id
        FROM auction AS A JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
        """,
    "q4": f"""
        SELECT category, AVG(CAST(final AS DOUBLE))
        FROM (SELECT A.category, MAX(B.price) AS final {_IN_TIME} GROUP BY A.id, A.category)
        GROUP BY category
        """,
    "q5": f"""
        SELECT A.auction, A.num, A.window_start, A.window_end
        FROM ({_HOPS}) AS A
        JOIN (
            SELECT MAX(num) AS most, window_start, window_end
            FROM ({_HOPS}) GROUP BY window_start, window_end
        ) AS M
        ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.num >= M.most
        """,
    "q6": f"""
        SELECT seller, AVG(CAST(price AS DOUBLE))
        FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS nth
            FROM (
                SELECT A.seller, A.expires, A.id, MAX(B.price) AS price
                {_IN_TIME} GROUP BY A.seller, A.expires, A.id
            )
        )
        WHERE nth <= 10 GROUP BY seller
        """,
    "q7": f"""
        SELECT B.auction, B.bidder, B.price, B.date_time, B.extra
        FROM bid AS B
        JOIN (
            SELECT MAX(price) AS highest, window_time AS last_time
            FROM ({_tumble("bid", "price, window_time")})
            GROUP BY window_start, window_end, window_time
        ) AS M
        ON B.price = M.highest
            AND B.date_time BETWEEN M.last_time - INTERVAL '9.999' SECOND AND M.last_time
        """,
    "q8": f"""
        SELECT P.id, P.name, P.window_start
        FROM (
            SELECT id, name, window_start, window_end
            FROM ({_tumble("person", "id, name")}) GROUP BY id, name, window_start, window_end
        ) AS P
        JOIN (
            SELECT seller, window_start, window_end
            FROM ({_tumble("auction", "seller")}) GROUP BY seller, window_start, window_end
        ) AS A
        ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
        """,
    "q9": f"""
        SELECT {_OF_AUCTION}, auction, bidder, price, bid_date_time, bid_extra
        FROM (
            SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time,
                B.extra AS bid_extra,
                ROW_NUMBER() OVER (
                    PARTITION BY A.id
                    ORDER BY B.price DESC, B.date_time, B.`partition`, B.`offset`
                ) AS nth
            {_IN_TIME}
        ) WHERE nth <= 1
        """,
    "q10": f"SELECT auction, bidder, price, date_time, extra, {_DAY}, {_MINUTE} FROM bid",
    "q11": """
        SELECT bidder, COUNT(*), window_start, window_end
        FROM TABLE(
            SESSION(
                TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND
            )
        )
        GROUP BY bidder, window_start, window_end
        """,
    "q12": f"""
        SELECT bidder, COUNT(*), window_start, window_end
        FROM ({_tumble("bids_in", "bidder", "append_time")})
        GROUP BY bidder, window_start, window_end
        """,
    "q13": """
        SELECT B.auction, B.bidder, B.price, B.date_time, S.`value`
        FROM bid AS B JOIN side_input AS S ON MOD(B.auction, 10000) = S.`key`
        """,
    "q14": f"""
        SELECT auction, bidder, {_EUROS},
            CASE
                WHEN HOUR({_PLAIN}) BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN HOUR({_PLAIN}) <= 6 OR HOUR({_PLAIN}) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END,
            date_time, extra,
            CAST(CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS BIGINT)
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
        """,
    "q15": f"SELECT {_DAY}, {_ALL_COUNTS} FROM bid GROUP BY {_DAY}",
    "q16": f"""
        SELECT channel, {_DAY}, MAX({_MINUTE}), {_ALL_COUNTS}
        FROM bid GROUP BY channel, {_DAY}
        """,
    "q17": f"""
        SELECT auction, {_DAY}, {_counts("bids", "*")}, MIN(price), MAX(price),
            AVG(CAST(price AS DOUBLE)), SUM(price)
        FROM bid GROUP BY auction, {_DAY}
        """,
    "q18": f"""
        SELECT {_BID} FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY bidder, auction
                ORDER BY date_time DESC, `partition` DESC, `offset` DESC
            ) AS nth
            FROM bid
        ) WHERE nth <= 1
        """,
    "q19": f"""
        SELECT {_BID}, nth FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY auction ORDER BY price DESC, `partition`, `offset`
            ) AS nth
            FROM bid
        ) WHERE nth <= 10
        """,
    "q20": """
        SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time, B.extra,
            A.item_name, A.description, A.initial_bid, A.reserve, A.date_time, A.expires,
            A.seller, A.category, A.extra
        FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10
        """,
    "q21": """
        SELECT * FROM (
            SELECT auction, bidder, price, channel,
                CASE LOWER(channel)
                    WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                    ELSE NULLIF(REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2), '')
                END AS channel_id
            FROM bid
        ) WHERE channel_id IS NOT NULL
        """,
    "q22": """
        SELECT auction, bidder, price, channel,
            SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5)
        FROM bid
        """,
}
