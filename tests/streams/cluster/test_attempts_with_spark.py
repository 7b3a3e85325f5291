"""Tasks of a cluster that run more than once: what they wrote is there once.

Local-cluster has two workers in the driver's JVM and an executor, a process of its own, for each.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.cluster import faults
from tests.streams.cluster.driver import Driver, running_driver
from tests.streams.cluster.topics import prepared, written
from tests.streams.needs import require_executors

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    require_executors()
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
