"""The aborted transactions of a segment, in memory and in Kafka's format.

This file alone decides what an entry of a `.txnindex` file is and which of them a reader must be
told of. Which transactions are aborted is decided by whoever writes the markers.

A segment has the entries of those transactions whose abort marker lies in it, in the order of the
markers; a segment without any has no file. 34 bytes an entry:

    int16  version (0)
    int64  producer id
    int64  first offset of the transaction
    int64  offset of its marker
    int64  last stable offset once the marker was there

The last of them ends a search: below it every transaction was decided, so no later entry, be it in
a later segment, can have begun below it.
"""

import struct
from typing import Final, NamedTuple

TXN_ENTRY_BYTES: Final = 34
_VERSION: Final = 0
_ENTRY = struct.Struct(">hqqqq")
_MARKER_POS: Final = 18
_INT64 = struct.Struct(">q")
_unpack_int64 = _INT64.unpack_from


class AbortedTransaction(NamedTuple):
    """What a reader of committed data has to skip: a producer's records from an offset on."""

    producer_id: int
    first_offset: int


class TxnIndexEntry(NamedTuple):
    """A transaction that was aborted, as the index has it."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int


class TxnIndex:
    """The aborted transactions whose markers lie in one segment.

    Attributes:
        saved_entries: How many of the entries the index file has.
        file_is_longer: Whether the index file has something behind them.
    """

    __slots__ = ("_content", "file_is_longer", "saved_entries")

    def __init__(self, content: bytes = b"") -> None:
        """Take the content of an index file; a rest shorter than one entry is left out."""
        entries = len(content) // TXN_ENTRY_BYTES
        self._content = bytearray(content[: entries * TXN_ENTRY_BYTES])
        self.saved_entries = entries
        self.file_is_longer = entries * TXN_ENTRY_BYTES < len(content)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._content) // TXN_ENTRY_BYTES

    def append(self, entry: TxnIndexEntry) -> None:
        """Add the transaction that a marker has just aborted."""
        self._content += _ENTRY.pack(_VERSION, *entry)

    def entries(self) -> list[TxnIndexEntry]:
        """Return them all."""
        return [TxnIndexEntry(*fields) for _, *fields in _ENTRY.iter_unpack(self._content)]

    def collect(self, from_offset: int, upto_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add to `found` what concerns a reader of a range of offsets.

        Returns:
            Whether no later entry can.
        """
        with memoryview(self._content)[self._first_from(from_offset) :] as content:
            for _, producer_id, first, _, last_stable_offset in _ENTRY.iter_unpack(content):
                if first < upto_offset:
                    found.append(AbortedTransaction(producer_id, first))
                if last_stable_offset >= upto_offset:
                    return True
        return False

    def _first_from(self, offset: int) -> int:
        """Return the position of the first entry whose marker is not below an offset."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _unpack_int64(self._content, middle * TXN_ENTRY_BYTES + _MARKER_POS)[0] < offset:
                low = middle + 1
            else:
                high = middle
        return low * TXN_ENTRY_BYTES

    def keep_valid(self, *, from_offset: int, below_offset: int) -> bool:
        """Drop the first entry that cannot be right or lies too far, and all behind it.

        Args:
            from_offset: The base offset of the segment: no marker lies below it.
            below_offset: Nor here or behind.

        Returns:
            Whether everything was kept.
        """
        kept = 0
        lowest = from_offset
        for version, _, first, marker, last_stable in _ENTRY.iter_unpack(self._content):
            if version != _VERSION or not lowest <= marker < below_offset:
                break
            if not 0 <= first < marker or not 0 <= last_stable <= marker + 1:
                break
            lowest = marker + 1
            kept += 1
        whole = kept == len(self) and not self.file_is_longer
        del self._content[kept * TXN_ENTRY_BYTES :]
        if kept < self.saved_entries:
            self.saved_entries = kept
            self.file_is_longer = True
        return whole

    def encode(self, start: int = 0) -> bytes:
        """Return the entries from number `start` on, as they stand in the file."""
        return bytes(self._content[start * TXN_ENTRY_BYTES :])
