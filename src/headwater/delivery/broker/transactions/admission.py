"""Whether transactional batches may be appended.

This file alone decides it, before the log looks at them, and how a refusal is told to which
version of a client. It appends nothing.

* A partition where the producer's transaction is open already needs no question: whoever opened it
  there was asked.
* Clients of KIP-890 join by writing: the partition is added now, and the batch may follow at once.
* Older clients must have added the partition before: a batch that comes late, when its
  transaction has ended, would otherwise open one that nobody ever ends. It is their only check,
  and ``transaction.partition.verification.enable`` can switch it off.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.coordinator import Transactions
from headwater.delivery.broker.transactions.decisions import Producer

Refusals = Mapping[PartitionKey, KafkaError]


class Understands(IntEnum):
    """What a client can be told, which is also how it adds partitions."""

    OLD_CODES = 0
    ABORTABLE = 1
    JOINING_BY_WRITING = 2


class TransactionalBatch(NamedTuple):
    """What must be known of a batch."""

    key: PartitionKey
    partition: Partition
    producer: Producer
    base_sequence: int


# What went wrong between a broker and the coordinator is no affair of a producer: it tries again.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def admit(
    transactions: Transactions,
    transactional_id: str,
    batches: Sequence[TransactionalBatch],
    decided: Callable[[Refusals], None],
    *,
    understands: Understands,
    verify: bool,
    keep: Callable[[], int],
) -> None:
    """Tell which of a request's batches must not be appended; all others may be, at once.

    Args:
        transactions: The coordinator.
        transactional_id: Under which they were sent.
        batches: All transactional batches of the request.
        decided: Called with the refusals, usually before this returns.
        understands: What the client's version can be told.
        verify: Whether older clients are checked at all.
        keep: Called before the decision is put off, to save what would not outlive this call;
            returns how many bytes that takes.
    """
    refusals: dict[PartitionKey, KafkaError] = {}
    if len({batch.producer for batch in batches}) > 1:
        error = KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "Transactional records contained more than one producer ID",
        )
        decided({batch.key: error for batch in batches})
        return
    unknown = [batch for batch in batches if not _has_open(batch, refusals)]
    if not unknown:
        decided(refusals)
    elif understands is Understands.JOINING_BY_WRITING:

        def joined(code: ErrorCode) -> None:
            for batch in unknown:
                if code:
                    refusals[batch.key] = _refusal(code, understands)
                elif _begins_in_the_middle(batch):
                    refusals[batch.key] = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            decided(refusals)

        transactions.enlist_at_once(
            transactional_id,
            unknown[0].producer,
            frozenset(batch.key for batch in unknown),
            joined,
            keep=keep,
        )
    else:
        for batch in unknown if verify else ():
            try:
                transactions.check_enlisted(transactional_id, *batch.producer, *batch.key)
            except KafkaError as error:
                refusals[batch.key] = _refusal(error.code, understands)
        decided(refusals)


def _has_open(batch: TransactionalBatch, refusals: dict[PartitionKey, KafkaError]) -> bool:
    """Whether the partition needs no question, because it knows the producer or refuses it."""
    producer = batch.partition.log.producers.get(batch.producer.producer_id)
    if producer is None:
        return False
    epoch = batch.producer.producer_epoch
    if epoch < producer.epoch:
        message = (
            f"Epoch of producer {batch.producer.producer_id} is {epoch}, which is smaller than "
            f"the last seen epoch {producer.epoch}"
        )
        refusals[batch.key] = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        return True
    return epoch == producer.epoch and producer.txn_first_offset >= 0


def _begins_in_the_middle(batch: TransactionalBatch) -> bool:
    """Whether batches before this one are missing; only KIP-890 lets us know where it begins."""
    known = batch.partition.log.producers.get(batch.producer.producer_id)
    return known is None and batch.base_sequence != 0


def _refusal(code: ErrorCode, understands: Understands) -> KafkaError:
    match code:
        case ErrorCode.PRODUCER_FENCED:
            return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        case ErrorCode.TRANSACTION_ABORTABLE if understands is Understands.OLD_CODES:
            return KafkaError(
                ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction"
            )
        case ErrorCode.CONCURRENT_TRANSACTIONS if understands is not Understands.JOINING_BY_WRITING:
            return _try_again(code)
        case _ if code in _TRY_AGAIN:
            return _try_again(code)
        case _:
            return KafkaError(code)


def _try_again(code: ErrorCode) -> KafkaError:
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        "Unable to verify the partition has been added to the transaction. "
        f"Underlying error: {code.name}",
    )
