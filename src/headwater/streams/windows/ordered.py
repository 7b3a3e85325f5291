"""The first value, the last value, and all values in their order.

This file alone decides which order that is: of event time, and at the same time of topic, partition
and offset. It is not that of arrival, so any batches give the same. Only rows that are equal in all
of these, as those of one record are behind `explode`, stand as they came. Nulls are left out.

`collect` keeps every value of a window in state, and writes the whole list again when it grows.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.windows import picks
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.columns import flat, lists, taken

_PLACE = (pa.int64(), pa.string(), pa.int32(), pa.int64())


class Edge(Aggregate):
    """The first or the last value."""

    is_ordered = True

    def __init__(self, kind: pa.DataType, *, last: bool) -> None:
        self._last = last
        self.partials = (kind, *_PLACE)
        self.output = kind

    def update(self, rows: Rows) -> list[pa.Array]:
        """Pick values."""
        return self.merge(rows.codes, rows.groups, _with_places(rows))

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Pick among what was picked."""
        values, times, topics, partitions, offsets = partials
        picked = np.full(groups, -1)
        picks.pick_place(
            arrays.numbers(times, np.int64),
            topic_ranks(topics),
            arrays.numbers(partitions, np.int32),
            arrays.numbers(offsets, np.int64),
            arrays.validity(values),
            codes,
            picked,
            self._last,
        )
        return [taken(column, picked) for column in partials]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return what was picked."""
        return partials[0]


class Collect(Aggregate):
    """All values, as a list in their order; empty where there are none but nulls."""

    is_ordered = True

    def __init__(self, kind: pa.DataType) -> None:
        self.partials = tuple(pa.list_(each) for each in (kind, *_PLACE))
        self.output = pa.list_(kind)

    def update(self, rows: Rows) -> list[pa.Array]:
        """Gather values."""
        columns = _with_places(rows)
        valid = arrays.validity(columns[0])
        codes = rows.codes
        if len(valid):
            kept = np.flatnonzero(valid)
            codes, columns = codes[kept], [column.take(pa.array(kept)) for column in columns]
        return self._listed(codes, rows.groups, columns)

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Gather lists."""
        owners = codes[flat(partials[1]).owners]
        return self._listed(owners, groups, [column.flatten() for column in partials])

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the lists."""
        return partials[0]

    def _listed(self, codes: Int64s, groups: int, columns: list[pa.Array]) -> list[pa.Array]:
        _, times, topics, partitions, offsets = columns
        order = np.lexsort(
            (
                arrays.numbers(offsets, np.int64),
                arrays.numbers(partitions, np.int32),
                topic_ranks(topics),
                arrays.numbers(times, np.int64),
                codes,
            )
        )
        return [
            lists(codes[order], groups, column.take(pa.array(order))).cast(kind)
            for column, kind in zip(columns, self.partials, strict=True)
        ]


def _with_places(rows: Rows) -> list[pa.Array]:
    assert rows.values is not None
    places = rows.places
    return [rows.values, places.times, places.topics, places.partitions, places.offsets]


def topic_ranks(topics: pa.Array) -> Int64s:
    """Return whole numbers that are ordered as the topics are."""
    coded = topics.dictionary_encode()
    if len(coded.dictionary) < 2:
        return np.zeros(len(topics), np.int64)
    ranks = np.empty(len(coded.dictionary), np.int64)
    ranks[pc.sort_indices(coded.dictionary).to_numpy()] = np.arange(len(ranks))
    found: Int64s = ranks[coded.indices.fill_null(0).to_numpy()]
    return found
