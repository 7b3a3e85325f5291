"""Finds what exactly-once forbids in a history.

This file alone decides what that is:

    lost        an acknowledged record is not there, or not shown though its transaction committed
    torn        a part of a transaction is shown, or its records and its offsets part ways
    aborted     read_committed showed a record of a transaction that did not commit
    dirty       read_committed showed a record before its commit was asked for
    doubled     a record is there twice, or one input was processed by two commits
    skipped     a reader went past a record that it should have seen, or a group past its input
    reordered   records of one producer, or of one reading, are not in their order
    changed     an offset showed two records, or a record is where it was not sent to
    unknown     a record that nobody sent
    went back   a last stable offset, high watermark or group's offset goes back
    beyond      read_committed showed something at or behind the last stable offset
    early       a last stable offset has passed a record whose commit was still to come
    zombie      a producer wrote or committed after its successor had its id
    repeated    an id and epoch were given twice
    offsets     a group's offset is none that a commit can have left
    hanging     all is quiet, and a last stable offset stands below its high watermark, or a group
                is told to wait

It knows no broker: the same holds for any that speaks of exactly-once.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.crash.txn.history import (
    UNSTABLE,
    Ask,
    Entry,
    Event,
    Final,
    FinalOffset,
    Initialized,
    OffsetRead,
    Place,
    Read,
    Sent,
)
from tests.crash.txn.outcomes import ABORTED, COMMITTED, UNKNOWN, Outcomes, Transaction


class Anomaly(NamedTuple):
    """Something that must not be."""

    kind: str
    description: str


def check(history: Sequence[Event]) -> list[Anomaly]:
    """Return everything in a whole history that must not be; one without Final is not whole."""
    checker = _Checker(history)
    checker.check_transactions()
    checker.check_logs()
    checker.check_reads()
    checker.check_producers()
    checker.check_groups()
    return checker.found


class _Bound:
    """The highest number that anybody had been shown, at each moment."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._highest: list[int] = []

    def show(self, at: int, number: int) -> None:
        before = self._highest[-1] if self._highest else -1
        if number > before:
            self._at.append(at)
            self._highest.append(number)

    def before(self, at: int) -> int:
        index = bisect_left(self._at, at)
        return self._highest[index - 1] if index else -1


