"""A pipeline over old records, beside the one that runs.

This file alone decides how a backfill differs from a run: where its sources begin, that it ends,
where its rows go, and that its checkpoint has another name and goes with it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from headwater.streams.running import definitions
from headwater.streams.running.checkpoints import Checkpoint, data_directory
from headwater.streams.running.driver import Driver
from headwater.streams.running.errors import DefinitionError


class Backfilled(NamedTuple):
    """What a backfill has done."""

    pipeline: str
    rows: int
    batches: int


def backfill(
    path: Path, name: str | None, *, from_ms: int, into: str, data: str | None
) -> Backfilled:
    """Run one pipeline of a file over what is there, from a time on.

    Args:
        path: The file.
        name: The pipeline, needed where the file has several.
        from_ms: The time of the first record.
        into: The topic for its rows.
        data: Where checkpoints are kept.

    Raises:
        PipelineError: It failed; the next backfill of the same kind goes on where it was.
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
    target = pipeline.wanted_target()
    if into in pipeline.topics():
        raise DefinitionError(
            f"pipeline {pipeline.name!r} writes to {into} itself, which would then have rows twice",
            hint="give the backfill a topic of its own",
        )
    original = pipeline.name
    pipeline.name = f"{original}.backfill.{into}"
    pipeline.target = replace(target, name=into)
    rows: list[int] = []

    def hear(batch: dict[str, Any]) -> None:
        rows.append(int(batch["rows"]))

    driver = Driver([pipeline], data=data, file=path, once=True, on_batch=hear)
    driver.start().wait()
    Checkpoint(data_directory(data), pipeline.name).remove()
    return Backfilled(original, sum(rows), len(rows))
