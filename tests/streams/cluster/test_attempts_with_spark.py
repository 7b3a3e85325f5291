"""Tasks of a cluster that run more than once: what they wrote is there once.

Local-cluster has two workers in the driver's JVM and an executor, a process of its own, for each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.cluster import faults
from tests.streams.cluster.driver import Driver, Job, running_driver
from tests.streams.needs import require_spark
from tests.streams.sink.reading import committed

PARTITIONS = 3
ROWS = 300
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    require_spark()
    with running_driver("local-cluster[2,1,1024]", tmp_path_factory.mktemp("driver")) as running:
        yield running


@pytest.mark.parametrize(
    "fault, attempts_whole",
    [
        pytest.param(faults.FAILS, 2, id="an attempt fails behind its work"),
        pytest.param(faults.EXECUTOR_DIES, 1, id="an executor is killed under way"),
        pytest.param(faults.RESULT_LOST, 2, id="an executor dies with the result"),
    ],
)
def test_what_is_tried_again_is_written_once(
    driver: Driver, embedded_broker: EmbeddedBroker, tmp_path: Path, fault: str, attempts_whole: int
) -> None:
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    job, expected = prepared(broker, fault, tmp_path)
    driver.run(job)
    assert (tmp_path / "first").exists()
    assert len(list(tmp_path.glob("written-*"))) == attempts_whole
    assert written(job) == expected


def prepared(broker: Broker, fault: str, folder: Path) -> tuple[Job, dict[int, list[bytes]]]:
    """Fill a topic; gives the job, and what the partitions of its sink have to hold, in order."""
    job = Job(
        broker.bootstrap,
        broker.topic("cluster-in", partitions=PARTITIONS),
        broker.topic("cluster-out", partitions=PARTITIONS),
        fault,
        str(folder),
    )
    expected = {
        partition: [b"%d/%d" % (partition, number) for number in range(ROWS)]
        for partition in range(PARTITIONS)
    }
    for partition, rows in expected.items():
        broker.send(job.source, [(b"k", row) for row in rows], partition=partition)
    return job, expected


def written(job: Job) -> dict[int, list[bytes]]:
    """Return what is committed in each partition of the sink, in order."""
    found: dict[int, list[bytes]] = {}
    for record in committed(job.bootstrap, job.sink):
        found.setdefault(record.partition, []).append(record.value)
    return found
