"""The two sparse indexes of a segment, in memory and in Kafka's format.

This file alone decides what an index entry is and how it is found. When an entry is made is
decided by `segment`; where its bytes go, too.

    .index      8 bytes an entry: offset - base (int32), position in the .log file (int32).
                The offset is the *last* one of the batch at that position.
    .timeindex  12 bytes an entry: timestamp (int64), offset - base (int32).
                The timestamp is the largest so far, the offset the last one of the batch that
                brought it. Both grow strictly from entry to entry.

Entries lie in arrays of machine integers, so that a search is one `bisect` in C.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import compress, count, islice
from operator import ge
from typing import Final

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
RELATIVE_OFFSET_MAX: Final = 2**31 - 1

_LITTLE = sys.byteorder == "little"


class OffsetIndex:
    """Where in the file to start looking for an offset.

    Attributes:
        saved_entries: How many of the entries the index file has.
        file_is_longer: Whether the index file has something behind them.
    """

    __slots__ = ("_base_offset", "_offsets", "_positions", "file_is_longer", "saved_entries")

    def __init__(self, base_offset: int, content: bytes = b"") -> None:
        """Take the content of an index file, or nothing for a new segment.

        A rest shorter than one entry is left out.
        """
        self._base_offset = base_offset
        words = array("i")
        words.frombytes(content[: len(content) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if _LITTLE:
            words.byteswap()
        self._offsets = words[0::2]
        self._positions = words[1::2]
        self.saved_entries = len(self._offsets)
        self.file_is_longer = False

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._offsets)

    def append(self, offset: int, position: int) -> None:
        """Add an entry for the batch that ends with `offset` and starts at `position`."""
        assert not self._offsets or offset - self._base_offset > self._offsets[-1]
        self._offsets.append(offset - self._base_offset)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """Return where to start looking for the batch that holds `offset`."""
        at = bisect_right(self._offsets, min(offset - self._base_offset, RELATIVE_OFFSET_MAX)) - 1
        return self._positions[at] if at >= 0 else 0

    def floor_position(self, position: int) -> int:
        """Return the last indexed position at or before a position."""
        at = bisect_right(self._positions, min(position, RELATIVE_OFFSET_MAX)) - 1
        return self._positions[at] if at >= 0 else 0

    def last_position(self) -> int:
        """Return the position of the last entry, 0 where there is none."""
        return self._positions[-1] if self._positions else 0

    def keep_valid(self, *, below_offset: int, below_position: int) -> bool:
        """Drop the first entry that cannot be right or lies too far, and all behind it.

        Returns:
            Whether everything was kept.
        """
        kept = min(
            _growing(self._offsets, below_offset - self._base_offset),
            _growing(self._positions, below_position),
        )
        whole = kept == len(self._offsets)
        self._cut(kept)
        return whole

    def _cut(self, entries: int) -> None:
        del self._offsets[entries:]
        del self._positions[entries:]
        if entries < self.saved_entries:
            self.saved_entries = entries
            self.file_is_longer = True

    def encode(self, start: int = 0) -> bytes:
        """Return the entries from number `start` on, as they stand in the file."""
        offsets = self._offsets[start:]
        words = array("i", bytes(OFFSET_ENTRY_BYTES * len(offsets)))
        words[0::2] = offsets
        words[1::2] = self._positions[start:]
        if _LITTLE:
            words.byteswap()
        return words.tobytes()


class TimeIndex:
    """From which offset on a timestamp may occur; attributes as of `OffsetIndex`."""

    __slots__ = ("_base_offset", "_offsets", "_timestamps", "file_is_longer", "saved_entries")

    def __init__(self, base_offset: int, content: bytes = b"") -> None:
        """Take the content of an index file, or nothing for a new segment.

        A rest shorter than one entry is left out.
        """
        self._base_offset = base_offset
        words = array("i")
        words.frombytes(content[: len(content) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES])
        if _LITTLE:
            words.byteswap()
        # Strided copies put the two halves of each timestamp side by side, without a Python loop.
        halves = array("i", bytes(8 * (len(words) // 3)))
        halves[_LITTLE::2] = words[0::3]
        halves[not _LITTLE :: 2] = words[1::3]
        self._timestamps = array("q", halves.tobytes())
        self._offsets = words[2::3]
        self.saved_entries = len(self._offsets)
        self.file_is_longer = False

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._offsets)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless the timestamp is not larger than the last one."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self._base_offset)

    def last(self) -> tuple[int, int]:
        """Return the largest timestamp and the offset that brought it; (-1, base) if empty."""
        if not self._timestamps:
            return -1, self._base_offset
        return self._timestamps[-1], self._base_offset + self._offsets[-1]

    def floor(self, timestamp: int) -> tuple[int, int]:
        """Return the last entry whose timestamp is not larger; (-1, base) where there is none."""
        at = bisect_right(self._timestamps, timestamp) - 1
        if at < 0:
            return -1, self._base_offset
        return self._timestamps[at], self._base_offset + self._offsets[at]

    def last_below(self, offset: int) -> tuple[int, int]:
        """Return the last entry whose offset is smaller; (-1, base) where there is none."""
        at = bisect_left(self._offsets, min(offset - self._base_offset, RELATIVE_OFFSET_MAX)) - 1
        if at < 0:
            return -1, self._base_offset
        return self._timestamps[at], self._base_offset + self._offsets[at]

    def keep_valid(self, *, below_offset: int) -> bool:
        """Drop the first entry that cannot be right or lies too far, and all behind it.

        Returns:
            Whether everything was kept.
        """
        kept = min(
            _growing(self._offsets, below_offset - self._base_offset),
            _growing(self._timestamps),
        )
        whole = kept == len(self._offsets)
        self._cut(kept)
        return whole

    def _cut(self, entries: int) -> None:
        del self._timestamps[entries:]
        del self._offsets[entries:]
        if entries < self.saved_entries:
            self.saved_entries = entries
            self.file_is_longer = True

    def encode(self, start: int = 0) -> bytes:
        """Return the entries from number `start` on, as they stand in the file."""
        halves = array("i", self._timestamps[start:].tobytes())
        words = array("i", bytes(TIME_ENTRY_BYTES * (len(halves) // 2)))
        words[0::3] = halves[_LITTLE::2]
        words[1::3] = halves[not _LITTLE :: 2]
        words[2::3] = self._offsets[start:]
        if _LITTLE:
            words.byteswap()
        return words.tobytes()


def _growing(values: "array[int]", below: int | None = None) -> int:
    """Return how many entries grow strictly, from 0 on and below a bound.

    Without a Python loop: a segment of 1 GiB has 262,144 of them, and readers wait meanwhile.
    """
    if not values or values[0] < 0:
        return 0
    grown = next(compress(count(1), map(ge, values, islice(values, 1, None))), len(values))
    return grown if below is None else bisect_left(values, below, hi=grown)
