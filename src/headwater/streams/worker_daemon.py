"""The process that Spark forks its Python workers from, with all that they need loaded.

This file alone decides what is loaded before a fork. Spark runs it as `spark.python.daemon.module`
with the name of a worker's module, in place of PySpark's own, which loads nothing: there each new
worker imports PySpark, pyarrow and us by itself. Those are half a second of a core for a worker
that reads rows, and 0.4 for the process that plans a batch read or commits a batch of a sink, which
is a new one for each `df.write`. Forked from here, they find it all in place.

Spark puts PySpark on their path a second time, as an archive, and a jar beside it. Python reads the
table of such an archive anew for each package in it whenever a path changes, which is once in every
worker's life and takes longer than all the rest of its start. So archives are left out where the
package lies beside them, as pip installs it.

Nothing here may start a thread of Python's or write to standard output: the first would be missing
behind a fork, the second is how the daemon tells Spark its port.
"""

import contextlib
import gc
import importlib
import sys
from pathlib import Path

_TASKS = "pyspark.worker"
_FOR_ALL = (
    "headwater.streams.data_source",
    "headwater.streams.source.batch_reader",
    "headwater.streams.source.stream_reader",
    "headwater.streams.sink.batch_writer",
    "headwater.streams.sink.writer",
)

_FOR_TASKS = ("headwater.streams.windows.plan",)


def without_archives(path: list[str]) -> list[str]:
    """Return the path without PySpark's archives, if what they hold is on it as a package too."""
    folders = {Path(entry).resolve() for entry in path if Path(entry).is_dir()}
    left_out: set[Path] = set()
    for package in {parent for entry in path for parent in Path(entry).parents}:
        is_installed = (package / "__init__.py").is_file() and package.resolve().parent in folders
        if package.name == "pyspark" and is_installed and (package.parent / "py4j").is_dir():
            left_out |= {package / "python" / "lib", package / "jars"}
    return [entry for entry in path if Path(entry).parent not in left_out]


def preload(worker_module: str) -> None:
    """Load what a worker of this kind uses; what cannot be loaded, the worker complains of."""
    for name in (worker_module, *_FOR_ALL):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if worker_module == _TASKS:
        for name in _FOR_TASKS:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        with contextlib.suppress(Exception):
            _load_compiled()
    # PySpark's workers look through all objects for garbage behind every task, which took 0.07 s of
    # a core for those that are loaded here and never go away.
    gc.collect()
    gc.freeze()


def _load_compiled() -> None:
    """Let numba load its code, which it does when a function is first called."""
    from headwater.base.record.records import Record, build_batch  # noqa: PLC0415 - for tasks
    from headwater.streams.source.decode import Decoder  # noqa: PLC0415 - loads numba

    batch = memoryview(build_batch([Record(0, 0, b"", b"", (("", b""),))]))
    for headers in (False, True):
        decoder = Decoder("", 0, headers=headers)
        list(decoder.decode(batch, from_offset=0, upto_offset=1, aborted=()))
    _load_kernel()


def _load_kernel() -> None:
    """The same for the loops that all operators with state use."""
    import pyarrow as pa  # noqa: PLC0415 - for tasks

    from headwater.streams.kernel.grouping import group, hashes  # noqa: PLC0415 - loads numba
    from headwater.streams.kernel.keys import decode_keys, encode_keys  # noqa: PLC0415 - the same
    from headwater.streams.kernel.table import Table  # noqa: PLC0415 - the same

    columns = [pa.array([1, 2]), pa.array(["a", "b"])]
    keys = encode_keys(columns, 2)
    decode_keys(keys, [column.type for column in columns])
    hashes(keys)
    group(keys)
    values = pa.schema([("value", pa.int64())])
    rows = pa.table({"key": keys, "value": columns[0]})
    table = Table.empty(values).put(rows).put(rows)
    table.find(keys)
    table.scan()


def main() -> None:
    """Load all, then fork for as long as Spark asks for it."""
    sys.path[:] = without_archives(sys.path)
    preload(sys.argv[1] if len(sys.argv) > 1 else _TASKS)

    from pyspark.daemon import manager  # noqa: PLC0415 - from the path that was put in order

    manager()


if __name__ == "__main__":
    main()
