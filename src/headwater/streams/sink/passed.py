"""Which batches without rows need not be held against what was written.

This file alone decides what a process remembers of that. A run whose batch was found to be not
behind the marker stays in front of it: its later batches have higher numbers, and nobody writes
under the query but a newer run, which it would stop at with its next rows. So each process asks
once for each run, at the first batch that it commits, and a query that has nothing to write costs
its broker nothing.
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
