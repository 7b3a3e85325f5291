"""How far a start has come.

This file alone decides what those hear who wait while a data directory is recovered.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recovery:
    """How far a start has come.

    Attributes:
        topic: The topic that was just opened.
        partition: The partition of it.
        done: How many partitions are open now.
        total: How many there are.
        clean: Whether the last stop was clean, so that nothing has to be scanned.
    """

    topic: str
    partition: int
    done: int
    total: int
    clean: bool
