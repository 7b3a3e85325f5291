"""Where rows go: topics and partitions by name, for the compiled code that knows numbers.

This file alone decides how a destination is numbered: the partitions of the first topic that was
seen, then those of the second, and so on. Which partition a row gets, `partitioning` decides.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.delivery.client.cluster import Place
from headwater.streams.sink import partitioning as kernel
from headwater.streams.sink.partitioning import Int64s
from headwater.streams.sink.row_columns import RowError, Rows

LEFT_OUT: Final = -1
"""The number of a row that goes nowhere."""


class Destinations:
    """The topics that rows went to so far, and whose turn it is in each."""

    def __init__(self, partition_counts: Callable[[str], int], now_ms: int) -> None:
        """Begin without a topic.

        Args:
            partition_counts: How many partitions a topic has; asked once for each.
            now_ms: Decides which partition has the first turn: not the same one in every task.
        """
        self._partition_counts = partition_counts
        self._now_ms = now_ms
        self._indexes: dict[str, int] = {}
        self._places: list[Place] = []
        self._counts = np.zeros(0, np.int64)
        self._firsts = np.zeros(0, np.int64)
        self._turns = np.zeros((0, kernel.TURN_FIELDS), np.int64)

    def choose(self, rows: Rows, sizes: Int64s, topics: pa.Array | str) -> Int64s:
        """Return the number of each row's destination.

        Raises:
            RowError: A row names a partition that its topic does not have.
        """
        indexes = self._topic_indexes(topics, len(sizes))
        wrong = kernel.choose_partitions(
            rows.partitions, rows.key, sizes, indexes, self._counts, self._turns
        )
        if wrong >= 0:
            topic, _ = self._places[self._firsts[indexes[wrong]]]
            raise RowError(
                f"a row goes to partition {rows.partitions[wrong]} of {topic}, which has"
                f" {self._counts[indexes[wrong]]}",
                hint="leave the column `partition` out to let keys decide, or add partitions:"
                " headwater topic add-partitions",
            )
        chosen: Int64s = self._firsts[indexes] + rows.partitions
        return chosen

    def place(self, number: int) -> Place:
        """Return topic and partition of a destination."""
        return self._places[number]

    def grouped(self, chosen: Int64s) -> Iterator[tuple[Place, Int64s]]:
        """Yield each destination that has rows, and these in their order."""
        bounds = np.zeros(len(self._places) + 1, np.int64)
        order = np.empty(len(chosen), np.int64)
        kernel.group_rows(chosen, bounds, order)
        for number in np.flatnonzero(np.diff(bounds)):
            yield self._places[number], order[bounds[number] : bounds[number + 1]]

    def _topic_indexes(self, topics: pa.Array | str, count: int) -> Int64s:
        if isinstance(topics, str):
            return np.full(count, self._index(topics), np.int64)
        encoded = topics.dictionary_encode()
        known = np.array([self._index(name) for name in encoded.dictionary.to_pylist()], np.int64)
        found: Int64s = known[np.asarray(encoded.indices)]
        return found

    def _index(self, topic: str) -> int:
        index = self._indexes.get(topic)
        if index is None:
            index = len(self._indexes)
            count = self._partition_counts(topic)
            self._indexes[topic] = index
            self._firsts = np.append(self._firsts, len(self._places))
            self._counts = np.append(self._counts, count)
            self._turns = np.vstack((self._turns, [self._now_ms, 0]))
            self._places += [(topic, partition) for partition in range(count)]
        return index
