"""Telling every partition of a transaction how it ended.

This file alone decides what happens to a marker that cannot be written: where the topic is gone or
a newer producer has taken over nobody waits for it; after any other failure, such as a full disk,
it is tried again, because the transaction is still open there. It does not decide outcomes and does
not know transactional ids.

Markers are synced whatever the topic's ``flush.messages``: the coordinator forgets a transaction
when its markers are written, so they must not be lost after that.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from headwater.base.clock import Timers
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.countdown import Countdown
from headwater.delivery.broker.groups.offsets_topic import OFFSETS_TOPIC
from headwater.delivery.broker.topics import PartitionKey, Topics

_log = logging.getLogger(__name__)

# A disk that is full does not get room within a millisecond; a minute would be noticed.
_RETRY_MS: Final = 200

# The topic is gone, or the partition has seen a newer producer or coordinator: the transaction is
# not open there any more.
_NOT_NEEDED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class Marker(NamedTuple):
    """How a producer's transaction ended, and who says so."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class OffsetsEnded(Protocol):
    """Lets groups know that offsets which a transaction committed count, or never will."""

    def __call__(
        self, producer_id: int, producer_epoch: int, partitions: Iterable[int], *, committed: bool
    ) -> None:
        """The markers in these partitions of the offsets topic are durable."""
        ...


class Markers:
    """Writes markers and tells when all of them are durable."""

    def __init__(self, topics: Topics, timers: Timers, offsets_ended: OffsetsEnded) -> None:
        self._topics = topics
        self._timers = timers
        self._offsets_ended = offsets_ended

    def write(
        self, marker: Marker, partitions: Iterable[PartitionKey], done: Callable[[], None]
    ) -> None:
        """Write a marker into each partition; run ``done`` when the last one is durable."""
        # The writing itself counts as one, so that nothing is done before all is under way.
        countdown = Countdown(1, done)
        for key in partitions:
            countdown.one_more()
            self._write_one(marker, key, countdown)
        countdown.one_less()

    def _write_one(self, marker: Marker, key: PartitionKey, countdown: Countdown) -> None:
        try:
            self.append(self._outranking(marker, key), key, countdown.one_less)
        except KafkaError as error:
            if error.code in _NOT_NEEDED:
                _log.info("%s-%d: no marker for producer %d: %s", *key, marker.producer_id, error)
                countdown.one_less()
                return
            _log.warning("%s-%d: a marker is put off: %s", *key, error.message)
            self._timers.after(_RETRY_MS, partial(self._write_one, marker, key, countdown))

    def _outranking(self, marker: Marker, key: PartitionKey) -> Marker:
        """Let nobody be ahead of the coordinator of this node, the only one there is.

        A tool may have written a marker in the name of a later one.
        """
        partition = self._topics.partition(*key)
        known = partition.log.producers.get(marker.producer_id) if partition is not None else None
        if known is None or known.coordinator_epoch <= marker.coordinator_epoch:
            return marker
        return marker._replace(coordinator_epoch=known.coordinator_epoch)

    def append(self, marker: Marker, key: PartitionKey, when_synced: Callable[[], None]) -> None:
        """Write one marker.

        Raises:
            KafkaError: It was refused; nothing was written, and the action will not run.
        """
        partition = self._topics.partition(*key)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        appended = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        partition.when_synced(appended.last_offset, partial(self._synced, marker, key, when_synced))

    def _synced(self, marker: Marker, key: PartitionKey, when_synced: Callable[[], None]) -> None:
        topic, index = key
        if topic == OFFSETS_TOPIC:
            self._offsets_ended(
                marker.producer_id, marker.producer_epoch, [index], committed=marker.is_commit
            )
        when_synced()
