"""When the files of removed segments really go.

This file alone decides how long removed segments keep their room: `file.delete.delay.ms` as a
rule, no time at all when room is needed now. Nobody is harmed by the latter, because readers keep
the files they hold open; the delay is for people who change their minds.
"""

from collections.abc import Iterator
from typing import Final

from headwater.log.partition import PartitionLog

END_OF_TIME_MS: Final = (1 << 63) - 1
"""A moment by which everything is due."""


class Removal:
    """Logs with removed segments whose files are still there."""

    def __init__(self) -> None:
        self._due_ms: dict[PartitionLog, int] = {}
        self.hurried = False

    def hurry(self) -> None:
        """Room is needed: let everything go at the next step, and what is added before it."""
        self.hurried = True

    def add(self, log: PartitionLog, now_ms: int) -> None:
        """Take note of a log that has just removed segments."""
        # What it has removed before is due sooner: a log that is always compacted would keep all.
        self._due_ms.setdefault(log, now_ms + log.config.file_delete_delay_ms)

    def steps(self, now_ms: int) -> Iterator[None]:
        """Remove what is due, a log at a time."""
        upto_ms = END_OF_TIME_MS if self.hurried else now_ms
        self.hurried = False
        for log in [log for log, due_ms in self._due_ms.items() if due_ms <= upto_ms]:
            next_ms = log.purge_deleted(upto_ms)
            if next_ms is None:
                del self._due_ms[log]
            else:
                self._due_ms[log] = next_ms
            yield
