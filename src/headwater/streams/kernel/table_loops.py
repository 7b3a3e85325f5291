"""The compiled loops over sorted rows: sorting, searching and merging them.

This file alone decides what comes before what: rows are sorted by the hash of their key, then by
the bytes of the key as a dictionary sorts words, then by their order columns. It knows no Arrow.

Nothing here takes longer for keys whose hashes collide than by a factor that is logarithmic in
their number: whoever makes such keys gains nothing.

numba checks no index: rows and keys are those of whole Arrow columns.
"""

import numpy as np

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Bytes, Index, Int32s, Int64s, UInt64s


@compiled
def settle(
    index: Int64s, hashes: UInt64s, offsets: Int32s, data: Bytes, orders: Int64s, room: Int64s
) -> bool:
    """Sort rows that are sorted by hash so far; return whether no two of them are equal.

    Args:
        index: The rows, sorted by their hash; put into order.
        hashes: Of each row.
        offsets: Where the key of each row begins in `data`.
        data: The bytes of all keys.
        orders: A line for each order column.
        room: As long as `index`; used.
    """
    start = 0
    is_distinct = True
    while start < len(index):
        stop = start + 1
        while stop < len(index) and hashes[index[stop]] == hashes[index[start]]:
            stop += 1
        if stop > start + 1:
            _sort(index[start:stop], offsets, data, orders, room[start:stop])
            for at in range(start + 1, stop):
                if _compare(offsets, data, orders, index[at - 1], index[at]) == 0:
                    is_distinct = False
        start = stop
    return is_distinct


@compiled
def _sort(index: Int64s, offsets: Int32s, data: Bytes, orders: Int64s, room: Int64s) -> None:
    width = 1
    while width < len(index):
        for start in range(0, len(index), 2 * width):
            middle = min(start + width, len(index))
            stop = min(start + 2 * width, len(index))
            one, other = start, middle
            for to in range(start, stop):
                if other == stop or (
                    one < middle and _compare(offsets, data, orders, index[one], index[other]) <= 0
                ):
                    room[to] = index[one]
                    one += 1
                else:
                    room[to] = index[other]
                    other += 1
        index[:] = room
        width *= 2


@compiled
def _compare(offsets: Int32s, data: Bytes, orders: Int64s, one: Index, other: Index) -> int:
    """Return -1, 0 or 1: how a row compares with another of the same hash."""
    verdict = _compare_keys(
        data, offsets[one], offsets[one + 1], data, offsets[other], offsets[other + 1]
    )
    column = 0
    while verdict == 0 and column < len(orders):
        if orders[column, one] != orders[column, other]:
            verdict = -1 if orders[column, one] < orders[column, other] else 1
        column += 1
    return verdict


@compiled
def _compare_keys(
    data: Bytes, start: Index, end: Index, others: Bytes, other_start: Index, other_end: Index
) -> int:
    length, other_length = np.int64(end) - start, np.int64(other_end) - other_start
    first, second = np.uint64(start), np.uint64(other_start)
    for step in range(np.uint64(min(length, other_length))):
        if data[first + step] != others[second + step]:
            return -1 if data[first + step] < others[second + step] else 1
    if length == other_length:
        return 0
    return -1 if length < other_length else 1


@compiled
def merge(
    older: Int64s,
    newer: Int64s,
    hashes: UInt64s,
    offsets: Int32s,
    data: Bytes,
    orders: Int64s,
    merged: Int64s,
) -> int:
    """Merge two sorted lists of rows; of two equal rows the newer one stays.

    Returns:
        How many rows of `merged` were written.
    """
    one, other, to = 0, 0, 0
    while one < len(older) and other < len(newer):
        row, next_row = older[one], newer[other]
        if hashes[row] != hashes[next_row]:
            verdict = -1 if hashes[row] < hashes[next_row] else 1
        else:
            verdict = _compare(offsets, data, orders, row, next_row)
        if verdict < 0:
            merged[to] = row
            one += 1
        else:
            merged[to] = next_row
            other += 1
            if verdict == 0:
                one += 1
        to += 1
    while one < len(older):
        merged[to] = older[one]
        one += 1
        to += 1
    while other < len(newer):
        merged[to] = newer[other]
        other += 1
        to += 1
    return to


@compiled
def search(
    wanted: Int64s,
    wanted_hashes: UInt64s,
    wanted_offsets: Int32s,
    wanted_data: Bytes,
    hashes: UInt64s,
    offsets: Int32s,
    data: Bytes,
    found: Int64s,
) -> None:
    """Find the rows of keys in a sorted chunk.

    Args:
        wanted: Which of the keys are wanted, sorted by hash.
        wanted_hashes: The hash of each key.
        wanted_offsets: Where each key begins in `wanted_data`.
        wanted_data: The bytes of all keys.
        hashes: Of each row of the chunk.
        offsets: Where the key of each row begins in `data`.
        data: The keys of the chunk.
        found: The first row of each wanted key, and, in a second line, the row behind its last,
            which is the same where there is none; written.
    """
    at: Index = 0
    for number in range(len(wanted)):
        key = wanted[number]
        start, end = wanted_offsets[key], wanted_offsets[key + 1]
        at = _first(hashes, wanted_hashes[key], at)
        # Keys whose hashes are equal lie behind each other: nearly always there is only one.
        stop: Index = at
        if at < len(hashes) and hashes[at] == wanted_hashes[key]:
            stop = _behind(hashes, wanted_hashes[key], at)
        row = _first_key(wanted_data, start, end, offsets, data, at, stop, 0)
        behind = _first_key(wanted_data, start, end, offsets, data, row, stop, 1)
        found[0, number] = row
        found[1, number] = behind


@compiled
def _first(hashes: UInt64s, wanted: np.uint64, at: Index) -> Index:
    """Return the first row from `at` on whose hash is not below the wanted one."""
    step = 1
    low, high = at, at
    while high < len(hashes) and hashes[high] < wanted:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(hashes))
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _behind(hashes: UInt64s, wanted: np.uint64, at: Index) -> Index:
    """Return the first row behind `at`, which has the wanted hash, that does not have it."""
    step = 1
    low, high = at + 1, at + 1
    while high < len(hashes) and hashes[high] == wanted:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(hashes))
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] == wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _first_key(
    wanted_data: Bytes,
    start: Index,
    end: Index,
    offsets: Int32s,
    data: Bytes,
    low: Index,
    high: Index,
    above: int,
) -> Index:
    """Return the first row whose key is not below the wanted one, or with `above` 1 is above it."""
    while low < high:
        middle = (low + high) >> 1
        verdict = _compare_keys(wanted_data, start, end, data, offsets[middle], offsets[middle + 1])
        if verdict + above <= 0:
            high = middle
        else:
            low = middle + 1
    return low
