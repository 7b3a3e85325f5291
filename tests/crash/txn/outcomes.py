"""What became of each transaction of a history.

This file alone decides which outcomes a transaction may have: what its client was told decides;
where it was told nothing, what is there at the end does. It finds no fault with anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.crash.txn.history import (
    Begin,
    Consume,
    End,
    Ended,
    Event,
    Failed,
    Final,
    Init,
    Initialized,
    Place,
    Send,
    Sent,
)

COMMITTED = "committed"
ABORTED = "aborted"
UNKNOWN = "unknown"


@dataclass
class Producer:
    """A producer of a history; the numbers are positions in it."""

    name: str
    transactional_id: str
    identity: tuple[int, int]
    asked_at: int
    initialized_at: int
    replaced_at: int | None = None

    def follows(self, other: "Producer") -> bool:
        """Tell whether it certainly has its id since the other has: answers may overtake."""
        same_id = other.identity[0] == self.identity[0] != -1
        newer = same_id and self.identity[1] > other.identity[1]
        return newer or self.asked_at > other.initialized_at


@dataclass
class Transaction:
    """One transaction, or a row of plain records.

    Attributes:
        sent: Where each value was sent to.
        sent_at: The position of each request in the history.
        acked: The offset of each value that was acknowledged.
        commit_asked_at: The position of the first request to commit.
        ended_at: The position of the answer that decided.
        told: What its client knows of the outcome.
        outcome: What is true, as far as it can be known.
    """

    name: str
    producer: str
    plain: bool
    begun_at: int
    sent: dict[str, Place] = field(default_factory=dict)
    sent_at: dict[str, int] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    consumed: list[Consume] = field(default_factory=list)
    commit_asked_at: int | None = None
    ended_at: int | None = None
    told: str = UNKNOWN
    outcome: str = UNKNOWN


class Outcomes:
    """The transactions of a history.

    Attributes:
        transactions: By name.
        producers: By name, those that have their id.
        by_value: The transaction that sent a value.
        finals: By place.
        shown: By place, the values that read_committed shows at the end.
        stored: By place, the values that are there at the end.
    """

    def __init__(self, history: Sequence[Event]) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.producers: dict[str, Producer] = {}
        self.by_value: dict[str, Transaction] = {}
        self.finals: dict[Place, Final] = {}
        asked_at: dict[str, int] = {}
        for at, event in enumerate(history):
            match event:
                case Init(name):
                    asked_at.setdefault(name, at)
                case Initialized(name, transactional_id, producer_id, epoch):
                    self.producers[name] = Producer(
                        name, transactional_id, (producer_id, epoch), asked_at.get(name, at), at
                    )
                case Begin(name, producer, plain):
                    assert name not in self.transactions, f"{name} begins twice"
                    self.transactions[name] = Transaction(name, producer, plain, at)
                case Send() | Sent() | Consume() | End() | Ended() | Failed():
                    self._follow(self.transactions[event.transaction], at, event)
                case Final(place):
                    self.finals[place] = event
        self.shown = {
            place: {value for _, value in f.committed} for place, f in self.finals.items()
        }
        self.stored = {
            place: {value for _, value in f.uncommitted} for place, f in self.finals.items()
        }
        for transaction in self.transactions.values():
            transaction.outcome = self._outcome(transaction)
        self._find_successors()

    def _follow(
        self,
        transaction: Transaction,
        at: int,
        event: Send | Sent | Consume | End | Ended | Failed,
    ) -> None:
        match event:
            case Send(_, place, value):
                assert value not in self.by_value, f"{value} is sent twice"
                self.by_value[value] = transaction
                transaction.sent[value] = place
                transaction.sent_at[value] = at
            case Sent(_, _, value, offset):
                transaction.acked[value] = offset
            case Consume():
                transaction.consumed.append(event)
            case End(_, commit):
                if commit and transaction.commit_asked_at is None:
                    transaction.commit_asked_at = at
            case Ended(_, commit):
                transaction.told = COMMITTED if commit else ABORTED
                transaction.ended_at = at
            case Failed():
                transaction.told = ABORTED
                transaction.ended_at = at

    def _outcome(self, transaction: Transaction) -> str:
        if transaction.plain:
            return COMMITTED
        if transaction.told != UNKNOWN:
            return transaction.told
        if transaction.commit_asked_at is None:
            # Whoever did not ask for it does not get it: a time-out or a successor aborts.
            return ABORTED
        if self.visible(transaction):
            return COMMITTED
        # Without a record that must be there nobody can tell from the end what happened.
        return ABORTED if transaction.acked else UNKNOWN

    def visible(self, transaction: Transaction) -> set[str]:
        """Return its values that read_committed shows at the end."""
        return {
            value for value, place in transaction.sent.items() if value in self.shown.get(place, ())
        }

    def _find_successors(self) -> None:
        siblings: dict[str, list[Producer]] = {}
        for producer in self.producers.values():
            siblings.setdefault(producer.transactional_id, []).append(producer)
        for producer in self.producers.values():
            producer.replaced_at = min(
                (
                    other.initialized_at
                    for other in siblings[producer.transactional_id]
                    if other is not producer and other.follows(producer)
                ),
                default=None,
            )
