"""What a partition remembers of its idempotent and transactional producers.

This file alone decides whether a batch with a producer id is new, a repetition, or out of order,
whether a marker may end a transaction, and the bytes of a `.snapshot` file. It knows no file and
no clock; which transactions are undecided is kept by `transactions`.

Per producer id: the epoch, and the last five batches with their sequence numbers and offsets.
Five, because a client may have five requests in flight, and each of them may be sent again.

    unknown producer id                     accepted, whatever its first sequence number; an epoch
                                            below that of no producer is INVALID_PRODUCER_EPOCH
    same numbers as one of the last five    a repetition: answered with the first one's offset
    an older epoch                          INVALID_PRODUCER_EPOCH
    a newer epoch                           must begin at sequence number 0
    the same epoch                          must follow the last one; 0 follows 2**31 - 1
    anything else                           OUT_OF_ORDER_SEQUENCE_NUMBER
    outside the transaction that is open    INVALID_TXN_STATE

A broker's own transactional batches have no sequence numbers; only their epoch is judged. The
first transactional batch of a producer opens its transaction, a marker ends it:

    an older epoch                          INVALID_PRODUCER_EPOCH
    transaction.version 2: the same epoch   INVALID_PRODUCER_EPOCH while a transaction is open; a
                                            coordinator raises it at every end, so this marker was
                                            meant for the transaction before. Not of the last
                                            epoch there is, which cannot be raised.
    an older coordinator's epoch            TRANSACTION_COORDINATOR_FENCED
    a newer epoch                           the window is empty then: the producer begins at 0

A producer is forgotten after it was silent for too long. Its last batch tells since when, as in
Kafka, unless the batch's timestamp is far from the time at which it came: a producer of old records
would be forgotten at once, and what it sends again would be written twice.

A snapshot is Kafka's, version 1:

    int16   version
    uint32  CRC-32C of all that follows
    int32   number of entries; each:
        int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
        int64 timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1

It holds the last batch of each producer only; `repetition` finds the others when they are needed.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import TRANSACTIONAL_MASK, BatchHeader
from headwater.base.record.control import EndTransactionMarker
from headwater.base.record.crc import crc32c
from headwater.log.transactions import Transactions
from headwater.log.txn_index import TxnIndexEntry

BATCHES_MAX: Final = 5
SEQUENCE_MASK: Final = 0x7FFF_FFFF
NO_TRANSACTION: Final = -1
NO_COORDINATOR: Final = -1
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1

OLD_MS: Final = 3_600_000
"""A batch's timestamp that is further from now does not tell when it came."""

EPOCH_BUMPING_VERSION: Final = 2
"""The `transaction.version` from which on every end of a transaction raises the epoch."""

SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(
    ">"
    "q"  # producer id
    "h"  # epoch
    "i"  # last sequence
    "q"  # last offset
    "i"  # offset delta
    "q"  # timestamp
    "i"  # coordinator epoch
    "q"  # first offset of the open transaction
)
_CRC_END = 6


