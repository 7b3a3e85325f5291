"""What the logs and the coordinator disagree about when the broker starts.

This file alone decides to whom records belong whose transaction is open in a partition. It reads
nothing and writes nothing; `coordinator` carries its decisions out.

An open transaction in a partition is known if the coordinator has it open there, or is about to
write its marker. The others are of two kinds:

* **Adopted**: the first records of a transaction, kept by a crash that lost the record of their
  partition's joining, because both were on their way to the disk in the same round. Under KIP-890
  no two transactions share an epoch, so producer id and epoch say whose they are. They join as
  they would have; a client that is still there goes on, and if there is none they time out.
* **Stray**: of a producer or an epoch that nobody can continue any more, or written around the
  coordinator. Nothing will ever end these, and readers of committed data would wait for ever, so
  they are aborted.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import NO_PRODUCER_ID, Transaction
from headwater.log.producers import EPOCH_BUMPING_VERSION
from headwater.log.reading import OpenTransaction


class Disagreement(NamedTuple):
    """What is to be done about it.

    Attributes:
        adopted: By transactional id, the partitions that its next or present transaction reaches.
        stray: Partitions with a transaction that must be aborted there.
    """

    adopted: dict[str, set[PartitionKey]]
    stray: list[tuple[PartitionKey, OpenTransaction]]


def compare(
    transactions: Iterable[Transaction], found: Iterable[tuple[PartitionKey, OpenTransaction]]
) -> Disagreement:
    """Compare what the coordinator knows with what is open in the partitions."""
    owners: dict[int, Transaction] = {}
    for transaction in transactions:
        owners[transaction.producer_id] = transaction
        if transaction.next_producer_id != NO_PRODUCER_ID:
            owners[transaction.next_producer_id] = transaction
    result = Disagreement({}, [])
    for key, opened in found:
        owner = owners.get(opened.producer_id)
        if owner is None:
            result.stray.append((key, opened))
        elif _belongs_to_next(owner, opened):
            result.adopted.setdefault(owner.transactional_id, set()).add(key)
        elif not _is_known(owner, key, opened):
            result.stray.append((key, opened))
    return result


def _belongs_to_next(owner: Transaction, opened: OpenTransaction) -> bool:
    """Whether it is work of the producer's present epoch that the coordinator has not heard of."""
    if owner.state.is_ending and opened.producer_id == owner.next_producer_id:
        return opened.producer_epoch == 0
    if opened.producer_epoch != owner.producer_epoch:
        return False
    unshared = owner.client_version >= EPOCH_BUMPING_VERSION
    if owner.state is TransactionState.ONGOING:
        # Also where the partition is known: adding it again changes nothing.
        return unshared
    return unshared or owner.state is TransactionState.EMPTY


def _is_known(owner: Transaction, key: PartitionKey, opened: OpenTransaction) -> bool:
    if key not in owner.partitions:
        return False
    if owner.state.is_ending:
        return opened.producer_epoch <= owner.producer_epoch
    return opened.producer_epoch == owner.producer_epoch
