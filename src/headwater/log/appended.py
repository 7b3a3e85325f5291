"""What an append answers.

This file alone decides what the caller of an append is told.
"""

from typing import NamedTuple


class Appended(NamedTuple):
    """Where a batch went.

    Attributes:
        base_offset: Offset of its first record.
        last_offset: Offset of its last record.
        log_append_time_ms: The time it was given, -1 where records keep their own.
        log_start_offset: The log's first offset now.
        duplicate: Whether it was there before, and nothing was written.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
