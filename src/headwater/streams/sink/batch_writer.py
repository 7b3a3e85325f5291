"""How a DataFrame is written at once: `df.write`, in one transaction.

This file alone decides how a write that Spark will not repeat is made. It has no marker, because
Spark does not know such a write again; two writes are two writes. The name of its staged files is
random; its transactional id is one of a few, see `batch_ids`.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from headwater.base.errors import HeadwaterError
from headwater.delivery.client.errors import TransactionTimedOutError
from headwater.delivery.client.transactor import Transactor
from headwater.streams.errors import hints_shown
from headwater.streams.sink.batch_ids import lent_id
from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.connections import lent_cluster
from headwater.streams.sink.errors import too_slow
from headwater.streams.sink.message import TaskMessage, parts, remove_staged
from headwater.streams.sink.options import SinkOptions
from headwater.streams.sink.transaction import transactor_for
from headwater.streams.sink.writer import own_messages, task_message

if TYPE_CHECKING:
    import pyarrow as pa


class HeadwaterBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame in one transaction."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name = f"batch-{uuid.uuid4()}"

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        """Encode the rows of a task."""
        with hints_shown():
            return task_message(iterator, self._options, Attempt(self._name, self._name, 0))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write what the tasks have encoded."""
        with hints_shown():
            tasks = own_messages(messages)
            size_bytes = sum(task.size_bytes for task in tasks)
            if size_bytes:
                with lent_cluster(self._options) as cluster, lent_id() as name:
                    self._send(tasks, transactor_for(cluster, name, self._options, size_bytes))
            remove_staged(tasks)

    def _send(self, tasks: Sequence[TaskMessage], transactor: Transactor) -> None:
        transactor.begin()
        try:
            for part in parts(tasks):
                transactor.send(part)
            transactor.commit()
        except TransactionTimedOutError as error:
            raise too_slow("the write", error) from error
        except BaseException:
            with contextlib.suppress(HeadwaterError):
                transactor.abort()
            raise

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks have left; nothing has been sent."""
        remove_staged(own_messages(messages))
