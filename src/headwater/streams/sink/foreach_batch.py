"""How a batch is written that Spark hands over as a DataFrame: by the writer of streams.

This file alone decides how a writer's two halves are called where Spark does not call them itself.
Spark lets a sink in Python append, and nothing else; what it runs in update mode it gives to
`foreachBatch`, once for each batch, and again after a crash, under the same number. Tasks of such a
batch see the same ids of query, run and batch as those of a sink, and of their results, as of the
messages to a sink, those count alone whose attempt Spark has chosen. So there is one protocol, in
`writer` and `commit`, and this is another way to it.

With Spark Connect the function runs in a process beside the server, as a client of it, and tasks
see no ids. There the query's is read from its checkpoint, and the run's is made with the function,
of which each start has another.
"""

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.options import SinkOptions
from headwater.streams.sink.writer import HeadwaterStreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Writers = Callable[[int], HeadwaterStreamWriter]
"""Gives the writer of a batch, by its number."""

_MESSAGE: Final = "message"


def each_batch(writers: Writers) -> "Callable[[DataFrame, int], None]":
    """Return what `foreachBatch` is to call."""

    def write(frame: "DataFrame", batch_id: int) -> None:
        writer = writers(batch_id)
        # Spark's stubs know batches by a protocol of their own.
        encode = cast("Any", partial(_encoded, writer))
        columns = f"{_MESSAGE} binary"
        # Of nothing Spark makes no task; of one partition it makes one, which tells whose batch
        # this is. A sink gets such a task from Spark itself.
        found = frame.mapInArrow(encode, columns).collect() or (
            frame.coalesce(1).mapInArrow(encode, columns).collect()
        )
        # They are ours: our own code has just made them, in tasks of this query.
        messages = [pickle.loads(row[_MESSAGE]) for row in found]  # noqa: S301
        try:
            writer.commit(messages, batch_id)
        except BaseException:
            writer.abort(messages, batch_id)
            raise

    return write


def own_writers(options: SinkOptions) -> Writers:
    """Return the writers of a query of this process's own Spark."""
    writer = HeadwaterStreamWriter(options)
    return lambda _: writer


def connected_writers(options: SinkOptions, checkpoint: str) -> Writers:
    """Return the writers of a query of a Connect server, which sees the checkpoint, too."""
    return partial(_connected_writer, options, checkpoint, str(uuid.uuid4()))


def _connected_writer(
    options: SinkOptions, checkpoint: str, run_id: str, batch_id: int
) -> HeadwaterStreamWriter:
    # Spark writes it before the first batch.
    known = json.loads(Path(checkpoint, "metadata").read_text(encoding="utf-8"))
    return HeadwaterStreamWriter(options, Attempt(str(known["id"]), run_id, batch_id, checkpoint))


def _encoded(
    writer: HeadwaterStreamWriter, rows: Iterator["pa.RecordBatch"]
) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa  # noqa: PLC0415 - for tasks alone

    message = pickle.dumps(writer.write(rows))
    yield pa.RecordBatch.from_pydict({_MESSAGE: pa.array([message], pa.binary())})
