"""What a pipeline would write, without writing it.

This file alone decides how a dry run gets its sample: the same plan over the first records there
are, into memory instead of topics, once. Consumer groups that show how far it came are its own.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.streams.running.errors import PipelineFailedError, translated
from headwater.streams.running.output_mode import UPDATE
from headwater.streams.running.plan_steps import Step, steps
from headwater.streams.running.plans import operators, plan_text, section, times_read, topics_read
from headwater.streams.running.progress import batch_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.streams.running.pipeline import Pipeline

_LOOK_AGAIN_S = 0.05
_WAITING = "Waiting for data to arrive"


class Sample(NamedTuple):
    """What a dry run has found out."""

    pipeline: str
    reads: list[str]
    writes: list[str]
    written_as: str
    operators: list[str]
    steps: list[Step]
    plan: str
    schema: str
    rows_read: int
    rows: list[dict[str, Any]]


def source_options(records_max: int, group: str) -> Mapping[str, str]:
    """Return what the sources of a dry run are told: few records, from the beginning."""
    return {
        "startingTimestamp": "0",
        "startingOffsetsByTimestampStrategy": "latest",
        "maxOffsetsPerTrigger": str(records_max),
        "minOffsetsPerTrigger": "1",
        # Over a group that the file names: the pipeline itself may be running in it.
        "kafka.group.id": group,
    }


def take_sample(pipeline: "Pipeline", *, rows_max: int, timeout_s: float) -> Sample:
    """Run one batch of a pipeline into memory.

    Raises:
        PipelineError: It failed, or took too long.
    """
    frame = pipeline.rows()
    text = plan_text(frame)
    analyzed = section(text, "Analyzed Logical Plan")
    table = f"headwater_sample_{uuid.uuid4().hex}"
    session = frame.sparkSession
    try:
        query = (
            frame.writeStream.format("memory").queryName(table).outputMode(pipeline.mode).start()
        )
    except Exception as error:
        raise translated(pipeline.name, str(error)) from error
    try:
        rows_read = _first_batch(pipeline.name, query, times_read(analyzed), timeout_s)
        failure = query.exception()
    finally:
        query.stop()
    if failure is not None:
        raise translated(pipeline.name, str(failure)) from failure
    rows = [row.asDict(recursive=True) for row in session.table(table).limit(rows_max).collect()]
    session.catalog.dropTempView(table)
    return Sample(
        pipeline.name,
        reads=topics_read(analyzed),
        writes=pipeline.topics(),
        written_as=_written_as(pipeline),
        operators=[each.name for each in operators(analyzed)],
        # Of the frame alone: how its rows become records is said where they are written.
        steps=steps(section(plan_text(pipeline.frame), "Analyzed Logical Plan")),
        plan=section(text, "Optimized Logical Plan"),
        schema=", ".join(f"{name} {kind}" for name, kind in pipeline.frame.dtypes),
        rows_read=rows_read,
        rows=rows,
    )


def _written_as(pipeline: "Pipeline") -> str:
    """Say how rows become records."""
    told = "records as they are" if "value" in pipeline.frame.columns else "rows as JSON"
    if pipeline.mode == UPDATE:
        told = f"the newest of each group, {told}"
    keys = pipeline.key_columns()
    named = pipeline.wanted_target().key is not None or pipeline.mode == UPDATE
    return f"{told}, key {', '.join(keys)}" if keys and named else told


def _first_batch(name: str, query: "StreamingQuery", times: Sequence[int], timeout_s: float) -> int:
    """Wait until a batch with rows has ended, or there is nothing to read; gives its rows."""
    end_s = time.monotonic() + timeout_s
    while query.isActive:
        if time.monotonic() > end_s:
            raise PipelineFailedError(
                f"pipeline {name!r} has not ended its first batch within {timeout_s:.0f} s",
                hint="have it read less: headwater dry-run --records 10",
            )
        for progress in query.recentProgress:
            if progress.numInputRows:
                return int(batch_of("", json.loads(progress.json), times)["rows"])
        status = query.status
        if status["message"] == _WAITING and not status["isDataAvailable"]:
            break
        time.sleep(_LOOK_AGAIN_S)
    return 0
