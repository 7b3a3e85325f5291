"""The pipeline file that runs on any cluster and any broker, and who runs it.

This file alone decides how it is run and what has to come out. The first record of each key goes
on, which takes state; how often a key came and how its records were split into batches makes no
difference to the outcome.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater.streams.running.checkpoints import Checkpoint
from tests.cli.processes import command
from tests.peers import ROOT
from tests.streams.brokers import Broker
from tests.streams.sink.reading import values

FILE = (ROOT / "examples" / "_first_orders.py").read_text()
NAME = "firsts"
_WITHIN_S = 300.0


def wait_until(holds: Callable[[], bool], explain: Callable[[], str]) -> None:
    """Wait for what another process does."""
    end_s = time.monotonic() + _WITHIN_S
    while not holds():
        assert time.monotonic() < end_s, explain()
        time.sleep(0.1)


class Home:
    """A folder with the file, and its topics at a broker."""

    def __init__(self, folder: Path, bootstrap: str, *, text: str = FILE) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "pipelines.py").write_text(text)
        self.broker = Broker("any", bootstrap)
        self.checkpoint = Checkpoint(folder / "headwater-data", NAME)

    def create_topics(self) -> None:
        self.broker.create("orders", partitions=4)
        self.broker.create(NAME, partitions=4)

    def send(self, keys: Sequence[int]) -> None:
        """Write orders, the keys of some of which may have come before."""
        self.broker.send("orders", [(b"%d" % key, b"order %d" % key) for key in keys])

    def written(self, bootstrap: str | None = None) -> list[bytes]:
        """Return what is committed, as kafka-python reads it."""
        return values(bootstrap or self.broker.bootstrap, NAME)

    def has_written(self, keys: Sequence[int]) -> bool:
        """Tell whether each key is there once; librdkafka knows how to wait for a new leader."""
        return self.broker.values(NAME) == expected(keys)

    def batch(self) -> int:
        """Return the number of the last batch that was told of."""
        return int((self.checkpoint.progress() or {"batch": -1})["batch"])

    def log(self) -> str:
        return self.checkpoint.log.read_text() if self.checkpoint.log.exists() else "no log"

    @contextmanager
    def running(self, *arguments: str) -> Iterator["Run"]:
        """Run the file; end it at the end, unless it has ended."""
        said = self.folder / f"said-{time.monotonic_ns()}.txt"
        with said.open("wb") as errors:
            process = subprocess.Popen(
                command("run", "pipelines.py", "-b", self.broker.bootstrap, *arguments),
                cwd=self.folder,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                stderr=errors,
            )
            try:
                yield Run(process, said)
            finally:
                process.kill()
                process.wait()


class Run:
    """A `headwater run`."""

    def __init__(self, process: "subprocess.Popen[bytes]", said: Path) -> None:
        self.process = process
        self._said = said

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for what it does; it must not end before."""

        def holds_or_ended() -> bool:
            assert self.process.poll() is None, self.said()
            return holds()

        wait_until(holds_or_ended, self.said)

    def end(self) -> int:
        """Wait until it ends by itself."""
        return self.process.wait(_WITHIN_S)

    def stop(self) -> int:
        """Tell it to end."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()


def expected(keys: Sequence[int]) -> list[bytes]:
    """Return what a batch job would give: each key once."""
    return sorted(b"ORDER %d" % key for key in set(keys))
