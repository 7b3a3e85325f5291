"""The Spark session of this process, and the two brokers one after the other."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.streams.brokers import APACHE_KAFKA, HEADWATER, Broker
from tests.streams.needs import require_spark, start_spark

LOG4J = Path(__file__).resolve().parent / "log4j2.properties"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give the one Spark session of this process, with Spark's own Kafka connector if it is there.

    A JVM can take jars only when it starts; those who need none do not notice them.
    """
    require_spark()
    with tempfile.TemporaryDirectory(prefix="headwater-spark-") as folder:
        session = start_spark(
            {
                "spark.master": "local[2]",
                "spark.app.name": "headwater-tests",
                "spark.ui.enabled": "false",
                "spark.jars": ",".join(map(str, peers.spark_connector())),
                "spark.local.dir": folder,
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J}",
                "spark.driver.memory": "1g",
                "spark.python.daemon.module": "headwater.streams.worker_daemon",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.streaming.stateStore.providerClass": (
                    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
                ),
            }
        )
        yield session
        session.stop()


@pytest.fixture(scope="session")
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """Give a broker of ours."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("embedded_broker", id=HEADWATER),
        pytest.param("apache_kafka", id=APACHE_KAFKA, marks=pytest.mark.peer),
    ],
)
def broker(request: pytest.FixtureRequest) -> Broker:
    """Give one broker after the other."""
    running = request.getfixturevalue(request.param)
    if isinstance(running, EmbeddedBroker):
        return Broker(HEADWATER, running.bootstrap_servers)
    return Broker(APACHE_KAFKA, running)


@pytest.fixture(scope="session")
def near(embedded_broker: EmbeddedBroker) -> Broker:
    """Give a broker of ours, to tests for which it makes no difference whose it is."""
    return Broker(HEADWATER, embedded_broker.bootstrap_servers)
