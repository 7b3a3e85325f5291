"""However records arrive, are cut into batches and batches are repeated: the batch answer.

Each case is drawn from its seed: in which order and in which partitions records arrive, in which
portions, how many a batch may hold, in how many tasks it is read, and what happens to the driver
before it has another portion to read: it dies before Spark has noted its last batch, or is stopped
at any moment. A job with state, which passes each record on once, runs through all of that from
topic to topic. What kafka-python then reads is compared with the answer that plain Python gives.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.streams.brokers import Broker
from tests.streams.sink.reading import committed

SEEDS = range(8)
WITHIN_S = 120
PARTITIONS = 3


class Case:
    """One job, its records, and what happens to it."""

    def __init__(self, seed: int, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker = spark, broker
        self.dice = random.Random(seed)
        self.checkpoint = folder / "checkpoint"
        self.from_topic = broker.topic("any-split-in", partitions=PARTITIONS)
        self.to_topic = broker.topic("any-split-out", partitions=PARTITIONS)
        self.limit = self.dice.randint(12, 40)
        self.records = [
            (self.dice.choice([b"a", b"b", b"c", b"d"]), b"%d" % self.dice.randrange(8))
            for _ in range(48)
        ]
        cut = self.dice.randrange(1, len(self.records))
        self.portions = [self.records[:cut], self.records[cut:]]

    def send(self, portion: int) -> None:
        """Write a portion, each record to some partition."""
        records = self.portions[portion]
        where = [self.dice.randrange(PARTITIONS) for _ in records]
        for number in range(PARTITIONS):
            chosen = [each for each, at in zip(records, where, strict=True) if at == number]
            self.broker.send(self.from_topic, chosen, partition=number)

    def start(self) -> StreamingQuery:
        """Start on what the last run has left, to the end of what is there."""
        source = (
            self.spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("subscribe", self.from_topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(self.limit))
            .option("minPartitions", str(self.dice.randint(1, 2 * PARTITIONS)))
        )
        return (
            source.load()
            .select("key", "value")
            .dropDuplicates()
            .writeStream.format("headwater")
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("topic", self.to_topic)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def forget_last_commit(self) -> None:
        """Leave the checkpoint as a driver does that dies before it notes its last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def check(self) -> None:
        """Compare what is in the topic with the batch answer."""
        written = [
            (each.key, each.value) for each in committed(self.broker.bootstrap, self.to_topic)
        ]
        assert sorted(written) == sorted(set(self.records))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_any_split_any_crash_gives_the_batch_answer(
    seed: int, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    case = Case(seed, spark, broker, tmp_path)
    case.send(0)
    query = case.start()
    if case.dice.random() < 1 / 3:
        # Its hints say whole seconds; a part of one will do.
        query.awaitTermination(case.dice.uniform(0.5, 4.0))  # type: ignore[arg-type]
        # Whatever it says of having been interrupted: what counts is what the next run finds.
        query.stop()
    else:
        assert query.awaitTermination(WITHIN_S)
        case.forget_last_commit()
    case.send(1)
    assert case.start().awaitTermination(WITHIN_S)
    case.check()
