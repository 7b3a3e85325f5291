"""Messages as tasks make them, for tests that have finished batches and no rows.

This file alone decides how such a test plays the end of a task.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from headwater.delivery.client.cluster import Place
from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.message import Outbox, TaskMessage
from headwater.streams.sink.staging import shared_root


def make_message(
    attempt: Attempt,
    batches: Mapping[Place, Sequence[bytes]],
    staging_location: str | None,
    *,
    task: int = 0,
) -> TaskMessage:
    """Hand batches over as a task does that has finished them one after the other."""
    root = None if staging_location is None else partial(shared_root, staging_location)
    with Outbox(attempt, root, task=task) as outbox:
        for place, each in batches.items():
            for batch in each:
                outbox.add(place, batch)
        return outbox.message()
