"""Fetched record batches become the rows that Spark sees.

This file alone decides which batches of a fetch count (whole ones, of no aborted transaction, no
control batches) and how a damaged one is reported. Records are read by `record_columns` into the
columns of `column_buffers`; fetching and positions are others' business.

The columns are those of Spark's own Kafka source. `headers` is null where a record has none, and a
header key that is not UTF-8 has U+FFFD in place of what cannot be read, both as there.

A fetch may end inside a batch, where the broker cut it at its size. That batch is left for the
next fetch: the offset to go on from is below its last one. So a caller that is given no rows and
the offset it came with has to fetch more bytes.

A few megabytes can unpack to gigabytes. So rows are given as they are read, and never more is
unpacked than the rows of one go; one batch by itself may be large, and has a limit of its own.
"""

from collections.abc import Generator, Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    LENGTH_POS,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POS,
    BatchHeader,
    TruncatedBatchError,
    check_crc,
    check_frame,
    parse_header,
)
from headwater.base.record.codecs import Codec, decompress
from headwater.base.record.control import CONTROL_ABORT, control_type
from headwater.base.record.records import RECORDS_BYTES_MAX, iterate
from headwater.streams.source import record_columns as kernel
from headwater.streams.source.column_buffers import ColumnBuilder
from headwater.streams.source.record_columns import Bytes

_FAULTS: Final = {
    kernel.BAD_LENGTH: "it claims more bytes than its batch has",
    kernel.BAD_NUMBER: "a number in it is cut or too long",
    kernel.BAD_FIELD: "a field claims more bytes than the record has",
    kernel.BAD_HEADERS: "its headers contradict its length",
    kernel.BAD_END: "its fields do not fill its length",
    kernel.BAD_OFFSET: "its offset does not follow the one before, or lies beyond the batch",
    kernel.BAD_TAIL: "the batch goes on behind its last record",
}


ROWS_MAX: Final = 16_384
"""Rows of a RecordBatch; what one costs by itself is nothing beside so many."""

BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a RecordBatch unless one record is larger: 8,000 rows of 1 KB."""


class OldMessageFormatError(CorruptRecordError):
    """Messages of format 0 or 1, which brokers stopped writing with Kafka 4.0."""


class Decoder:
    """Turns the fetched bytes of one partition into rows; one for each task."""

    def __init__(self, topic: str, partition: int, *, headers: bool) -> None:
        """Make what is the same in every batch of rows."""
        self._place = f"{topic}-{partition}"
        self._builder = ColumnBuilder(topic, partition, headers=headers, rows_max=ROWS_MAX)
        self._scratch = np.empty(BYTES_MAX, np.uint8)
        self._found = np.empty((kernel.ROW_FIELDS, ROWS_MAX), np.int64)

    def decode(
        self,
        records: memoryview,
        *,
        from_offset: int,
        upto_offset: int,
        aborted: Sequence[tuple[int, int]],
    ) -> Generator[pa.RecordBatch, None, int]:
        """Decode the records from `from_offset` on and below `upto_offset`.

        Args:
            records: The batches of one fetch, the last of them perhaps cut.
            from_offset: The first offset that is wanted.
            upto_offset: The first offset that is not wanted any more.
            aborted: Producer id and first offset of each aborted transaction, as fetched.

        Yields:
            The rows, those of many batches together or one batch in parts.

        Returns:
            The offset to go on from.

        Raises:
            CorruptRecordError: A batch is damaged, or unpacks to more than a batch may hold; topic,
                partition and offset are named.
        """
        wanted = from_offset, upto_offset
        pile = _Pile(records, self._scratch)
        transactions = _CommittedFilter(aborted)
        next_offset = from_offset
        for pos, header in self._whole_batches(records):
            if header.base_offset >= upto_offset:
                next_offset = upto_offset
                break
            if transactions.keeps(records, pos, header) and header.next_offset > from_offset:
                unpacked = self._maybe_unpack(records, pos, header)
                if not pile.takes(unpacked):
                    yield from self._read(pile, wanted)
                    pile = _Pile(records, self._scratch)
                if unpacked is None:
                    pile.add(header, pos)
                else:
                    pile.add_unpacked(header, unpacked)
                # It can be large: not to be held beside the next one.
                del unpacked
                if pile.is_full:
                    yield from self._read(pile, wanted)
                    pile = _Pile(records, self._scratch)
            next_offset = header.next_offset
        yield from self._read(pile, wanted)
        return max(from_offset, min(next_offset, upto_offset))

    def _read(self, pile: "_Pile", offsets: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        if not pile.batches:
            return
        source = pile.source()
        batches = np.array(pile.batches, np.int64)
        cursor = np.zeros(kernel.CURSOR_FIELDS, np.int64)
        outcome = kernel.FULL
        while outcome == kernel.FULL:
            outcome = kernel.find_records(source, batches, offsets, BYTES_MAX, self._found, cursor)
            if outcome not in _FAULTS and cursor[kernel.ROW_COUNT]:
                yield self._builder.build(source, self._found[:, : cursor[kernel.ROW_COUNT]])
        if outcome in _FAULTS:
            batch = pile.batches[cursor[kernel.AT_BATCH]]
            raise _corrupt(
                self._place,
                batch[kernel.BATCH_BASE_OFFSET],
                f"record {cursor[kernel.AT_RECORD]} of {batch[kernel.BATCH_RECORD_COUNT]}:"
                f" {_FAULTS[outcome]}",
                ErrorCode.INVALID_RECORD,
            )

    def _whole_batches(self, records: memoryview) -> Iterator[tuple[int, BatchHeader]]:
        """Walk over the batches that are there whole, and prove each."""
        pos, end = 0, len(records)
        while end - pos > MAGIC_POS:
            if records[pos + MAGIC_POS] < MAGIC:
                raise self._old_format(records, pos)
            try:
                header = parse_header(records, pos)
                check_frame(header, pos, end)
            except TruncatedBatchError:
                return
            except CorruptRecordError as error:
                raise _corrupt(self._place, _base_offset(records, pos), error.message) from error
            if not check_crc(records, pos, header.size_bytes):
                raise _corrupt(
                    self._place, header.base_offset, "the batch does not have its checksum"
                )
            if header.record_count < 0:
                raise _corrupt(
                    self._place, header.base_offset, f"it claims {header.record_count} records"
                )
            yield pos, header
            pos += header.size_bytes

    def _maybe_unpack(self, records: memoryview, pos: int, header: BatchHeader) -> bytes | None:
        """Return the records part of a batch that is compressed."""
        if header.codec == Codec.NONE:
            return None
        packed = records[pos + BATCH_HEADER_BYTES : pos + header.size_bytes]
        if header.record_count == 0 and not packed:
            return b""
        try:
            return decompress(header.codec, packed, RECORDS_BYTES_MAX)
        except CorruptRecordError as error:
            raise _corrupt(self._place, header.base_offset, error.message, error.code) from error

    def _old_format(self, records: memoryview, pos: int) -> OldMessageFormatError:
        error = OldMessageFormatError(
            f"{self._place} holds messages of the old format {records[pos + MAGIC_POS]}"
            f" at offset {_base_offset(records, pos)}",
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        )
        error.hint = "copy them into a new topic with a client that reads the old format"
        return error


class _CommittedFilter:
    """Tells which batches of a fetch a reader of committed records may see.

    A transaction is aborted from the first offset that the broker names on, until its marker.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=itemgetter(1), reverse=True)
        self._producers: set[int] = set()

    def keeps(self, records: memoryview, pos: int, header: BatchHeader) -> bool:
        """Tell whether the batch holds records to show; each is asked about once, in order."""
        while self._ahead and self._ahead[-1][1] <= header.last_offset:
            self._producers.add(self._ahead.pop()[0])
        if header.is_control:
            if header.producer_id in self._producers and _is_abort(records, pos):
                self._producers.remove(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._producers)


