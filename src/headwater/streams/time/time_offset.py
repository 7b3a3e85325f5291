"""The time reader's offsets as Spark keeps them in its checkpoint.

This file alone decides the form of the JSON, and reads no broker and no clock:

    {"version": 2, "clock": "...", "asked": 1, "name": "...", "reads": [{"subscribe": "orders"}],
     "watermark": 17, "idle": false, "fold": {"orders": {"0": [27, 1700000000000]}}}

`fold` has, of each partition, the largest event time that this checkpoint has read, and when that
was last reported: milliseconds by the wall clock. `name` is the one under which tasks reported by
then, `reads` is what the sources read: by both a clock is found again. Where a stream was declared
to have ended there is also `ends`: the topic, number and end of each partition at that time,
`[["orders", 0, 17]]`.

The decision of what time it is lives here and nowhere else, so a batch that Spark repeats has the
same; and what it was decided from lives here too, so a copy of the checkpoint goes on as the
original did, whatever the original has read since. `clock` is drawn once per checkpoint. `asked`
says how often there had to be a batch although nothing was known: once at the beginning, and before
a stream is declared to have ended.

Version 1 had `query`, the id of the query, and none of `fold`, `name` and `reads`.

To change the form: raise `VERSION`, and keep reading the old one; checkpoints outlive releases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.streams.errors import CheckpointError, OptionError
from headwater.streams.options import Choice, choice_as_json, choice_of
from headwater.streams.time.fold import UNKNOWN, Decision, Place, Progress

VERSION: Final = 2
_READABLE: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class TimeOffset:
    """What time it is, and for whom.

    Attributes:
        clock_id: Who says so, for as long as the checkpoint lives.
        asked: How often there had to be a batch for nothing; 0: nothing has happened yet.
        name: Under which name tasks reported; None in a checkpoint of an earlier release.
        choices: What the sources read; None in a checkpoint of an earlier release.
        decision: What time it is.
        fold: What it was decided from: how far each partition had come.
        ends: Where the log of each partition ended when the stream did; None: it has not.
    """

    clock_id: str
    asked: int = 0
    name: str | None = None
    decision: Decision = UNKNOWN
    fold: Mapping[Place, Progress] = field(default_factory=dict)
    ends: tuple[tuple[str, int, int], ...] | None = None
    choices: tuple[Choice, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what Spark stores; equal offsets give equal texts, for Spark compares these."""
        made: dict[str, Any] = {"version": VERSION, "clock": self.clock_id, "asked": self.asked}
        if self.name is not None:
            made["name"] = self.name
        if self.choices is not None:
            made["reads"] = [choice_as_json(each) for each in self.choices]
        made["watermark"] = self.decision.watermark_us
        made["idle"] = self.decision.idle
        folds: dict[str, dict[str, list[int]]] = {}
        for (topic, number), progress in sorted(self.fold.items()):
            folds.setdefault(topic, {})[str(number)] = list(progress)
        made["fold"] = folds
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
    if stored["version"] not in _READABLE:
        raise CheckpointError(
            f"the checkpoint's watermark is of version {stored['version']}; this release reads "
            f"versions up to {VERSION}",
            hint="use the release of Headwater that wrote it, or a newer one",
        )
    try:
        watermark = stored["watermark"]
        decision = Decision(
            None if watermark is None else int(watermark), idle=stored["idle"] is True
        )
        name = stored.get("name")
        fold = {
            (topic, int(number)): Progress(int(time_us), int(timed_ms))
            for topic, numbers in stored.get("fold", {}).items()
            for number, (time_us, timed_ms) in numbers.items()
        }
        reads = stored.get("reads")
        choices = None if reads is None else tuple(choice_of(each) for each in reads)
        ends = stored.get("ends")
        if ends is not None:
            ends = tuple((str(topic), int(number), int(end)) for topic, number, end in ends)
        return TimeOffset(
            str(stored["clock"]),
            int(stored["asked"]),
            None if name is None else str(name),
            decision,
            fold,
            ends,
            choices,
        )
    except (AttributeError, KeyError, TypeError, ValueError, OptionError) as error:
        raise CheckpointError(
            f"the checkpoint's watermark is damaged: {error!r}",
            hint="restore the checkpoint, or give the query a new checkpointLocation",
        ) from error
