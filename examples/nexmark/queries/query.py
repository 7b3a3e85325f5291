"""What a query of Nexmark is: its meaning, its SQL, and what a stream of its answers promises.

This file alone decides how a query is described. It knows none of them.

The SQL is the batch answer, in the dialect of DuckDB, over the tables `person`, `auction`, `bid`
and `side_input` with the columns of `examples.nexmark.model`; times are those of UTC, without a
zone. A streaming version is right if what it has emitted, with retracted rows taken away, is this
answer over the events that were not late, as soon as the watermark has passed all of them and all
auctions have expired. Windows hold their start and not their end, and begin at multiples of their
step since 1970. Rows that are equal in what a query orders by are ordered by where they stand in
the log: by partition, then offset. Averages are the quotient of the exact sum and the count, as a
double. Days, hours and minutes are those of UTC.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from inspect import getdoc
from textwrap import dedent
from typing import Final

import pyarrow as pa

BIGINT: Final = pa.int64()
DOUBLE: Final = pa.float64()
TEXT: Final = pa.string()
TIME: Final = pa.timestamp("us", tz="UTC")
EUROS: Final = pa.decimal128(23, 3)


class Emits(Enum):
    """When rows of an answer come, and whether they stay."""

    ROWS = "rows at once"
    """Each event gives its rows when it arrives; what is emitted stays."""
    PAIRS = "pairs at once"
    """Each pair of events gives its row when the second arrives; what is emitted stays."""
    WINDOWS = "closed windows"
    """A window gives its rows when the watermark reaches its end."""
    CHANGES = "changes"
    """An answer that has changed is retracted and inserted anew."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    Attributes:
        name: q0 to q22.
        title: What is asked, in a line.
        meaning: The same, and what a stream of answers promises.
        reads: The tables that it reads.
        emits: When rows of its answer come.
        identity: The columns that no two rows of an answer agree in; none if rows can be equal.
        answer: The columns of its answer, in this order.
        sql: The batch answer.
    """

    name: str
    title: str
    meaning: str
    reads: tuple[str, ...]
    emits: Emits
    identity: tuple[str, ...]
    answer: pa.Schema
    sql: str


def query(
    answer: dict[str, pa.DataType],
    *,
    emits: Emits,
    reads: str = "bid",
    identity: str = "",
) -> Callable[[Callable[[], str]], Query]:
    """Make a query of a function that gives SQL; its docstring says what it means."""

    def describe(function: Callable[[], str]) -> Query:
        meaning = getdoc(function)
        assert meaning is not None, "a query says what it means"
        return Query(
            name=function.__name__,
            title=meaning.splitlines()[0],
            meaning=meaning,
            reads=tuple(reads.split()),
            emits=emits,
            identity=tuple(identity.split()),
            answer=pa.schema(list(answer.items())),
            sql=dedent(function()).strip(),
        )

    return describe
