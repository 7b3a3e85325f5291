"""Transactional ids as records of ``__transaction_state``.

This file alone decides which of Kafka's schemas, in which version, hold what: Kafka's own tools and
a later Kafka cluster read these records. It does not touch the log.

Written is TransactionLogValue v1, whose tagged fields KIP-890 needs; v0 while the feature
``transaction.version`` is at 0, as in Kafka. Read is every version.
"""

from typing import Final

from headwater.base.errors import MalformedMessageError
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.formats.envelope import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_number,
)
from headwater.delivery.broker.formats.records import TransactionLogKey, TransactionLogValue
from headwater.delivery.broker.state_topic import Entry
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import Transaction

TRANSACTIONS_TOPIC: Final = "__transaction_state"

_TRANSACTION_KEY: Final = 0
_Partitions = TransactionLogValue.PartitionsSchema


def new_transactions_topic(settings: BrokerSettings) -> NewTopic:
    """Return the topic as it is created when the first transactional id is initialized."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        # Whatever other topics default to: an outcome that was answered is never taken back.
        "flush.messages": "1",
        "min.insync.replicas": str(settings.transaction_state_log_min_isr),
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    return NewTopic(TRANSACTIONS_TOPIC, settings.transaction_state_log_num_partitions, configs)


def transaction_entry(transaction: Transaction, *, server_version: int) -> Entry:
    """Write down a transactional id."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    version = 1 if server_version else 0
    if version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return Entry(_key(transaction.transactional_id), encode_value(value, version))


def transaction_tombstone(transactional_id: str) -> Entry:
    """Write down that the id is forgotten."""
    return Entry(_key(transactional_id), None)


def decode_transaction(key: bytes, value: bytes) -> Transaction | None:
    """Read a record back.

    Returns:
        None for records of another kind, which nobody writes yet.

    Raises:
        MalformedMessageError: The record is damaged or from the future.
    """
    if key_number(key) != _TRANSACTION_KEY:
        return None
    stored = decode_value(TransactionLogValue, value)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError as error:
        message = f"a transaction cannot be in state {stored.transaction_status}"
        raise MalformedMessageError(message) from error
    if state is TransactionState.PREPARE_EPOCH_FENCE:
        # Its epoch has grown, which fences the producer; the transaction itself is still open.
        state = TransactionState.ONGOING
    return Transaction(
        transactional_id=decode_key(TransactionLogKey, key).transactional_id,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, index)
            for topic in stored.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        started_ms=stored.transaction_start_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )


def _key(transactional_id: str) -> bytes:
    return encode_key(TransactionLogKey(transactional_id))


def _by_topic(transaction: Transaction) -> list[_Partitions] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    return [_Partitions(topic, indexes) for topic, indexes in topics.items()]
