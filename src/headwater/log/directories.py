"""The names of directories in the log directory.

This file alone decides which directory holds which partition, and how one looks that is on its way
out. The names are Apache Kafka's. It opens nothing.

    orders-0                       partition 0 of orders
    orders-0.5f3c...-delete        belonged to a deleted topic; will be removed
    orders-0.5f3c...-stray         belongs to no topic we know; left for a human to look at
"""

import re
from typing import Final

DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"

_NAME_LENGTH_MAX: Final = 255
"""What every file system we run on allows for one name."""

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")


def partition_directory(topic: str, partition: int) -> str:
    """Return the name of a partition's directory."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return topic and partition, or None where the name is not that of a partition."""
    match = _PARTITION.fullmatch(name)
    if match is None or match[1] in (".", ".."):
        return None
    return match[1], int(match[2])


def deleted_directory(name: str, unique: bytes) -> str:
    """Return what a deleted topic's directory is renamed to."""
    return _aside(name, unique, DELETED_SUFFIX)


def stray_directory(name: str, unique: bytes) -> str:
    """Return what a directory of an unknown topic is renamed to."""
    return _aside(name, unique, STRAY_SUFFIX)


def _aside(name: str, unique: bytes, suffix: str) -> str:
    tail = f".{unique.hex()}{suffix}"
    return name[: _NAME_LENGTH_MAX - len(tail)] + tail
