"""The sink with places at which something dies.

This file alone decides where these places are and how one is reached. It runs inside Spark's
Python processes, of which the campaign knows nothing; what is to happen stands in a file, which
whoever acts on it takes away, so that it happens once.

    before write     a task has its rows
    after write      they are encoded, and staged if they are many
    before commit    the driver has the messages of all tasks
    begun            the driver is the writer; what was open is aborted
    rows sent        all rows are in the log, undecided
    marker sent      so is the marker
    deciding         while the broker decides to commit
    after commit     all is committed, and Spark does not know it yet
    behind commit    it does; whether its own commit log has it depends on the moment
"""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.delivery.client.transactor import Transactor
from headwater.streams.data_source import HeadwaterDataSource
from headwater.streams.sink import message, transaction, writer
from headwater.streams.sink.marker import MARKER_PLACE, Seen
from headwater.streams.sink.marker_log import MarkerLog
from headwater.streams.sink.options import SinkOptions, sink_options

NAME = "headwater_failing"
ORDERS = "orders"
FORGETFUL = "forgetful"
# So that messages of a few rows are staged in half of the rounds.
INLINE_BYTES_MAX = 2_000

PHASES = (
    "before write",
    "after write",
    "before commit",
    "begun",
    "rows sent",
    "marker sent",
    "deciding",
    "after commit",
    "behind commit",
)
VICTIMS = ("worker", "broker", "driver", "driver but not its worker")
EXECUTOR = "executor"
"""One more victim, where executors are processes of their own: with a master of local-cluster."""


@dataclass(frozen=True)
class Orders:
    """What is to happen.

    Attributes:
        phase: Where.
        victim: Who dies: this Python process, the broker, the driver's JVM, with the process that
            writes for it or without, or the JVM of an executor.
        batch_id: In which batch, or a later one.
        broker: The broker's process.
        driver: The driver's.
        delay_ms: How long a death that hits a decision waits.
    """

    phase: str
    victim: str
    batch_id: int
    broker: int
    driver: int
    delay_ms: float


def give(orders: Orders, path: Path) -> None:
    """Order something."""
    hidden = path.with_suffix(".new")
    hidden.write_text(json.dumps(asdict(orders)))
    hidden.rename(path)


def _maybe_taken(path: Path, phase: str, batch_id: int) -> Orders | None:
    """Take the orders if they are for here; nobody else gets them then."""
    try:
        orders = Orders(**json.loads(path.read_text()))
        if orders.phase != phase or batch_id < orders.batch_id:
            return None
        path.rename(path.with_suffix(".taken"))
    except FileNotFoundError:
        return None
    return orders


def _kill(orders: Orders) -> None:
    with contextlib.suppress(ProcessLookupError):
        if orders.victim == "broker":
            os.kill(orders.broker, signal.SIGKILL)
        elif orders.victim.startswith("driver"):
            os.kill(orders.driver, signal.SIGKILL)
        elif orders.victim == EXECUTOR:
            os.kill(_executor(orders.driver), signal.SIGKILL)
    if orders.victim in {"worker", "driver"}:
        os.kill(os.getpid(), signal.SIGKILL)


def _executor(driver: int) -> int:
    """Return the executor that this process works for; any, if it works for the driver."""
    # This process was forked by one that a JVM has started.
    own = _parent(os.getppid())
    if own != driver:
        return own
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_child = process.name.isdecimal() and _parent(int(process.name)) == driver
            if is_child and b"ExecutorBackend" in (process / "cmdline").read_bytes():
                return int(process.name)
    raise ProcessLookupError("there is no executor just now")


def _parent(pid: int) -> int:
    # The name stands in brackets and may have blanks; the parent is the second field behind it.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def reach(path: Path, phase: str, batch_id: int) -> None:
    """Die here, if that is ordered."""
    orders = _maybe_taken(path, phase, batch_id)
    if orders is not None:
        _kill(orders)


class _FailingTransactor(Transactor):
    reach: Callable[[str], None]
    decide: Callable[[], None]

    def begin(self, producer: tuple[int, int] | None = None) -> tuple[int, int]:
        begun = super().begin(producer)
        self.reach("begun")
        return begun

    def send(self, batches: Any, *, soon: Any = ()) -> None:  # noqa: ANN401 - as they are given
        super().send(batches, soon=soon)
        self.reach("marker sent" if MARKER_PLACE in batches else "rows sent")

    def commit(self) -> dict[tuple[str, int], int]:
        self.decide()
        return super().commit()


class _ForgetfulMarkers(MarkerLog):
    """What a sink would do that remembers nothing: the campaign has to notice."""

    def read(self) -> Seen:
        super().read()
        return Seen(None, None)


class FailingWriter(writer.HeadwaterStreamWriter):
    """Writes as the sink does, unless it dies of it."""

    def __init__(self, options: SinkOptions, orders: str, *, is_forgetful: bool) -> None:
        super().__init__(options)
        self._path = Path(orders)
        self._is_forgetful = is_forgetful

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        message.INLINE_BYTES_MAX = INLINE_BYTES_MAX
        reach(self._path, "before write", batch_id)
        written = super().write(iterator)
        reach(self._path, "after write", batch_id)
        return written

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        _FailingTransactor.reach = staticmethod(lambda phase: reach(self._path, phase, batchId))
        _FailingTransactor.decide = staticmethod(lambda: self._decide(batchId))
        transaction.__dict__["Transactor"] = _FailingTransactor
        writer.__dict__["MarkerLog"] = _ForgetfulMarkers if self._is_forgetful else MarkerLog
        reach(self._path, "before commit", batchId)
        super().commit(messages, batchId)
        reach(self._path, "after commit", batchId)
        self._decide(batchId, "behind commit")

    def _decide(self, batch_id: int, phase: str = "deciding") -> None:
        orders = _maybe_taken(self._path, phase, batch_id)
        if orders is not None:
            threading.Thread(target=self._kill_later, args=(orders,), daemon=True).start()

    @staticmethod
    def _kill_later(orders: Orders) -> None:
        time.sleep(orders.delay_ms / 1000)
        _kill(orders)


class FailingDataSource(HeadwaterDataSource):
    """The sink under another name, with an option for its orders."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        own = {ORDERS, FORGETFUL}
        options = {name: text for name, text in self.options.items() if name.lower() not in own}
        return FailingWriter(
            sink_options(options),
            self.options[ORDERS],
            is_forgetful=self.options[FORGETFUL] == "true",
        )
