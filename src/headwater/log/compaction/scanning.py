"""Batches and keys of a segment, read as fast as Python can.

This file alone decides how the batches of a file are walked for compaction, and what stands for a
key. It judges nothing: what remains is decided by `batches`.

A key of up to 39 bytes stands for itself; a longer one is stood for by a digest of 40 bytes, so
that the memory for a key is bounded, and no digest is taken for a key. Text UUIDs, the longest keys
in general use, have 36.
"""

import hashlib
import operator
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from headwater.base.disk import File
from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    ATTRIBUTES_POS,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    MAGIC,
    BatchHeader,
    parse_header,
)
from headwater.base.record.codecs import decompress
from headwater.base.record.crc import crc32c
from headwater.base.record.records import RECORDS_BYTES_MAX
from headwater.base.record.varint import decode_varint

CHUNK_BYTES: Final = 4 << 20
"""One read: large enough that its cost vanishes, small enough for the CPU's cache."""

KEY_BYTES_MAX: Final = 39
_DIGEST_BYTES: Final = KEY_BYTES_MAX + 1


class BrokenSegmentError(Exception):
    """A segment whose batches cannot be told from one another beyond some byte."""


class FoundBatch(NamedTuple):
    """A batch as it lies in a segment: whole in `chunk`, from `at` on."""

    header: BatchHeader
    chunk: memoryview
    at: int
    position: int
    size: int

    def content(self) -> memoryview:
        """Return its bytes."""
        return self.chunk[self.at : self.at + self.size]


class ScannedRecords(NamedTuple):
    """The records of a batch, each list in their order.

    Attributes:
        data: The records part, unpacked.
        starts: Where each record starts in it; one more entry for the end of the last.
        deltas: Offset minus base offset.
        keys: What stands for the key; None where there is none.
        tombstones: The indexes of the records without a value.
    """

    data: bytes
    starts: list[int]
    deltas: list[int]
    keys: list[bytes | None]
    tombstones: list[int]


def walk_batches(file: File, size: int) -> Iterator[FoundBatch]:
    """Walk over all batches of a segment file.

    Raises:
        BrokenSegmentError: What stands somewhere is no batch, or reaches beyond the end.
    """
    position = chunk_start = 0
    chunk = memoryview(b"")
    while position < size:
        at = position - chunk_start
        if at + BATCH_HEADER_BYTES > len(chunk):
            chunk = memoryview(file.read(min(CHUNK_BYTES, size - position), position))
            chunk_start, at = position, 0
            if len(chunk) < BATCH_HEADER_BYTES:
                raise BrokenSegmentError(f"{file.path} ends inside a batch at byte {position}")
        header = parse_header(chunk, at)
        length = header.size_bytes
        if (
            header.batch_length < BATCH_LENGTH_MIN
            or header.magic != MAGIC
            or length > size - position
            or header.last_offset_delta < 0
        ):
            raise BrokenSegmentError(f"there is no batch at byte {position} of {file.path}")
        if at + length > len(chunk):
            wanted = max(length, min(CHUNK_BYTES, size - position))
            chunk = memoryview(file.read(wanted, position))
            chunk_start, at = position, 0
            if len(chunk) < length:
                raise BrokenSegmentError(f"{file.path} ends inside a batch at byte {position}")
        yield FoundBatch(header, chunk, at, position, length)
        position += length


def unpack(batch: FoundBatch) -> bytes:
    """Prove a batch whole and return its records part.

    Raises:
        CorruptRecordError: The checksum is wrong, or the data does not unpack.
    """
    header, chunk, at, _, size = batch
    if crc32c(chunk[at + ATTRIBUTES_POS : at + size]) != header.crc:
        raise CorruptRecordError("its checksum is wrong")
    packed = chunk[at + BATCH_HEADER_BYTES : at + size]
    if header.record_count == 0 and not packed:
        return b""
    return decompress(header.codec, packed, RECORDS_BYTES_MAX)


