"""Which transactions must not be committed, because a crash may have taken a part of them.

This file alone decides which those are, and for how long that is remembered. Where a topic leaves
its batches to the page cache, what was acknowledged may be gone after a crash; a transaction that
the crash has found open is then perhaps half a one. It writes no outcome and no marker.

What was found is noted in the journal before anything else happens: configs may change, and the
broker stop, before the aborts are durable. A transaction is known by producer id and epoch, because
every abort of a torn one fences its producer, with the next epoch.
"""

import logging
from collections.abc import Iterable

from headwater.base.errors import KafkaError
from headwater.delivery.broker.topics import PartitionKey, Topics
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import Transaction
from headwater.log.noted import Note, TornProducer

_log = logging.getLogger(__name__)


class Torn:
    """Open transactions that are to be aborted."""

    def __init__(self, topics: Topics, note: Note) -> None:
        """Go on with those that are noted."""
        self._topics = topics
        self._note = note

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._note.torn)

    def __contains__(self, transaction: Transaction) -> bool:
        """Whether it is open and must not be committed."""
        return transaction.state is TransactionState.ONGOING and (
            TornProducer(transaction.producer_id, transaction.producer_epoch) in self._note.torn
        )

    def find(self, transactions: Iterable[Transaction], *, after_crash: bool) -> None:
        """Look for them at a start; what earlier starts have found and not aborted counts.

        Raises:
            StorageError: The disk failed or is full; they could not be noted.
        """
        self._note.note_torn(
            [
                TornProducer(transaction.producer_id, transaction.producer_epoch)
                for transaction in transactions
                if transaction in self or (after_crash and self._may_have_lost(transaction))
            ]
        )

    def forget_aborted(self, transactions: Iterable[Transaction]) -> None:
        """Forget them when the last one is aborted."""
        if not self or any(map(self._is_left, transactions)):
            return
        try:
            self._note.note_torn(())
        except KafkaError as error:
            _log.warning("torn transactions are not forgotten yet: %s", error.message)

    def _is_left(self, transaction: Transaction) -> bool:
        fenced = TornProducer(transaction.producer_id, transaction.producer_epoch - 1)
        return transaction in self or (transaction.state.is_ending and fenced in self._note.torn)

    def _may_have_lost(self, transaction: Transaction) -> bool:
        """Whether it is open and records that its producer was told of may be gone with a crash."""
        return transaction.state is TransactionState.ONGOING and any(
            not self._was_durable(key) for key in transaction.partitions
        )

    def _was_durable(self, key: PartitionKey) -> bool:
        """Tell whether it synced what it acknowledged, in the last run and by its configs now."""
        topic, partition = self._topics.get(key[0]), self._topics.partition(*key)
        if topic is None or partition is None:
            return True
        return topic.stored.was_durable and partition.log.is_durable
