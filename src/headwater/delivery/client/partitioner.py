"""Which partition a key belongs to.

This file alone decides it, the way Kafka's Java client does (murmur2), so that a record lands in
the same partition whoever writes it.
"""

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash that Kafka's producers use."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        block = int.from_bytes(data[position : position + 4], "little")
        block = (block * _MULTIPLIER) & _MASK
        block ^= block >> 24
        block = (block * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ block
    rest = data[whole:]
    if rest:
        state ^= int.from_bytes(rest, "little")
        state = (state * _MULTIPLIER) & _MASK
    state ^= state >> 13
    state = (state * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key among ``partition_count``."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