def scan_records(header: BatchHeader, data: bytes) -> ScannedRecords:
    """Find the records of a batch and their keys.

    Numbers of one or two bytes are read in place: calling for each takes half as long again.

    Raises:
        CorruptRecordError: The records contradict their lengths or the header.
    """
    starts: list[int] = []
    deltas: list[int] = []
    keys: list[bytes | None] = []
    tombstones: list[int] = []
    at = 0
    try:
        for index in range(header.record_count):
            starts.append(at)
            folded = data[at]
            high = data[at + 1]
            if folded < 128:
                end = at + 1 + (folded >> 1)
                at += 3
            elif high < 128:
                end = at + 2 + ((folded & 127 | high << 7) >> 1)
                at += 4
            else:
                length, at = decode_varint(data, at)
                end = at + length
                at += 2
            # Behind the attributes and the first byte of the timestamp.
            if data[at - 1] > 127:
                while data[at] > 127:
                    at += 1
                at += 1
            delta = data[at]
            if delta < 128:
                deltas.append(delta >> 1)
                at += 1
            else:
                delta, at = _delta(data, at)
                deltas.append(delta)
            length = data[at]
            if length < 80 and not length & 1:
                at += 1
                stop = at + (length >> 1)
                keys.append(data[at:stop])
                at = stop
            else:
                key, at = _long_key(data, at)
                keys.append(key)
            if at >= end or folded & 1:
                raise _malformed(header, index)
            if data[at] & 1:
                tombstones.append(index)
            at = end
    except IndexError:
        raise _malformed(header, len(starts)) from None
    starts.append(at)
    if at != len(data) or not _grow(deltas, header.last_offset_delta):
        raise _malformed(header, len(starts))
    return ScannedRecords(data, starts, deltas, keys, tombstones)


def scan_dense_keys(header: BatchHeader, data: bytes) -> tuple[list[bytes | None], bool] | None:
    """Find the keys of a batch that has lost no record, in little more than half the time.

    Returns:
        The keys and whether a record has no value; None where anything is unusual, which is then
        for `scan_records` to judge.
    """
    keys: list[bytes | None] = []
    add = keys.append
    tombstones = 0
    at = 0
    if header.record_count != header.last_offset_delta + 1:
        return None
    try:
        for index in range(header.record_count):
            folded = data[at]
            high = data[at + 1]
            if folded < 128:
                end = at + 1 + (folded >> 1)
                at += 3
            elif high < 128:
                end = at + 2 + ((folded & 127 | high << 7) >> 1)
                at += 4
            else:
                length, at = decode_varint(data, at)
                end = at + length
                at += 2
            if data[at - 1] > 127:
                while data[at] > 127:
                    at += 1
                at += 1
            if index < 64:
                if data[at] != index << 1:
                    return None
                at += 1
            else:
                delta, at = _delta(data, at)
                if delta != index:
                    return None
            length = data[at]
            if length < 80 and not length & 1:
                at += 1
                stop = at + (length >> 1)
                add(data[at:stop])
                at = stop
            else:
                key, at = _long_key(data, at)
                add(key)
            if at >= end or folded & 1:
                return None
            tombstones |= data[at] & 1
            at = end
    except IndexError:
        return None
    return (keys, tombstones > 0) if at == len(data) else None


def _delta(data: bytes, at: int) -> tuple[int, int]:
    low, high = data[at], data[at + 1]
    if high < 128 <= low:
        return (low & 127 | high << 7) >> 1, at + 2
    return decode_varint(data, at)


def skip_records(header: BatchHeader, data: bytes) -> list[int]:
    """Find where the records of a batch start that was scanned before; and where the last ends."""
    starts: list[int] = []
    add = starts.append
    at = 0
    for _ in range(header.record_count):
        add(at)
        folded = data[at]
        if folded < 128:
            at += 1 + (folded >> 1)
            continue
        high = data[at + 1]
        if high < 128:
            at += 2 + ((folded & 127 | high << 7) >> 1)
        else:
            length, at = decode_varint(data, at)
            at += length
    add(at)
    return starts


def _long_key(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read a key that is null or has 40 bytes or more."""
    length, at = decode_varint(data, at)
    if length < 0:
        return None, at
    key = data[at : at + length]
    if length > KEY_BYTES_MAX:
        key = hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()
    return key, at + length


def _grow(deltas: list[int], last_delta: int) -> bool:
    """Tell whether offsets grow and stay within the batch."""
    if not deltas:
        return True
    within = deltas[0] >= 0 and deltas[-1] <= last_delta
    return within and all(map(operator.lt, deltas, islice(deltas, 1, None)))


def _malformed(header: BatchHeader, index: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"record {index} of {header.record_count} contradicts its length",
        ErrorCode.INVALID_RECORD,
    )
