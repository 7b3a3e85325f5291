"""The compiled choice of partitions, and the order of rows that follows from it.

This file alone decides which partition a row goes to: the one that it names, else by its key as
Kafka's Java client does (murmur2), else round the partitions in runs of bytes. It knows topics as
numbers. `delivery.client.partitioner` decides the same for a single key; the tests hold both
together.

Rows without a key go round in runs, as the Java client's do; in each partition the runs join into
large batches all the same.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.streams.compiled import compiled

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

NO_PARTITION: Final = -(2**62)
"""What stands for a row's partition where it names none."""

RUN_BYTES: Final = 16 * 1024
"""How much a partition gets before the next one has its turn: Kafka's default `batch.size`."""

# `turns`, by topic: the partition whose turn it is, and what it has got.
TURN_PARTITION: Final = 0
TURN_BYTES: Final = 1
TURN_FIELDS: Final = 2

_MASK: Final = 0xFFFF_FFFF
_SEED: Final = 0x9747_B28C
_MULTIPLIER: Final = 0x5BD1_E995


@compiled
def choose_partitions(
    partitions: Int64s,
    keys: tuple[Bytes, Int64s, Int64s],
    sizes: Int64s,
    topics: Int64s,
    counts: Int64s,
    turns: Int64s,
) -> int:
    """Give each row that names no partition one.

    Args:
        partitions: By row, NO_PARTITION where there is none; written.
        keys: The field of keys: bytes, where each begins, and how long it is.
        sizes: Bytes of each row.
        topics: By row, an index into the following.
        counts: By topic, how many partitions there are.
        turns: By topic, whose turn it is; moved.

    Returns:
        The first row that names a partition which its topic does not have; -1 if none does.
    """
    data, at, lengths = keys
    for row in range(len(partitions)):
        topic = topics[row]
        if partitions[row] != NO_PARTITION:
            if not 0 <= partitions[row] < counts[topic]:
                return row
        elif lengths[row] >= 0:
            code = _murmur2(data, at[row], lengths[row])
            partitions[row] = (code & 0x7FFF_FFFF) % counts[topic]
        else:
            if turns[topic, TURN_BYTES] >= RUN_BYTES:
                turns[topic, TURN_PARTITION] += 1
                turns[topic, TURN_BYTES] = 0
            turns[topic, TURN_BYTES] += sizes[row]
            partitions[row] = turns[topic, TURN_PARTITION] % counts[topic]
    return -1


@compiled
def _murmur2(data: Bytes, at: int, length: int) -> int:
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(at, at + whole, 4):
        block = _little_endian(data, position, 4)
        block = (block * _MULTIPLIER) & _MASK
        block ^= block >> 24
        block = (block * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ block
    if length > whole:
        state ^= _little_endian(data, at + whole, length - whole)
        state = (state * _MULTIPLIER) & _MASK
    state ^= state >> 13
    state = (state * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)


@compiled
def _little_endian(data: Bytes, at: int, count: int) -> int:
    number = np.int64(0)
    for index in range(count):
        number |= np.int64(data[np.uint64(at + index)]) << (8 * index)
    return int(number)


@compiled
def group_rows(destinations: Int64s, bounds: Int64s, order: Int64s) -> None:
    """Sort rows by destination, those of one destination in their order.

    Args:
        destinations: By row; a negative one is left out.
        bounds: By destination, where its rows begin in `order`, and the end of the last; written,
            and all zeros before.
        order: The rows; written.
    """
    for row in range(len(destinations)):
        if destinations[row] >= 0:
            bounds[destinations[row] + 1] += 1
    for destination in range(len(bounds) - 1):
        bounds[destination + 1] += bounds[destination]
    at = bounds.copy()
    for row in range(len(destinations)):
        destination = destinations[row]
        if destination >= 0:
            order[at[destination]] = row
            at[destination] += 1
