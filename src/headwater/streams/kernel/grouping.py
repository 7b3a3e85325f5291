"""Keys that are equal: their hash, and the groups that they form.

This file alone decides the hash of a key and how equal keys are found. It knows nothing of what the
bytes of a key mean.

There are two hashes. `hashes` is fixed for ever: buckets and the order of rows in state depend on
it, and the test vectors write it down. Whoever knows it can make keys that collide, so `group` does
not probe by it, but by SipHash-1-3 with a secret of this process. Groups are numbered in the order
in which they first appear, so the secret decides nothing that can be seen.
"""

import os
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.compiled import compiled
from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Bytes, Index, Int32s, Int64s, UInt64s

# Odd and without a pattern: the fractions of the golden ratio and of pi.
_MULTIPLIER: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FINISHER: Final = np.uint64(0x243F_6A88_85A3_08D3)
_START: Final = np.uint64(0x1319_8A2E_0370_7344)

_SECRET: Final = arrays.frozen(np.frombuffer(os.urandom(16), np.uint64))
_SLOTS_MIN: Final = 1024
# Slots for each group, at least. With four, 65,536 groups did not fit into the cache any more.
_SLOTS_EACH: Final = 2
# Rows that are hashed and whose slots are fetched in one go: the processor then waits for memory
# for all of them at once. With 64, a million rows of 65,536 groups take half the time of one by
# one; 32 and 256 are a little slower.
_BLOCK: Final = 64
_EMPTY: Final = np.int64(-1)
# A slot has the group in its lower half and the upper half of its hash above.
_GROUP_MASK: Final = np.int64(0x7FFF_FFFF)


class Groups(NamedTuple):
    """Which rows have equal keys.

    Attributes:
        codes: The group of each row; groups are numbered in the order of their first rows.
        firsts: The first row of each group.
    """

    codes: Int64s
    firsts: Int64s


def hashes(keys: pa.BinaryArray) -> UInt64s:
    """Return the hash of each key; it is the same in all versions, on all machines."""
    offsets, data = arrays.binary(arrays.whole(keys))
    result = np.empty(len(keys), np.uint64)
    _hash_all(offsets, data, result)
    return result


def group(keys: pa.BinaryArray) -> Groups:
    """Find the rows that have equal keys."""
    offsets, data = arrays.binary(arrays.whole(keys))
    codes = np.empty(len(keys), np.int64)
    firsts = np.empty(len(keys), np.int64)
    found = _group_all(offsets, data, _SECRET, codes, firsts)
    return Groups(codes, firsts[:found].copy())


@compiled
def _hash_all(offsets: Int32s, data: Bytes, result: UInt64s) -> None:
    for row in range(len(result)):
        at, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        length = end - at
        value = _START ^ (np.uint64(length) * _FINISHER)
        if length < 8:
            value = _mixed(value, _short_word(data, at, length))
        else:
            while at + 8 < end:
                value = _mixed(value, _word(data, at))
                at += 8
            # The last word may overlap with the one before: the length says by how much.
            value = _mixed(value, _word(data, end - 8))
        value = (value ^ (value >> np.uint64(29))) * _FINISHER
        value = (value ^ (value >> np.uint64(32))) * _MULTIPLIER
        result[row] = value ^ (value >> np.uint64(29))


@compiled
def _mixed(value: np.uint64, word: np.uint64) -> np.uint64:
    product = (value ^ word) * _MULTIPLIER
    return product ^ (product >> np.uint64(32))


