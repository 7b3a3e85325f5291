"""`format("headwater")` as a source in a real Spark, against both brokers."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from headwater.streams.source.decode import Decoder
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import Broker
from tests.streams.needs import require_sparks_own_start
from tests.streams.source.driving import (
    EARLIEST,
    GO_ON,
    WITHIN_S,
    add_partitions,
    batch_read,
    pairs,
    recreate,
    remove_before,
    texts,
)

SOURCE = "headwater"


class Pipeline:
    """A query from a topic into files, with a checkpoint that it can be started on again."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker, self.folder = spark, broker, folder
        self.checkpoint = folder / "checkpoint"

    def start(self, options: dict[str, str], **trigger: Any) -> StreamingQuery:  # noqa: ANN401
        rows = (
            self.spark.readStream.format(SOURCE)
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .options(**options)
            .load()
        )
        writer = rows.writeStream.format("parquet").option("path", str(self.folder / "out"))
        return (
            writer.option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def run(self, options: dict[str, str]) -> StreamingQuery:
        """Run to the end of what is there."""
        query = self.start(options)
        query.awaitTermination()
        return query

    def values(self) -> list[str]:
        """Return the values that have been written, sorted."""
        found = self.spark.read.parquet(str(self.folder / "out")).select("value").collect()
        return sorted(bytes(row.value).decode() for row in found)

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver that was killed before its last batch ended."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def pipeline(spark: SparkSession, broker: Broker, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, broker, tmp_path)


def test_a_batch_read_has_the_columns_and_the_rows(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value in pairs(0, 300):
        producer.produce(topic, value, key, headers=[("n", value), ("none", None)])
    assert producer.flush(WITHIN_S) == 0
    options = {"subscribe": topic, "includeHeaders": "true", "minPartitions": "5"}
    frame = (
        spark.read.format(SOURCE)
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .options(**options)
        .load()
    )
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert frame.rdd.getNumPartitions() >= 5
    rows = frame.orderBy("partition", "offset").collect()
    found = [
        (row.partition, row.offset, row.key, row.value, [tuple(each) for each in row.headers])
        for row in rows
    ]
    assert found == [
        (each.partition(), each.offset(), each.key(), each.value(), each.headers())
        for each in broker.read(topic)
    ]


def test_rows_have_exactly_the_types_that_spark_expects(spark: SparkSession) -> None:
    """Spark compares the first batch of a task; a bare stream of none would not be noticed."""
    broker_less = spark.read.format(SOURCE).option("subscribe", "x")
    for headers in (False, True):
        schema = broker_less.option("includeHeaders", str(headers).lower()).load().schema
        decoder = Decoder("x", 0, headers=headers)
        batch = golden_batch()
        (rows,) = decoder.decode(batch, from_offset=0, upto_offset=1, aborted=[])
        assert rows.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def golden_batch() -> memoryview:
    """Return a record batch of one record, made by kafka-python."""
    from kafka.record.default_records import DefaultRecordBatchBuilder  # noqa: PLC0415

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 16,
    )
    assert builder.append(0, 1_700_000_000_000, b"k", b"v", [("h", b"1")]) is not None
    return memoryview(bytes(builder.build()))


def test_a_stream_goes_on_where_it_stopped(pipeline: Pipeline, broker: Broker, topic: str) -> None:
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "40", **EARLIEST}
    broker.send(topic, pairs(0, 100))
    query = pipeline.run(options)
    assert [each.numInputRows for each in query.recentProgress] == [40, 40, 20]
    last = query.recentProgress[-1].sources[0]
    latest = json.loads(last.latestOffset)["topics"][topic]["partitions"]
    assert json.loads(last.endOffset)["topics"][topic]["partitions"] == latest
    assert sum(latest.values()) == 100
    broker.send(topic, pairs(100, 130))
    pipeline.run(options)
    assert pipeline.values() == texts(0, 130)


def test_a_first_batch_of_latest_is_repeated_after_a_crash(
    pipeline: Pipeline, broker: Broker, topic: str
) -> None:
    """What `latest` meant when the query first started holds, whatever has come since."""
    query = pipeline.start({"subscribe": topic}, processingTime="0 seconds")
    query.processAllAvailable()
    broker.send(topic, pairs(0, 10))
    query.processAllAvailable()
    query.stop()
    written = pipeline.values()
    assert written == texts(0, 10)
    ends = sorted(
        int(each.name)
        for each in (pipeline.checkpoint / "offsets").iterdir()
        if each.name.isdigit()
    )
    for _ in ends:
        pipeline.forget_last_commit()
    # The file sink skips batches that it has; other sinks get the same rows again.
    for path in (pipeline.folder / "out" / "_spark_metadata").iterdir():
        path.unlink()
    for path in (pipeline.folder / "out").glob("*.parquet"):
        path.unlink()
    # Of several unfinished batches Spark repeats the last alone, so only one may be left.
    for number in ends[1:]:
        (pipeline.checkpoint / "offsets" / str(number)).unlink()
        (pipeline.checkpoint / "offsets" / f".{number}.crc").unlink(missing_ok=True)
    broker.send(topic, pairs(10, 20))
    pipeline.run({"subscribe": topic})
    assert pipeline.values() == texts(0, 20)


