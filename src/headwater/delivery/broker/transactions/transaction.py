"""One transactional id: its producer, its open transaction, and what may happen to it next.

This file alone decides how producer id and epoch change from state to state. It is a value: every
step gives a new one, and nothing here knows who asked, the log, or the time.

Epochs are what fences a producer that has been replaced. Two rules, by the client's protocol:

* Before KIP-890 (version 0 and 1) the epoch grows when a producer initializes itself and when the
  coordinator aborts on its own; several transactions share an epoch.
* With KIP-890 (version 2) every end of a transaction grows the epoch: its markers carry the new
  one, so that whatever the old transaction's requests still bring is refused. No two transactions
  share an epoch.

An epoch is 16 bits. The last one, 32767, is only ever used in markers: whoever would need it gets
another producer id instead, with epoch 0 (``next_producer_id`` until the markers are written).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.states import PREDECESSORS, TransactionState
from headwater.log.producers import EPOCH_BUMPING_VERSION, EPOCH_MAX

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What the coordinator knows of a transactional id.

    Attributes:
        transactional_id: The name that the producer chose.
        producer_id: Who may write now.
        producer_epoch: Its epoch; other epochs are fenced.
        timeout_ms: How long a transaction may be open.
        state: Where it stands.
        partitions: What the open or ending transaction has written to, or may have.
        started_ms: When the transaction began; -1 before the first.
        updated_ms: When anything last changed.
        previous_producer_id: The producer id before the last step.
        next_producer_id: Takes over when the markers are written, where the epochs are used up.
        last_producer_epoch: The epoch before the last growth, for requests that are repeated;
            like Kafka's it is not written down.
        client_version: The protocol of the client that began or ended the transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[PartitionKey] = frozenset()
    started_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = 0

    @classmethod
    def begun(
        cls, transactional_id: str, *, producer_id: int, timeout_ms: int, now_ms: int
    ) -> Self:
        """Return an id that was just initialized for the first time."""
        return cls(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
            previous_producer_id=producer_id,
        )

    @property
    def epochs_used_up(self) -> bool:
        """Whether the next epoch would be the one that is left to markers."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def is_commit(self) -> bool:
        """How it ends or ended."""
        return self.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}

    def with_next_epoch(self, *, timeout_ms: int, keep_last: bool, now_ms: int) -> Self:
        """Let a new producer take over; ``keep_last`` allows the request to be repeated."""
        assert not self.epochs_used_up
        return self._step(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if keep_last else NO_EPOCH,
            **_fresh(timeout_ms),
        )

    def with_same_epoch(self, *, timeout_ms: int, now_ms: int) -> Self:
        """Answer a request that was answered before: the epoch has grown for it already."""
        return self._step(TransactionState.EMPTY, now_ms, **_fresh(timeout_ms))

    def with_new_producer_id(
        self, producer_id: int, *, timeout_ms: int, keep_last: bool, now_ms: int
    ) -> Self:
        """Begin again at epoch 0 of another producer id."""
        return self._step(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if keep_last else NO_EPOCH,
            **_fresh(timeout_ms),
        )

    def with_partitions(
        self, partitions: Iterable[PartitionKey], *, client_version: int, now_ms: int
    ) -> Self:
        """Begin a transaction, or let it reach further."""
        ongoing = self.state is TransactionState.ONGOING
        return self._step(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if ongoing else now_ms,
            client_version=client_version,
        )

    def ending(
        self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> Self:
        """Decide how the transaction ends; an id without one can only abort nothing."""
        changes: dict[str, Any] = {}
        if client_version >= EPOCH_BUMPING_VERSION:
            changes["producer_epoch"] = min(self.producer_epoch + 1, EPOCH_MAX)
            changes["last_producer_epoch"] = self.producer_epoch
            changes["next_producer_id"] = next_producer_id
        if self.state is not TransactionState.ONGOING:
            changes["started_ms"] = now_ms
        return self._step(
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            now_ms,
            client_version=client_version,
            **changes,
        )

    def fenced(self, *, server_version: int, next_producer_id: int, now_ms: int) -> Self:
        """Abort on the coordinator's own account: the producer's epoch is over."""
        if server_version >= EPOCH_BUMPING_VERSION:
            return self.ending(
                commit=False,
                client_version=server_version,
                next_producer_id=next_producer_id,
                now_ms=now_ms,
            )
        return self._step(
            TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=NO_EPOCH,
            client_version=0,
        )

    def completed(self, *, now_ms: int) -> Self:
        """All markers are written: the next transaction may begin."""
        changes: dict[str, Any] = {}
        if self.next_producer_id != NO_PRODUCER_ID:
            changes["producer_id"] = self.next_producer_id
            changes["producer_epoch"] = 0
        return self._step(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
            next_producer_id=NO_PRODUCER_ID,
            **changes,
        )

    def _step(self, state: TransactionState, now_ms: int, **changes: Any) -> Self:  # noqa: ANN401 - fields
        assert self.state in PREDECESSORS[state], f"{self.state.label} -> {state.label}"
        return replace(
            self,
            state=state,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            **changes,
        )


def _fresh(timeout_ms: int) -> dict[str, Any]:
    return {"timeout_ms": timeout_ms, "partitions": frozenset(), "started_ms": NO_TIMESTAMP}
