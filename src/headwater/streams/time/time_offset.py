"""The time reader's offsets as Spark keeps them in its checkpoint.

This file alone decides the form of the JSON, and reads no broker and no clock:

    {"version": 1, "clock": "...", "asked": 1, "query": "...", "watermark": 17, "idle": false}

Where a stream was declared to have ended there is also `ends`: the topic, number and end of each
partition at that time, `[["orders", 0, 17]]`.

The decision of what time it is lives here and nowhere else, so a batch that Spark repeats has the
same. `clock` is drawn once per checkpoint. `asked` says how often a task was asked which query it
works for; as soon as that is known and time goes on, `query` has it.

To change the form: raise `VERSION`, and keep reading the old one; checkpoints outlive releases.
"""

from dataclasses import dataclass
from typing import Any, Final

from headwater.streams.errors import CheckpointError
from headwater.streams.time.fold import UNKNOWN, Decision

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TimeOffset:
    """What time it is, and for whom.

    Attributes:
        clock_id: Who says so, for as long as the checkpoint lives.
        asked: How often a task was asked for the query's id; 0: nothing has happened yet.
        query_id: Whose reports are folded, if that is known.
        decision: What time it is.
        ends: Where the log of each partition ended when the stream did; None: it has not.
    """

    clock_id: str
    asked: int = 0
    query_id: str | None = None
    decision: Decision = UNKNOWN
    ends: tuple[tuple[str, int, int], ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what Spark stores; equal offsets give equal texts, for Spark compares these."""
        made: dict[str, Any] = {"version": VERSION, "clock": self.clock_id, "asked": self.asked}
        if self.query_id is not None:
            made["query"] = self.query_id
        made["watermark"] = self.decision.watermark_us
        made["idle"] = self.decision.idle
        if self.ends is not None:
            made["ends"] = [list(each) for each in self.ends]
        return made


def parse_time_offset(stored: Any) -> TimeOffset:  # noqa: ANN401 - whatever a checkpoint holds
    """Read what Spark has stored.

    Raises:
        CheckpointError: It is not ours, or of a version that this release does not know.
    """
    if not isinstance(stored, dict) or "version" not in stored or "clock" not in stored:
        raise CheckpointError(
            "the checkpoint's offsets are not those of a watermark",
            hint="sources were added, removed or put in another order; change that back, or give "
            "the query a new checkpointLocation",
        )
    if stored["version"] != VERSION:
        raise CheckpointError(
            f"the checkpoint's watermark is of version {stored['version']}; this release reads "
            f"version {VERSION}",
            hint="use the release of Headwater that wrote it, or a newer one",
        )
    try:
        watermark = stored["watermark"]
        decision = Decision(
            None if watermark is None else int(watermark), idle=stored["idle"] is True
        )
        query_id = stored.get("query")
        ends = stored.get("ends")
        if ends is not None:
            ends = tuple((str(topic), int(number), int(end)) for topic, number, end in ends)
        return TimeOffset(
            str(stored["clock"]),
            int(stored["asked"]),
            None if query_id is None else str(query_id),
            decision,
            ends,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint's watermark is damaged: {error!r}",
            hint="restore the checkpoint, or give the query a new checkpointLocation",
        ) from error
