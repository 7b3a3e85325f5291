"""The queries q0 to q22: what each asks, its batch answer in SQL, what a stream of it promises.

Takes: nothing.
Gives: `QUERIES`, by name.
May import: pyarrow.
Start reading at: `examples.nexmark.queries.query`.
"""

from typing import Final

from examples.nexmark.queries import joins, reports, rows, windows
from examples.nexmark.queries.query import Emits, Query

__all__ = ["QUERIES", "Emits", "Query"]

QUERIES: Final[dict[str, Query]] = {
    query.name: query
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
