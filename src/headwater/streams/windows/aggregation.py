"""What an aggregate is: partial results that can be merged in any order.

This file alone decides what an aggregate is given and what it gives, and how several of them share
a table. It knows no window and no particular aggregate.

Partial results travel and lie in state as Arrow columns. The same rows, in whatever pieces they
come and in whatever order these are merged, give the same partial results to the byte, with the
exceptions that the aggregates themselves confess.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.operator import OFFSET, PARTITION, TIME, TOPIC, value_name

_PARTIAL: Final = "p"
_BEFORE_ALL: Final = int(np.iinfo(np.int64).min)


class Places:
    """When rows were, and where they come from: the order in which they count as one by one.

    It is that of time, then topic, partition and offset. Rows without a time come before all
    others.
    """

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    @cached_property
    def times(self) -> pa.Array:
        """Microseconds; no null, under which anything might lie."""
        return arrays.whole(self._rows.column(TIME)).fill_null(_BEFORE_ALL)

    @cached_property
    def topics(self) -> pa.Array:
        """Null where there is but one topic."""
        if TOPIC not in self._rows.column_names:
            return pa.nulls(self._rows.num_rows, pa.string())
        return arrays.whole(self._rows.column(TOPIC)).cast(pa.string())

    @cached_property
    def partitions(self) -> pa.Array:
        """As int32."""
        return arrays.whole(self._rows.column(PARTITION))

    @cached_property
    def offsets(self) -> pa.Array:
        """As int64."""
        return arrays.whole(self._rows.column(OFFSET))


class Rows(NamedTuple):
    """Rows that are new to an aggregate.

    Attributes:
        codes: The group of each row.
        groups: How many groups there are.
        values: The argument; None for an aggregate of rows as such.
        places: The order of the rows.
    """

    codes: Int64s
    groups: int
    values: pa.Array | None
    places: Places


class Aggregate(ABC):
    """A function of many rows, in parts.

    Attributes:
        partials: The types of the columns of a partial result.
        output: The type of the result.
        is_ordered: Whether it asks for the places of rows.
    """

    is_ordered = False
    partials: tuple[pa.DataType, ...]
    output: pa.DataType

    @abstractmethod
    def update(self, rows: Rows) -> list[pa.Array]:
        """Return a partial result for each group, of rows that are in none yet."""

    @abstractmethod
    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Return a partial result for each group, of partial results."""

    def trim(self, partials: list[pa.Array]) -> list[pa.Array]:
        """Return partial results that state has room for.

        Only what is about to be kept is trimmed, so that it does not matter how a batch was cut
        into pieces.
        """
        return partials

    @abstractmethod
    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the result of each partial result."""


class Aggregation(NamedTuple):
    """An aggregate of a column.

    Attributes:
        aggregate: The aggregate.
        name: What people call it.
        column: None for one of rows as such.
        label: Tells it from all others: partial results of one are not to be read by another.
    """

    aggregate: Aggregate
    name: str
    column: str | None
    label: str


class Aggregations:
    """Several aggregates whose partial results lie side by side in one table.

    Attributes:
        partials: The columns of the partial results.
        outputs: The types of the results.
        labels: What the aggregates are.
        columns: Which columns they are of, each once.
        is_ordered: Whether one of them asks for the places of rows.
    """

    def __init__(self, aggregations: Sequence[Aggregation]) -> None:
        assert aggregations, "a window without an aggregate has nothing to say"
        self._all = tuple(aggregations)
        self._spans: list[tuple[int, int]] = []
        types: list[pa.DataType] = []
        for each in self._all:
            self._spans.append((len(types), len(types) + len(each.aggregate.partials)))
            types += each.aggregate.partials
        self.names = tuple(f"{_PARTIAL}{number}" for number in range(len(types)))
        self.partials = pa.schema(list(zip(self.names, types, strict=True)))
        self.outputs = tuple(each.aggregate.output for each in self._all)
        self.labels = [each.label for each in self._all]
        columns = [each.column for each in self._all if each.column is not None]
        self.columns = tuple(dict.fromkeys(columns))
        self.is_ordered = any(each.aggregate.is_ordered for each in self._all)

    def fields(self, first: int) -> list[pa.Field]:
        """Return the results as values of an operator, numbered from `first`."""
        return [
            pa.field(value_name(first + number), kind) for number, kind in enumerate(self.outputs)
        ]

    def update(self, codes: Int64s, groups: int, rows: pa.Table) -> list[pa.Array]:
        """Return the partial results of rows with their values."""
        places = Places(rows)
        result = []
        for each in self._all:
            values = None if each.column is None else arrays.whole(rows.column(each.column))
            result += each.aggregate.update(Rows(codes, groups, values, places))
        return result

    def merge(self, codes: Int64s, groups: int, rows: pa.Table) -> list[pa.Array]:
        """Return the partial results of rows with partial results."""
        columns = [arrays.whole(rows.column(name)) for name in self.names]
        if _is_each_its_own(codes, groups):
            return columns
        result = []
        for (start, end), each in zip(self._spans, self._all, strict=True):
            result += each.aggregate.merge(codes, groups, columns[start:end])
        return result

    def trim(self, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Return partial results that state has room for."""
        columns = [arrays.whole(column) for column in partials]
        result = []
        for (start, end), each in zip(self._spans, self._all, strict=True):
            result += each.aggregate.trim(columns[start:end])
        return result

    def finish(self, rows: pa.Table) -> list[pa.Array]:
        """Return the results of rows with partial results."""
        columns = [arrays.whole(rows.column(name)) for name in self.names]
        return [
            each.aggregate.finish(columns[start:end])
            for (start, end), each in zip(self._spans, self._all, strict=True)
        ]


def _is_each_its_own(codes: Int64s, groups: int) -> bool:
    return len(codes) == groups and bool((codes == np.arange(groups)).all())
