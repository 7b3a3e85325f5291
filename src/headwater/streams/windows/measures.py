"""What people ask to be measured: `hf.sum("amount")`, `hf.count()`, ...

This file alone decides how aggregates are asked for. What they compute is decided elsewhere; the
argument is a column, or any expression over columns, and Spark computes it before rows travel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater.streams.formats.types import quoted

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName


@dataclass(frozen=True)
class Measure:
    """An aggregate, by its name, of a column.

    Attributes:
        name: What `aggregates` calls it.
        column: What it is of; none for rows as such.
        options: What this aggregate alone is told.
    """

    name: str
    column: Column | None = None
    options: Mapping[str, float | bool] = field(default_factory=dict)


def count(column: "ColumnOrName | None" = None) -> Measure:
    """Count rows, or the values of a column that are not null."""
    return Measure("count", None if column is None else column_asked(column))


def sum(column: "ColumnOrName") -> Measure:  # noqa: A001 - as in SQL
    """Add up numbers; whatever order they come in, the result is the same to the last bit."""
    return Measure("sum", column_asked(column))


def avg(column: "ColumnOrName") -> Measure:
    """Average numbers."""
    return Measure("avg", column_asked(column))


def variance(column: "ColumnOrName") -> Measure:
    """Give the sample variance of numbers; null for fewer than two."""
    return Measure("variance", column_asked(column))


def stddev(column: "ColumnOrName") -> Measure:
    """Give the sample standard deviation of numbers; null for fewer than two."""
    return Measure("stddev", column_asked(column))


def min(column: "ColumnOrName") -> Measure:  # noqa: A001 - as in SQL
    """Give the smallest value."""
    return Measure("min", column_asked(column))


def max(column: "ColumnOrName") -> Measure:  # noqa: A001 - as in SQL
    """Give the largest value."""
    return Measure("max", column_asked(column))


def first(column: "ColumnOrName") -> Measure:
    """Give the value of the earliest event that has one."""
    return Measure("first", column_asked(column))


def last(column: "ColumnOrName") -> Measure:
    """Give the value of the latest event that has one."""
    return Measure("last", column_asked(column))


def collect(column: "ColumnOrName") -> Measure:
    """Give all values, in the order of their events."""
    return Measure("collect", column_asked(column))


def distinct(column: "ColumnOrName") -> Measure:
    """Count the values that differ, exactly: all of them are kept until the window closes."""
    return Measure("distinct", column_asked(column))


def approx_distinct(column: "ColumnOrName") -> Measure:
    """Estimate how many values differ, in 4 KB however many they are; off by about 1.6 %."""
    return Measure("approx_distinct", column_asked(column))


def percentile(column: "ColumnOrName", p: float, *, exact: bool = False) -> Measure:
    """Give the value below which this share of all values lies.

    Args:
        column: Numbers.
        p: The share, from 0 to 1: 0.5 for the median.
        exact: Whether all values are kept to find it; else it is off by at most 0.8 % of itself.
    """
    return Measure("percentile", column_asked(column), {"p": p, "exact": exact})


def heavy_hitters(column: "ColumnOrName", k: int = 10) -> Measure:
    """Give the values that come most often, most often first, each with how often it came.

    They are structs of `value`, `count` and `error`: the value came `count` times, or up to `error`
    times more. Up to a thousand different values all counts are exact; beyond that an error is less
    than a thousandth of all events.

    Args:
        column: The values.
        k: How many of them.
    """
    return Measure("heavy_hitters", column_asked(column), {"k": k})


def column_asked(given: "ColumnOrName") -> Column:
    """Return the column that people mean, as `groupBy` does: "a.b" is the field b of a."""
    return F.col(given) if isinstance(given, str) else given


def column_named(name: str) -> Column:
    """Return a column by its whole name, whatever characters it has."""
    return F.col(quoted(name))
