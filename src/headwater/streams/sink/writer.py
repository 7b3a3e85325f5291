"""How a stream is written: tasks encode, the driver commits each batch once.

This file alone decides where the identity of a query comes from, and ties Spark's calls to the
protocol in `commit`.

Spark makes a writer on the driver, copies it into each task for `write`, and makes another one for
`commit`, in a Python process that it may or may not have used before: a writer remembers nothing.
A task finds in its local properties the id of the query, which a checkpoint keeps over restarts,
and that of the run, which is new at each start.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.base.uuids import uuid_to_text
from headwater.streams.errors import hints_shown
from headwater.streams.sink.commit import Attempt, check_batch, commit_batch
from headwater.streams.sink.connections import lent_cluster
from headwater.streams.sink.errors import FeedbackError
from headwater.streams.sink.marker_log import MarkerLog
from headwater.streams.sink.message import Outbox, TaskMessage, parts, remove_staged
from headwater.streams.sink.options import SinkOptions
from headwater.streams.sink.passed import Passed, Sink
from headwater.streams.sink.plan import Matched, Plan, Plans
from headwater.streams.sink.staging import own_root, shared_root
from headwater.streams.sink.transaction import transactor_for

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
_BATCH_ID: Final = "streaming.sql.batchId"
_MASTER: Final = "spark.master"
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"
_PLANS: Final = Plans()
_PASSED: Final = Passed()


class HeadwaterStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each in one transaction."""

    def __init__(self, options: SinkOptions, attempt: Attempt | None = None) -> None:
        """Take the options, and which batch it is where tasks cannot know."""
        self._options = options
        self._attempt = attempt

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Encode the rows of a task."""
        with hints_shown():
            attempt = self._attempt or Attempt(
                _local_property(_QUERY_ID),
                _local_property(_RUN_ID),
                int(_local_property(_BATCH_ID)),
                _maybe_checkpoint(self._options),
            )
            return task_message(iterator, self._options, attempt)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Write what the tasks have encoded, unless that has been done."""
        with hints_shown():
            tasks = own_messages(messages)
            size_bytes = sum(task.size_bytes for task in tasks)
            # Spark has at least one task, also where there is nothing to read.
            if tasks:
                self._commit(replace(tasks[0].attempt, batch_id=batchId), tasks, size_bytes)
            remove_staged(tasks)

    def _commit(self, attempt: Attempt, tasks: Sequence[TaskMessage], size_bytes: int) -> None:
        options = self._options
        sink = Sink(options.bootstrap, attempt.query_id, options.sink_name)
        # What has no row is the same whether it is written or not.
        is_free = not size_bytes and _PASSED.covers(sink, attempt.run_id, attempt.batch_id)
        plan = _PLANS.maybe_plan(
            attempt.checkpoint, attempt.query_id, attempt.batch_id, sync=not is_free
        )
        # Rows that have come back may stay in state for long before anything comes of them.
        _refuse_feedback(plan, options, tasks)
        if is_free:
            return
        attempt = replace(attempt, plan=plan)
        name = f"hw.{attempt.query_id}.{options.sink_name}"
        with lent_cluster(options) as cluster:
            markers = MarkerLog(cluster, attempt.query_id, options.sink_name)
            transactor = transactor_for(cluster, name, options, size_bytes)
            if size_bytes:
                commit_batch(attempt, parts(tasks), markers=markers, transactor=transactor)
            else:
                check_batch(attempt, markers=markers, transactor=transactor)
        _PASSED.note(sink, attempt.run_id, attempt.batch_id)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's signature
    ) -> None:
        """Remove what tasks have left; nothing has been sent."""
        remove_staged(own_messages(messages))


def _refuse_feedback(plan: Plan | None, options: SinkOptions, tasks: Iterable[TaskMessage]) -> None:
    """Refuse to write to a topic that the query reads because its pattern happens to match it.

    Whoever names a topic with `subscribe` and writes to it wants the rows back. A topic that is
    named for all rows is refused also where there are none. One of the same name elsewhere, as a
    mirror writes it, has another id.
    """
    matched = [] if plan is None else plan.matched_topics()
    if not matched:
        return
    named = [] if options.topic is None else [options.topic]
    written = set(named).union(*(task.topics for task in tasks))
    for each in sorted(matched):
        if each.topic not in written or _is_another(each, options):
            continue
        raise FeedbackError(
            f"the query writes to {each.topic!r} and reads it as well, because its "
            f"subscribePattern {each.pattern!r} matches it: each row would come back as input",
            hint="let the pattern leave that topic out, name the topics with subscribe, or write "
            "to another topic; and use a new checkpointLocation, because the present one holds "
            "this batch's plan, and Spark would repeat it with the old pattern",
        )


def _is_another(read: Matched, options: SinkOptions) -> bool:
    """Tell whether a topic that is read only has the name of the one that is written."""
    with lent_cluster(options) as cluster:
        try:
            topic_id = cluster.topic(read.topic).topic_id
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return True  # the write itself reports that the topic is missing
    return bool(read.topic_id and any(topic_id)) and uuid_to_text(topic_id) != read.topic_id


def task_message(
    rows: Iterator["pa.RecordBatch"], options: SinkOptions, attempt: Attempt
) -> TaskMessage:
    """Encode the rows of a task into its message to the driver."""
    # Numba and pyarrow are for tasks alone.
    from headwater.streams.sink.task import encode_rows  # noqa: PLC0415

    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    with Outbox(attempt, _staging_root(options), task=task) as outbox:
        encode_rows(rows, options, outbox)
        return outbox.message()


def own_messages(messages: Iterable[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Leave out tasks that have not come to their end."""
    return [message for message in messages if isinstance(message, TaskMessage)]


def _staging_root(options: SinkOptions) -> Callable[[], Path] | None:
    """Return what finds the place for what is too large; on one machine it needs not be named."""
    if options.staging_location is not None:
        return partial(shared_root, options.staging_location)
    master = _maybe_local_property(_MASTER)
    # Also local-cluster: its executors are processes of this machine and this user.
    return own_root if master is not None and master.startswith("local") else None


def _maybe_checkpoint(options: SinkOptions) -> str | None:
    """Return where Spark keeps the checkpoint: as the query says, else as the session does.

    A query without a name gets a checkpoint at random in the session's place, which no other run
    will find.
    """
    if options.checkpoint is not None:
        return options.checkpoint
    root = _maybe_local_property(_CHECKPOINTS)
    return None if root is None or options.query_name is None else f"{root}/{options.query_name}"


def _maybe_local_property(name: str) -> str | None:
    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None


def _local_property(name: str) -> str:
    found = _maybe_local_property(name)
    if found is None:
        raise HeadwaterError(
            f"Spark does not tell its tasks {name}, without which nothing is written exactly once",
            hint="use PySpark 4.2 or newer, and let writeStream start the query",
        )
    return found
