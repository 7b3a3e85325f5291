"""Panes: the pieces of time of which aligned windows are made, each piece counted once.

This file alone decides how long a pane is, which one a time falls into and which windows have it.
It knows no aggregate and no state.

    length 6, slide 4      |-----|-----|            a window
    pane 2                       |-----|-----|      the next one
                           |--|--|--|--|--|--|      their panes

Times may be negative, and divisions round down: the year 1 has windows like any other.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.grouping import group
from headwater.streams.windows.errors import WindowSettingError

# A table of all pairs is quicker than sorting them while it fits into the caches and a bit beyond.
_PAIRS_MAX: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one length that begin every `slide_us`, one of them at `offset_us`."""

    length_us: int
    slide_us: int
    offset_us: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.length_us <= 0:
            raise WindowSettingError(f"a window cannot be {self.length_us} microseconds long")
        if not 0 < self.slide_us <= self.length_us:
            raise WindowSettingError(
                f"windows of {self.length_us} microseconds cannot begin every {self.slide_us}",
                hint="give a slide that is longer than nothing and not longer than the window",
            )

    @property
    def pane_us(self) -> int:
        """How long a pane is."""
        return math.gcd(self.length_us, self.slide_us)

    def panes(self, times: Int64s) -> Int64s:
        """Return where the pane of each time begins."""
        return (times - self.offset_us) // self.pane_us * self.pane_us + self.offset_us

    def last_ends(self, times: Int64s) -> Int64s:
        """Return where the last window ends that has each time."""
        starts = (times - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        return starts + self.length_us

    def last_end(self, time: int) -> int:
        """Return where the last window ends that has a time."""
        start = (time - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        return start + self.length_us

    def starts(self, pane: int) -> Iterator[int]:
        """Return where the windows begin that have a pane, the last one first."""
        start = self.last_end(pane) - self.length_us
        while start + self.length_us > pane:
            yield start
            start -= self.slide_us


class PaneGroups(NamedTuple):
    """Rows that share a pane and a key.

    Attributes:
        codes: The group of each row.
        firsts: A row of each group: its first.
    """

    codes: Int64s
    firsts: Int64s


def group_by_pane(keys: pa.Array, panes: Int64s, pane_us: int) -> PaneGroups:
    """Find the rows that share a pane and a key."""
    codes, firsts = group(keys)
    if not len(panes):
        return PaneGroups(codes, firsts)
    lowest = panes.min()
    numbers = (panes - lowest) // pane_us
    span = int(numbers.max()) + 1
    if span == 1:
        return PaneGroups(codes, firsts)
    if span * len(firsts) > max(_PAIRS_MAX, 2 * len(panes)):
        numbers = np.unique(numbers, return_inverse=True)[1]
        span = int(numbers.max()) + 1
    pairs = codes * span + numbers
    if span * len(firsts) > max(_PAIRS_MAX, 2 * len(panes)):
        _, firsts, codes = np.unique(pairs, return_index=True, return_inverse=True)
        return PaneGroups(codes, firsts)
    places = np.full(span * len(firsts), -1)
    firsts = np.empty(len(panes), np.int64)
    found = _number(pairs, places, firsts)
    return PaneGroups(pairs, firsts[:found].copy())


def by_number(rows: pa.Table, numbers: Int64s) -> Iterator[tuple[int, pa.Table]]:
    """Return the rows of each number, in the order of numbers."""
    if not len(numbers):
        return
    order = np.argsort(numbers, kind="stable")
    sorted_numbers = numbers[order]
    starts = np.flatnonzero(np.diff(sorted_numbers, prepend=sorted_numbers[0] - 1))
    if len(starts) > 1:
        rows = rows.take(pa.array(order))
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield int(sorted_numbers[start]), rows.slice(start, end - start)


@compiled
def _number(pairs: Int64s, places: Int64s, firsts: Int64s) -> int:
    """Number pairs in the order of their first rows, in place, and return how many there are."""
    found = 0
    for row in range(len(pairs)):
        pair = pairs[row]
        if places[pair] < 0:
            places[pair] = found
            firsts[found] = row
            found += 1
        pairs[row] = places[pair]
    return found
