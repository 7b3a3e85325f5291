"""Declarative pipelines, `spark-pipelines run`: topics as their sources and their sinks."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from headwater.streams.java import use_java
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.needs import require_spark

SPEC = """
name: shop
storage: {folder}/storage
libraries:
  - glob:
      include: transformations/**
"""
TRANSFORMATIONS = """
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from headwater import functions as hf

spark = SparkSession.active()
options = {"kafka.bootstrap.servers": os.environ["BROKER"]}
source = (
    spark.readStream.format("headwater")
    .options(**options, subscribe="orders", startingOffsets="earliest", includeHeaders="true")
    .load()
)
decoded = source.transform(hf.json("id int", dead_letters="letters")).transform(hf.to_json("id"))
decoded = hf.with_dead_letters(decoded, topic="decoded", pipeline="shop")


@dp.temporary_view
def orders():
    return source


@dp.table
def texts():
    return spark.readStream.table("orders").selectExpr("cast(value as string) AS text")


dp.create_sink("decoded", "headwater", options)


@dp.append_flow(target="decoded")
def decode():
    return decoded
"""
LOG4J = Path(__file__).resolve().parent.parent / "log4j2.properties"
WITHIN_S = 140

Run = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, embedded_broker: EmbeddedBroker) -> Run:
    """Give what writes a project and runs it, as a person does."""
    require_spark()
    use_java()
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("spark-pipelines is a script of bash, which is not on the PATH")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path.as_uri()))
    # A catalog in memory forgets the tables whose files stay; Hive's remembers them.
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
        # Spark gives each new process of Python ten seconds to answer: not all at once.
        "spark.sql.pipelines.execution.maxConcurrentFlows": "1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
    }
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "BROKER": embedded_broker.bootstrap_servers,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Where it is set, Spark's server takes any free port.
        "SPARK_TESTING": "yes",
    }

    def run_once(source: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "transformations" / "shop.py").write_text(source)
        return subprocess.run(
            [bash, str(home / "bin" / "spark-pipelines"), "run", *given],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    return run_once


def committed(broker: Broker, topic: str) -> list[bytes]:
    """Read a topic by a client that knows nothing of us."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=None,
    )
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        values: list[bytes] = []
        while consumer.position(place) < end:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value for record in records]
        return sorted(values)
    finally:
        consumer.close()


def test_source_and_sink_of_a_declarative_pipeline(
    run: Run, embedded_broker: EmbeddedBroker
) -> None:
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    for topic in ("orders", "decoded", "letters"):
        broker.create(topic)
    broker.send("orders", [(None, b'{"id": 1}'), (None, b"junk")])
    done = run(TRANSFORMATIONS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert committed(broker, "decoded") == [b'{"id":1}']
    assert committed(broker, "letters") == [b"junk"]

    broker.send("orders", [(None, b'{"id": 2}')])
    done = run(TRANSFORMATIONS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert committed(broker, "decoded") == [b'{"id":1}', b'{"id":2}']
    assert committed(broker, "letters") == [b"junk"], "what was read is not read again"
