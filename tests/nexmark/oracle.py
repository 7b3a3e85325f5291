"""Answers of DuckDB to the queries of Nexmark.

This file alone decides how tables get into DuckDB and how answers come out: in the columns and
types that a query declares. It computes nothing itself.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa

from examples.nexmark.generator import side_input
from examples.nexmark.model import Events
from examples.nexmark.queries import Query

Row = tuple[Any, ...]


def ask(query: Query, events: Events) -> pa.Table:
    """Give the batch answer over all of these events, in no order."""
    return ask_all([query], events)[query.name]


def ask_all(queries: Iterable[Query], events: Events) -> dict[str, pa.Table]:
    """Give the batch answers of several queries, by name."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in (*events._asdict().items(), ("side_input", side_input())):
            connection.register(name, without_zones(table))
        return {query.name: _answer(query, connection) for query in queries}


def _answer(query: Query, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    answer = connection.sql(query.sql).to_arrow_table()
    assert answer.column_names == query.answer.names
    # A plain time becomes one of UTC.
    return answer.cast(query.answer)


def without_zones(table: pa.Table) -> pa.Table:
    """Give the same with times of UTC as plain ones: DuckDB's other ones need its time zones."""
    return table.cast(
        pa.schema(
            [
                pa.field(field.name, pa.timestamp("us"))
                if pa.types.is_timestamp(field.type)
                else field
                for field in table.schema
            ]
        )
    )


def bag(rows: pa.Table | Iterable[Row]) -> Counter[Row]:
    """Give the rows with how often each is there: what two answers are compared by."""
    if isinstance(rows, pa.Table):
        rows = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return Counter(rows)
