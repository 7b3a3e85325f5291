"""The Spark driver that is going to be killed: a process of its own.

This file alone decides what the query is: text files, one a batch, into a topic. It prints a line
of JSON when Spark runs, and then one for each line that it reads: what became of the query.

    python -m tests.crash.sink.driver '{"folder": ..., "bootstrap": ..., "topic": ...}'
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.crash.broker.process import ROOT
from tests.crash.sink.failing import FORGETFUL, NAME, ORDERS, FailingDataSource
from tests.streams.needs import start_spark
from tests.streams.queries import maybe_error

_LOG4J = Path(__file__).parents[2] / "streams" / "log4j2.properties"
_WITHIN_S = 120


@dataclass(frozen=True)
class Job:
    """What the driver is told.

    Attributes:
        folder: Holds input, checkpoint and orders.
        bootstrap: The broker.
        topic: Where rows go.
        forgetful: Whether the sink remembers nothing.
        master: Where Spark runs: on this machine.
    """

    folder: str
    bootstrap: str
    topic: str
    forgetful: bool = False
    # A task may fail three times before its query does.
    master: str = "local[2,4]"


def command(job: Job) -> list[str]:
    """Return what starts such a process."""
    return [sys.executable, "-m", "tests.crash.sink.driver", json.dumps(asdict(job))]


def _session(job: Job) -> SparkSession:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    session = start_spark(
        {
            "spark.master": job.master,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            # Executors are there with a master of local-cluster only.
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "spark.local.dir": f"{job.folder}/spark",
            "spark.sql.warehouse.dir": f"{job.folder}/warehouse",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J}",
            "spark.ui.showConsoleProgress": "false",
        }
    )
    session.dataSource.register(FailingDataSource)
    return session


def _run(session: SparkSession, job: Job, tasks: int) -> str | None:
    """Run the query until there is no more input; return its error."""
    rows = session.readStream.option("maxFilesPerTrigger", 1).text(f"{job.folder}/input")
    query = (
        rows.repartition(tasks, F.rand())
        .writeStream.format(NAME)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("kafka.request.timeout.ms", "8000")
        .option("topic", job.topic)
        .option("stagingLocation", f"{job.folder}/staging")
        .option("checkpointLocation", f"{job.folder}/checkpoint")
        .option(ORDERS, f"{job.folder}/orders.json")
        .option(FORGETFUL, job.forgetful)
        .trigger(availableNow=True)
        .start()
    )
    return maybe_error(query, _WITHIN_S)


def main() -> None:
    """Do as told until there is nothing more to read."""
    job = Job(**json.loads(sys.argv[1]))
    session = _session(job)
    java = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    print(json.dumps({"driver": java}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"error": _run(session, job, json.loads(line)["tasks"])}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
