"""Panes: the pieces of time of which aligned windows are made, each piece counted once.

This file alone decides where panes are cut, which one a time falls into and which windows have it.
It knows no aggregate and no state.

    length 7, slide 4      |------------|            a window
                                  |------------|     the next one
    panes of 3 and 1       |-----|-|-----|-|-----|   cut where a window begins or ends

So a slide is one pane if windows end where others begin, and two if not. Windows and panes are
numbered in the order of time: window 0 is the one that begins at `offset_us`, or a whole number of
slides away from it, and pane 0 is its first.

Times may be negative, and divisions round down: the year 1 has windows like any other.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.grouping import group
from headwater.streams.time.durations import duration_text
from headwater.streams.windows.errors import WindowSettingError

PANES_MAX: Final = 10_000
"""Of a window: a day may have one that begins every ten seconds, an hour one every second.

Each event is in about so many results, and a result of so many panes takes 1 ms.
"""

# A table of all pairs is quicker than sorting them while it fits into the caches and a bit beyond.
_PAIRS_MAX: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one length that begin every `slide_us`, one of them at `offset_us`."""

    length_us: int
    slide_us: int
    offset_us: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no sense, and what would take for ever."""
        if self.length_us <= 0:
            raise WindowSettingError(
                f"a window cannot be {duration_text(self.length_us)} long",
                hint="give a length that is longer than nothing",
            )
        if not 0 < self.slide_us <= self.length_us:
            raise WindowSettingError(
                f"windows of {duration_text(self.length_us)} cannot begin every "
                f"{duration_text(self.slide_us)}",
                hint="give a slide that is longer than nothing and not longer than the window",
            )
        if self.pane_count > PANES_MAX:
            raise WindowSettingError(
                f"windows of {duration_text(self.length_us)} that begin every "
                f"{duration_text(self.slide_us)} are made of {self.pane_count} pieces each, and "
                f"{PANES_MAX} are the most",
                hint="let them begin less often, or ask for sliding windows: every event has one",
            )

    def __str__(self) -> str:
        """Return what they are, as people say it; windows that are the same say the same."""
        text = f"{duration_text(self.length_us)} every {duration_text(self.slide_us)}"
        return f"{text}, {duration_text(self._origin_us)} later" if self._origin_us else text

    @property
    def slide_panes(self) -> int:
        """How many panes there are in a slide: one or two."""
        return 2 if self._rest_us else 1

    @property
    def pane_count(self) -> int:
        """How many panes a window has."""
        return self.length_us // self.slide_us * self.slide_panes + (self._rest_us > 0)

    @property
    def _rest_us(self) -> int:
        """How long after another one has begun a window ends."""
        return self.length_us % self.slide_us

    @property
    def _origin_us(self) -> int:
        """Where window 0 begins: offsets that give the same windows number them alike."""
        return self.offset_us % self.slide_us

    def panes(self, times: Int64s) -> Int64s:
        """Return the pane that each time falls into."""
        since = times - self._origin_us
        slides = since // self.slide_us
        if not self._rest_us:
            return slides
        is_second = since - slides * self.slide_us >= self._rest_us
        return 2 * slides + is_second.astype(np.int64)

    def pane_starts(self, panes: Int64s) -> Int64s:
        """Return when panes begin."""
        slides = panes // self.slide_panes
        rests = panes % self.slide_panes * self._rest_us
        return slides * self.slide_us + rests + self._origin_us

    def panes_of(self, window: int) -> range:
        """Return the panes that a window has."""
        first = window * self.slide_panes
        return range(first, first + self.pane_count)

    def having(self, panes: range) -> range:
        """Return the windows that have any of the panes between two."""
        first = (panes.start - self.pane_count) // self.slide_panes + 1
        return range(first, (panes.stop - 1) // self.slide_panes + 1)

    def start(self, window: int) -> int:
        """Return when a window begins."""
        return window * self.slide_us + self._origin_us

    def first_open(self, time: int) -> int:
        """Return the first window that ends after a time; all before it have ended by then."""
        return (time - self._origin_us - self.length_us) // self.slide_us + 1

    def having_any(self, spans: Iterable[range], *, first: int | None, stop: int) -> Iterator[int]:
        """Return the windows that have panes of ascending spans, each once and in order.

        Args:
            spans: Panes between two each.
            first: Windows before this one are left out; none are if it is None.
            stop: This one and those behind it are left out.
        """
        for span in spans:
            found = self.having(span)
            first = found.start if first is None else max(first, found.start)
            yield from range(first, min(found.stop, stop))
            first = max(first, found.stop)

    def last_ends(self, times: Int64s) -> Int64s:
        """Return where the last window ends that has each time."""
        slides = (times - self._origin_us) // self.slide_us
        return slides * self.slide_us + self._origin_us + self.length_us


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
