"""The life of a transactional id, as a table.

This file alone decides which states there are, by Kafka's numbers and names, and which may follow
which.

    Empty ------------ partition added --> Ongoing <-- partition added --- CompleteCommit
      ^                                     |   |                          CompleteAbort
      | new epoch      .---- commit --------'   '---- abort, time-out, new producer ----.
      |                v                                                                v
    CompleteX <-- markers are durable -- PrepareCommit             PrepareAbort -- the same

    Dead: expired, a tombstone is written.
    PrepareEpochFence: in Kafka the moment between the decision to fence a producer and the record
    of it; here the decision is the record. Where another's record says so, the transaction is taken
    for Ongoing: its producer is fenced by the epoch, and it is aborted in time or by the next one.
"""

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """Kafka's states, by their numbers in ``__transaction_state``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that clients see."""
        return _LABELS[self]

    @property
    def is_ending(self) -> bool:
        """Whether the outcome is decided and its markers are under way."""
        return self in _ENDING

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction, so that the id may expire."""
        return self in _IDLE


_LABELS: Final = {
    state: state.name.title().replace("_", "") for state in TransactionState.__members__.values()
}
_ENDING: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_IDLE: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)

BY_LABEL: Final = {label: state for state, label in _LABELS.items()}
"""Every state by the name that clients use."""

PREDECESSORS: Final = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _IDLE
    | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}
"""The states from which each state can be reached."""
