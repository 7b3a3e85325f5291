"""What becomes of a transactional id when a producer asks something of it.

This file alone judges InitProducerId, AddPartitionsToTxn and EndTxn, by Kafka's rules: what is
asked is granted as a new `Transaction`, or refused with a code. It writes nothing and waits for
nothing; a request that must wait until a transaction has ended is refused with
CONCURRENT_TRANSACTIONS, and whoever called decides whether to ask again.

    INVALID_PRODUCER_ID_MAPPING   the id is unknown, or belongs to another producer
    PRODUCER_FENCED               the producer was replaced or timed out: its epoch is over
    CONCURRENT_TRANSACTIONS       the last transaction is still ending
    INVALID_TXN_STATE             there is nothing to end, or it has ended the other way
    TRANSACTION_ABORTABLE         the partition was never added: abort, then go on
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import NO_PRODUCER_ID, Transaction
from headwater.log.producers import EPOCH_BUMPING_VERSION, EPOCH_MAX


class Producer(NamedTuple):
    """Who asks: a producer id and the epoch that it believes in."""

    producer_id: int
    producer_epoch: int


def judge_init(
    current: Transaction,
    expected: Producer | None,
    *,
    timeout_ms: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> Transaction:
    """Let a producer take over an id that was used before and has no open transaction.

    Args:
        current: What is known of the id.
        expected: The producer id and epoch that the caller has (KIP-360), if it has any.
        timeout_ms: How long its transactions may be open.
        new_producer_id: Gives one that nobody has.
        now_ms: The time.

    Raises:
        KafkaError: PRODUCER_FENCED, or no producer id could be had.
    """
    exhausted = current.epochs_used_up
    if expected is None:
        if exhausted:
            return current.with_new_producer_id(
                new_producer_id(), timeout_ms=timeout_ms, keep_last=False, now_ms=now_ms
            )
        return current.with_next_epoch(timeout_ms=timeout_ms, keep_last=False, now_ms=now_ms)
    if expected.producer_epoch == current.producer_epoch:
        if exhausted:
            return current.with_new_producer_id(
                new_producer_id(), timeout_ms=timeout_ms, keep_last=True, now_ms=now_ms
            )
        return current.with_next_epoch(timeout_ms=timeout_ms, keep_last=True, now_ms=now_ms)
    if expected.producer_epoch == current.last_producer_epoch:
        return current.with_same_epoch(timeout_ms=timeout_ms, now_ms=now_ms)
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def check_takeover(current: Transaction, expected: Producer | None) -> None:
    """Refuse a producer that claims to continue another one's work.

    Raises:
        KafkaError: PRODUCER_FENCED.
    """
    if expected is None or expected.producer_id == current.producer_id:
        return
    used_up = expected.producer_epoch >= EPOCH_MAX - 1
    if expected.producer_id != current.previous_producer_id or not used_up:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def judge_enlist(
    current: Transaction | None,
    producer: Producer,
    partitions: Iterable[PartitionKey],
    *,
    client_version: int,
    now_ms: int,
) -> Transaction | None:
    """Add partitions to the open transaction, or open one with them.

    Returns:
        None where all of them are part of it already.

    Raises:
        KafkaError: One of the codes above.
    """
    current = _check_producer(current, producer)
    if current.state is TransactionState.ONGOING and current.partitions.issuperset(partitions):
        return None
    return current.with_partitions(partitions, client_version=client_version, now_ms=now_ms)


def check_enlisted(
    current: Transaction | None, producer: Producer, partition: PartitionKey
) -> None:
    """Refuse a partition that is not part of the producer's open transaction.

    Raises:
        KafkaError: One of the codes above.
    """
    if partition not in _check_producer(current, producer).partitions:
        raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)


def judge_end(
    current: Transaction | None,
    producer: Producer,
    *,
    commit: bool,
    client_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> Transaction | None:
    """Decide the outcome of a transaction.

    Returns:
        None where it has ended so already, and the request is a repetition.

    Raises:
        KafkaError: One of the codes above, or no producer id could be had.
    """
    if current is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.state.is_ending:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if client_version >= EPOCH_BUMPING_VERSION:
        repeated = _check_end(current, producer)
    else:
        _check_producer(current, producer)
        repeated = current.state is not TransactionState.ONGOING
    if current.state is not TransactionState.ONGOING:
        ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        if repeated and current.state is ended:
            return None
        if repeated or commit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        # With KIP-890 a client may abort before it has written anything, to get a new epoch.
    next_producer_id = NO_PRODUCER_ID
    if client_version >= EPOCH_BUMPING_VERSION and current.epochs_used_up:
        next_producer_id = new_producer_id()
    return current.ending(
        commit=commit,
        client_version=client_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )


def judge_fence(
    current: Transaction,
    *,
    server_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> Transaction:
    """Abort what a producer left open that is replaced or has timed out."""
    used_up = server_version >= EPOCH_BUMPING_VERSION and current.epochs_used_up
    return current.fenced(
        server_version=server_version,
        next_producer_id=new_producer_id() if used_up else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def _check_producer(current: Transaction | None, producer: Producer) -> Transaction:
    if current is None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.state.is_ending:
        # Before the producer is looked at: while epochs change hands nobody is told apart rightly.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != producer.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return current


def _check_end(current: Transaction, producer: Producer) -> bool:
    """Tell whether the producer repeats the request that gave it its present epoch."""
    epoch = producer.producer_epoch
    after_overflow = (
        current.previous_producer_id == producer.producer_id
        and current.producer_id != producer.producer_id
        and epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )
    if current.producer_id != producer.producer_id and not after_overflow:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    repeated = after_overflow or current.producer_epoch == epoch + 1
    if current.state in {TransactionState.ONGOING, TransactionState.EMPTY}:
        if current.producer_epoch != epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return False
    if not repeated and current.producer_epoch != epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return repeated
