"""A checkpoint that was copied or restored knows what it has read, and no more."""

import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.streams.time.watermark import watermark
from tests.streams.brokers import Broker
from tests.streams.time.clocked import Clocked, events, send, told

NOW = float(int(time.time()))


@pytest.fixture
def topic(near: Broker) -> str:
    return near.topic("copied", partitions=2)


def send_both(broker: Broker, topic: str, seconds: list[float]) -> None:
    for number in range(2):
        send(broker, topic, seconds, partition=number)


def clocked(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    """Read four records of each partition in a batch, so that a batch never reads all."""
    rows = events(spark, broker, topic, maxOffsetsPerTrigger="8")
    return told(rows.transform(watermark("at", "10 seconds")))


def test_a_copy_of_a_checkpoint_is_told_what_the_original_was_told(
    spark: SparkSession, near: Broker, topic: str, tmp_path: Path
) -> None:
    send_both(near, topic, [NOW + each for each in range(4)])
    frame = clocked(spark, near, topic)
    original, copy = Clocked(frame, tmp_path / "original"), Clocked(frame, tmp_path / "copy")
    original.run()
    shutil.copytree(original.checkpoint, copy.checkpoint)
    original.said.clear()
    send_both(near, topic, [NOW + 100 * each for each in range(1, 13)])
    original.run()
    assert original.watermarks()[-1] == NOW + 1190

    copy.run()
    # Rows are late against the watermark of the batch before theirs, so each batch counts.
    assert copy.said == original.said

    for run in (original, copy):
        run.said.clear()
        send_both(near, topic, [NOW + 2000])
        run.run()
        assert run.watermarks()[-1] == NOW + 1990
