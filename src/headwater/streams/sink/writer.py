"""How a stream is written: tasks encode, the driver commits each batch once.

This file alone decides where the identity of a query comes from, and ties Spark's calls to the
protocol in `commit`.

Spark makes a writer on the driver, copies it into each task for `write`, and makes another one for
`commit`, in a Python process that it may or may not have used before: a writer remembers nothing.
A task finds in its local properties the id of the query, which a checkpoint keeps over restarts,
and that of the run, which is new at each start.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.base.errors import HeadwaterError
from headwater.delivery.client.transactor import Transactor
from headwater.streams.connecting import connect
from headwater.streams.errors import hints_shown
from headwater.streams.sink.commit import Attempt, commit_batch
from headwater.streams.sink.marker_log import MarkerLog
from headwater.streams.sink.message import (
    Origin,
    TaskMessage,
    gather,
    make_message,
    remove_staged,
)
from headwater.streams.sink.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
_BATCH_ID: Final = "streaming.sql.batchId"
_MASTER: Final = "spark.master"


class HeadwaterStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, each in one transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Encode the rows of a task."""
        with hints_shown():
            origin = Origin(
                _local_property(_QUERY_ID),
                _local_property(_RUN_ID),
                int(_local_property(_BATCH_ID)),
            )
            return task_message(iterator, self._options, origin)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Write what the tasks have encoded, unless that has been done."""
        with hints_shown():
            tasks = own_messages(messages)
            batches = gather(tasks)
            # What has no row is the same whether it is written or not.
            if batches:
                origin = tasks[0].origin
                attempt = Attempt(origin.query_id, origin.run_id, batchId)
                with connect(self._options.bootstrap, self._options.client) as cluster:
                    commit_batch(
                        attempt,
                        batches,
                        markers=MarkerLog(cluster, origin.query_id, self._options.sink_name),
                        transactor=Transactor(
                            cluster,
                            f"hw.{origin.query_id}.{self._options.sink_name}",
                            timeout_ms=self._options.transaction_timeout_ms,
                        ),
                    )
            remove_staged(tasks)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's signature
    ) -> None:
        """Remove what tasks have left; nothing has been sent."""
        remove_staged(own_messages(messages))


def task_message(
    rows: Iterator["pa.RecordBatch"], options: SinkOptions, origin: Origin
) -> TaskMessage:
    """Encode the rows of a task into its message to the driver."""
    # Numba and pyarrow are for tasks alone.
    from headwater.streams.sink.task import encode_rows  # noqa: PLC0415

    return make_message(origin, encode_rows(rows, options), _staging_location(options))


def own_messages(messages: Iterable[WriterCommitMessage | None]) -> list[TaskMessage]:
    """Leave out tasks that have not come to their end."""
    return [message for message in messages if isinstance(message, TaskMessage)]


def _staging_location(options: SinkOptions) -> str | None:
    """Return where tasks leave what is too large; on one machine it needs not be said."""
    if options.staging_location is None:
        context = TaskContext.get()
        master = context.getLocalProperty(_MASTER) if context is not None else None
        if master is not None and master.startswith("local"):
            return tempfile.gettempdir()
    return options.staging_location


def _local_property(name: str) -> str:
    context = TaskContext.get()
    found = context.getLocalProperty(name) if context is not None else None
    if found is None:
        raise HeadwaterError(
            f"Spark does not tell its tasks {name}, without which nothing is written exactly once",
            hint="use PySpark 4.2 or newer, and let writeStream start the query",
        )
    return found