class _Checker:
    def __init__(self, history: Sequence[Event]) -> None:
        self._history = history
        self._outcomes = Outcomes(history)
        self._group_offsets = {
            (event.group, event.place): event.offset
            for event in history
            if isinstance(event, FinalOffset)
        }
        self.found: list[Anomaly] = []

    def _breach(self, kind: str, description: str) -> None:
        self.found.append(Anomaly(kind, description))

    # Each transaction for itself.

    def check_transactions(self) -> None:
        """All that was acknowledged is there; what committed is shown as a whole, or not at all."""
        for transaction in self._outcomes.transactions.values():
            self._check_stored(transaction)
            visible = self._outcomes.visible(transaction)
            if transaction.outcome == ABORTED:
                for value in visible:
                    self._breach("aborted", f"{transaction.name} is aborted; {value} is shown")
            elif missing := transaction.acked.keys() - visible:
                if transaction.plain or transaction.told == COMMITTED:
                    self._breach("lost", f"{transaction.name} is there without {sorted(missing)}")
                if visible and not transaction.plain:
                    self._breach("torn", f"{transaction.name}: only {sorted(visible)} is shown")

    def _check_stored(self, transaction: Transaction) -> None:
        for value in transaction.acked:
            place = transaction.sent[value]
            final = self._outcomes.finals.get(place)
            if final is not None and final.compacted and transaction.outcome != COMMITTED:
                continue
            if value not in self._outcomes.stored.get(place, ()):
                self._breach("lost", f"{value} was acknowledged in {place} and is not there")

    # Each partition.

    def check_logs(self) -> None:
        """Every offset shows one record to everybody, every record is there once, in its order."""
        known: dict[Place, dict[int, str]] = defaultdict(dict)
        for event in self._history:
            match event:
                case Sent(_, place, value, offset) if offset >= 0:
                    self._same(known[place], place, [(offset, value)])
                case Read():
                    self._same(known[event.place], event.place, event.records)
                case Final(place, committed, uncommitted):
                    self._same(known[place], place, committed)
                    self._same(known[place], place, uncommitted)
        for final in self._outcomes.finals.values():
            self._check_final(final)
        for place, entries in known.items():
            for value, count in Counter(entries.values()).items():
                if count > 1:
                    self._breach("doubled", f"{value} is at {count} offsets of {place}")

    def _same(self, known: dict[int, str], place: Place, entries: Iterable[Entry]) -> None:
        for offset, value in entries:
            before = known.setdefault(offset, value)
            if before != value:
                self._breach("changed", f"{place} at {offset} was {before} and is {value}")
            transaction = self._outcomes.by_value.get(value)
            if transaction is None:
                self._breach("unknown", f"{place} at {offset}: nobody sent {value}")
            elif transaction.sent[value] != place:
                elsewhere = transaction.sent[value]
                self._breach("changed", f"{value} was sent to {elsewhere} and is in {place}")

    def _check_final(self, final: Final) -> None:
        place = final.place
        if final.last_stable_offset != final.high_watermark:
            stands = f"{final.last_stable_offset}, high watermark {final.high_watermark}"
            self._breach("hanging", f"{place}: last stable offset {stands}")
        if strange := set(final.committed) - set(final.uncommitted):
            self._breach("changed", f"{place}: only read_committed shows {sorted(strange)}")
        last: dict[str, tuple[int, str]] = {}
        for _, value in final.uncommitted:
            transaction = self._outcomes.by_value.get(value)
            if transaction is None:
                continue
            sent_at = transaction.sent_at.get(value, -1)
            before, what = last.get(transaction.producer, (-1, ""))
            if sent_at < before:
                self._breach("reordered", f"{place}: {value} was sent before {what}")
            last[transaction.producer] = (max(before, sent_at), value)

    # Those who read.

    def check_reads(self) -> None:
        """Nobody sees what is not decided, nor less than is, and no bound goes back."""
        stable: dict[Place, _Bound] = defaultdict(_Bound)
        watermark: dict[Place, _Bound] = defaultdict(_Bound)
        asked_at: dict[str, int] = {}
        for at, event in enumerate(self._history):
            if isinstance(event, Ask):
                asked_at[event.reader] = at
            if not isinstance(event, Read):
                continue
            asked = asked_at.get(event.reader, at)
            for name, bounds, number in (
                ("last stable offset", stable, event.last_stable_offset),
                ("high watermark", watermark, event.high_watermark),
            ):
                before = bounds[event.place].before(asked)
                if 0 <= number < before:
                    self._breach("went back", f"{event.place}: {name} {before}, then {number}")
                bounds[event.place].show(at, number)
            self._check_order(event)
            if event.committed:
                self._check_committed(at, event)
        self._check_early()

    def _check_order(self, read: Read) -> None:
        offsets = [offset for offset, _ in read.records]
        inside = not offsets or (read.start <= offsets[0] and offsets[-1] < read.next)
        if offsets != sorted(set(offsets)) or not inside:
            span = f"{read.start}..{read.next}"
            self._breach("reordered", f"{read.reader} read {offsets} in {read.place}, {span}")

    def _check_committed(self, at: int, read: Read) -> None:
        bound = read.last_stable_offset
        for offset, value in read.records:
            transaction = self._outcomes.by_value.get(value)
            if 0 <= bound <= offset:
                self._breach("beyond", f"{read.place}: {value} at {offset}, stable is {bound}")
            if transaction is None or transaction.plain:
                continue
            asked_at = transaction.commit_asked_at
            if transaction.outcome == ABORTED:
                self._breach("aborted", f"{read.reader} read {value} of {transaction.name}")
            elif asked_at is None or asked_at > at:
                self._breach("dirty", f"{read.reader} read {value} before {transaction.name} ended")
        final = self._outcomes.finals.get(read.place)
        if final is not None:
            first = bisect_left(final.committed, (read.start, ""))
            last = bisect_left(final.committed, (read.next, ""))
            if missed := set(final.committed[first:last]) - set(read.records):
                span = f"from {read.start} to {read.next} of {read.place}"
                self._breach("skipped", f"{read.reader} went {span} without {sorted(missed)}")

    def _check_early(self) -> None:
        """Look for a last stable offset that did not wait for one who then committed."""
        asks = sorted(
            (transaction.commit_asked_at, place, offset, value)
            for transaction in self._outcomes.transactions.values()
            if transaction.commit_asked_at is not None and transaction.outcome == COMMITTED
            for value, place in transaction.sent.items()
            if (offset := transaction.acked.get(value, -1)) >= 0
        )
        stable: dict[Place, _Bound] = defaultdict(_Bound)
        for at, event in enumerate(self._history):
            if isinstance(event, Read):
                stable[event.place].show(at, event.last_stable_offset)
        for asked_at, place, offset, value in asks:
            if (shown := stable[place].before(asked_at)) > offset:
                self._breach("early", f"{place}: stable is {shown}, {value} at {offset} still open")

    # Those who write.

    def check_producers(self) -> None:
        """Whoever was replaced has no part in it any more."""
        given = Counter(
            (event.producer_id, event.epoch)
            for event in self._history
            if isinstance(event, Initialized) and event.producer_id >= 0
        )
        for key, count in given.items():
            if count > 1:
                self._breach("repeated", f"producer id and epoch {key} were given {count} times")
        for transaction in self._outcomes.transactions.values():
            producer = self._outcomes.producers.get(transaction.producer)
            if producer is None or producer.replaced_at is None or transaction.plain:
                continue
            asked_at = transaction.commit_asked_at
            if transaction.outcome == COMMITTED and (asked_at or 0) > producer.replaced_at:
                self._breach("zombie", f"{transaction.name} was committed by {producer.name}")
            for value, sent_at in transaction.sent_at.items():
                stored = value in self._outcomes.stored.get(transaction.sent[value], ())
                if sent_at > producer.replaced_at and (stored or value in transaction.acked):
                    self._breach("zombie", f"{value} was written by {producer.name}")

    # Those who consume, transform and produce.

    def check_groups(self) -> None:
        """Each input is processed by one commit, and a group's offset is what commits left."""
        consumed: dict[tuple[str, Place], list[tuple[Transaction, tuple[int, ...], int]]]
        consumed = defaultdict(list)
        for transaction in self._outcomes.transactions.values():
            for each in transaction.consumed:
                consumed[each.group, each.place].append((transaction, each.offsets, each.next))
        for (group, place), uses in consumed.items():
            committed = [use for use in uses if use[0].outcome == COMMITTED]
            possible = {use[2] for use in uses if use[0].outcome == UNKNOWN}
            self._check_offset(group, place, [use[2] for use in committed], possible)
            self._check_inputs(
                group, place, [use[:2] for use in committed], uncertain=bool(possible)
            )
        self._check_offsets_read()

    def _check_offset(
        self, group: str, place: Place, committed: list[int], possible: set[int]
    ) -> None:
        final = self._group_offsets.get((group, place), -1)
        if final == UNSTABLE:
            self._breach("hanging", f"{group} at {place} waits for a transaction")
            return
        expected = max(committed, default=-1)
        if final != expected and final not in possible:
            self._breach("offsets", f"{group} at {place} is at {final}, not at {expected}")
            kind = "lost an offset" if final < expected else "has an offset of no commit"
            self._breach("torn", f"{group} at {place} {kind}")

    def _check_inputs(
        self,
        group: str,
        place: Place,
        committed: list[tuple[Transaction, tuple[int, ...]]],
        *,
        uncertain: bool,
    ) -> None:
        by: dict[int, str] = {}
        for transaction, offsets in committed:
            for offset in offsets:
                other = by.setdefault(offset, transaction.name)
                if other != transaction.name:
                    names = f"{other} and {transaction.name}"
                    self._breach("doubled", f"{group}: {place} at {offset} is in {names}")
        final = self._outcomes.finals.get(place)
        upto = self._group_offsets.get((group, place), -1)
        if final is not None and not uncertain:
            missed = [offset for offset, _ in final.committed if offset < upto and offset not in by]
            if missed:
                self._breach("skipped", f"{group} never processed {missed} of {place}")

    def _check_offsets_read(self) -> None:
        """An offset that somebody was told is one of a commit, and covers all that had ended."""
        asked_at: dict[str, int] = {}
        told: dict[tuple[str, Place], _Bound] = defaultdict(_Bound)
        uses = [
            (transaction, each)
            for transaction in self._outcomes.transactions.values()
            for each in transaction.consumed
        ]
        for at, event in enumerate(self._history):
            if isinstance(event, Ask):
                asked_at[event.reader] = at
            if not isinstance(event, OffsetRead):
                continue
            asked = asked_at.get(event.reader, at)
            key = (event.group, event.place)
            mine = [
                (each[0], each[1].next) for each in uses if (each[1].group, each[1].place) == key
            ]
            due = [
                offset
                for transaction, offset in mine
                if transaction.told == COMMITTED and (transaction.ended_at or 0) < asked
            ]
            allowed = {-1} | {
                offset
                for transaction, offset in mine
                if transaction.outcome != ABORTED
                and transaction.commit_asked_at is not None
                and transaction.commit_asked_at < at
            }
            what = f"{event.group} at {event.place}: {event.offset}"
            if event.offset not in allowed:
                self._breach("offsets", f"{what} is of no commit")
            elif event.offset < max([*due, told[key].before(asked)], default=-1):
                self._breach("went back", f"{what}, and more was committed")
            told[key].show(at, event.offset)
