"""A Spark driver on a cluster: a process of its own, because a process has one session.

This file alone decides what its query is: a topic into another, each partition into the one of its
number. It reads a job from each line of its input and prints what became of it.

    python -m tests.streams.cluster.driver MASTER ['{"spark.setting": ...}']
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headwater as hw
from tests.peers import QUICK_JAVA, ROOT
from tests.streams.cluster.faults import FAULT, FOLDER, NAME, FaultyDataSource
from tests.streams.queries import maybe_error

_WITHIN_S = 300
# Beside the query, the first answer takes the start of Spark.
_ANSWER_WITHIN_S = 2 * _WITHIN_S


@dataclass(frozen=True)
class Job:
    """What is to be done.

    Attributes:
        bootstrap: The broker.
        source: Where rows come from.
        sink: Where rows go.
        fault: What happens to the task of the first partition.
        folder: Holds the checkpoint and what tasks leave.
    """

    bootstrap: str
    source: str
    sink: str
    fault: str
    folder: str


class Driver:
    """Such a process, from outside."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self._process = process
        self._errors = errors

    def run(self, job: Job) -> None:
        """Have a job done; raise what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], _ANSWER_WITHIN_S)
        line = self._process.stdout.readline() if readable else ""
        assert line, f"the driver does not answer\n{self._errors.read_text()}"
        error = json.loads(line)["error"]
        assert error is None, error


@contextmanager
def running_driver(master: str, folder: Path, **config: str) -> Iterator[Driver]:
    """Start one; it ends with its input, and its JVM with it."""
    errors = folder / "driver.txt"
    with errors.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.streams.cluster.driver", master, json.dumps(config)],
            cwd=ROOT,
            # Else workers of local-cluster keep what executors say where PySpark is installed.
            env={**os.environ, "SPARK_WORKER_DIR": str(folder / "work")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        try:
            yield Driver(process, errors)
        finally:
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _session(master: str, config: dict[str, Any]) -> SparkSession:
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    session = hw.session(
        master=master,
        config={
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA),
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            **config,
        },
    )
    session.dataSource.register(FaultyDataSource)
    return session


def _run(session: SparkSession, job: Job) -> str | None:
    """Run the query until there is no more input; return its error."""
    rows = (
        session.readStream.format("headwater")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        rows.select("key", "value", "partition")
        .writeStream.format(NAME)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.sink)
        .option("checkpointLocation", f"{job.folder}/checkpoint")
        .option(FAULT, job.fault)
        .option(FOLDER, job.folder)
        .trigger(availableNow=True)
        .start()
    )
    return maybe_error(query, _WITHIN_S)


def main() -> None:
    """Do as told until there is nothing more to read."""
    master, config = sys.argv[1:]
    session = _session(master, json.loads(config))
    for line in sys.stdin:
        print(json.dumps({"error": _run(session, Job(**json.loads(line)))}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
