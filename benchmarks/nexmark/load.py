"""The events of the benchmark, and the topic that holds them.

This file alone decides which events there are and how they get into the log: those of the published
generator, in two partitions, and at last some of each kind in every partition, one, two, three and
four days later. These are behind the end of all windows and let them close: where Spark has several
operators in a row, the second closes its windows a batch after the first.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa
from confluent_kafka import Producer

from examples.nexmark.generator import generate
from examples.nexmark.model import ROUND, Events, Settings
from examples.nexmark.queries import Emits, Query
from examples.nexmark.topics import behind, place, records, together
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster

PARTITIONS: Final = 2
SETTINGS: Final = Settings(seed=7)
# No event of the stream, however long it is, has ids so large.
_CLOSING_FIRST: Final = 10**6 * ROUND
_DAYS: Final = 4
_SLICE: Final = 100_000
_TIMEOUT_S: Final = 60.0


class Load(NamedTuple):
    """A topic and what is in it."""

    topic: str
    stream: Events
    closing: Events

    @property
    def size(self) -> int:
        """How many events the topic has."""
        return sum(table.num_rows for table in self.all)

    @property
    def all(self) -> Events:
        """All events, those that close windows too."""
        return together(self.stream, self.closing)

    @property
    def ended(self) -> datetime:
        """When the first event happens that is there to close windows."""
        return SETTINGS.first_time + timedelta(days=1)

    @property
    def full(self) -> int:
        """How many events come in batches of the same size; the last few days come behind them."""
        behind = _DAYS * PARTITIONS * len(self.closing) // 2
        return self.size - behind

    def asked(self, query: Query) -> Events:
        """Give the events that an answer is about: of windows, those that are closed for sure."""
        return self.stream if query.emits is Emits.WINDOWS else self.all


def fill(bootstrap: str, topic: str, count: int) -> Load:
    """Write so many events to a new topic."""
    stream = place(generate(SETTINGS, 0, count), PARTITIONS)
    load = Load(topic, stream, _closing(stream))
    with Cluster(bootstrap, timeout_s=_TIMEOUT_S) as cluster:
        # The events are of 2015: retention would delete them.
        configs = {"retention.ms": "-1", "flush.messages": str(2**63 - 1)}
        admin.create_topic(cluster, topic, partitions=PARTITIONS, configs=configs)
        cluster.await_topic(topic, partitions=PARTITIONS)
    # With idempotence a partition has its records in the order in which they were given.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    written = records(load.all)
    for first in range(0, written.num_rows, _SLICE):
        part = written.slice(first, _SLICE)
        stamps_ms = part["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        keys, values = part["key"].to_pylist(), part["value"].to_pylist()
        partitions = part["partition"].to_pylist()
        for key, value, partition, stamp_ms in zip(
            keys, values, partitions, stamps_ms, strict=True
        ):
            producer.produce(topic, value, key, partition, timestamp=stamp_ms)
        assert producer.flush(_TIMEOUT_S) == 0, "the broker did not take all events"
    return load


def _closing(stream: Events) -> Events:
    found = stream
    for partition in range(PARTITIONS):
        for day in range(1, _DAYS + 1):
            later = replace(SETTINGS, first_time=SETTINGS.first_time + timedelta(days=day))
            made = generate(later, _CLOSING_FIRST + (day * PARTITIONS + partition) * 10 * ROUND, 5)
            found = together(found, behind(found, partition, made))
    return Events(
        *(
            all_of_kind.slice(of_stream.num_rows)
            for all_of_kind, of_stream in zip(found, stream, strict=True)
        )
    )
