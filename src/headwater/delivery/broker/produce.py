"""Whether and how a producer's batch enters a partition.

This file alone decides what is checked before an append: the batch itself, keys on compacted
topics, the topic's own compression, and the topic's answer to a producer that is too fast. It
knows nothing of the request that carried the batch.
"""

from typing import TYPE_CHECKING

from headwater.base.errors import RETRIABLE, ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import BatchHeader, parse_header
from headwater.base.record.codecs import Codec
from headwater.base.record.records import build_batch, iterate, iterate_keys
from headwater.base.record.validation import validate_for_append
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.refused import RefusedBatches
from headwater.log.appended import Appended

if TYPE_CHECKING:
    from headwater.delivery.broker.broker import Broker

_RECORDS_REPORTED_MAX = 100
# Records are unpacked on the event loop, where nobody else is served meanwhile: 16 MiB take some
# tenths of a second at worst, and an honest batch (max.message.bytes is 1 MiB) stays below.
_UNPACKED_BYTES_MAX = 16 << 20


# After these a client sends the same batch again. What is damaged does not say whose it is.
_SENT_AGAIN = RETRIABLE - {ErrorCode.CORRUPT_MESSAGE}


class InvalidRecordsError(KafkaError):
    """Some records of a batch break the topic's rules; the batch is refused as a whole.

    Attributes:
        records: Index of each offending record in its batch, and what is wrong with it.
    """

    def __init__(self, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.records = records[:_RECORDS_REPORTED_MAX]


def append_batch(
    broker: "Broker",
    partition: Partition,
    records: memoryview | None,
    *,
    zstd_allowed: bool,
    transactional_allowed: bool = False,
) -> tuple[Appended, int]:
    """Append one batch from a client.

    ``transactional_allowed``: its request named a transaction, which was found to be in order.

    Returns:
        Where it went, and for how many milliseconds the client should be held back.

    Raises:
        KafkaError: The batch was refused; nothing was written.
    """
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A partition needs exactly one record batch.")
    config = partition.log.config
    header = validate_for_append(records, size_max=config.max_message_bytes)
    if header.is_transactional and not transactional_allowed:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if header.codec == Codec.ZSTD and not zstd_allowed:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or newer.")
    batch: memoryview | bytearray = records
    if config.is_compacted:
        _require_keys(records)
    if config.compression_type != "producer":
        batch, header = _recompress(records, header, Codec.by_name(config.compression_type))
    if partition.refused is not None:
        partition.refused.check(header, broker.clock.monotonic_ms())
    try:
        if config.headwater_overflow == "buffer":
            placed = partition.append(batch, header), 0
        else:
            placed = _append_bounded(broker, partition, batch, header)
    except StorageError as error:
        broker.short_of_room(error)
        raise
    if partition.refused is not None:
        partition.refused.forget(header.producer_id)
    return placed


def note_refused(
    broker: "Broker", partition: Partition, records: memoryview | None, error: KafkaError
) -> None:
    """Remember a batch that was refused for a moment, so that no later one comes before it."""
    if not records or error.code not in _SENT_AGAIN:
        return
    try:
        header = parse_header(records)
    except KafkaError:
        return
    if header.base_sequence >= 0 and partition.log.producers.get(header.producer_id) is None:
        if partition.refused is None:
            partition.refused = RefusedBatches()
        partition.refused.note(header, broker.clock.monotonic_ms())


def _append_bounded(
    broker: "Broker",
    partition: Partition,
    batch: memoryview | bytearray,
    header: BatchHeader,
) -> tuple[Appended, int]:
    decision = broker.overflow.before_append(partition, len(batch))
    if decision.error is not None:
        if _is_repeated(partition, header):
            # A refusal would tell the producer that nothing was written.
            return partition.append(batch, header), 0
        broker.overflow.count_refused(partition, len(batch))
        raise KafkaError(decision.error, decision.message)
    appended = partition.append(batch, header)
    broker.overflow.after_append(partition)
    return appended, decision.delay_ms


def _is_repeated(partition: Partition, header: BatchHeader) -> bool:
    """Tell whether a batch is in the log already.

    One that is out of order is not: those that a client has sent after a refused batch are refused
    alike, and it sends all of them again.
    """
    if header.producer_id < 0:
        return False
    try:
        return partition.log.repeated(header) is not None
    except KafkaError:
        return False


def _require_keys(records: memoryview) -> None:
    keyless = [
        (index, "Compacted topic cannot accept message without key.")
        for index, (_, key) in enumerate(iterate_keys(records, limit_bytes=_UNPACKED_BYTES_MAX))
        if key is None
    ]
    if keyless:
        raise InvalidRecordsError(
            "Records without a key cannot go to a compacted topic: give each record a key.",
            keyless,
        )


def _recompress(
    records: memoryview, header: BatchHeader, wanted: Codec
) -> tuple[memoryview | bytearray, BatchHeader]:
    """Give the batch the topic's own compression, keeping all else that the producer said."""
    if header.codec == wanted:
        return records, header
    rebuilt = build_batch(
        iterate(records, limit_bytes=_UNPACKED_BYTES_MAX),
        codec=wanted,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    return rebuilt, parse_header(rebuilt)
