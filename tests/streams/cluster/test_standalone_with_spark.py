"""Spark's standalone cluster: a master, two workers, and the brokers of Apache Kafka."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from json import loads
from pathlib import Path

import pytest

from headwater.cli.errors import Exit
from headwater.delivery.client.cluster import TRANSACTION, Cluster
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.peers.kafka_cluster import NODES, KafkaCluster, running_kafka_cluster
from tests.peers.spark_cluster import SparkCluster, running_spark_cluster
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.cluster import faults
from tests.streams.cluster.driver import running_driver
from tests.streams.cluster.pipeline_file import NAME, Home, expected
from tests.streams.cluster.topics import prepared, written
from tests.streams.needs import require_sparks_own_start

pytestmark = [pytest.mark.timeout(900), pytest.mark.peer]
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "50ms",
}


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[SparkCluster, KafkaCluster]]:
    """Start both at once: neither needs the other."""
    require_sparks_own_start()
    peers.require("kafka")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        kafka = pool.submit(stack.enter_context, running_kafka_cluster())
        spark = pool.submit(stack.enter_context, running_spark_cluster())
        yield spark.result(), kafka.result()


def test_of_two_attempts_that_both_end_one_counts(
    clusters: tuple[SparkCluster, KafkaCluster], embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    job, rows = prepared(broker, faults.SLOW, tmp_path)
    with running_driver(clusters[0].url, tmp_path, **SPECULATION) as driver:
        driver.run(job)
    assert len(list(tmp_path.glob("written-*"))) == 2
    assert written(job) == rows


def test_a_broker_and_an_executor_die_under_a_pipeline_that_goes_on(
    clusters: tuple[SparkCluster, KafkaCluster], tmp_path: Path
) -> None:
    spark, kafka = clusters
    home = Home(tmp_path, kafka.bootstrap)
    home.create_topics()
    first, second = range(800), range(500, 1000)
    home.send(first[:400])
    with home.running("--master", spark.url) as run:
        run.wait_until(lambda: home.batch() >= 1)
        kafka.kill(the_busiest(kafka, home))
        home.send(first[400:])
        run.wait_until(lambda: home.has_written(first))
        # What it knows of the keys so far is in the state of the executors.
        spark.kill_executor()
        home.send(second)
        run.wait_until(lambda: home.has_written([*first, *second]))
        assert run.stop() == Exit.DONE
    # One run from the beginning to the end: nobody had to start it again.
    assert home.log().count("started: query") == 1
    assert home.written(kafka.bootstrap) == expected([*first, *second])


def the_busiest(kafka: KafkaCluster, home: Home) -> int:
    """Find the node that coordinates the sink's transactions; it leads partitions, too."""
    query_id = loads(Path(home.checkpoint.location, "metadata").read_text())["id"]
    with Cluster(kafka.bootstrap) as cluster:
        coordinator = cluster.coordinator(f"hw.{query_id}.sink", key_type=TRANSACTION)
        node = kafka.node_at(coordinator.address)
        for topic in ("orders", NAME):
            places = cluster.topic(topic).partitions
            assert {each.leader for each in places} == set(NODES)
            assert all(len(each.replicas) == len(NODES) for each in places)
    return node
