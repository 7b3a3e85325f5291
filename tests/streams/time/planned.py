"""A query as far as a time reader notices it, with a clock that a test moves.

This file alone decides how such a query is asked and how its tasks report. It judges nothing.
"""

import json
import pickle
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.streams.client_options import ClientOptions
from headwater.streams.options import Choice
from headwater.streams.time import report
from headwater.streams.time.fold import Place, Reach
from headwater.streams.time.query_positions import QueryPositions, Stand, clocks_in
from headwater.streams.time.reader_options import Read, TimeOptions
from headwater.streams.time.report import Reporter
from headwater.streams.time.time_reader import TimeReader
from headwater.testing.manual_clock import ManualClock
from tests.streams.brokers import Broker

IDLE_MS = 10_000
DELAY_US = 10
# Brokers refuse timestamps that are far ahead of their own time; tests move an hour at most.
START_MS = time.time_ns() // 1_000_000 - 3_600_000
LIMIT = ReadAllAvailable()
Offset = dict[str, Any]


class Query:
    """A query as far as a time reader notices it: plannings, tasks that report, commits."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.query_id = uuid.uuid4().hex
        self.clock = ManualClock(START_MS)
        read = Read(
            Choice(topics=(topic,)),
            read_committed=True,
            bounded=options.pop("bounded", False),
            held=False,
        )
        self.options = TimeOptions(
            broker.bootstrap,
            ClientOptions(timeout_s=options.pop("timeout_s", 20.0)),
            options.pop("name", "at/any/p01"),
            DELAY_US,
            options.pop("idle_ms", IDLE_MS),
            (read,),
            driver="",
            closes=options.pop("closes", False),
        )
        assert not options
        self.topic = topic
        self.read: dict[Place, int] = {}
        self.readers: list[TimeReader] = []
        self.others: tuple[Offset, ...] = ()
        self.batches = 0
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(report, "time", SimpleNamespace(time_ns=self._time_ns))
        self.start()

    def _time_ns(self) -> int:
        return self.clock.now_ms() * 1_000_000

    def start(self, *, available_now: bool = False) -> None:
        """Start the query, or start it again on its checkpoint."""
        self.reader = TimeReader(self.options, self.clock, self)
        self.readers.append(self.reader)
        if not self.batches:
            self.offset = self.reader.initialOffset()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def ask(self, clock_id: str) -> QueryPositions:
        """Answer as the driver of the query."""
        assert clock_id == self.offset["clock"]
        clocks = clocks_in(Stand(None, json.dumps(each)) for each in (*self.others, self.offset))
        return QueryPositions(self.query_id, dict(self.read), clocks)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def copied(self, other: "Query") -> None:
        """Copy this query's checkpoint over another's."""
        other.query_id, other.offset, other.batches = self.query_id, self.offset, self.batches
        other.read = dict(self.read)

    def report(self, reached: dict[int, tuple[int | None, int, int]]) -> None:
        """Report as the tasks of a batch do."""
        self._monkeypatch.setattr(report, "_query_id", lambda: self.query_id)
        options = self.options
        reporter = Reporter(options.bootstrap, options.client, options.name, self.topic)
        told = pickle.loads(pickle.dumps(reporter))
        told.report({("", number): Reach(*reach) for number, reach in reached.items()})

    def plan(self, reached: dict[int, tuple[int | None, int, int]] | None = None) -> Offset:
        """Plan a batch, and run it if there is one: its rows have reached so far."""
        start, self.offset = self.offset, self.reader.latestOffset(self.offset, LIMIT)
        if start == self.offset and not reached:
            return self.offset
        if self.batches:
            self.reader.commit(start)
        self.batches += 1
        for partition in self.reader.partitions(start, self.offset):
            (rows,) = list(self.reader.read(partition))
            self.rows = rows.to_pylist()
        if reached:
            self.run(reached)
        return self.offset

    def run(self, reached: dict[int, tuple[int | None, int, int]]) -> None:
        """Run a batch with rows, up to the moment when Spark has committed it."""
        self.reader.commit(self.offset)
        self.report(reached)
        for number, (_, _, last) in reached.items():
            self.read[self.topic, number] = last + 1

    def stop(self) -> None:
        for reader in self.readers:
            reader.stop()

    @property
    def decided(self) -> tuple[int | None, bool]:
        return self.offset["watermark"], self.offset["idle"]


def send(broker: Broker, topic: str, counts: tuple[int, int]) -> None:
    for number, count in enumerate(counts):
        broker.send(topic, [(None, b"x")] * count, partition=number)
