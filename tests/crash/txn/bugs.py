"""Bugs to put into the broker, to see whether they are found.

This file alone decides how the broker is broken: each function breaks one thing, the way somebody
might who was in a hurry. Whoever calls one takes it out again (``monkeypatch`` does).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from headwater.base.errors import KafkaError
from headwater.delivery.broker.groups.committing import Committing
from headwater.delivery.broker.groups.pending_offsets import PendingOffsets
from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions import admission, coordinator, decisions
from headwater.delivery.broker.transactions.coordinator import ProducerAnswer, Transactions
from headwater.delivery.broker.transactions.holding import Holding
from headwater.delivery.broker.transactions.markers import Marker, Markers
from headwater.delivery.broker.transactions.recovery import Disagreement
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import Transaction
from headwater.log.partition import PartitionLog
from headwater.log.producers import Producer, ProducerState
from headwater.log.transactions import NOTHING_UNSTABLE

Patch = pytest.MonkeyPatch
# Everything that is wrapped here has a signature of its own.
Anything = Any


def marker_missing(patch: Patch) -> None:
    """One partition of several is not told how the transaction ended."""
    write = Markers.write

    def broken(
        self: Markers, marker: Marker, keys: Iterable[PartitionKey], done: Callable[[], None]
    ) -> None:
        told = sorted(keys)
        write(self, marker, told[1:] if len(told) > 1 else told, done)

    patch.setattr(Markers, "write", broken)


def stable_is_high_watermark(patch: Patch) -> None:
    """Readers of committed data read as far as all others."""
    patch.setattr(PartitionLog, "last_stable_offset", property(lambda log: log.high_watermark))


def stable_is_log_end(patch: Patch) -> None:
    """Where nothing is open, readers of committed data are shown what is not synced."""

    def broken(log: PartitionLog) -> int:
        return min(log._transactions.first_unstable_offset, log.log_end_offset)

    patch.setattr(PartitionLog, "last_stable_offset", property(broken))


def decided_before_durable(patch: Patch) -> None:
    """Markers are written, and the client is told, before the decision is durable."""
    write = Transactions._write

    def broken(self: Transactions, transaction: Transaction, when_durable: Any) -> None:  # noqa: ANN401
        write(self, transaction, _nothing)
        when_durable()

    patch.setattr(Transactions, "_write", broken)


def answered_before_durable(patch: Patch) -> None:
    """A commit is answered at once; markers wait for the decision as they should."""
    end = Transactions.end

    def broken(
        self: Transactions, transactional_id: str, producer: Anything, answer: Anything, **how: bool
    ) -> None:
        before = self.get(transactional_id)
        told: list[ProducerAnswer] = []

        def once(reply: ProducerAnswer) -> None:
            if not told:
                told.append(reply)
                answer(reply)

        end(self, transactional_id, producer, once, **how)
        after = self.get(transactional_id)
        if after is not None and after is not before and after.state.is_ending:
            once(coordinator._after_end(after))

    patch.setattr(Transactions, "end", broken)


def complete_before_markers_are_durable(patch: Patch) -> None:
    """The coordinator forgets a transaction though its markers may still be lost."""
    write = Markers.write

    def broken(
        self: Markers, marker: Marker, keys: Iterable[PartitionKey], done: Callable[[], None]
    ) -> None:
        write(self, marker, keys, _nothing)
        done()

    patch.setattr(Markers, "write", broken)


def nothing_is_aborted(patch: Patch) -> None:
    """Readers are not told which transactions were aborted."""
    patch.setattr(PartitionLog, "aborted_transactions", lambda *_: [])


def aborted_counts_as_committed(patch: Patch) -> None:
    """Every marker says commit."""
    append = Markers.append

    def broken(self: Markers, marker: Marker, key: PartitionKey, done: Anything) -> None:
        append(self, marker._replace(is_commit=True), key, done)

    patch.setattr(Markers, "append", broken)


def nobody_is_fenced(patch: Patch) -> None:
    """Whoever has the producer id may go on, whatever its epoch."""
    check = ProducerState.check

    def blind(self: ProducerState, header: Anything) -> Anything:
        known = self.get(header.producer_id)
        newer = known is not None and header.producer_epoch < known.epoch
        return None if newer else check(self, header)

    def any_epoch(current: Transaction | None, producer: decisions.Producer) -> Transaction:
        assert current is not None
        return _check_producer(current, producer._replace(producer_epoch=current.producer_epoch))

    def any_end(current: Transaction, producer: decisions.Producer) -> bool:
        return _check_end(current, producer._replace(producer_epoch=current.producer_epoch))

    _check_producer, _check_end = decisions._check_producer, decisions._check_end
    patch.setattr(ProducerState, "check", blind)
    patch.setattr(decisions, "_check_producer", any_epoch)
    patch.setattr(decisions, "_check_end", any_end)


def epoch_stays(patch: Patch) -> None:
    """A new producer gets the epoch of the one before."""

    def broken(self: Transaction, **how: Anything) -> Transaction:
        return replace(next_epoch(self, **how), producer_epoch=self.producer_epoch)

    next_epoch = Transaction.with_next_epoch
    patch.setattr(Transaction, "with_next_epoch", broken)


def takeover_commits(patch: Patch) -> None:
    """What a replaced producer left open is committed instead of aborted."""
    fenced = Transaction.fenced

    def broken(self: Transaction, **how: Anything) -> Transaction:
        return replace(fenced(self, **how), state=TransactionState.PREPARE_COMMIT)

    patch.setattr(Transaction, "fenced", broken)


def nothing_times_out(patch: Patch) -> None:
    """A transaction may stay open for ever."""
    patch.setattr(Transactions, "_abort_overdue", lambda _: None)


def half_ended_is_forgotten(patch: Patch) -> None:
    """A start does not go on with what was ending."""
    decided = Transactions._decided
    load = Transactions.load

    def loading(self: Transactions, *, after_crash: bool) -> None:
        patch.setattr(Transactions, "_decided", _nothing)
        load(self, after_crash=after_crash)
        patch.setattr(Transactions, "_decided", decided)

    patch.setattr(Transactions, "load", loading)


def nobody_is_reconciled(patch: Patch) -> None:
    """A start does not look for transactions that only the log knows."""
    patch.setattr(coordinator, "compare", lambda *_: Disagreement({}, []))


def repetitions_are_new(patch: Patch) -> None:
    """A batch that is sent again is appended again."""
    check = ProducerState.check

    def broken(self: ProducerState, header: Anything) -> None:
        try:
            check(self, header)
        except KafkaError as error:
            if "sequence number" not in str(error):
                raise

    patch.setattr(ProducerState, "check", broken)


def held_requests_change_places(patch: Patch) -> None:
    """What waits for the end of a transaction goes on last come, first served."""

    def broken(self: Holding, transactional_id: str) -> None:
        for held in reversed(self._take(transactional_id)):
            held.go_on()

    patch.setattr(Holding, "release", broken)
    patch.setattr(admission, "_begins_in_the_middle", lambda _: False)
    repetitions_are_new(patch)


def offsets_count_on_abort(patch: Patch) -> None:
    """Offsets of aborted transactions are applied."""
    ended = Committing.transaction_ended

    def broken(self: Committing, *who: Anything, committed: bool) -> None:
        ended(self, *who, committed=True)

    patch.setattr(Committing, "transaction_ended", broken)


def offsets_never_count(patch: Patch) -> None:
    """Offsets of committed transactions are not applied."""
    ended = Committing.transaction_ended

    def broken(self: Committing, *who: Anything, committed: bool) -> None:
        ended(self, *who, committed=False)

    patch.setattr(Committing, "transaction_ended", broken)


def offsets_are_stable_at_once(patch: Patch) -> None:
    """Nobody is told that an offset is about to change."""
    patch.setattr(PendingOffsets, "is_pending", lambda *_: False)


def offsets_count_at_once(patch: Patch) -> None:
    """An offset of a transaction is shown before the transaction ends."""
    put = PendingOffsets.put
    commit = Committing.commit_in_transaction

    def broken(self: Committing, request: Anything, producer: Anything, reply: Anything) -> None:
        def show(_: PendingOffsets, place: int, producer_id: int, key: Any, offset: Any) -> None:  # noqa: ANN401
            self._show(key.group_id, [(key.partition, offset)])

        patch.setattr(PendingOffsets, "put", show)
        commit(self, request, producer, reply)
        patch.setattr(PendingOffsets, "put", put)

    patch.setattr(Committing, "commit_in_transaction", broken)


def open_is_forgotten_at_start(patch: Patch) -> None:
    """A start rebuilds producers without their open transactions."""
    replay = ProducerState.replay

    def broken(self: ProducerState, header: Anything, marker: Anything) -> Anything:
        entry = replay(self, header, marker)
        producer: Producer | None = self.get(header.producer_id)
        if producer is not None and producer.txn_first_offset >= 0:
            producer.txn_first_offset = -1
            self.transactions._open.clear()
            self.transactions.first_unstable_offset = NOTHING_UNSTABLE
        return entry

    patch.setattr(ProducerState, "replay", broken)


def aborted_is_forgotten_at_start(patch: Patch) -> None:
    """A start rebuilds the log without its index of aborted transactions."""
    replay = ProducerState.replay

    def broken(self: ProducerState, header: Anything, marker: Anything) -> None:
        replay(self, header, marker)

    patch.setattr(ProducerState, "replay", broken)


def _nothing(*_: object) -> None:
    pass
