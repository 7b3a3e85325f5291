"""Joins by DuckDB over whole histories: the answers that operators must come to."""

from collections import Counter
from collections.abc import Mapping, Sequence
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
        ("b", pa.int64()),
    ]
)


def ask(
    events: Sequence[Event], question: str, batches: Mapping[int, int] | None = None
) -> Counter[tuple[Any, ...]]:
    """Ask DuckDB about the tables `l` and `r` of events; `b` is a batch for each number."""
    known = batches or {}
    for side, name in ((LEFT, "l"), (RIGHT, "r")):
        rows = [
            dict(
                zip(
                    _COLUMNS.names,
                    (
                        *(e.key, e.time, e.number, e.value, e.weight, e.topic, e.partition),
                        known.get(e.number),
                    ),
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


def asof_join_while_open(
    events: Sequence[Event], kind: str, known_by: Mapping[int, int]
) -> Counter[tuple[Any, ...]]:
    """Do the same of what was known at some time.

    Args:
        events: Rows of both sides.
        kind: inner or left.
        known_by: The batch in which a version came; the last one in which a row can change.
    """
    return ask(
        events,
        f"""
        select l.k, l.t, l.n, l.v, if(r.w > 0, r.n, null), if(r.w > 0, r.v, null)
        from l left join r on l.k = r.k and r.t <= l.t and r.b <= l.b
        qualify row_number() over (
            partition by l.n order by r.t desc nulls last, r.topic desc, r.p desc, r.n desc
        ) = 1 and {"coalesce(r.w, 0) > 0" if kind == "inner" else "true"}
        """,
        known_by,
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
