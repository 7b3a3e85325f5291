"""Which partitions a clock has, and what they hold, as the brokers say it.

This file alone decides how often the brokers are asked. It asks within the client's patience, and
decides nothing about time.

A broker that has just started may not know a topic that it has, and a clock that forgot a partition
would run ahead of it. So what was seen or reported and is not named any more is asked for again
until the client's patience ends, once: it is believed to be gone until it is seen again.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import TruncatedBatchError, scan
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader
from headwater.delivery.client.cluster import Cluster, TopicInfo, is_retriable_or_broken
from headwater.streams.time.fold import Place
from headwater.streams.time.idleness import Log
from headwater.streams.time.reader_options import Read

# A partition that nobody has reported yet is noticed so late; one that was reported, at once.
_LOOK_AGAIN_MS: Final = 5_000
# What is between the last row and the end of a log is a few ends of transactions, or not that.
_LOOKED_THROUGH_BYTES: Final = 1 << 16


class _IncompleteError(KafkaError):
    """What the brokers have named lacks partitions that they had before."""

    def __init__(self, found: set[Place]) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.found = found


class Partitions:
    """Asks the brokers about the partitions that the sources read.

    Attributes:
        gone: Those that were there, and are believed not to be any more.
    """

    def __init__(self, cluster: Cluster, reads: Sequence[Read], clock: Clock) -> None:
        """Prepare to ask; nobody is asked yet."""
        self._cluster = cluster
        self._reads = reads
        self._clock = clock
        self._known: set[Place] = set()
        self._look_again_ms: int | None = None
        self.gone: set[Place] = set()

    def all(self, reported: Iterable[Place]) -> set[Place]:
        """Return the partitions that exist and are read.

        Args:
            reported: Those that tasks have reported; the brokers are asked of ones that are new.
        """
        now_ms = self._clock.monotonic_ms()
        expected = self._known | {place for place in reported if self._takes(place)}
        is_due = self._look_again_ms is None or now_ms >= self._look_again_ms
        if is_due or not expected <= self._known | self.gone:
            self._known = self._look(expected)
            self._look_again_ms = now_ms + _LOOK_AGAIN_MS
        return set(self._known)

    def _look(self, expected: set[Place]) -> set[Place]:
        try:
            return self._cluster.retrying(
                lambda: self._complete(expected), passes=is_retriable_or_broken
            )
        except _IncompleteError as error:
            self.gone |= expected - error.found
            return error.found

    def _complete(self, expected: set[Place]) -> set[Place]:
        found = {
            (name, each.number)
            for name, info in self._topics().items()
            for each in info.partitions
            if self._takes((name, each.number))
        }
        self.gone -= found
        if not expected <= found | self.gone:
            raise _IncompleteError(found)
        return found

    def _topics(self) -> Mapping[str, TopicInfo]:
        names = [name for read in self._reads for name in read.choice.names()]
        if any(read.choice.pattern is not None for read in self._reads):
            found = self._cluster.topics()
            return {
                name: info for name, info in found.items() if not info.internal or name in names
            }
        self._cluster.refresh(names)
        return {name: self._cluster.topic(name) for name in names if self._cluster.knows(name)}

    def _takes(self, place: Place) -> bool:
        return any(read.choice.takes(*place) for read in self._reads)

    def logs(self, places: Iterable[Place]) -> dict[Place, Log]:
        """Return what there is to read of each of these now."""
        return self._cluster.retrying(
            lambda: self._logs(list(places)), passes=is_retriable_or_broken
        )

    def _logs(self, places: list[Place]) -> dict[Place, Log]:
        starts = admin.list_offsets(self._cluster, dict.fromkeys(places, admin.EARLIEST))
        ends: dict[Place, int] = {}
        for committed in (True, False):
            wanted = [place for place in places if self._read_committed(place) is committed]
            if wanted:
                ends |= admin.list_offsets(
                    self._cluster, dict.fromkeys(wanted, admin.LATEST), read_committed=committed
                )
        return {place: Log(starts[place], ends[place]) for place in places}

    def holds_rows(self, place: Place, log: Log) -> bool:
        """Ask whether there is a row in a part of a partition, and not only ends of transactions.

        A part of which that cannot be said without reading much of it holds rows.
        """
        if log.start >= log.end:
            return False
        return self._cluster.retrying(
            lambda: self._look_through(place, log), passes=is_retriable_or_broken
        )

    def _look_through(self, place: Place, log: Log) -> bool:
        with BatchReader(
            self._cluster,
            *place,
            read_committed=self._read_committed(place),
            fetch_bytes=_LOOKED_THROUGH_BYTES,
            upto_offset=log.start,
        ) as reader:
            fetched = reader.fetch(log.start, wait_ms=0)
        waiting = sorted(fetched.aborted, key=lambda each: -each[1])
        given_up: set[int] = set()
        reached = log.start
        with contextlib.suppress(TruncatedBatchError):
            for _, header in scan(fetched.records):
                if header.base_offset >= log.end:
                    break
                while waiting and waiting[-1][1] <= header.last_offset:
                    given_up.add(waiting.pop()[0])
                if header.is_control:
                    given_up.discard(header.producer_id)
                elif header.producer_id not in given_up and header.last_offset >= log.start:
                    return True
                reached = max(reached, header.next_offset)
        return reached < log.end

    def _read_committed(self, place: Place) -> bool:
        return all(read.read_committed for read in self._reads if read.choice.takes(*place))
