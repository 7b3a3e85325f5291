"""What the records of one partition amount to when they are read from the first to the last.

This file alone decides which record of a key counts: of those that are not taken back, the one
furthest down the log. Compaction keeps exactly that one, so that a log says the same before and
after it. It does not look into the records.

    plain record        counts at once
    tombstone           ends its key, in transactions that are open too
    of a transaction    waits for the marker of its producer in the same partition:
        commit          counts from where it stands, which may be above a later plain record
        abort           never was
        none yet        stays pending

What a transaction wrote is looked up again by the offset at which it stands: a plain record or a
tombstone behind it has the last word, though the marker comes later still.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from headwater.base.record.batch import BatchHeader
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import Record


class Standing(NamedTuple):
    """Where a record of a state topic stands, and when it was written."""

    partition: int
    offset: int
    timestamp: int


class Stored(NamedTuple):
    """The value of a key, and where and when the record that says so was written."""

    partition: int
    offset: int
    timestamp: int
    value: bytes

    @property
    def standing(self) -> Standing:
        """The record without what it says."""
        return Standing(self.partition, self.offset, self.timestamp)


class StateReplay:
    """Reads the batches of one partition of a state topic.

    Attributes:
        newest: What counts, by key.
        pending: What transactions without a marker have written, by producer id; complete when
            `end` was called.
        ended: The timestamps of the last tombstones of the keys that are asked about.
    """

    def __init__(self, partition: int, ask_about: Collection[bytes] = frozenset()) -> None:
        """Begin with the first batch; ``ask_about`` names the keys whose tombstones matter."""
        self._partition = partition
        self.newest: dict[bytes, Stored] = {}
        self.pending: dict[int, dict[bytes, Stored]] = {}
        self.ended: dict[bytes, int] = {}
        self._ask_about = ask_about
        self._open: dict[int, dict[bytes, Stored]] = {}
        # Where keys ended while transactions are open: only those can look back that far.
        self._tombstones: dict[bytes, int] = {}

    def batch(self, header: BatchHeader, records: Iterable[Record]) -> None:
        """Take the next batch.

        Raises:
            CorruptRecordError: It is a control batch and damaged.
        """
        if header.is_control:
            for record in records:
                marker = read_end_transaction(record)
                if marker is not None:
                    self._end_transaction(header.producer_id, committed=marker.is_commit)
        elif header.is_transactional:
            written = self._open.setdefault(header.producer_id, {})
            for offset, timestamp, key, value, _ in records:
                if key is not None and value is not None:
                    written[key] = Stored(self._partition, offset, timestamp, value)
        else:
            for offset, timestamp, key, value, _ in records:
                if key is None:
                    continue
                if value is not None:
                    self.newest[key] = Stored(self._partition, offset, timestamp, value)
                else:
                    self.newest.pop(key, None)
                    if self._open:
                        self._tombstones[key] = offset
                    if key in self._ask_about:
                        self.ended[key] = timestamp

    def end(self) -> None:
        """Take what no marker has ended by now as pending."""
        for producer_id, written in self._open.items():
            pending = {
                key: stored for key, stored in written.items() if not self._is_buried(key, stored)
            }
            if pending:
                self.pending[producer_id] = pending
        self._open.clear()
        self._tombstones.clear()

    def _end_transaction(self, producer_id: int, *, committed: bool) -> None:
        written = self._open.pop(producer_id, {})
        for key, stored in written.items() if committed else ():
            known = self.newest.get(key)
            if not self._is_buried(key, stored) and (known is None or known.offset < stored.offset):
                self.newest[key] = stored
        if not self._open:
            self._tombstones.clear()

    def _is_buried(self, key: bytes, stored: Stored) -> bool:
        return self._tombstones.get(key, -1) > stored.offset
