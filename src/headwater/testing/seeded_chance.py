"""Dice that fall the same way in every run.

This file alone makes ids and jitter of a test repeatable.
"""

import random


class SeededChance:
    """A ``Chance`` whose bytes follow from its seed."""

    def __init__(self, seed: int = 0) -> None:
        """Begin the sequence that belongs to the seed."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable is the point

    def random_bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the sequence."""
        return self._random.randbytes(count)
