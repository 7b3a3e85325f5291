"""Joins by DuckDB over whole histories: the answers that operators must come to."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

from headwater.streams.joins.rows import LEFT, RIGHT
from tests.streams.joins.histories import Event

# One thread and one connection: the tables are small, and there are thousands of them.
DATABASE = duckdb.connect(config={"threads": 1})

_COLUMNS = pa.schema(
    [
        ("k", pa.string()),
        ("t", pa.int64()),
        ("n", pa.int64()),
        ("v", pa.int64()),
        ("w", pa.int64()),
        ("topic", pa.string()),
        ("p", pa.int64()),
    ]
)


def ask(events: Sequence[Event], question: str) -> Counter[tuple[Any, ...]]:
    """Ask DuckDB about the tables `l` and `r` of events."""
    for side, name in ((LEFT, "l"), (RIGHT, "r")):
        rows = [
            dict(
                zip(
                    _COLUMNS.names,
                    (e.key, e.time, e.number, e.value, e.weight, e.topic, e.partition),
                    strict=True,
                )
            )
            for e in events
            if e.side == side
        ]
        DATABASE.register(name, pa.Table.from_pylist(rows, schema=_COLUMNS))
    return Counter(DATABASE.execute(question).fetchall())


def interval_join(
    events: Sequence[Event], kind: str, lower_us: int, upper_us: int, condition: str = "true"
) -> Counter[tuple[Any, ...]]:
    """Return key, time and both sides' number and value of each row."""
    return ask(
        events,
        f"""
        select coalesce(l.k, r.k), greatest(l.t, r.t), l.n, l.v, r.n, r.v
        from l {kind} join r
        on l.k = r.k and r.t between l.t + {lower_us} and l.t + {upper_us} and {condition}
        """,
    )


def asof_join(events: Sequence[Event], kind: str) -> Counter[tuple[Any, ...]]:
    """Return key, time and both sides' number and value of each row.

    Where versions have the same time, DuckDB takes any; so only the last one is shown to it.
    """
    return ask(
        events,
        f"""
        with versions as (
            select * from r where t is not null
            qualify row_number() over (partition by k, t order by topic desc, p desc, n desc) = 1
        )
        select l.k, l.t, l.n, l.v, if(r.w > 0, r.n, null), if(r.w > 0, r.v, null)
        from l asof left join versions r on l.k = r.k and l.t >= r.t
        where {"r.w > 0" if kind == "inner" else "true"}
        """,
    )


def table_join(events: Sequence[Event], kind: str) -> Counter[tuple[Any, ...]]:
    """Return key, time and both sides' primary key and value of each row.

    The primary keys of events are decimal numbers, as text in bytes.
    """
    plain = [event._replace(number=int(event.value[0]), value=event.value[1]) for event in events]
    return ask(
        plain,
        f"""
        select coalesce(l.k, r.k), greatest(l.t, r.t),
            encode(cast(l.n as text)), l.v, encode(cast(r.n as text)), r.v
        from l {kind} join r on l.k = r.k
        """,
    )
