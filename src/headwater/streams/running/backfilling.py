"""A pipeline over old records, beside the one that runs.

This file alone decides how a backfill differs from a run: where its sources begin, that it ends,
where its rows and its dead letters go, and that its checkpoint has another name and goes with it.

A backfill that was interrupted has a start of its own, in its checkpoint: one that is to begin
elsewhere is another, and is refused until that one is ended or forgotten. Its dead letters are not
written beside those of the pipeline, which has found the same records undecodable before: sent
back, each would come twice.
"""

import contextlib
import datetime as dt
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headwater.base.errors import HeadwaterError
from headwater.base.private import make_private_directory, write_private_text
from headwater.streams.running import definitions
from headwater.streams.running.checkpoints import NAME_MAX, Checkpoint, data_directory
from headwater.streams.running.driver import Driver
from headwater.streams.running.errors import BackfillUnfinishedError, DefinitionError
from headwater.streams.running.forgetting import forget_query
from headwater.streams.running.pipeline import Letters, Pipeline, Topic

_START = "backfill.json"
# Enough of both names to be known by, and room for what lies between them.
_PART_MAX = 36


class Backfilled(NamedTuple):
    """What a backfill has done.

    Attributes:
        pipeline: Of which pipeline.
        rows: How many rows were read.
        batches: In how many batches.
        undecodable: How many of the rows could not be decoded.
    """

    pipeline: str
    rows: int
    batches: int
    undecodable: int


def backfill(
    path: Path,
    name: str | None,
    *,
    from_ms: int,
    into: str,
    dead_letters: str | None = None,
    data: str | None,
    on_driver: Callable[[Driver], None] | None = None,
) -> Backfilled:
    """Run one pipeline of a file over what is there, from a time on.

    Args:
        path: The file.
        name: The pipeline, needed where the file has several.
        from_ms: The time of the first record.
        into: The topic for its rows.
        dead_letters: The topic for records that cannot be decoded; without it they are counted.
        data: Where checkpoints are kept.
        on_driver: Is given who runs it, before it starts: to have it stopped.

    Raises:
        PipelineError: It failed or was stopped, the next backfill with the same start goes on
            where it was; or one with another start did.
    """
    options = {
        "startingTimestamp": str(from_ms),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    found = definitions.load(path, name, source_options=options)
    if len(found) > 1:
        raise DefinitionError(
            f"{path} has several pipelines: {', '.join(each.name for each in found)}",
            hint=f"name one: {path}:{found[0].name}",
        )
    (pipeline,) = found
    _check_topics(pipeline, into, dead_letters)
    original = pipeline.name
    pipeline.name = checkpoint_name(original, into)
    pipeline.target = replace(pipeline.wanted_target(), name=into)
    pipeline.letters = Letters(are_written=dead_letters is not None, topic=dead_letters)
    checkpoint = Checkpoint(data_directory(data), pipeline.name)
    with checkpoint.locked():
        _claim(checkpoint, from_ms)
    batches: list[dict[str, Any]] = []

    def hear(batch: dict[str, Any]) -> None:
        batches.append(batch)

    driver = Driver([pipeline], data=data, file=path, once=True, on_batch=hear)
    if on_driver is not None:
        on_driver(driver)
    driver.start().wait()
    if driver.were_cut_off:
        raise BackfillUnfinishedError(
            f"the backfill of pipeline {original!r} was stopped before its end",
            hint=f"let it go on: --from @{from_ms}",
        )
    query_id = checkpoint.query_id()
    checkpoint.remove()
    if query_id is not None:
        _forget(pipeline.target, query_id)
    return Backfilled(
        original,
        sum(int(each["rows"]) for each in batches),
        len(batches),
        sum(int(each["undecodable"]) for each in batches),
    )


def _forget(target: Topic, query_id: str) -> None:
    """Let the broker forget a query that has ended; one that cannot be asked does not matter."""
    with contextlib.suppress(HeadwaterError), target.connect() as cluster:
        forget_query(cluster, query_id)


def checkpoint_name(pipeline: str, into: str) -> str:
    """Return under which name a backfill keeps its checkpoint."""
    name = f"{pipeline}.backfill.{into}"
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{pipeline[:_PART_MAX]}.backfill.{into[:_PART_MAX]}.{digest}"


def _check_topics(pipeline: Pipeline, into: str, dead_letters: str | None) -> None:
    own = pipeline.topics()
    if into in own:
        raise DefinitionError(
            f"pipeline {pipeline.name!r} writes to {into} itself, which would then have rows twice",
            hint="give the backfill a topic of its own",
        )
    if dead_letters is not None and dead_letters in {into, *own}:
        raise DefinitionError(
            f"dead letters of a backfill cannot go to {dead_letters}, which has other records",
            hint="give them a topic of their own, or leave them out: they are counted",
        )


def _claim(checkpoint: Checkpoint, from_ms: int) -> None:
    """Keep where the backfill begins, unless one that began elsewhere is not finished."""
    path = checkpoint.folder / _START
    if Path(checkpoint.location, "offsets", "0").exists():
        began_ms = int(json.loads(path.read_text(encoding="utf-8"))["from_ms"])
        if began_ms == from_ms:
            return
        raise BackfillUnfinishedError(
            f"a backfill that began at {_shown(began_ms)} is not finished, and this one is to "
            f"begin at {_shown(from_ms)}",
            hint=f"let that one go on: --from @{began_ms}; or forget it, what it has written "
            f"stays: headwater pipeline reset {checkpoint.name}",
        )
    make_private_directory(checkpoint.folder)
    write_private_text(path, json.dumps({"from_ms": from_ms}) + "\n")


def _shown(time_ms: int) -> str:
    if time_ms == 0:
        return "the beginning"
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).isoformat(timespec="seconds")
