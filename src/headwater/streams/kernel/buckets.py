"""Into which bucket a key falls, and which task has it.

This file alone decides both, and how many buckets there may be. Spark hands groups to tasks by a
hash of their own, so that the numbers 0 to 63 would fall on them like dice: some tasks get twice
the work of others. The numbers of our buckets are chosen so that this hash spreads them evenly.
"""

import functools
from typing import Final

import numpy as np

from headwater.streams.kernel.errors import BucketCountError

DEFAULT_BUCKETS: Final = 64
"""Enough for 64 cores to work on one operator; each costs a few calls a batch."""

EVERYWHERE: Final = 0
"""The number of a bucket that there is whatever their count: the first that `bucket_ids` tries."""

_MASK: Final = 0xFFFFFFFF
_SPARKS_SEED: Final = 42


def check_buckets(buckets: object) -> None:
    """Refuse a number of buckets by which no key would have one.

    Raises:
        BucketCountError: It is no number, or less than 1.
    """
    if not isinstance(buckets, int) or isinstance(buckets, bool) or buckets < 1:
        raise BucketCountError(
            f"state cannot be cut into {buckets!r} buckets",
            hint=f"take a whole number from 1 on, or leave it out: {DEFAULT_BUCKETS}",
        )


def bucket_of(hashes: np.ndarray, buckets: int) -> np.ndarray:
    """Return which bucket each key falls into, counted from 0.

    The upper half of the hash decides: runs within a bucket are sorted by all of it.
    """
    upper = hashes >> np.uint64(32)
    return ((upper * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)


@functools.cache
def bucket_ids(buckets: int) -> tuple[int, ...]:
    """Return the number by which Spark knows each bucket.

    Whatever divides `buckets` divides them evenly: of 64 buckets each of 4 tasks gets 16.
    """
    found: dict[int, int] = {}
    candidate = EVERYWHERE
    while len(found) < buckets:
        found.setdefault(_sparks_hash(candidate) % buckets, candidate)
        candidate += 1
    return tuple(found[place] for place in range(buckets))


def _sparks_hash(number: int) -> int:
    """Return what Spark's `hash` gives for an int: Murmur3, 32 bits, of its four bytes."""
    mixed = (number * 0xCC9E2D51) & _MASK
    mixed = _rotated(mixed, 15)
    mixed = (mixed * 0x1B873593) & _MASK
    value = _SPARKS_SEED ^ mixed
    value = (_rotated(value, 13) * 5 + 0xE6546B64) & _MASK
    value ^= 4
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
