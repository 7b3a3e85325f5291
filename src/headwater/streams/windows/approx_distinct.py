"""How many different values there are, about, in 4 KB at most.

This file alone decides how that is estimated: by HyperLogLog with 4,096 registers, and Ertl's
estimator, which needs no tables and no special cases. The standard error is 1.6 %: two of three
estimates are nearer than that, and almost all nearer than 5 %. Up to some hundred values it is off
by one at most, mostly by none.

A group with few values has its registers as a list: the number in two bytes, what it holds in one.
Registers are united by taking the larger ones, so order and pieces do not matter.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.compiled import compiled
from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bytes, Int32s, Int64s, UInt64s
from headwater.streams.kernel.grouping import hashes
from headwater.streams.windows.aggregation import Aggregate, Rows
from headwater.streams.windows.items import check_item_type, items_of

_INDEX_BITS: Final = 12
REGISTERS: Final = 1 << _INDEX_BITS
_RANK_BITS: Final = 6
_RANK_MASK: Final = (1 << _RANK_BITS) - 1
_RANK_MAX: Final = 64 - _INDEX_BITS + 1
_ENTRY_BYTES: Final = 3
# A list is never as long as all registers are, so the length tells which it is.
_LISTED_MAX: Final = REGISTERS // _ENTRY_BYTES


class ApproxDistinct(Aggregate):
    """The registers of HyperLogLog."""

    partials = (pa.binary(),)
    output = pa.int64()

    def __init__(self, kind: pa.DataType) -> None:
        check_item_type("approx_distinct", kind)

    def update(self, rows: Rows) -> list[pa.Array]:
        """Note values."""
        codes, items = items_of(rows)
        entries = np.empty(len(codes), np.int64)
        _note(hashes(items), codes, entries)
        return [_packed(entries, rows.groups)]

    def merge(self, codes: Int64s, groups: int, partials: Sequence[pa.Array]) -> list[pa.Array]:
        """Take the larger registers."""
        offsets, data = arrays.binary(partials[0])
        entries = np.empty(_count_entries(offsets), np.int64)
        _unpack(offsets, data, codes, entries)
        return [_packed(entries, groups)]

    def finish(self, partials: Sequence[pa.Array]) -> pa.Array:
        """Return the estimates."""
        offsets, data = arrays.binary(partials[0])
        estimates = np.empty(len(partials[0]), np.float64)
        _estimate(offsets, data, estimates)
        return pa.array(np.rint(estimates).astype(np.int64))


def _packed(entries: Int64s, groups: int) -> pa.Array:
    """Write registers, given as group, number and rank in one number each."""
    entries.sort()
    is_last = np.ones(len(entries), np.bool_)
    is_last[:-1] = (entries[:-1] >> _RANK_BITS) != (entries[1:] >> _RANK_BITS)
    entries = entries[is_last]
    counts = np.bincount(entries >> (_INDEX_BITS + _RANK_BITS), minlength=groups)
    sizes = np.where(counts > _LISTED_MAX, REGISTERS, counts * _ENTRY_BYTES)
    offsets = np.zeros(groups + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.zeros(offsets[-1], np.uint8)
    _write(entries, counts, offsets, data)
    assert offsets[-1] < 2**31, "more registers than an Arrow column can hold"
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), groups, buffers)


@compiled
def _note(hashed: UInt64s, codes: Int64s, entries: Int64s) -> None:
    for row in range(len(hashed)):
        # Stirred once more: runs and buckets are sorted by the same hash.
        value = hashed[row] * np.uint64(0xD6E8FEB86659FD93)
        value ^= value >> np.uint64(32)
        value *= np.uint64(0xD6E8FEB86659FD93)
        value ^= value >> np.uint64(32)
        index = np.int64(value >> np.uint64(64 - _INDEX_BITS))
        rest = value << np.uint64(_INDEX_BITS)
        rank = 1
        while rank < _RANK_MAX and (rest >> np.uint64(63)) == np.uint64(0):
            rest <<= np.uint64(1)
            rank += 1
        entries[row] = (((codes[row] << _INDEX_BITS) | index) << _RANK_BITS) | rank


def _count_entries(offsets: Int32s) -> int:
    lengths = np.diff(offsets)
    return int(np.where(lengths == REGISTERS, REGISTERS, lengths // _ENTRY_BYTES).sum())


@compiled
def _unpack(offsets: Int32s, data: Bytes, codes: Int64s, entries: Int64s) -> None:
    at = 0
    for row in range(len(codes)):
        start, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        group = codes[row] << _INDEX_BITS
        if end - start == REGISTERS:
            for number in range(REGISTERS):
                entries[at] = ((group | number) << _RANK_BITS) | np.int64(data[start + number])
                at += 1
        else:
            for place in range(start, end, _ENTRY_BYTES):
                index = np.int64(data[place]) | (np.int64(data[place + 1]) << 8)
                entries[at] = ((group | index) << _RANK_BITS) | np.int64(data[place + 2])
                at += 1


@compiled
def _write(entries: Int64s, counts: Int64s, offsets: Int64s, data: Bytes) -> None:
    at = 0
    for group in range(len(counts)):
        start = offsets[group]
        for place in range(counts[group]):
            index = (entries[at] >> _RANK_BITS) & (REGISTERS - 1)
            rank = entries[at] & _RANK_MASK
            at += 1
            if counts[group] > _LISTED_MAX:
                data[start + index] = rank
            else:
                data[start + _ENTRY_BYTES * place] = index & 255
                data[start + _ENTRY_BYTES * place + 1] = index >> 8
                data[start + _ENTRY_BYTES * place + 2] = rank


@compiled
def _estimate(offsets: Int32s, data: Bytes, estimates: np.ndarray) -> None:
    for row in range(len(estimates)):
        start, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        held = np.zeros(_RANK_MAX + 1, np.float64)
        if end - start == REGISTERS:
            for place in range(start, end):
                held[data[place]] += 1.0
        else:
            for place in range(start, end, _ENTRY_BYTES):
                held[data[place + 2]] += 1.0
            held[0] = REGISTERS - (end - start) // _ENTRY_BYTES
        weight = REGISTERS * _full(1.0 - held[_RANK_MAX] / REGISTERS)
        for rank in range(_RANK_MAX - 1, 0, -1):
            weight = 0.5 * (weight + held[rank])
        weight += REGISTERS * _empty(held[0] / REGISTERS)
        estimates[row] = REGISTERS * REGISTERS / (2.0 * np.log(2.0)) / weight


@compiled
def _empty(share: float) -> float:
    """Return what the registers weigh that hold nothing: Ertl's sigma."""
    if share == 1.0:
        return float(np.inf)
    factor, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        before = total
        total += share * factor
        factor += factor
    return total


@compiled
def _full(share: float) -> float:
    """Return what the registers weigh that can hold no more: Ertl's tau."""
    if share <= 0.0 or share >= 1.0:
        return 0.0
    factor, total, before = 1.0, 1.0 - share, -1.0
    while total != before:
        share = np.sqrt(share)
        before = total
        factor *= 0.5
        total -= (1.0 - share) * (1.0 - share) * factor
    return total / 3.0
