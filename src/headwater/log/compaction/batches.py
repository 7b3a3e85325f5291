"""What remains of a batch.

This file alone decides which records of a closed segment stay, by Kafka's rules:

    superseded         a later record of the same key, within what the pass has read, replaces it
    aborted            its transaction was aborted
    tombstones         no value: stay until the delete horizon, which the first pass that sees them
                       sets to `delete.retention.ms` from then on
    markers            of transactions of which nothing is left: the same
    keyless            cannot be replaced, so a compacted log does not keep them

A batch that has lost all its records stays as an empty header where something depends on it: the
sequence number of an active producer, or where the segment ends. A marker that alone tells the
epoch of an active producer stays whole, and so does a batch that cannot be read.
"""

from collections.abc import Sequence
from typing import Final

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import BatchHeader
from headwater.base.record.control import control_type
from headwater.base.record.records import iterate
from headwater.log.compaction.job import Job, LastOfProducer
from headwater.log.compaction.offset_map import OffsetMap
from headwater.log.compaction.rewriting import empty, rewrite
from headwater.log.compaction.scanning import (
    FoundBatch,
    ScannedRecords,
    scan_records,
    skip_records,
    unpack,
)
from headwater.log.compaction.transactions import WalkedTransactions
from headwater.log.txn_index import TxnIndexEntry

WHOLE: Final = bytearray(b"whole")
"""The batch stays as it is."""

_COMPLAINTS_MAX: Final = 10


class BatchFilter:
    """The rules, for the time of one pass.

    Attributes:
        transactions: As of the place where the pass is.
        dropped_records: How many did not stay.
        keyless_records: How many of them for want of a key.
        complaints: The first few batches that could not be read.
    """

    def __init__(self, job: Job, latest: OffsetMap) -> None:
        """Take what the pass knows of keys, producers and transactions."""
        self.transactions = WalkedTransactions(job.aborted)
        self.dropped_records = 0
        self.keyless_records = 0
        self.complaints: list[str] = []
        self._latest = latest
        self._now_ms = job.now_ms
        self._new_horizon_ms = job.now_ms + job.delete_retention_ms
        self._producers = {last.producer_id: last for last in job.producers}

    def complain(self, sentence: str) -> None:
        """Take note of something that is left alone because it cannot be read."""
        if len(self.complaints) < _COMPLAINTS_MAX and sentence not in self.complaints:
            self.complaints.append(sentence)

    def remains(
        self, batch: FoundBatch, *, ends_segment: bool
    ) -> tuple[bytearray | None, TxnIndexEntry | None]:
        """Decide what remains of a batch.

        Args:
            batch: The next one of the log.
            ends_segment: Whether it stays, be it empty, so that the end of the segment is known.

        Returns:
            `WHOLE`, what to write instead, or None for nothing; and what the index of aborted
            transactions has to hold because of it.
        """
        header = batch.header
        if header.is_control:
            return self._remains_of_marker(batch, ends_segment=ends_segment)
        aborted = self.transactions.pass_data(header)
        if header.record_count and not aborted:
            remaining = self._latest.remaining(header.base_offset, header.last_offset)
            if remaining is not None:
                return self._remains_of_known(batch, remaining, ends_segment=ends_segment), None
        records: ScannedRecords | None = None
        kept: Sequence[int] = ()
        try:
            data = unpack(batch)
            if header.record_count and not aborted:
                records = scan_records(header, data)
                kept = self._kept(header, records)
        except CorruptRecordError as error:
            self.complain(
                f"the batch at offset {header.base_offset} is left as it is: {error.message}"
            )
            return WHOLE, None
        self.dropped_records += header.record_count - len(kept)
        if records is None or not kept:
            return self._emptied(header, ends_segment=ends_segment), None
        return self._written(header, records, kept), None

    def _remains_of_known(
        self, batch: FoundBatch, remaining: Sequence[int], *, ends_segment: bool
    ) -> bytearray | None:
        """Decide by the offsets that remain: the first reading has seen nothing unusual."""
        header = batch.header
        self.dropped_records += header.record_count - len(remaining)
        if len(remaining) == header.record_count:
            return WHOLE
        if not remaining:
            return self._emptied(header, ends_segment=ends_segment)
        data = unpack(batch)
        kept = [offset - header.base_offset for offset in remaining]
        return rewrite(header, data, skip_records(header, data), kept)

    def _kept(self, header: BatchHeader, records: ScannedRecords) -> Sequence[int]:
        count = header.record_count
        dropped = set(self._latest.superseded(header.base_offset, records))
        upto_delta = self._latest.latest_offset - header.base_offset
        if None in records.keys:
            keyless = [
                index
                for index, key in enumerate(records.keys)
                if key is None and records.deltas[index] <= upto_delta
            ]
            self.keyless_records += len(keyless)
            dropped.update(keyless)
        horizon_ms = header.delete_horizon_ms
        if records.tombstones and horizon_ms is not None and horizon_ms <= self._now_ms:
            dropped.update(
                index for index in records.tombstones if records.deltas[index] <= upto_delta
            )
        if not dropped:
            return range(count)
        return [index for index in range(count) if index not in dropped]

    def _written(
        self, header: BatchHeader, records: ScannedRecords, kept: Sequence[int]
    ) -> bytearray:
        horizon_ms = None
        if records.tombstones and header.delete_horizon_ms is None:
            upto_delta = self._latest.latest_offset - header.base_offset
            staying = {index for index in records.tombstones if records.deltas[index] <= upto_delta}
            if not staying.isdisjoint(kept):
                horizon_ms = self._new_horizon_ms
        if horizon_ms is None and len(kept) == header.record_count:
            return WHOLE
        return rewrite(header, records.data, records.starts, kept, delete_horizon_ms=horizon_ms)

    def _emptied(self, header: BatchHeader, *, ends_segment: bool) -> bytearray | None:
        if not ends_segment and not self._is_last_of_producer(header):
            return None
        return WHOLE if header.record_count == 0 else empty(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Tell whether a producer's sequence number or epoch is known from this batch alone."""
        last: LastOfProducer | None = self._producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return last.last_offset == header.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _remains_of_marker(
        self, batch: FoundBatch, *, ends_segment: bool
    ) -> tuple[bytearray | None, TxnIndexEntry | None]:
        header = batch.header
        try:
            data = unpack(batch)
            record = iterate(batch.content())[0] if header.record_count else None
            kind = None if record is None else control_type(record)
            records = scan_records(header, data)
        except CorruptRecordError as error:
            self.complain(
                f"the marker at offset {header.base_offset} is left as it is: {error.message}"
            )
            self.transactions.miss()
            return WHOLE, None
        needless, entry = self.transactions.pass_marker(header, kind)
        if not needless:
            return WHOLE, entry
        horizon_ms = header.delete_horizon_ms
        if header.record_count and horizon_ms is None:
            kept = range(header.record_count)
            marker = rewrite(
                header, data, records.starts, kept, delete_horizon_ms=self._new_horizon_ms
            )
            return marker, None
        waits = horizon_ms is not None and horizon_ms > self._now_ms
        # Without its record a marker would not tell the epoch to who replays the log.
        if header.record_count and (waits or self._is_last_of_producer(header)):
            return WHOLE, None
        self.dropped_records += header.record_count
        return self._emptied(header, ends_segment=ends_segment), None
