"""The queries as streams on Headwater: functions of DataFrames.

Takes: rows of the topic `nexmark`, as `format("headwater")` reads them.
Gives: `STREAMING`, by name: each a DataFrame whose rows come to the query's batch answer.
May import: headwater's public functions, pyspark.
Start reading at: `examples.nexmark.streaming.topic`.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from examples.nexmark.streaming import joins, reports, rows, windows
from examples.nexmark.streaming.topic import Topic

__all__ = ["STREAMING", "Topic"]

STREAMING: Final[dict[str, Callable[[Topic], DataFrame]]] = {
    query.__name__: query
    for query in (
        rows.q0,
        rows.q1,
        rows.q2,
        joins.q3,
        joins.q4,
        windows.q5,
        joins.q6,
        windows.q7,
        windows.q8,
        joins.q9,
        rows.q10,
        windows.q11,
        windows.q12,
        rows.q13,
        rows.q14,
        reports.q15,
        reports.q16,
        reports.q17,
        reports.q18,
        reports.q19,
        joins.q20,
        rows.q21,
        rows.q22,
    )
}
