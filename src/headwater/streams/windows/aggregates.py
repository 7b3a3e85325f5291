"""The aggregates by name.

This file alone decides which there are and what they are called.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headwater.streams.windows.aggregation import Aggregate, Aggregation
from headwater.streams.windows.amounts import Count, average_of, spread_of, sum_of
from headwater.streams.windows.approx_distinct import ApproxDistinct
from headwater.streams.windows.distinct import Distinct
from headwater.streams.windows.errors import AggregateTypeError
from headwater.streams.windows.extremes import extreme_of
from headwater.streams.windows.heavy_hitters import HeavyHitters
from headwater.streams.windows.ordered import Collect, Edge
from headwater.streams.windows.percentiles import percentile_of

_MAKERS: Final[dict[str, Callable[..., Aggregate]]] = {
    "count": lambda _kind: Count(),
    "sum": sum_of,
    "avg": average_of,
    "variance": lambda kind: spread_of(kind, root=False),
    "stddev": lambda kind: spread_of(kind, root=True),
    "min": lambda kind: extreme_of(kind, largest=False),
    "max": lambda kind: extreme_of(kind, largest=True),
    "first": lambda kind: Edge(kind, last=False),
    "last": lambda kind: Edge(kind, last=True),
    "collect": Collect,
    "distinct": Distinct,
    "approx_distinct": ApproxDistinct,
    "percentile": percentile_of,
    "heavy_hitters": HeavyHitters,
}

NAMES: Final = tuple(_MAKERS)


def aggregation(
    name: str, column: str | None = None, kind: pa.DataType | None = None, **options: float | bool
) -> Aggregation:
    """Return an aggregate of a column.

    Args:
        name: One of `NAMES`.
        column: The column; none for the count of rows.
        kind: Its type.
        options: What this aggregate alone is told.

    Raises:
        AggregateTypeError: It cannot take values of this type.
    """
    if name not in _MAKERS:
        raise AggregateTypeError(
            f"there is no aggregate {name!r}", hint=f"use one of {', '.join(NAMES)}"
        )
    if column is None and name != "count":
        raise AggregateTypeError(f"{name} needs a column")
    given = "".join(f", {option}={options[option]}" for option in sorted(options))
    label = name if column is None else f"{name} of {column} ({kind}{given})"
    return Aggregation(_MAKERS[name](kind, **options), name, column, label)
