"""Which batches without rows need not be held against what was written.

This file alone decides what a process remembers of that. Once a batch of a run was found to be
newer than the marker, so are all later batches of that run: they have higher numbers, and only a
newer run writes under the same query, which the next rows of this one would find. So each process
asks once for each run, at the first batch that it commits, and a query that has nothing to write
costs its broker nothing.
"""

from typing import NamedTuple


class Sink(NamedTuple):
    """One sink of one query, at its brokers."""

    bootstrap: str
    query_id: str
    name: str


class Passed:
    """How far the run of each sink has come, as far as this process has seen."""

    def __init__(self) -> None:
        """Begin without a memory, as a process does."""
        self._batches: dict[Sink, tuple[str, int]] = {}

    def note(self, sink: Sink, run_id: str, batch_id: int) -> None:
        """Remember that a batch of the run was written, or might have been."""
        self._batches[sink] = (run_id, batch_id)

    def covers(self, sink: Sink, run_id: str, batch_id: int) -> bool:
        """Tell whether the batch follows one of the same run that was in its place."""
        known_run, known_batch = self._batches.get(sink, ("", -1))
        return known_run == run_id and known_batch < batch_id
