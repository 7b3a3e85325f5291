"""The process that Spark forks its Python workers from, with all that they need loaded.

This file alone decides what is loaded before a fork. Spark runs it as `spark.python.daemon.module`
with the name of a worker's module, in place of PySpark's own, which loads nothing: there each new
worker imports PySpark, pyarrow and us by itself. Those are half a second of a core for a worker
that reads rows, and 0.4 for the process that plans a batch read or commits a batch of a sink, which
is a new one for each `df.write`. Forked from here, they find it all in place.

Nothing here may start a thread of Python's or write to standard output: the first would be missing
behind a fork, the second is how the daemon tells Spark its port.
"""

import contextlib
import importlib
import sys

from pyspark.daemon import manager

_TASKS = "pyspark.worker"
_FOR_ALL = (
    "headwater.streams.data_source",
    "headwater.streams.source.batch_reader",
    "headwater.streams.source.stream_reader",
    "headwater.streams.sink.batch_writer",
    "headwater.streams.sink.writer",
)


def preload(worker_module: str) -> None:
    """Load what a worker of this kind uses; what cannot be loaded, the worker complains of."""
    for name in (worker_module, *_FOR_ALL):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if worker_module == _TASKS:
        with contextlib.suppress(Exception):
            _load_compiled()


def _load_compiled() -> None:
    """Let numba load its code, which it does when a function is first called."""
    from headwater.base.record.records import Record, build_batch  # noqa: PLC0415 - for tasks
    from headwater.streams.source.decode import Decoder  # noqa: PLC0415 - loads numba

    batch = memoryview(build_batch([Record(0, 0, b"", b"", (("", b""),))]))
    for headers in (False, True):
        decoder = Decoder("", 0, headers=headers)
        list(decoder.decode(batch, from_offset=0, upto_offset=1, aborted=()))


if __name__ == "__main__":
    preload(sys.argv[1] if len(sys.argv) > 1 else _TASKS)
    manager()