class _Pile:
    """Batches that are read in one go: where the fetch has them, or unpacked, never both.

    What is unpacked is gathered in `scratch`, the same memory for one pile after another: that
    which is touched for the first time costs more than unpacking lz4. A batch that is too large for
    it is a pile by itself.
    """

    def __init__(self, fetched: memoryview, scratch: Bytes) -> None:
        self._fetched: memoryview | bytes = fetched
        self._scratch = scratch
        self._unpacked_bytes: int | None = None
        self.batches: list[tuple[int, ...]] = []

    def takes(self, unpacked: bytes | None) -> bool:
        """Tell whether a batch may be added; what lies in the fetch needs no room."""
        if not self.batches:
            return True
        if unpacked is None or self._unpacked_bytes is None:
            return unpacked is None and self._unpacked_bytes is None
        return self._unpacked_bytes + len(unpacked) <= len(self._scratch)

    @property
    def is_full(self) -> bool:
        """Whether no other batch that was unpacked can be added."""
        return (self._unpacked_bytes or 0) >= len(self._scratch)

    def add(self, header: BatchHeader, pos: int) -> None:
        """Add the batch that lies at `pos` of the fetch as it is."""
        self._add(header, pos + BATCH_HEADER_BYTES, pos + header.size_bytes)

    def add_unpacked(self, header: BatchHeader, data: bytes) -> None:
        """Add a batch whose records were unpacked."""
        start = self._unpacked_bytes or 0
        end = self._unpacked_bytes = start + len(data)
        if end > len(self._scratch):
            self._fetched = data
        else:
            self._scratch[start:end] = np.frombuffer(data, np.uint8)
        self._add(header, start, end)

    def source(self) -> Bytes:
        """Return the bytes in which the batches lie."""
        if self._unpacked_bytes is None or self._unpacked_bytes > len(self._scratch):
            source = np.frombuffer(self._fetched, np.uint8)
        else:
            source = self._scratch[: self._unpacked_bytes]
        # Whether it could be written is part of its type: one type, one compilation.
        source.flags.writeable = False
        return source

    def _add(self, header: BatchHeader, start: int, end: int) -> None:
        """Describe a batch as the kernel wants it."""
        timestamp_type = header.timestamp_type
        self.batches.append(
            (
                start,
                end,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.max_timestamp
                if timestamp_type == LOG_APPEND_TIME
                else header.base_timestamp,
                timestamp_type,
            )
        )


def _is_abort(records: memoryview, pos: int) -> bool:
    marks = iterate(records, pos)
    return bool(marks) and control_type(marks[0]) == CONTROL_ABORT


def _base_offset(records: memoryview, pos: int) -> int:
    return int.from_bytes(records[pos : pos + LENGTH_POS], signed=True)


def _corrupt(
    place: str, offset: int, cause: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE
) -> CorruptRecordError:
    return CorruptRecordError(f"{place} is damaged at offset {offset}: {cause}", code)
