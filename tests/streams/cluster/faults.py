"""The sink, in tasks that something happens to.

This file alone decides what that is. It runs in Spark's Python workers: each leaves a file for
every attempt that has come to the end of its work, so that a test knows that something happened.

    fails behind its work     the first attempt raises when all its rows are encoded
    executor dies under way   the first attempt kills its executor when it has its first rows
    result is lost            the first attempt kills its executor when all its rows are encoded
    slow at first             the first attempt does not end before another one has
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.streams.data_source import HeadwaterDataSource
from headwater.streams.sink.options import SinkOptions, sink_options
from headwater.streams.sink.writer import HeadwaterStreamWriter

NAME = "headwater_faulty"
FAULT = "fault"
FOLDER = "faultfolder"

FAILS = "fails behind its work"
EXECUTOR_DIES = "executor dies under way"
RESULT_LOST = "result is lost"
SLOW = "slow at first"

_FIRST = "first"
_SECOND = "second"
_WAIT_S = 120.0


class _FaultyWriter(HeadwaterStreamWriter):
    def __init__(self, options: SinkOptions, fault: str, folder: str) -> None:
        super().__init__(options)
        self._fault = fault
        self._folder = Path(folder)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 0:
            return super().write(iterator)
        is_first = self._is_first()
        if is_first and self._fault == EXECUTOR_DIES:
            next(iterator)
            _kill_executor()
        written = super().write(iterator)
        (self._folder / f"written-{context.taskAttemptId()}").touch()
        if not is_first:
            (self._folder / _SECOND).touch()
        elif self._fault == RESULT_LOST:
            _kill_executor()
        elif self._fault == SLOW:
            self._wait_for_another()
        elif self._fault == FAILS:
            raise RuntimeError("this attempt was to fail")
        return written

    def _is_first(self) -> bool:
        try:
            (self._folder / _FIRST).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _wait_for_another(self) -> None:
        end_s = time.monotonic() + _WAIT_S
        while not (self._folder / _SECOND).exists():
            assert time.monotonic() < end_s, "Spark has started no other attempt"
            time.sleep(0.01)


def _kill_executor() -> None:
    """Kill the JVM that has started the process which forked this one."""
    daemon = os.getppid()
    # The name stands in brackets and may have blanks; the parent is the second field behind it.
    behind_name = Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2]
    executor = int(behind_name.split()[1])
    assert Path(f"/proc/{executor}/comm").read_text() == "java\n"
    os.kill(executor, signal.SIGKILL)
    signal.pause()


class FaultyDataSource(HeadwaterDataSource):
    """Source and sink under another name, with options for what is to happen."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        own = {FAULT, FOLDER}
        options = {name: text for name, text in self.options.items() if name.lower() not in own}
        return _FaultyWriter(sink_options(options), self.options[FAULT], self.options[FOLDER])
