"""The Spark driver that is going to be killed: a process of its own.

This file alone decides which queries there are: text files, one a batch, as they are, or how often
they have each word so far, or windows of events with late ones among them. All write to a topic. It
prints a line of JSON when Spark runs, and then one for each line that it reads: what became of the
query.

    python -m tests.crash.sink.driver '{"folder": ..., "bootstrap": ..., "topic": ...}'
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.streams.sink.foreach_batch import each_batch
from headwater.streams.sink.options import sink_options
from tests.crash.broker.process import ROOT
from tests.crash.sink.failing import FORGETFUL, NAME, ORDERS, FailingDataSource, FailingWriter
from tests.crash.sink.work import UPDATES
from tests.peers import QUICK_JAVA
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
        work: What the query does.
    """

    folder: str
    bootstrap: str
    topic: str
    forgetful: bool = False
    # A task may fail three times before its query does.
    master: str = "local[2,4]"
    work: str = "copy"


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
            "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA),
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "spark.local.dir": f"{job.folder}/spark",
            "spark.sql.warehouse.dir": f"{job.folder}/warehouse",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J}",
            "spark.ui.showConsoleProgress": "false",
            # As in a session of ours; half of what a new driver costs are imports of its workers.
            "spark.python.daemon.module": "headwater.streams.worker_daemon",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
        }
    )
    session.dataSource.register(FailingDataSource)
    return session


def _copied(session: SparkSession, job: Job, tasks: int) -> DataFrame:
    rows = session.readStream.option("maxFilesPerTrigger", 1).text(f"{job.folder}/input")
    return rows.repartition(tasks, F.rand())


def _windows(session: SparkSession, job: Job, tasks: int) -> DataFrame:
    from tests.crash.kernel.query import windows  # noqa: PLC0415 - it needs what this file has

    orders = Path(job.folder) / "orders.json"
    return windows(session, job.bootstrap, orders, tasks)


def _counted(session: SparkSession, job: Job, tasks: int) -> DataFrame:
    words = _copied(session, job, tasks).groupBy("value").agg(F.count("*").alias("n"))
    return words.select(
        F.col("value").alias("key"), F.to_json(F.struct("value", "n")).alias("value")
    )


QUERIES: Final = {"copy": _copied, "windows": _windows, UPDATES: _counted}


def _run(session: SparkSession, job: Job, tasks: int) -> str | None:
    """Run the query until there is no more input; return its error."""
    options = {
        "kafka.bootstrap.servers": job.bootstrap,
        "kafka.request.timeout.ms": "8000",
        "topic": job.topic,
        "stagingLocation": f"{job.folder}/staging",
    }
    orders, checkpoint = f"{job.folder}/orders.json", f"{job.folder}/checkpoint"
    writing = QUERIES[job.work](session, job, tasks).writeStream
    if job.work == UPDATES:
        understood = sink_options({**options, "checkpointLocation": checkpoint})
        writer = FailingWriter(understood, orders, is_forgetful=job.forgetful)
        writing = writing.outputMode("update").foreachBatch(each_batch(lambda _: writer))
    else:
        writing = writing.format(NAME).options(**options)
        writing = writing.option(ORDERS, orders).option(FORGETFUL, job.forgetful)
    writing = writing.option("checkpointLocation", checkpoint)
    return maybe_error(writing.trigger(availableNow=True).start(), _WITHIN_S)


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