class ProducerBatch(NamedTuple):
    """One batch in a producer's window."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """One producer id on one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_whole",
        "timestamp",
        "txn_first_offset",
        "txn_since_ms",
    )

    def __init__(self, epoch: int) -> None:
        """Start an empty window."""
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.is_whole = True
        self.timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR
        self.txn_first_offset = NO_TRANSACTION
        self.txn_since_ms = -1

    @property
    def last_sequence(self) -> int:
        """The sequence number that the next batch follows; -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else -1

    def has_ended(self, batch: ProducerBatch) -> bool:
        """Tell whether a batch of a transaction belongs to one that is not open any more.

        Nobody repeats such a batch: all of a transaction is settled before its end is asked for.
        What has its sequence number is new, of a client that has lost count (librdkafka, when it
        aborts with records under way); answered as repeated, it would be lost.
        """
        return self.txn_first_offset < 0 or batch.base_offset < self.txn_first_offset


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_producers", "_replayed", "transactions")

    def __init__(self) -> None:
        """Start with none."""
        self._producers: dict[int, Producer] = {}
        self._replayed: set[int] = set()
        self.transactions = Transactions()

    def __len__(self) -> int:
        """Return how many producer ids are known."""
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """Return what is known of a producer."""
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        """Return every producer id with what is known of it."""
        return sorted(self._producers.items())

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Judge a batch that wants to be appended.

        Returns:
            The batch it repeats, or None for a new one.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        epoch = header.producer_epoch
        producer = self._producers.get(header.producer_id)
        if producer is None:
            if epoch < NO_EPOCH:
                raise _old_epoch(header.producer_id, epoch, NO_EPOCH)
            return None
        base_sequence = header.base_sequence
        if epoch < producer.epoch:
            raise _old_epoch(header.producer_id, epoch, producer.epoch)
        if base_sequence == NO_SEQUENCE:
            pass
        elif epoch == producer.epoch:
            last_sequence = producer.last_sequence
            if base_sequence != (last_sequence + 1) & SEQUENCE_MASK:
                repeated = (base_sequence + header.last_offset_delta) & SEQUENCE_MASK
                for batch in producer.batches:
                    if (
                        batch.base_sequence == base_sequence
                        and batch.last_sequence == repeated
                        and not (header.is_transactional and producer.has_ended(batch))
                    ):
                        return batch
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} sent sequence number {base_sequence},"
                    f" the last one was {last_sequence}",
                )
        elif base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} began epoch {epoch} with sequence number"
                f" {base_sequence}, not 0",
            )
        if producer.txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has had a transaction open since offset"
                f" {producer.txn_first_offset}, this batch is not part of it",
            )
        return None

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Judge a marker that wants to end a producer's transaction.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if producer_epoch < producer.epoch or (
            transaction_version >= EPOCH_BUMPING_VERSION
            and producer_epoch == producer.epoch < EPOCH_MAX
            and producer.txn_first_offset >= 0
        ):
            raise _old_epoch(producer_id, producer_epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator of producer {producer_id} has epoch {coordinator_epoch},"
                f" a later one has epoch {producer.coordinator_epoch}",
            )

    def add(
        self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int | None = None
    ) -> None:
        """Remember a batch that was appended at `base_offset`, and open its transaction."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._enter(header.producer_id, header.producer_epoch)
        _remember(producer, header, base_offset, timestamp)
        producer.timestamp = timestamp if now_ms is None else _seen_ms(timestamp, now_ms)
        if header.attributes & TRANSACTIONAL_MASK and producer.txn_first_offset < 0:
            producer.txn_first_offset = base_offset
            producer.txn_since_ms = timestamp if now_ms is None else now_ms
            self.transactions.begin(header.producer_id, base_offset)

    def end(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        *,
        offset: int,
        timestamp: int,
    ) -> TxnIndexEntry | None:
        """Remember a marker that was appended at `offset`.

        Returns:
            What the index of aborted transactions has to hold, if anything.
        """
        producer = self._enter(producer_id, producer_epoch)
        producer.timestamp = timestamp
        producer.coordinator_epoch = marker.coordinator_epoch
        if producer.txn_first_offset < 0:
            return None
        producer.txn_first_offset = NO_TRANSACTION
        ended = self.transactions.end(producer_id, offset)
        return None if marker.is_commit else ended

    def _enter(self, producer_id: int, epoch: int) -> Producer:
        """Return a producer with this epoch; a new epoch begins with an empty window."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches = []
        return producer

    def replay(
        self, header: BatchHeader, marker: EndTransactionMarker | None
    ) -> TxnIndexEntry | None:
        """Remember a batch found in the log, which was judged when it was written.

        Args:
            header: The header of the batch.
            marker: What it says if it is a control batch. None where it says nothing about a
                transaction: of another kind, or emptied by compaction.

        Returns:
            As `end`.
        """
        if not header.is_control:
            self.add(header, header.base_offset, header.max_timestamp)
            self._replayed.add(header.producer_id)
            return None
        if marker is None:
            return None
        # A marker has the time of the broker that wrote it.
        self._replayed.discard(header.producer_id)
        entry = self.end(
            header.producer_id,
            header.producer_epoch,
            marker,
            offset=header.base_offset,
            timestamp=header.max_timestamp,
        )
        self.transactions.advance(header.next_offset)
        return entry

    def date_replayed(self, now_ms: int) -> None:
        """Let the silence of producers begin now whose last batch was found in the log.

        When it came is not known, unless its timestamp is recent.
        """
        for producer_id in self._replayed:
            producer = self._producers[producer_id]
            producer.timestamp = _seen_ms(producer.timestamp, now_ms)
        self._replayed.clear()

    def is_whole(self, producer_id: int) -> bool:
        """Tell whether the window holds all that it would hold without a restart."""
        producer = self._producers.get(producer_id)
        return producer is None or producer.is_whole

    def fill(self, producer_id: int, headers: Iterable[BatchHeader]) -> None:
        """Make the window of a producer anew from its batches near the log end, oldest first."""
        producer = self._producers[producer_id]
        producer.is_whole = True
        found = [
            header
            for header in headers
            if header.producer_epoch == producer.epoch and not header.is_control
        ]
        # Without the newest batch it would not be the end of the log that was looked at.
        newest = producer.batches[-1].last_offset if producer.batches else -1
        if found and found[-1].last_offset == newest:
            producer.batches = []
            for header in found[-BATCHES_MAX:]:
                _remember(producer, header, header.base_offset, header.max_timestamp)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for too long and have no open transaction."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.txn_first_offset == NO_TRANSACTION
            and now_ms - producer.timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]

    def encode(self) -> bytes:
        """Write a snapshot."""
        parts = [struct.pack(">i", len(self._producers))]
        for producer_id, producer in sorted(self._producers.items()):
            last = producer.batches[-1] if producer.batches else None
            parts.append(
                _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    last.last_sequence if last else -1,
                    last.last_offset if last else -1,
                    last.last_offset - last.base_offset if last else 0,
                    producer.timestamp,
                    producer.coordinator_epoch,
                    producer.txn_first_offset,
                )
            )
        body = b"".join(parts)
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, content: bytes) -> "ProducerState | None":
        """Read a snapshot; None where it is torn, damaged or of another version."""
        if len(content) < _SNAPSHOT_HEAD.size:
            return None
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(content)
        body = content[_SNAPSHOT_HEAD.size :]
        if version != SNAPSHOT_VERSION or crc != crc32c(content[_CRC_END:]):
            return None
        if len(body) != count * _SNAPSHOT_ENTRY.size:
            return None
        state = cls()
        for (
            producer_id,
            epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            txn_first_offset,
        ) in _SNAPSHOT_ENTRY.iter_unpack(body):
            producer = state._producers[producer_id] = Producer(epoch)
            producer.is_whole = False
            producer.timestamp = timestamp
            producer.coordinator_epoch = coordinator_epoch
            producer.txn_first_offset = txn_first_offset
            producer.txn_since_ms = timestamp
            if last_offset >= 0:
                first_sequence = (last_sequence - offset_delta) & SEQUENCE_MASK
                producer.batches.append(
                    ProducerBatch(
                        NO_SEQUENCE if last_sequence == NO_SEQUENCE else first_sequence,
                        last_sequence,
                        last_offset - offset_delta,
                        last_offset,
                        timestamp,
                    )
                )
        opened = [(p.txn_first_offset, number) for number, p in state._producers.items()]
        for first_offset, producer_id in sorted(opened):
            if first_offset >= 0:
                state.transactions.begin(producer_id, first_offset)
        return state


def _seen_ms(timestamp: int, now_ms: int) -> int:
    """Return when a batch came: by its timestamp, unless that is far from now."""
    return timestamp if abs(now_ms - timestamp) < OLD_MS else now_ms


def _remember(producer: Producer, header: BatchHeader, base_offset: int, timestamp: int) -> None:
    """Let a batch enter a producer's window."""
    delta = header.last_offset_delta
    sequence = header.base_sequence
    last_sequence = sequence if sequence == NO_SEQUENCE else (sequence + delta) & SEQUENCE_MASK
    batches = producer.batches
    if len(batches) >= BATCHES_MAX:
        del batches[0]
    batches.append(
        ProducerBatch(sequence, last_sequence, base_offset, base_offset + delta, timestamp)
    )


def _old_epoch(producer_id: int, epoch: int, latest: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {epoch}, a later one has epoch {latest}",
    )
