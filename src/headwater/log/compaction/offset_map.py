"""The latest offset of each key, within a given memory.

This file alone decides how many keys a pass can remember and what an entry costs. When no more fit,
the pass ends where it is and a later one goes on from there.

A dict of keys beats any table of our own by a factor of ten, and costs more memory: beside the
bytes of the key, 33 for the object that holds them, 16 for rounding, 32 for the offset, 60 for the
places in the dict, which is between a third and two thirds full, and 16 for the sorted offsets that
are made of it in the end. Measured with 128 MiB and keys of 4, 14 and 36 bytes: 824, 785 and 695
thousand entries, 115 MiB at most.

The sorted offsets spare most of the second reading: of a batch that the first one has gone through
whole, they tell which records remain, without a look into it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from headwater.log.compaction.scanning import ScannedRecords

ENTRY_BYTES: Final = 33 + 16 + 32 + 60 + 16


class OffsetMap:
    """Keys and their latest offsets.

    Attributes:
        latest_offset: Up to here, included, every record is accounted for.
        full: Whether something behind it did not fit.
    """

    def __init__(self, buffer_bytes: int) -> None:
        """Take the memory; at least one key fits, so that every pass gets on."""
        self._offsets: dict[bytes | None, int] = {}
        self._room_bytes = max(buffer_bytes, 1)
        self.latest_offset = -1
        self.full = False
        # By base offset, growing: batches of which the offsets alone do not tell what remains.
        self._unusual = array("q")
        self._whole_from_offset = 0
        self._sorted = array("q")

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._offsets)

    def begin_at(self, offset: int) -> None:
        """Note that only records from an offset on will be added."""
        self._whole_from_offset = offset
        self.latest_offset = offset - 1

    def add_dense(self, base_offset: int, keys: list[bytes | None]) -> None:
        """Take all records of a batch into account that has lost none, or as many as fit."""
        self._add(base_offset, keys, range(len(keys)))

    def add(self, base_offset: int, records: ScannedRecords) -> None:
        """Take the records of any batch into account, or as many as fit.

        Those below the offset at which all began do not count, keyless records have no entry.
        """
        self.note_unusual(base_offset)
        keys: list[bytes | None] = records.keys
        deltas: Sequence[int] = records.deltas
        least = self._whole_from_offset - base_offset
        if least > 0:
            first = bisect_left(deltas, least)
            keys, deltas = keys[first:], deltas[first:]
        if keys:
            self._add(base_offset, keys, deltas)

    def _add(self, base_offset: int, keys: list[bytes | None], deltas: Sequence[int]) -> None:
        longest = max(map(len, filter(None, keys)), default=0)
        if len(keys) * (ENTRY_BYTES + longest) > self._room_bytes:
            self._add_singly(base_offset, keys, deltas)
            return
        known = len(self._offsets)
        self._offsets.update(zip(keys, map(base_offset.__add__, deltas), strict=True))
        if self._offsets.pop(None, None) is not None:
            # What goes for want of a key is counted.
            self.note_unusual(base_offset)
        self._room_bytes -= (len(self._offsets) - known) * (ENTRY_BYTES + longest)

    def _add_singly(
        self, base_offset: int, keys: list[bytes | None], deltas: Sequence[int]
    ) -> None:
        for key, delta in zip(keys, deltas, strict=True):
            if key is None:
                self.note_unusual(base_offset)
            else:
                if key not in self._offsets:
                    if self._room_bytes <= 0:
                        self.full = True
                        self.note_unusual(base_offset)
                        return
                    self._room_bytes -= ENTRY_BYTES + len(key)
                self._offsets[key] = base_offset + delta
            self.latest_offset = base_offset + delta

    def note_unusual(self, base_offset: int) -> None:
        """Note that a batch has to be looked into once more."""
        if not self._unusual or self._unusual[-1] != base_offset:
            self._unusual.append(base_offset)

    def reach(self, offset: int) -> None:
        """Note that everything up to an offset, included, is accounted for."""
        self.latest_offset = max(self.latest_offset, offset)

    def complete(self) -> None:
        """Make ready for questions: nothing will be added any more."""
        self._sorted = array("q", sorted(self._offsets.values()))

    def remaining(self, base_offset: int, last_offset: int) -> Sequence[int] | None:
        """Return the offsets of a batch that remain; None where it must be looked into."""
        if base_offset < self._whole_from_offset or last_offset > self.latest_offset:
            return None
        place = bisect_left(self._unusual, base_offset)
        if place < len(self._unusual) and self._unusual[place] == base_offset:
            return None
        low = bisect_left(self._sorted, base_offset)
        return self._sorted[low : bisect_right(self._sorted, last_offset, lo=low)]

    def superseded(self, base_offset: int, records: ScannedRecords) -> list[int]:
        """Return the indexes of the records of a batch that a later one of their key replaces."""
        latest = map(self._offsets.get, records.keys, repeat(-1))
        return [
            index
            for index, (later, delta) in enumerate(zip(latest, records.deltas, strict=True))
            if later > base_offset + delta
        ]
