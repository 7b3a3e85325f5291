"""Spark's standalone master with two workers, started for the tests.

This file alone decides how they are started and when they count as ready. They run what PySpark
brings, by its own `spark-class`. Each worker has a host of its own, both on this machine: Spark
starts a speculative attempt on another host only.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyspark

HOSTS = ("127.0.0.1", "127.0.0.2")
_HOME = Path(pyspark.__file__).parent
_READY_WITHIN_S = 180.0


class ClusterDidNotStartError(RuntimeError):
    """The master or a worker ended, or stayed silent, before it was ready."""


class SparkCluster:
    """A master and two workers of one core; each is ended by the id of its own process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._processes: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def start(self) -> None:
        """Start the master, then its workers; wait until they know each other."""
        master = self._launch("Master", HOSTS[0])
        (self.url,) = self._said(r"Starting Spark master at (spark://\S+)", master)
        workers = [
            self._launch(
                "Worker",
                host,
                *("--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self.folder / f"work-{host}"), self.url),
            )
            for host in HOSTS
        ]
        for worker in workers:
            self._said(r"(Successfully registered with master)", worker)

    def kill_executor(self) -> None:
        """Kill an executor; its worker starts another one."""
        for worker, _ in self._processes[1:]:
            tasks = Path(f"/proc/{worker.pid}/task").glob("*/children")
            for child in " ".join(each.read_text() for each in tasks).split():
                os.kill(int(child), signal.SIGKILL)
                return
        raise AssertionError("no worker has an executor")

    def stop(self) -> None:
        """End them all; a worker ends the executors that it has."""
        for process, output in reversed(self._processes):
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            output.close()

    def _launch(self, what: str, host: str, *arguments: str) -> Path:
        path = self.folder / f"{what}-{host}.txt"
        output = path.open("wb")
        process = subprocess.Popen(
            [
                str(_HOME / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{what.lower()}.{what}",
                *("--host", host, "--port", "0", "--webui-port", "0", *arguments),
            ],
            cwd=self.folder,
            env={
                **os.environ,
                "SPARK_HOME": str(_HOME),
                "SPARK_LOCAL_IP": host,
                "SPARK_DAEMON_MEMORY": "256m",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        self._processes.append((process, output))
        return path

    def _said(self, pattern: str, path: Path) -> list[str]:
        """Wait for words in the output of one that was just started."""
        end_s = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < end_s:
            text = path.read_text(errors="replace")
            found = re.search(pattern, text)
            if found:
                return list(found.groups())
            if any(process.poll() is not None for process, _ in self._processes):
                break
            time.sleep(0.05)
        raise ClusterDidNotStartError(f"{path.stem} is not ready\n{path.read_text()}")


@contextmanager
def running_spark_cluster() -> Iterator[SparkCluster]:
    """Start a master and two workers in a folder of their own; all are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
    cluster = SparkCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
