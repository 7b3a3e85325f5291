"""What happens when producers are faster than consumers.

This file alone decides a topic's answer to a fast producer, `headwater.overflow`, at the bound
`headwater.overflow.bytes` of each partition. It reads how far groups have come and cuts logs; it
knows nothing of requests, and a topic that buffers never gets here.

* ``buffer``: the log grows on disk; only retention removes.
* ``drop``: after each commit round the oldest records above the bound go, by raising the log start.
  A consumer that was there finds OFFSET_OUT_OF_RANGE and follows its ``auto.offset.reset``.
* ``backpressure``: what the slowest group has not yet committed may not outgrow the bound.

      backlog  0 ......... half the bound ............. bound
      answer   at once  |  delayed, 0 -> 1000 ms      | NOT_ENOUGH_REPLICAS, nothing appended

  The group that is furthest behind counts, whether or not it has members: its records are still
  owed. Where no group has committed anything, everything from the log start on is owed.

Why NOT_ENOUGH_REPLICAS and not a code that sounds better: the clients must send again by
themselves, after a pause, and must know that nothing was written.

| code | librdkafka | Java | kafka-python | aiokafka | kafkajs |
|---|---|---|---|---|---|
| 19 NOT_ENOUGH_REPLICAS | retry, not persisted | retry | retry | retry | retry |
| 89 THROTTLING_QUOTA_EXCEEDED | gives up | retry | retry | gives up | gives up |
| 7 REQUEST_TIMED_OUT | retry, perhaps persisted | retry | retry | retry | retry |
| 56 KAFKA_STORAGE_ERROR | retry, new metadata | retry, new metadata | same | retry | retry |

They retry until their own delivery time-out (Java 2 minutes, librdkafka 5), then tell the
application: the pressure has arrived where it belongs.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.partition import Partition
from headwater.log.dropping import drop_above
from headwater.log.partition import PartitionLog
from headwater.log.topic import INTERNAL_TOPICS

_log = logging.getLogger(__name__)

REFUSAL: Final = ErrorCode.NOT_ENOUGH_REPLICAS
DELAY_MS_MAX: Final = 1_000
"""Long enough to slow any client to one batch a second per connection, far below every client's
request time-out (30 s)."""
_FREE_SHARE: Final = 0.5
"""The part of the bound that is free of charge: a consumer's ordinary pauses should cost nothing,
and the delays need room to act in before the refusals."""


class Readers(Protocol):
    """Who reads what; the groups."""

    def committed_offsets(self, topic: str, partition: int) -> Iterable[tuple[str, int]]:
        """Return group and committed offset of everyone who has committed for the partition."""
        ...


class Decision(NamedTuple):
    """What to do with an append.

    Attributes:
        delay_ms: For how long the producer is held back afterwards.
        error: Why the append must not happen; None when it may.
        message: What to tell the producer with the error.
    """

    delay_ms: int = 0
    error: ErrorCode | None = None
    message: str = ""


@dataclass(slots=True)
class Counters:
    """What overflow has cost one partition since the start."""

    dropped_records: int = 0
    dropped_bytes: int = 0
    delayed: int = 0
    delayed_ms: int = 0
    refused: int = 0
    refused_bytes: int = 0


_AT_ONCE = Decision()


class Overflow:
    """The three answers, and how often they were given."""

    def __init__(self, readers: Readers, reclaim: Callable[[PartitionLog], None]) -> None:
        """Take who reads, and what frees the files below a log start that was raised."""
        self._readers = readers
        self._reclaim = reclaim
        # Partitions that will be looked at when their last append is durable.
        self._awaited: set[Partition] = set()
        # Those that could not be cut, usually for want of a descriptor, until the next upkeep.
        self._put_off: set[Partition] = set()
        self.counters: dict[tuple[str, int], Counters] = {}

    def before_append(self, partition: Partition, size_bytes: int) -> Decision:
        """Decide whether a batch may be appended, and at what price."""
        log = partition.log
        config = log.config
        bound = config.headwater_overflow_bytes
        if config.headwater_overflow != "backpressure" or bound < 0:
            return _AT_ONCE
        group, offset = self._slowest(partition)
        backlog = log.bytes_from(offset)
        filled = backlog + size_bytes
        free = int(bound * _FREE_SHARE)
        # With nothing owed a batch passes whatever its size: it could never pass otherwise.
        if not backlog or filled <= free:
            return _AT_ONCE
        if filled > bound:
            behind = f"group '{group}' is" if group else "no group has committed; readers are"
            return Decision(
                error=REFUSAL,
                message=f"{log.topic}-{log.partition} is full: {behind} {backlog} bytes behind "
                f"and headwater.overflow.bytes is {bound}. Try again later.",
            )
        delay_ms = DELAY_MS_MAX * (filled - free) // max(1, bound - free)
        counters = self._counters(partition)
        counters.delayed += 1
        counters.delayed_ms += delay_ms
        return Decision(delay_ms)

    def count_refused(self, partition: Partition, size_bytes: int) -> None:
        """Count a batch that was refused."""
        counters = self._counters(partition)
        counters.refused += 1
        counters.refused_bytes += size_bytes

    def after_start(self, partition: Partition) -> None:
        """Drop what had been dropped before the broker stopped.

        Nobody writes those log starts down, one for each commit. They follow from what is durable
        and from the bound, so they are found again: at least as high as anybody was told. Before
        compaction makes the log smaller they are written down. Where the bound is a default that
        has changed since, the store has done it by the old one.
        """
        self._drop(partition)

    def after_append(self, partition: Partition) -> None:
        """Drop what is above the bound, as soon as what was appended is durable.

        Not before: records that are not yet safe would go, and with them their answers. One look
        serves all appends of a commit round. What cannot be dropped now is dropped later: the
        records are in the log, and their producer must not hear of an error.
        """
        log = partition.log
        if log.config.headwater_overflow != "drop" or partition in self._awaited:
            return
        if log.high_watermark >= log.log_end_offset:
            self._try_to_drop(partition)
        else:
            self._awaited.add(partition)
            partition.when_durable(log.log_end_offset - 1, lambda: self._durable(partition))

    def _durable(self, partition: Partition) -> None:
        self._awaited.discard(partition)
        self._try_to_drop(partition)
        if partition.log.high_watermark < partition.log.log_end_offset:
            self.after_append(partition)

    def keep_up(self) -> None:
        """Drop what could not be dropped when it was due."""
        for partition in tuple(self._put_off):
            self._try_to_drop(partition)

    def _try_to_drop(self, partition: Partition) -> None:
        try:
            self._drop(partition)
        except (KafkaError, OSError) as error:
            log = partition.log
            if partition not in self._put_off:
                _log.warning("%s-%d: dropping is put off: %s", log.topic, log.partition, error)
            self._put_off.add(partition)
        else:
            self._put_off.discard(partition)

    def _drop(self, partition: Partition) -> None:
        log = partition.log
        bound = log.config.headwater_overflow_bytes
        if log.config.headwater_overflow != "drop" or bound < 0:
            return
        if log.topic in INTERNAL_TOPICS:
            # A default for topics is none for the broker's own state.
            return
        before_bytes = log.durable_bytes()
        if before_bytes <= bound:
            return
        before_offset = log.log_start_offset
        drop_above(log, bound)
        counters = self._counters(partition)
        counters.dropped_records += log.log_start_offset - before_offset
        counters.dropped_bytes += before_bytes - log.durable_bytes()
        self._reclaim(log)

    def forget(self, topic: str) -> None:
        """Forget a topic that is gone."""
        for key in [key for key in self.counters if key[0] == topic]:
            del self.counters[key]
        self._awaited = {each for each in self._awaited if each.log.topic != topic}
        self._put_off = {each for each in self._put_off if each.log.topic != topic}

    def _slowest(self, partition: Partition) -> tuple[str, int]:
        """Return the group that is furthest behind, and the first offset it is still owed."""
        log = partition.log
        start = log.log_start_offset
        slowest = min(
            (
                (offset, group)
                for group, offset in self._readers.committed_offsets(log.topic, log.partition)
            ),
            default=None,
        )
        if slowest is None:
            return "", start
        return slowest[1], min(max(slowest[0], start), log.log_end_offset)

    def _counters(self, partition: Partition) -> Counters:
        key = (partition.log.topic, partition.log.partition)
        return self.counters.setdefault(key, Counters())
