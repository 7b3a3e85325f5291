"""What can go wrong with a pipeline, by name, and what Spark's own words for it mean.

This file alone decides which errors running raises and how an exception of Spark's becomes one of
them. It is pure: it reads texts.
"""

import re

from headwater.base.errors import HeadwaterError

# Spark's names for state that another plan has left behind.
_STATE_CONDITIONS = (
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_SCHEMA",
    "STATE_STORE_VALUE_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE",
    "STATE_STORE_STATE_SCHEMA",
    "STATE_STORE_INCORRECT_NUM",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_COLUMN_FAMILY",
    "STATE_STORE_CANNOT_CREATE_COLUMN_FAMILY",
    "STATE_STORE_DUPLICATE_STATE_VARIABLE",
)
# Java's and Python's words for a disk, or a quota, that is full.
_FULL = ("No space left on device", "Disk quota exceeded")
# Spark's name for two drivers that both write the offsets of a batch.
_SECOND_DRIVER = "CONCURRENT_STREAM_LOG_UPDATE"
# Errors after which a new checkpoint is a way on; their own hints say whether there is another.
_NEEDS_RESET = {
    "TopicRecreatedError",
    "CheckpointBehindError",
    "StateDamagedError",
    "StateMismatchError",
    "SourcesChangedError",
    "FeedbackError",
}
# The last line of a Python traceback of ours, wherever Spark has put it.
_OURS = re.compile(r"headwater\.[\w.]+\.(?P<kind>\w+Error): (?P<message>.+)")
_PYTHON = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt): ")
# It stands right behind its error: a plan that Spark prints as well may have hints for others.
_HINT = re.compile(r"\s*\n\s*hint: (.+)")


class PipelineError(HeadwaterError):
    """Something about a pipeline."""


class DefinitionError(PipelineError):
    """A definition file, or a pipeline in it, is not what it should be."""


class PipelineNotFoundError(PipelineError):
    """There is no pipeline of this name."""


class PipelineBusyError(PipelineError):
    """Another process runs this pipeline."""


class BackfillUnfinishedError(PipelineError):
    """A backfill into the same topic that began elsewhere has not ended."""


class PipelineChangedError(PipelineError):
    """The checkpoint belongs to another plan than the one that is to run."""


class PipelineFailedError(PipelineError):
    """A query ended with an error."""


class DiskFullError(PipelineError):
    """There is no room for what has to be kept of a pipeline."""


def changed(name: str, what: str) -> PipelineChangedError:
    """Say that a checkpoint does not fit, and what to do."""
    return PipelineChangedError(
        f"pipeline {name!r} has another plan than its checkpoint: {what}",
        hint=f"undo the change, or begin anew without its state: headwater pipeline reset {name}",
    )


def disk_full(name: str, where: str) -> DiskFullError:
    """Say that there is no room, where it is wanted, and what to do."""
    return DiskFullError(
        f"pipeline {name!r} stopped because a disk is full; its checkpoint is in {where}",
        hint="make room there, and where Spark keeps its own files (spark.local.dir, else /tmp), "
        "then start it again: the batch that it was at is done anew, and nothing is lost",
    )


def translated(name: str, text: str, *, where: str = "its folder") -> PipelineError:
    """Turn what Spark says of a query's end into an error of ours.

    Args:
        name: The pipeline.
        text: What Spark says.
        where: The folder of its checkpoint.
    """
    ours = list(_OURS.finditer(text))
    # An error of ours knows better which disk it is: the broker's, or that of staged files.
    if not ours and any(words in text for words in _FULL):
        return disk_full(name, where)
    if _SECOND_DRIVER in text:
        return PipelineFailedError(
            f"pipeline {name!r} failed: another driver writes to its checkpoint in {where}",
            hint="one checkpoint is for one driver: let one of them run, and stop the other",
        )
    for condition in _STATE_CONDITIONS:
        if condition in text:
            return changed(name, f"its state cannot be used ({condition})")
    if ours:
        last = ours[-1]
        hint = _HINT.match(text, last.end())
        step = hint[1].strip() if hint else f"all of it: headwater pipeline logs {name}"
        if last["kind"] in _NEEDS_RESET:
            step += f"; a new checkpoint: headwater pipeline reset {name}"
        return PipelineFailedError(
            f"pipeline {name!r} failed: {last['kind']}: {last['message'].strip()}", hint=step
        )
    return PipelineFailedError(
        f"pipeline {name!r} failed: {telling_line(text)}",
        hint=f"all of it: headwater pipeline logs {name}",
    )


def telling_line(text: str) -> str:
    """Return the line that says most: the last one of a Python traceback, else the first."""
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON.match(line)]
    rest = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (python[-1:] or rest or ["it did not say why"])[0][:500]