def test_a_running_query_takes_in_partitions_and_its_lag_reaches_zero(
    pipeline: Pipeline, broker: Broker, topic: str
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    options = {"subscribe": topic, "kafka.group.id": group, "minOffsetsPerTrigger": "2", **EARLIEST}
    query = pipeline.start(options, processingTime="0 seconds")
    try:
        broker.send(topic, pairs(0, 20))
        query.processAllAvailable()
        add_partitions(broker, topic, 3)
        broker.send(topic, pairs(20, 30), partition=2)
        query.processAllAvailable()
        assert pipeline.values() == texts(0, 30)
        places = [KafkaPartition(topic, number) for number in range(3)]
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
        ends = consumer.end_offsets(places)
        # The end of the last batch is told when Spark looks for the next.
        while any(consumer.committed(place) != ends[place] for place in places):
            assert query.isActive
        consumer.close()
    finally:
        query.stop()


def test_transactions_and_codecs_are_read(pipeline: Pipeline, broker: Broker, topic: str) -> None:
    broker.send_aborted(topic, pairs(500, 520))
    for index, codec in enumerate(["gzip", "snappy", "lz4", "zstd"]):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})
        for key, value in pairs(index * 10, index * 10 + 10):
            producer.produce(topic, value, key)
        assert producer.flush(WITHIN_S) == 0
    pipeline.run({"subscribe": topic, **EARLIEST})
    assert pipeline.values() == texts(0, 40)


def test_lost_records_and_recreated_topics_are_named_by_the_query(
    pipeline: Pipeline, broker: Broker, single: str
) -> None:
    options = {"subscribe": single, **EARLIEST}
    broker.send(single, pairs(0, 5))
    pipeline.run(options)
    broker.send(single, pairs(5, 20))
    remove_before(broker, single, 10)
    with pytest.raises(PySparkException, match=r"DataLossError: .*records 5 to 9(.|\n)*hint: "):
        pipeline.run(options)
    pipeline.run({**options, **GO_ON})
    assert pipeline.values() == texts(0, 5) + texts(10, 20)
    recreate(broker, single)
    broker.send(single, pairs(20, 22))
    with pytest.raises(PySparkException, match=r"TopicRecreatedError: topic .* is not the one"):
        pipeline.run(options)
    pipeline.run({**options, **GO_ON})
    assert pipeline.values() == texts(0, 5) + texts(10, 22)


def test_sides_of_a_union_that_were_swapped_are_refused_and_put_back(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    topics = [near.topic("one"), near.topic("other")]

    def run(first: str, second: str) -> None:
        one, other = (
            spark.readStream.format(SOURCE)
            .option("kafka.bootstrap.servers", near.bootstrap)
            .options(subscribe=each, **EARLIEST)
            .load()
            for each in (first, second)
        )
        writer = one.union(other).writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).start()
        assert query.awaitTermination(int(WITHIN_S))

    for number, topic in enumerate(topics):
        near.send(topic, pairs(number * 5, number * 5 + 5))
    run(*topics)

    with pytest.raises(PySparkException, match="SourcesChangedError: this source reads"):
        run(*reversed(topics))
    near.send(topics[0], pairs(10, 12))
    run(*topics)

    rows = spark.read.parquet(str(tmp_path / "out")).select("value").collect()
    assert sorted(bytes(row.value).decode() for row in rows) == texts(0, 12)


@pytest.mark.parametrize(
    "options,words",
    [
        ({"subscribe": "a", "startingOfsets": "x"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "assign": "{}"}, "both subscribe and assign"),
        ({"subscribe": "a", "kafka.group.ids": "b"}, "did you mean kafka.group.id"),
        ({"subscribe": "a", "kafka.value.deserializer": "b"}, "cannot be set"),
    ],
)
def test_a_wrong_option_fails_the_load(
    spark: SparkSession, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=rf"OptionError: .*{words}(.|\n)*hint: "):
        spark.readStream.format(SOURCE).options(**options).load()
    with pytest.raises(PySparkException, match=rf"OptionError: .*{words}"):
        spark.read.format(SOURCE).options(**options).load()


def test_no_topic_and_columns_of_ones_own_are_named(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="OptionError: no topic is named"):
        spark.read.format(SOURCE).load().count()
    with pytest.raises(PySparkException, match="OptionError: a topic has its own columns"):
        spark.read.format(SOURCE).option("subscribe", "a").schema("a int").load().count()


def test_an_unknown_topic_and_an_absent_broker_are_named(
    pipeline: Pipeline, spark: SparkSession, broker: Broker
) -> None:
    with pytest.raises(PySparkException, match="UnknownTopicError: topic 'no-such' does not exist"):
        pipeline.run({"subscribe": "no-such"})
    nobody = (
        spark.read.format(SOURCE)
        .option("bootstrap", "127.0.0.1:1")
        .option("kafka.request.timeout.ms", "300")
    )
    with pytest.raises(PySparkException, match="BrokerUnreachableError: no broker answers"):
        nobody.option("subscribe", "x").load().count()


_FRESH = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
found = spark.read.format("headwater").option("subscribe", sys.argv[1]).load()
print("rows:", found.count())
spark.stop()
"""


def test_spark_finds_the_source_by_itself(
    spark: SparkSession, embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Nothing is registered, nothing of ours is imported; the address is in the environment."""
    require_sparks_own_start()
    broker = Broker("headwater", embedded_broker.bootstrap_servers)
    topic = broker.topic()
    broker.send(topic, pairs(0, 7))
    assert len(batch_read(broker, {"subscribe": topic})) == 7
    program = tmp_path / "fresh.py"
    program.write_text(_FRESH)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(program), topic],
        env={
            **environment,
            "HEADWATER_BOOTSTRAP": broker.bootstrap,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "rows: 7" in done.stdout, done.stderr[-3000:]
