"""Spark's micro-batch engine, as far as a reader sees it, in this process and without a JVM.

This file alone decides in which order a reader is asked: as Spark does it, with offsets that live
as text between two questions, and a reader that travels pickled to where it reads.
"""

import json
import pickle
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql.streaming.datasource import ReadLimit

from headwater.base.clock import Clock
from headwater.streams.options import source_options
from headwater.streams.source.batch_reader import HeadwaterBatchReader
from headwater.streams.source.stream_reader import HeadwaterStreamReader
from tests.streams.brokers import Broker

WITHIN_S = 60.0
EARLIEST = {"startingOffsets": "earliest"}
GO_ON = {"failOnDataLoss": "false"}

Row = dict[str, Any]


class Query:
    """A streaming query on a checkpoint that a later one can go on from."""

    def __init__(
        self,
        broker: Broker,
        options: dict[str, str],
        *,
        checkpoint: "Query | None" = None,
        clock: Clock | None = None,
    ) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
        self.reader = HeadwaterStreamReader(source_options(given, streaming=True), clock)
        self.ends: list[str] = [] if checkpoint is None else list(checkpoint.ends)

    def start(self) -> str:
        """Return where the next batch begins, as text."""
        return self.ends[-1] if self.ends else json.dumps(self.reader.initialOffset())

    def batch(self, limit: ReadLimit | None = None) -> list[Row] | None:
        """Run one batch; None when there is nothing to run."""
        start = self.start()
        wanted = limit or self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), wanted))
        if end == start:
            return None
        rows = self.rows(start, end)
        self.ends.append(end)
        self.reader.commit(json.loads(end))
        return rows

    def all(self) -> list[Row]:
        """Run batches until there is nothing to run; gives their rows."""
        found: list[Row] = []
        while (rows := self.batch()) is not None:
            found += rows
        return found

    def rows(self, start: str, end: str) -> list[Row]:
        """Read what lies between two offsets, each task in a reader of its own."""
        partitions = self.reader.partitions(json.loads(start), json.loads(end))
        there = pickle.loads(pickle.dumps(self.reader))
        return [
            row
            for partition in pickle.loads(pickle.dumps(partitions))
            for batch in there.read(partition)
            for row in batch.to_pylist()
        ]


Streams = Callable[..., Query]
"""Starts queries on one broker and stops them when the test ends."""


def batch_read(broker: Broker, options: dict[str, str]) -> list[Row]:
    """Read as `spark.read` does."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    reader = HeadwaterBatchReader(source_options(given, streaming=False))
    return [
        row
        for partition in pickle.loads(pickle.dumps(reader.partitions()))
        for batch in pickle.loads(pickle.dumps(reader)).read(partition)
        for row in batch.to_pylist()
    ]


def values(rows: list[Row] | None) -> list[str]:
    """Return the values of rows, sorted."""
    return sorted(row["value"].decode() for row in rows or [])


def pairs(first: int, behind: int) -> list[tuple[bytes, bytes]]:
    """Make records that are told apart by their numbers."""
    return [(b"k%d" % number, b"%05d" % number) for number in range(first, behind)]


def texts(first: int, behind: int) -> list[str]:
    """Return the values of `pairs`."""
    return [f"{number:05d}" for number in range(first, behind)]


def add_partitions(broker: Broker, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(WITHIN_S)


def remove_before(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, offset)
    admin.delete_records([place])[place].result(WITHIN_S)


def delete(broker: Broker, topic: str) -> None:
    """Delete a topic and wait until the broker does not know it any more."""
    broker.delete(topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    while topic in admin.list_topics(timeout=WITHIN_S).topics:
        pass


def recreate(broker: Broker, topic: str, *, partitions: int = 1) -> None:
    delete(broker, topic)
    broker.create(topic, partitions=partitions)
