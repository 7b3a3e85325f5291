"""What the query with windows is given, and what it must have said in the end.

This file alone decides which events there are: of each batch most are later than all before, some
are older than what has been given, so that results are corrected all the time. Whoever applies the
changes in the topic, in the order in which they came, must have the batch answer after each round,
and must never be told to take back what is not there.
"""

import json
import random
from collections import Counter
from pathlib import Path

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from tests.crash.broker.machine import Book
from tests.crash.kernel.query import IN, LENGTH_S, PHASES
from tests.crash.sink.failing import PHASES as SINK_PHASES
from tests.crash.sink.work import TOPIC, next_batch_id
from tests.streams.sink.reading import committed

_PARTITIONS = 2
_FIRST_S = 1_700_000_000
_NAMES = 7
_SPAN_S = 40

Result = tuple[str, int, int, int]
"""Name, start of the window, number of events, their sum."""


class Windowing:
    """Events in windows, with stragglers."""

    name = "windows"

    def __init__(
        self, folder: Path, seed: int, phases: tuple[str, ...] = (*PHASES, *SINK_PHASES)
    ) -> None:
        self.phases = phases
        self._offsets = folder / "checkpoint" / "offsets"
        self._dice = random.Random(f"events/{seed}")
        self._events: list[tuple[int, str, int]] = []
        self._now_s = _FIRST_S

    def prepare(self, bootstrap: str) -> None:
        with Cluster(bootstrap) as cluster:
            admin.create_topic(cluster, IN, partitions=_PARTITIONS)
            cluster.await_topic(IN, partitions=_PARTITIONS)

    def add_batch(self, number: int, bootstrap: str) -> None:
        with Cluster(bootstrap) as cluster, Producer(cluster) as producer:
            for partition in range(_PARTITIONS):
                for _ in range(self._dice.randint(15, 25)):
                    self._add(producer, partition, self._time_s())
            self._now_s += _SPAN_S
            # Each partition has reached the same time, so that it is known what has closed.
            for partition in range(_PARTITIONS):
                self._add(producer, partition, self._now_s)

    def _time_s(self) -> int:
        """Return a moment of this batch's, or for a straggler one long ago."""
        if self._dice.random() < 0.2:
            return self._dice.randrange(max(_FIRST_S, self._now_s - 20 * _SPAN_S), self._now_s + 1)
        return self._now_s + self._dice.randrange(_SPAN_S)

    def _add(self, producer: Producer, partition: int, at_s: int) -> None:
        event = (at_s, f"name {self._dice.randrange(_NAMES)}", len(self._events))
        value = {"at": event[0], "name": event[1], "number": event[2]}
        producer.send(IN, json.dumps(value).encode(), partition=partition)
        self._events.append(event)

    def next_batch_id(self) -> int:
        return next_batch_id(self._offsets)

    def judge(self, bootstrap: str, book: Book) -> None:
        found = self._applied(bootstrap, book)
        expected = self._expected()
        lost, more = expected - found, found - expected
        book.expect(not lost, "lost", f"{lost.total()} results, as {list(lost)[:3]}")
        book.expect(not more, "doubled", f"{more.total()} results, as {list(more)[:3]}")
        book.counts["lost"] += lost.total()
        book.counts["acked"] = len(self._events)

    def _applied(self, bootstrap: str, book: Book) -> Counter[Result]:
        """Apply all changes, one by one; partitions keep the order of those of a window."""
        standing: dict[tuple[str, int], tuple[int, int, int]] = {}
        for record in committed(bootstrap, TOPIC):
            change = json.loads(record.value)
            window = (change["name"], change["start"])
            result = (change["version"], change["n"], change["total"])
            if change["op"] == "insert":
                there = standing.setdefault(window, result)
                book.expect(there is result, "doubled", f"{result} of {window} beside {there}")
            else:
                taken = standing.pop(window, None)
                book.expect(taken == result, "doubled", f"{window} has {taken}, not {result}")
        return Counter((*window, n, total) for window, (_, n, total) in standing.items())

    def _expected(self) -> Counter[Result]:
        groups: dict[tuple[str, int], list[int]] = {}
        for at_s, name, number in self._events:
            start = at_s // LENGTH_S * LENGTH_S
            if start + LENGTH_S <= self._now_s:
                groups.setdefault((name, start), []).append(number)
        return Counter(
            (name, start, len(numbers), sum(numbers)) for (name, start), numbers in groups.items()
        )

    def size(self) -> int:
        return len(self._events)
