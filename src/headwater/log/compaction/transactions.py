"""What the cleaner knows of transactions as it walks over a log.

This file alone decides whose records were aborted, and whether a marker still has records of its
transaction before it. It follows Kafka's rules:

    records of an aborted transaction    go at once
    an abort or commit marker            stays while the log holds a batch of its transaction, be
                                         it one that goes in this pass; then until a delete horizon

A marker that cannot be seen, because the segment that holds it is damaged, ends its transaction all
the same: the index of aborted transactions says where it lies.
"""

from collections.abc import Iterable
from heapq import heapify, heappop

from headwater.base.record.batch import BatchHeader
from headwater.base.record.control import CONTROL_ABORT, CONTROL_COMMIT
from headwater.log.txn_index import TxnIndexEntry


class WalkedTransactions:
    """The transactions that are under way at one place of the log."""

    def __init__(self, aborted: Iterable[TxnIndexEntry]) -> None:
        """Take the aborted transactions that reach into what will be walked over."""
        self._coming = [(entry.first_offset, entry) for entry in aborted]
        heapify(self._coming)
        # By producer id: the transaction, and whether a batch of it was seen.
        self._aborted: dict[int, tuple[TxnIndexEntry, bool]] = {}
        self._others: set[int] = set()
        self._blind = False

    def copy(self) -> "WalkedTransactions":
        """Return the same state, to go on from here once more."""
        twin = WalkedTransactions(())
        twin._coming = self._coming.copy()
        twin._aborted = self._aborted.copy()
        twin._others = self._others.copy()
        twin._blind = self._blind
        return twin

    def miss(self) -> None:
        """Some batches cannot be seen: from now on every marker may have records before it."""
        self._blind = True

    def _advance(self, header: BatchHeader) -> None:
        while self._coming and self._coming[0][0] <= header.last_offset:
            _, entry = heappop(self._coming)
            if entry.marker_offset >= header.base_offset:
                self._aborted[entry.producer_id] = (entry, False)

    def pass_data(self, header: BatchHeader) -> bool:
        """Walk over a batch of data; tell whether its transaction was aborted."""
        self._advance(header)
        if not header.is_transactional:
            return False
        entry, _ = self._aborted.get(header.producer_id, (None, False))
        if entry is None or entry.marker_offset < header.base_offset:
            self._aborted.pop(header.producer_id, None)
            self._others.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (entry, True)
        return True

    def pass_marker(
        self, header: BatchHeader, kind: int | None
    ) -> tuple[bool, TxnIndexEntry | None]:
        """Walk over a marker.

        Args:
            header: Its batch's.
            kind: The type of its record, None where the record is gone already.

        Returns:
            Whether nothing is left of its transaction, and what the index of its segment has to
            say as long as something is.
        """
        self._advance(header)
        if kind == CONTROL_ABORT:
            entry, seen = self._aborted.pop(header.producer_id, (None, False))
            if entry is not None and (seen or self._blind):
                return False, entry
        if kind in {CONTROL_ABORT, CONTROL_COMMIT}:
            # An abort of which the index knows nothing: its records must not lose their marker.
            seen = header.producer_id in self._others
            self._others.discard(header.producer_id)
            return not seen and not self._blind, None
        return kind is None, None
