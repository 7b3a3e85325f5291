"""Randomness, as something that is handed in.

This file alone asks the machine for random bytes; ids and jitter come from a ``Chance`` that a
test can seed.
"""

import os
from typing import Protocol

_DASH = 62  # the value of "-" in url-safe base64


class Chance(Protocol):
    """A source of random bytes."""

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` unpredictable bytes."""
        ...


class SystemChance:
    """The operating system's randomness."""

    def random_bytes(self, count: int) -> bytes:
        """Return bytes fit for ids that must never collide."""
        return os.urandom(count)


def random_uuid(chance: Chance) -> bytes:
    """Return a version 4 UUID as 16 bytes.

    Its base64 form never starts with a dash, which command-line tools would take for an option.
    """
    raw = bytearray(chance.random_bytes(16))
    if raw[0] >> 2 == _DASH:
        raw[0] &= 0x7F
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    return bytes(raw)
