"""What readers are given of a partition's log.

This file alone decides what may be read, and which offsets, timestamps and sizes readers are told.
It writes nothing; the log that grows is `partition`.

A file that cannot be read is a StorageError and no reason to refuse appends: the next read may
succeed, and what cannot be read stays unread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from headwater.base.disk import may_pass, remedy
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import NO_LEADER_EPOCH, NO_TIMESTAMP, BatchHeader
from headwater.log.epochs import LeaderEpochs
from headwater.log.extent import FileRange
from headwater.log.producers import ProducerBatch, ProducerState
from headwater.log.recovery import Found
from headwater.log.repetition import find_repeated
from headwater.log.search import FoundOffset, find_max_timestamp, find_timestamp
from headwater.log.segments import SegmentList
from headwater.log.txn_index import AbortedTransaction


class OpenTransaction(NamedTuple):
    """A transaction that is neither committed nor aborted in a partition.

    Attributes:
        producer_id: Whose it is.
        producer_epoch: Its producer's epoch.
        first_offset: Of its first record here.
        since_ms: When that was appended; after a restart the time that its batch claims, or that
            of the producer's last batch.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    since_ms: int


class ReadableLog:
    """A partition's segments and epochs, and the offsets between which they may be read."""

    def __init__(self, directory: str, found: Found, *, leader_epoch: int) -> None:
        """Show a log as it was found."""
        self.directory = directory
        self._segments = SegmentList(found.segments)
        self.epochs: LeaderEpochs = found.epochs
        self.leader_epoch = leader_epoch
        self.log_start_offset = found.log_start_offset
        self.log_end_offset = found.log_end_offset
        self.high_watermark = found.log_end_offset
        self.producers: ProducerState = found.producers
        self._transactions = found.producers.transactions
        self._transactions.advance(found.log_end_offset)

    @property
    def segments(self) -> SegmentList:
        """Its files, for who puts others in their place."""
        return self._segments

    @property
    def last_stable_offset(self) -> int:
        """The end of what readers of committed data may see."""
        unstable = self._transactions.first_unstable_offset
        if unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the transactions that no marker has ended yet, oldest first."""
        found = []
        for producer_id, first_offset in self._transactions.open_first_offsets().items():
            producer = self.producers.get(producer_id)
            assert producer is not None
            found.append(
                OpenTransaction(producer_id, producer.epoch, first_offset, producer.txn_since_ms)
            )
        return found

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
        """Return what a reader of committed data must skip between two offsets.

        Each is a producer whose records count as aborted from an offset on until its next abort
        marker; in the order of their markers.

        Raises:
            StorageError: The files cannot be read.
        """
        with self._reading():
            return self._segments.aborted_transactions(from_offset, upto_offset)

    def repeated(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the batch that one of an idempotent producer repeats, None if it is new.

        Raises:
            KafkaError: The producer is refused.
            StorageError: The log cannot be searched for the batch.
        """
        try:
            return find_repeated(self.producers, header, self._segments)
        except OSError as error:
            raise self._unreadable(error) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Tell of a file that cannot be read as of any other trouble with the disk."""
        try:
            yield
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StorageError:
        passes = may_pass(error)
        hint = remedy(error) if passes else ""
        return StorageError(f"{self.directory} cannot be read: {error}", hint=hint, passes=passes)

    def read(
        self, offset: int, max_bytes: int, *, upto_offset: int, at_least_one: bool
    ) -> FileRange | None:
        """Return whole batches of one segment, from the one that holds `offset`.

        Args:
            offset: Where the reader is.
            max_bytes: How much it wants at most.
            upto_offset: No batch that starts here or behind: the high watermark, as a rule.
            at_least_one: The first batch comes even if it is larger than `max_bytes`.

        Returns:
            None where there is nothing to be had under these conditions.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE.
            StorageError: The files cannot be read.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset}..{self.log_end_offset}",
            )
        if offset >= upto_offset:
            return None
        try:
            return self._segments.read(
                offset,
                max_bytes,
                upto_offset=upto_offset,
                log_end_offset=self.log_end_offset,
                at_least_one=at_least_one,
            )
        except OSError as error:
            raise self._unreadable(error) from error

    def offset_for_timestamp(self, timestamp_ms: int, *, upto_offset: int) -> FoundOffset | None:
        """Return the first record below `upto_offset` that is not older than a timestamp."""
        with self._reading():
            return find_timestamp(
                self._segments.as_sequence(),
                timestamp_ms,
                from_offset=self.log_start_offset,
                upto_offset=upto_offset,
            )

    def max_timestamp(self, *, upto_offset: int) -> FoundOffset | None:
        """Return the first record below `upto_offset` that has the largest timestamp."""
        with self._reading():
            return find_max_timestamp(
                self._segments.as_sequence(),
                from_offset=self.log_start_offset,
                upto_offset=upto_offset,
            )

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        """Return the epoch at or below the one asked for and its end; (-1, -1) if unknown."""
        if leader_epoch == self.leader_epoch:
            return leader_epoch, self.log_end_offset
        if max(self.epochs.latest, NO_LEADER_EPOCH) < leader_epoch < self.leader_epoch:
            # A run in which nothing was written; before all of them stands the epoch itself.
            known = self.epochs.latest > NO_LEADER_EPOCH
            return self.epochs.latest if known else leader_epoch, self.log_end_offset
        return self.epochs.end_offset(leader_epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch in which an offset was written, -1 if unknown."""
        return self.epochs.epoch_of(offset)

    def size_bytes(self) -> int:
        """Return the bytes in all segments."""
        return self._segments.size_bytes()

    def bytes_from(self, offset: int) -> int:
        """Return the bytes from the batch that holds an offset to the end."""
        if offset >= self.log_end_offset:
            return 0
        with self._reading():
            return self._segments.bytes_from(offset)

    def segment_start(self, offset: int) -> int:
        """Return the first offset of the segment that holds an offset, or the log start."""
        if not self._segments:
            return self.log_start_offset
        return max(
            self.log_start_offset, self._segments[self._segments.place_of(offset)].base_offset
        )

    def segment_end(self, offset: int) -> int:
        """Return the first offset behind the segment that holds an offset."""
        following = self._segments.place_of(offset) + 1
        if following >= len(self._segments):
            return self.log_end_offset
        return self._segments[following].base_offset

    def durable_bytes(self) -> int:
        """Return the bytes below the high watermark."""
        return self.bytes_from(self.log_start_offset) - self.bytes_from(self.high_watermark)

    def newest_batch_bytes(self) -> int:
        """Return the size of the last batch below the high watermark, 0 where there is none."""
        if self.high_watermark <= self.log_start_offset:
            return 0
        return self.bytes_from(self.high_watermark - 1) - self.bytes_from(self.high_watermark)

    def offset_behind(self, offset: int, skipped_bytes: int) -> int | None:
        """Return the offset of the first batch so many bytes behind that of another, if any."""
        with self._reading():
            return self._segments.offset_behind(offset, skipped_bytes)

    def oldest_timestamp_from(self, offset: int) -> int:
        """Return the timestamp by which the segment that holds an offset will expire, -1 if none.

        It goes when this timestamp is older than `retention.ms`.
        """
        if not self._segments:
            return NO_TIMESTAMP
        with self._reading():
            return self._segments[self._segments.place_of(offset)].largest_timestamp
