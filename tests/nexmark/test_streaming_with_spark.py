"""The queries as streams: what they emit comes to the answer that DuckDB gives of the same events.

One topic has all events, and at last one of each kind in every partition, a day later: they are
behind the end of all windows and let these close. Answers of windows are without them.
"""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import headwater as hw
from examples.nexmark.generator import generate
from examples.nexmark.model import ROUND, Events, Settings
from examples.nexmark.queries import QUERIES, Emits
from examples.nexmark.streaming import STREAMING, Topic
from examples.nexmark.topics import behind, place, records, together
from headwater import functions as hf
from headwater.testing.broker import EmbeddedBroker
from tests.nexmark.oracle import Row, ask, bag
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.queries import maybe_error

WITHIN_S: Final = 240
PARTITIONS: Final = 2
EVENTS: Final = 2000
# Ten events a second: windows of 10 s hold a hundred, and the stream has twenty of them.
SETTINGS: Final = Settings(seed=7, delay_us=100_000, run=10, in_flight_auctions=5, active_people=3)
NO_END: Final = {"retention.ms": "-1"}
"""The events are of 2015."""


@pytest.fixture(scope="module")
def events() -> Events:
    return place(generate(SETTINGS, 0, EVENTS), PARTITIONS)


@pytest.fixture(scope="module")
def closing(events: Events) -> Events:
    """One event of each kind for each partition, with ids that nothing else has."""
    later = replace(SETTINGS, first_time=SETTINGS.first_time + timedelta(days=1), run=1)
    parts = []
    for partition in range(PARTITIONS):
        made = generate(later, (1000 + partition) * 10 * ROUND, 5)
        parts.append(behind(events, partition, made))
    return together(*parts)


@pytest.fixture(scope="module")
def options(embedded_broker: EmbeddedBroker, events: Events, closing: Events) -> dict[str, str]:
    """Give the options by which a topic with all events is read."""
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    name = broker.topic("nexmark", partitions=PARTITIONS, config=NO_END)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for row in records(together(events, closing)).to_pylist():
        stamp_ms = int(row["timestamp"].timestamp() * 1000)
        producer.produce(name, row["value"], row["key"], row["partition"], timestamp=stamp_ms)
    assert producer.flush(WITHIN_S) == 0
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": name,
        "startingOffsets": "earliest",
    }


@pytest.fixture(scope="module")
def at_once(spark: SparkSession, options: dict[str, str]) -> Topic:
    return Topic(spark.readStream.format("headwater").options(**options).load())


@pytest.fixture(scope="module")
def in_batches(spark: SparkSession, options: dict[str, str]) -> Topic:
    """Give the same in three batches, for queries that keep something from one to the next."""
    reader = spark.readStream.format("headwater").options(**options)
    return Topic(reader.option("maxOffsetsPerTrigger", EVENTS // 2).load(), buckets=2)


@pytest.mark.parametrize("name", STREAMING)
def test_a_stream_comes_to_the_answer(
    name: str, at_once: Topic, in_batches: Topic, events: Events, closing: Events, tmp_path: Path
) -> None:
    query = QUERIES[name]
    emitted = STREAMING[name](at_once if query.emits is Emits.ROWS else in_batches)
    changes = ["op"] if query.emits is Emits.CHANGES else []
    assert [each for each in emitted.columns if each not in {"version", "__hw"}] == [
        *query.answer.names,
        *changes,
    ]
    batches = run(emitted.select(*query.answer.names, *changes), tmp_path)
    asked = events if query.emits is Emits.WINDOWS else together(events, closing)
    answer = bag(ask(query, asked))
    assert answer, "a query with nothing to say tests nothing"
    assert standing(batches, query.answer) == answer


def test_the_archive_of_bids_is_a_topic(
    spark: SparkSession,
    at_once: Topic,
    options: dict[str, str],
    events: Events,
    closing: Events,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    query = QUERIES["q10"]
    broker = Broker(HEADWATER, options["kafka.bootstrap.servers"])
    archive = broker.topic("archive", partitions=3)
    target = hw.topic(archive, key="auction", options={"kafka.bootstrap.servers": broker.bootstrap})

    hw.pipeline("archive", STREAMING["q10"](at_once)).to(target).run(once=True)

    written = spark.read.format("headwater").options(**options | {"subscribe": archive}).load()
    schema = from_arrow_schema(query.answer)
    found = written.transform(hf.json(schema)).select(*query.answer.names).toArrow()
    asked = together(events, closing)
    assert standing([found], query.answer) == bag(ask(query, asked))


def run(rows: DataFrame, folder: Path) -> list[pa.Table]:
    """Run to the end of what is there; return what each batch has emitted."""
    batches: dict[int, pa.Table] = {}

    def take(batch: DataFrame, number: int) -> None:
        batches[number] = batch.toArrow()

    query = (
        rows.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    assert maybe_error(query, WITHIN_S) is None
    return [batches[number] for number in sorted(batches)]


def standing(batches: list[pa.Table], answer: pa.Schema) -> Counter[Row]:
    """Apply the changes of each batch, see that they could be, and return what stands then."""
    found: Counter[Row] = Counter()
    for batch in batches:
        weights: Any = [1] * len(batch)
        if "op" in batch.column_names:
            weights = [{"insert": 1, "retract": -1}[op.as_py()] for op in batch["op"]]
        rows = batch.select(answer.names).cast(answer)
        for row, weight in zip(rows.to_pylist(), weights, strict=True):
            found[tuple(row.values())] += weight
        assert all(count >= 0 for count in found.values())
        found = +found
    return found
