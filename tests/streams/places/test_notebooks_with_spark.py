"""Notebooks: the one of the examples shows what it says, and an interrupt ends a pipeline well."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.needs import require_spark

NOTEBOOK = Path(__file__).resolve().parents[3] / "examples" / "19_topic_to_table.ipynb"
WITHIN_S = 120


def notebook() -> Any:  # noqa: ANN401 - the package has no types
    """Read the notebook, with the outputs that are kept in it."""
    return nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)  # type: ignore[no-untyped-call]


def printed(cell: Any) -> str:  # noqa: ANN401 - a cell
    """Return what a cell has printed, without what Spark says beside it."""
    outputs = [each for each in cell.outputs if each.output_type == "stream"]
    return "".join(each.text for each in outputs if each.name == "stdout")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder where a kernel finds nothing of the person who runs the tests."""
    require_spark()
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path / "data"))
    return tmp_path


def test_the_notebook_shows_what_it_says(alone: Path) -> None:
    kept, fresh = notebook(), notebook()
    resources = {"metadata": {"path": str(alone)}}
    NotebookClient(fresh, timeout=WITHIN_S, resources=resources).execute()
    code = [each for each in kept.cells if each.cell_type == "code"]
    assert sum(bool(printed(cell)) for cell in code) == 4
    for before, after in zip(kept.cells, fresh.cells, strict=True):
        if before.cell_type == "code":
            assert printed(after) == printed(before), before.source


class Kernel:
    """A kernel that runs cells one by one, and what comes of them."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager, self._client = manager, client

    def begin(self, source: str) -> str:
        return str(self._client.execute(source))

    def end(self, cell: str) -> dict[str, Any]:
        """Wait for the end of a cell; gives its reply, with what it has printed."""
        texts = []
        while True:
            message = self._client.get_iopub_msg(timeout=WITHIN_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                texts.append(content["text"])
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                break
        while True:
            reply = self._client.get_shell_msg(timeout=WITHIN_S)
            if reply["parent_header"].get("msg_id") == cell:
                return {**reply["content"], "printed": "".join(texts)}

    def wait_for_output(self, cell: str) -> None:
        """Wait until a cell has printed something."""
        while True:
            message = self._client.get_iopub_msg(timeout=WITHIN_S)
            if (message["parent_header"].get("msg_id"), message["msg_type"]) == (cell, "stream"):
                return

    def run(self, source: str) -> str:
        reply = self.end(self.begin(source))
        assert reply["status"] == "ok", reply
        return str(reply["printed"]).strip()

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()


@pytest.fixture
def kernel(alone: Path) -> Iterator[Kernel]:
    manager = KernelManager()
    manager.start_kernel(cwd=str(alone))
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=WITHIN_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
        manager.cleanup_resources()


SETUP = """
import headwater as hw
spark = hw.session(master="local[2]", bootstrap="{bootstrap}")
read = (
    spark.readStream.format("headwater")
    .option("subscribe", "{read}")
    .option("startingOffsets", "earliest")
    .load()
)
pipeline = hw.pipeline("notebook", read.select("key", "value")).to(hw.topic("{write}"))
"""


def test_an_interrupt_ends_the_pipeline_and_nothing_else(
    kernel: Kernel, embedded_broker: EmbeddedBroker
) -> None:
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    read, write = broker.topic("cells-in"), broker.topic("cells-out")
    broker.send(read, [(None, b"a"), (None, b"b")])
    kernel.run(SETUP.format(bootstrap=broker.bootstrap, read=read, write=write))
    cell = kernel.begin("pipeline.run()")
    end_s = time.monotonic() + WITHIN_S
    while len(broker.values(write)) < 2:
        assert time.monotonic() < end_s
    kernel.interrupt()
    reply = kernel.end(cell)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")

    assert kernel.run("print(spark.streams.active, spark.range(3).count())") == "[] 3"
    broker.send(read, [(None, b"c")])
    kernel.run("pipeline.run(once=True)")
    assert broker.values(write) == [b"a", b"b", b"c"]

    # A query that was started by hand runs in the background; only the cell that waits ends.
    kernel.run('query = read.writeStream.format("noop").queryName("by hand").start()')
    cell = kernel.begin('print("waiting", flush=True); query.awaitTermination()')
    kernel.wait_for_output(cell)
    kernel.interrupt()
    assert kernel.end(cell)["ename"] == "KeyboardInterrupt"
    assert kernel.run("print(query.isActive); query.stop(); print(query.isActive)") == "True\nFalse"