@compiled
def _word(data: Bytes, at: Index) -> np.uint64:
    """Return eight bytes as a number; written out, because the compiler makes one load of it."""
    first = np.uint64(at)
    return (
        np.uint64(data[first])
        | (np.uint64(data[first + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[first + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[first + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[first + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[first + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[first + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[first + np.uint64(7)]) << np.uint64(56))
    )


@compiled
def _short_word(data: Bytes, at: Index, length: Index) -> np.uint64:
    word = np.uint64(0)
    for step in range(length):
        word |= np.uint64(data[np.uint64(at + step)]) << np.uint64(8 * step)
    return word


@compiled
def _group_all(offsets: Int32s, data: Bytes, secret: UInt64s, codes: Int64s, firsts: Int64s) -> int:
    """Number the groups, note their first rows, and return how many there are."""
    slots = np.full(_SLOTS_MIN, _EMPTY)
    hashed = np.empty(_SLOTS_MIN // _SLOTS_EACH, np.uint64)
    # The keys of the groups, close together: most rows are compared with what is in the cache.
    known = np.empty(np.int64(offsets[-1]) - np.int64(offsets[0]), np.uint8)
    ends = np.empty(len(codes) + 1, np.int64)
    ends[0] = 0
    found = 0
    values = np.empty(_BLOCK, np.uint64)
    fetched = np.empty(_BLOCK, np.int64)
    for start in range(0, len(codes), _BLOCK):
        stop = min(start + _BLOCK, len(codes))
        _hash_secretly(offsets, data, secret, start, values[: stop - start])
        _fetch(slots, ends, values[: stop - start], fetched)
        for row in range(start, stop):
            value = values[row - start]
            at, length = np.int64(offsets[row]), np.int64(offsets[row + 1] - offsets[row])
            slot, code = _probed(slots, value, data, at, length, known, ends)
            if code == _EMPTY:
                code = np.int64(found)
                slots[slot] = _marked(value, code)
                firsts[found] = row
                hashed[found] = value
                _copy(known, ends[found], data, at, length)
                found += 1
                ends[found] = ends[found - 1] + length
                if found == len(hashed):
                    slots, hashed = _grown(slots, hashed)
            codes[row] = code
    return found


@compiled
def _hash_secretly(
    offsets: Int32s, data: Bytes, secret: UInt64s, start: Index, values: UInt64s
) -> None:
    for step in range(len(values)):
        row = start + step
        values[step] = _secret_hash(
            data, np.int64(offsets[row]), np.int64(offsets[row + 1]), secret
        )


@compiled
def _fetch(slots: Int64s, ends: Int64s, values: UInt64s, fetched: Int64s) -> None:
    """Read where keys will be looked for, so that it is in the cache; what is read is not used."""
    mask = np.uint64(len(slots) - 1)
    for step in range(len(values)):
        fetched[step] = slots[values[step] & mask]
    for step in range(len(values)):
        fetched[step] = ends[max(fetched[step], 0) & _GROUP_MASK]


@compiled
def _probed(
    slots: Int64s,
    value: np.uint64,
    data: Bytes,
    at: Index,
    length: Index,
    known: Bytes,
    ends: Int64s,
) -> tuple[np.uint64, Index]:
    """Return the slot of a key and its group, or the slot that is free for it and _EMPTY."""
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while slots[slot] != _EMPTY:
        code = slots[slot] & _GROUP_MASK
        if (
            slots[slot] == _marked(value, code)
            and ends[code + 1] - ends[code] == length
            and _is_equal(data, at, known, ends[code], length)
        ):
            return slot, code
        slot = (slot + np.uint64(1)) & mask
    return slot, _EMPTY


@compiled
def _marked(value: np.uint64, code: Index) -> Index:
    return (np.int64(value >> np.uint64(33)) << np.int64(32)) | np.int64(code)


@compiled
def _grown(slots: Int64s, hashed: UInt64s) -> tuple[Int64s, UInt64s]:
    """Return twice as many slots, and room for twice as many groups."""
    more = np.full(2 * len(slots), _EMPTY)
    mask = np.uint64(len(more) - 1)
    for code in range(len(hashed)):
        slot = hashed[code] & mask
        while more[slot] != _EMPTY:
            slot = (slot + np.uint64(1)) & mask
        more[slot] = _marked(hashed[code], code)
    kept = np.empty(2 * len(hashed), np.uint64)
    kept[: len(hashed)] = hashed
    return more, kept


@compiled
def _is_equal(data: Bytes, at: Index, known: Bytes, to: Index, length: Index) -> bool:
    if length < 8:
        return bool(_short_word(data, at, length) == _short_word(known, to, length))
    last = length - 8
    for step in range(0, last, 8):
        if _word(data, at + step) != _word(known, to + step):
            return False
    return bool(_word(data, at + last) == _word(known, to + last))


@compiled
def _copy(target: Bytes, to: Index, source: Bytes, at: Index, length: Index) -> None:
    # Unsigned, because a negative index would count from the end.
    first, origin = np.uint64(to), np.uint64(at)
    for step in range(np.uint64(length)):
        target[first + step] = source[origin + step]


@compiled
def _secret_hash(data: Bytes, at: Index, end: Index, secret: UInt64s) -> np.uint64:
    """Return SipHash-1-3 of the bytes."""
    a = secret[0] ^ np.uint64(0x736F6D6570736575)
    b = secret[1] ^ np.uint64(0x646F72616E646F6D)
    c = secret[0] ^ np.uint64(0x6C7967656E657261)
    d = secret[1] ^ np.uint64(0x7465646279746573)
    last = np.uint64(end - at) << np.uint64(56)
    while at + 8 <= end:
        word = _word(data, at)
        a, b, c, d = _sip_round(a, b, c, d ^ word)
        a ^= word
        at += 8
    last |= _short_word(data, at, end - at)
    a, b, c, d = _sip_round(a, b, c, d ^ last)
    a ^= last
    c ^= np.uint64(0xFF)
    for _ in range(3):
        a, b, c, d = _sip_round(a, b, c, d)
    return a ^ b ^ c ^ d


@compiled
def _sip_round(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a += b
    c += d
    b = _rotated(b, 13) ^ a
    d = _rotated(d, 16) ^ c
    a = _rotated(a, 32)
    c += b
    a += d
    b = _rotated(b, 17) ^ c
    d = _rotated(d, 21) ^ a
    c = _rotated(c, 32)
    return a, b, c, d


@compiled
def _rotated(value: np.uint64, by: int) -> np.uint64:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))
