"""Batches that were refused for a moment, of producers that the partition does not know yet.

This file alone decides for how long later batches of such a producer wait for the refused one. A
partition takes any first sequence number from a producer that it does not know. If it refused
batch 0, because it was full, and took batch 1, which its idempotent producer had sent meanwhile,
batch 0 could never be written: librdkafka would even report it as delivered. Where the producer
is known, its sequence numbers tell.

Later batches are refused with NOT_ENOUGH_REPLICAS, which every client repeats by itself. An
OUT_OF_ORDER_SEQUENCE_NUMBER would end the transaction of librdkafka.
"""

from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader

PATIENCE_MS: Final = 30_000
"""Clients send a refused batch again within a second or two. One that has not come again for this
long was given up, and its producer may go on without it.
"""

PRODUCERS_MAX: Final = 1_000


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    refused_ms: float


class RefusedBatches:
    """The first refused batch of each unknown producer of one partition."""

    __slots__ = ("_first",)

    def __init__(self) -> None:
        """Start with none."""
        self._first: dict[int, _Refused] = {}

    def note(self, header: BatchHeader, now_ms: float) -> None:
        """Remember a batch that its producer will send again."""
        new = _Refused(header.producer_epoch, header.base_sequence, now_ms)
        known = self._first.get(header.producer_id)
        if known is not None and (
            new.producer_epoch < known.producer_epoch
            or (
                new.producer_epoch == known.producer_epoch
                and new.base_sequence > known.base_sequence
            )
        ):
            return
        self._first[header.producer_id] = new
        if len(self._first) > PRODUCERS_MAX:
            del self._first[next(iter(self._first))]

    def check(self, header: BatchHeader, now_ms: float) -> None:
        """Refuse a batch that follows a refused one.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS.
        """
        first = self._first.get(header.producer_id)
        if first is None or first.producer_epoch != header.producer_epoch:
            return
        if now_ms - first.refused_ms >= PATIENCE_MS:
            del self._first[header.producer_id]
        elif header.base_sequence > first.base_sequence:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The batch of producer {header.producer_id} with sequence number "
                f"{first.base_sequence} was refused and has to come first. Try again later.",
            )

    def forget(self, producer_id: int) -> None:
        """Forget a producer that the partition knows now."""
        self._first.pop(producer_id, None)
