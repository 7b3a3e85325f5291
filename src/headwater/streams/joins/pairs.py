"""The compiled search for the rows of one side that belong to a row of the other.

This file alone decides how partners are found: by binary search among rows in order of (code,
time), where a code stands for a key. It knows numbers only.
"""

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Int64s


@compiled
def count_within(
    rows: tuple[Int64s, Int64s],
    lower: int,
    upper: int,
    others: tuple[Int64s, Int64s],
    found: tuple[Int64s, Int64s],
) -> int:
    """Find the partners of each row: those with its code and a time from `lower` to `upper` of its.

    Args:
        rows: Codes and times.
        lower: From how long after the time of a row, inclusive.
        upper: Until how long after it, inclusive.
        others: Codes and times, in this order.
        found: By row, where its partners begin among the others, and how many they are; written.

    Returns:
        How many pairs there are.
    """
    codes, times = rows
    starts, counts = found
    total = 0
    for row in range(len(codes)):
        start = _first_from(others, codes[row], times[row] + lower)
        end = _first_from(others, codes[row], times[row] + upper + 1)
        starts[row] = start
        counts[row] = end - start
        total += end - start
    return total


@compiled
def find_last(rows: tuple[Int64s, Int64s], others: tuple[Int64s, Int64s], found: Int64s) -> None:
    """Find the last of the others with each row's code that is not later than the row.

    Args:
        rows: Codes and times.
        others: Codes and times, in this order.
        found: By row, which of the others; -1 where there is none; written.
    """
    codes, times = rows
    other_codes = others[0]
    for row in range(len(codes)):
        last = _first_from(others, codes[row], times[row] + 1) - 1
        found[row] = last if last >= 0 and other_codes[last] == codes[row] else -1


@compiled
def _first_from(others: tuple[Int64s, Int64s], code: int, time: int) -> int:
    codes, times = others
    low, high = 0, len(codes)
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < code or (codes[middle] == code and times[middle] < time):
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def spread(starts: Int64s, counts: Int64s, rows: Int64s, others: Int64s) -> None:
    """Write a pair (row, other) for each partner that was counted, rows in their order."""
    at = 0
    for row in range(len(counts)):
        for partner in range(counts[row]):
            rows[at] = row
            others[at] = starts[row] + partner
            at += 1
