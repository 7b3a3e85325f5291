"""An open directory of a disk in memory.

This file alone decides that it holds nothing: closing it frees no handle.
"""

from collections.abc import Callable
from typing import NamedTuple


class MemoryDirectory(NamedTuple):
    """A directory whose names can be synced."""

    names: Callable[[], None]

    def sync(self) -> None:
        """Make the names durable."""
        self.names()

    def close(self) -> None:
        """Nothing is held."""
