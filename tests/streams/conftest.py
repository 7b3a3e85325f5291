"""The Spark session of this process, and the two brokers one after the other."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.streams.brokers import APACHE_KAFKA, HEADWATER, Broker
from tests.streams.needs import require_spark

LOG4J = Path(__file__).resolve().parent / "log4j2.properties"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Give the one Spark session of this process, with Spark's own Kafka connector if it is there.

    A JVM can take jars only when it starts; those who need none do not notice them.
    """
    require_spark()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="headwater-spark-") as folder:
        builder = (
            SparkSession.builder.master("local[2]")
            .appName("headwater-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.jars", ",".join(map(str, peers.spark_connector())))
            .config("spark.local.dir", folder)
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG4J}")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config(
                "spark.sql.streaming.stateStore.providerClass",
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
            )
        )
        session = builder.getOrCreate()
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
