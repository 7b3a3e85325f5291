"""Which row of each group is the one: the smallest, the largest, the first, the last.

This file alone decides how rows are compared for that. It knows no Arrow, and of the values only
how they are ordered. Of equal values the first row wins, so they must be equal in all that shows.
Rows that come from the same place, as those of one record, count as standing in their order.

`picked` has the number of a row for each group, -1 where there is none yet.
"""

import numpy as np

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Bytes, Int32s, Int64s


@compiled
def pick_number(
    numbers: Int64s, valid: Bytes, codes: Int64s, picked: Int64s, largest: bool
) -> None:
    """Pick by a number."""
    for row in range(len(numbers)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        best = picked[codes[row]]
        if (
            best < 0
            or (largest and numbers[row] > numbers[best])
            or (not largest and numbers[row] < numbers[best])
        ):
            picked[codes[row]] = row


@compiled
def pick_decimal(
    halves: Int64s, valid: Bytes, codes: Int64s, picked: Int64s, largest: bool
) -> None:
    """Pick by a number of 128 bits: a lower half without a sign, and an upper one with it."""
    for row in range(len(halves)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        best = picked[codes[row]]
        if best >= 0:
            if halves[row, 1] != halves[best, 1]:
                is_larger = halves[row, 1] > halves[best, 1]
            elif halves[row, 0] != halves[best, 0]:
                is_larger = np.uint64(halves[row, 0]) > np.uint64(halves[best, 0])
            else:
                continue
            if is_larger != largest:
                continue
        picked[codes[row]] = row


@compiled
def pick_bytes(
    offsets: Int32s, data: Bytes, valid: Bytes, codes: Int64s, picked: Int64s, largest: bool
) -> None:
    """Pick by bytes, as strings are ordered by theirs."""
    for row in range(len(codes)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        best = picked[codes[row]]
        if best >= 0:
            order = _compared(offsets, data, row, best)
            if order == 0 or (order > 0) != largest:
                continue
        picked[codes[row]] = row


@compiled
def _compared(offsets: Int32s, data: Bytes, one: int, other: int) -> int:
    at, to = np.int64(offsets[one]), np.int64(offsets[other])
    length = np.int64(offsets[one + 1]) - at
    other_length = np.int64(offsets[other + 1]) - to
    for step in range(min(length, other_length)):
        if data[at + step] != data[to + step]:
            return 1 if data[at + step] > data[to + step] else -1
    return int(length - other_length)


@compiled
def pick_place(
    times: Int64s,
    topics: Int64s,
    partitions: Int32s,
    offsets: Int64s,
    valid: Bytes,
    codes: Int64s,
    picked: Int64s,
    last: bool,
) -> None:
    """Pick the first or the last row by time, topic, partition and offset."""
    for row in range(len(times)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        best = picked[codes[row]]
        if best >= 0:
            if times[row] != times[best]:
                is_later = times[row] > times[best]
            elif topics[row] != topics[best]:
                is_later = topics[row] > topics[best]
            elif partitions[row] != partitions[best]:
                is_later = partitions[row] > partitions[best]
            elif offsets[row] != offsets[best]:
                is_later = offsets[row] > offsets[best]
            else:
                is_later = True
            if is_later != last:
                continue
        picked[codes[row]] = row
