"""Whether what a side has emitted comes to the answer that DuckDB gives of the same events.

This file alone decides how emitted rows are put together and compared. It runs no query of a side.
"""

import duckdb
import pyarrow as pa

from benchmarks.nexmark.load import Load
from examples.nexmark.queries import Emits, Query
from tests.nexmark.oracle import ask, without_zones

WEIGHT = "weight"
BATCH = "batch"


class WrongAnswerError(Exception):
    """A side does not give the answer."""


def check(query: Query, load: Load, emitted: pa.Table, side: str) -> None:
    """Make sure that rows come to the answer, each as often as it is in it.

    Args:
        query: What was asked.
        load: What it was asked of.
        emitted: The answer's columns, and one of two: `weight`, 1 for an insert and -1 for a
            retraction, or `batch`, where a later row takes the place of one of the same identity.
        side: Whose rows they are.

    Raises:
        WrongAnswerError: They do not.
    """
    names = ", ".join(f'"{name}"' for name in query.answer.names)
    answer = without_zones(ask(query, load.asked(query)))
    if BATCH in emitted.column_names and query.identity:
        identity = ", ".join(query.identity)
        last = f"QUALIFY {BATCH} = max({BATCH}) OVER (PARTITION BY {identity})"
        rows = f"SELECT {names}, 1 AS {WEIGHT} FROM emitted {last}"
    else:
        rows = f"SELECT {names}, {WEIGHT} FROM emitted"
    if query.emits is Emits.WINDOWS:
        # Of the windows behind the stream, some sides close more than others.
        rows = f"SELECT * FROM ({rows}) WHERE {_time(query)} < TIMESTAMP '{load.ended:%F}'"
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("emitted", without_zones(emitted))
        connection.register("answer", answer)
        wrong = connection.sql(
            f"""
            SELECT {names}, sum({WEIGHT}) AS {WEIGHT}
            FROM ({rows} UNION ALL SELECT {names}, -1 FROM answer)
            GROUP BY {names} HAVING sum({WEIGHT}) <> 0
            """
        ).to_arrow_table()
    if wrong.num_rows:
        message = f"{query.name}, {side}: {wrong.num_rows} rows differ of {answer.num_rows}"
        raise WrongAnswerError(f"{message}, such as {wrong.slice(0, 4).to_pylist()}")


def _time(query: Query) -> str:
    names: list[str] = [f.name for f in query.answer if pa.types.is_timestamp(f.type)]
    return names[0]
