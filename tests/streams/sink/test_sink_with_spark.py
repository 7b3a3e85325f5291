"""Spark writes topics exactly once, on both brokers, judged by kafka-python.

The stream of each test is a folder of text files, one file a batch, so that a test decides what a
batch is. A query that is stopped and started again with the last entry of Spark's commit log gone
is one that was killed between the sink's commit and Spark's.
"""

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.streams.sink.foreach_batch import each_batch, own_writers
from headwater.streams.sink.options import sink_options
from tests import peers
from tests.streams.brokers import Broker
from tests.streams.sink.reading import committed, values

_WITHIN_S = 120


class Story:
    """A folder of files, a checkpoint, and a topic to write to."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.topic = broker.topic("out", partitions=3)
        self.checkpoint = folder / "checkpoint"
        self._input = folder / "input"
        self._input.mkdir()
        self._files = 0
        self.format = "headwater"

    def add(self, *rows: str) -> None:
        """Add a batch."""
        self._files += 1
        text = "".join(f"{row}\n" for row in rows)
        hidden = self._input / f".{self._files}"
        hidden.write_text(text)
        hidden.rename(self._input / f"{self._files:04}.txt")

    def rows(self) -> DataFrame:
        return self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._input))

    def run(self, frame: DataFrame | None = None, **options: str) -> None:
        """Run the query until all files are written."""
        writing = (
            (self.rows() if frame is None else frame)
            .writeStream.format(self.format)
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .trigger(availableNow=True)
        )
        usual = {"topic": self.topic, "checkpointLocation": str(self.checkpoint)}
        for name, value in {**usual, **options}.items():
            if value:
                writing = writing.option(name.replace("__", "."), value)
        query = writing.start()
        try:
            assert query.awaitTermination(_WITHIN_S)
        finally:
            query.stop()

    def forget_last_commit(self) -> None:
        """Take Spark's last commit away, as a kill before it does."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def written(self) -> list[bytes]:
        return values(self.broker.bootstrap, self.topic)


@pytest.fixture
def story(spark: SparkSession, broker: Broker, tmp_path: Path) -> Story:
    return Story(spark, broker, tmp_path)


def _numbered(count: int, first: int = 0) -> list[str]:
    return [f"row-{number:05}" for number in range(first, first + count)]


def _bytes(rows: list[str]) -> list[bytes]:
    return [row.encode() for row in rows]


def test_every_row_is_written_once_over_a_restart_that_repeats_a_batch(story: Story) -> None:
    story.add(*_numbered(300))
    story.add(*_numbered(300, first=300))
    story.run()
    assert story.written() == _bytes(_numbered(600))
    story.forget_last_commit()
    story.add(*_numbered(100, first=600))

    # Other tasks, other rows in each, another order.
    story.run(story.rows().repartition(5, F.rand()))

    assert story.written() == _bytes(_numbered(700))


def test_sparks_own_sink_doubles_in_the_same_story(story: Story) -> None:
    peers.require("spark-kafka")
    story.format = "kafka"
    story.add(*_numbered(300))
    story.run()
    story.forget_last_commit()

    story.run()

    assert story.written() == sorted(_bytes(_numbered(300)) * 2)


def test_a_new_checkpoint_is_a_new_identity(story: Story, tmp_path: Path) -> None:
    story.add(*_numbered(10))
    story.run()
    story.checkpoint = tmp_path / "another"

    story.run()

    assert story.written() == sorted(_bytes(_numbered(10)) * 2)


def test_batches_without_rows_are_no_matter(story: Story) -> None:
    story.add(*_numbered(5))
    story.add("nothing")
    story.add(*_numbered(5, first=5))

    story.run(story.rows().where("value != 'nothing'"))
    story.forget_last_commit()
    story.run(story.rows().where("value != 'nothing'"))

    assert story.written() == _bytes(_numbered(10))


def test_columns_choose_key_topic_partition_headers_and_time(story: Story) -> None:
    other = story.broker.topic("other", partitions=4)
    story.add("0", "1", "2", "3")
    frame = story.rows().selectExpr(
        "concat('key-', value) as key",
        "cast(value as binary) as value",
        f"if(value = '0', '{other}', '{story.topic}') as topic",
        "if(value = '0', 3, 1) as partition",
        "array(struct('one' as key, cast('1' as binary) as value), "
        "struct('two' as key, cast(null as binary) as value)) as headers",
        "timestamp_millis(1700000000000 + cast(value as long)) as timestamp",
    )

    story.run(frame, topic="")

    (record,) = committed(story.broker.bootstrap, other)
    assert (record.partition, record.key, record.value) == (3, b"key-0", b"0")
    assert record.headers in (
        (("one", b"1"), ("two", None)),
        [("one", b"1"), ("two", None)],
    )
    rest = committed(story.broker.bootstrap, story.topic)
    assert {each.partition for each in rest} == {1}
    assert [(each.value, each.timestamp) for each in rest] == [
        (b"%d" % number, 1_700_000_000_000 + number) for number in (1, 2, 3)
    ]


def test_keys_choose_partitions_as_the_java_client_does(story: Story, tmp_path: Path) -> None:
    peers.require("spark-kafka")
    story.add(*_numbered(200))
    frame = story.rows().selectExpr("value as key", "value")
    story.run(frame)
    ours = {each.key: each.partition for each in committed(story.broker.bootstrap, story.topic)}
    story.format, story.checkpoint = "kafka", tmp_path / "theirs"
    story.topic = story.broker.topic("theirs", partitions=3)

    story.run(frame)

    theirs = {each.key: each.partition for each in committed(story.broker.bootstrap, story.topic)}
    assert ours == theirs
    assert len(ours) == 200


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(story: Story, codec: str) -> None:
    story.add(*_numbered(500))

    story.run(compression=codec)

    assert story.written() == _bytes(_numbered(500))


def test_a_record_that_is_too_large_fails_the_query_by_name(story: Story) -> None:
    story.add("x" * 2_000_000)

    with pytest.raises(StreamingQueryException) as caught:
        story.run()

    assert "OversizedRecordError: a record of 2000" in str(caught.value)
    assert "hint: raise the topic's max.message.bytes" in str(caught.value)
    assert story.written() == []


def test_a_record_that_is_too_large_can_be_a_dead_letter(story: Story) -> None:
    story.topic = story.broker.topic("narrow", config={"max.message.bytes": "10000"})
    letters = story.broker.topic("letters")
    story.add("a", "x" * 20_000, "b")

    story.run(oversized="deadLetter", deadLetterTopic=letters)
    story.forget_last_commit()
    story.run(oversized="deadLetter", deadLetterTopic=letters)

    assert story.written() == [b"a", b"b"]
    (letter,) = committed(story.broker.bootstrap, letters)
    assert letter.value == b"x" * 20_000
    headers = dict(letter.headers)
    assert headers["x-original-topic"] == story.topic.encode()
    assert headers["x-error"].startswith(b"OVERSIZED: a record of 200")


def test_a_topic_that_does_not_exist_fails_the_query_by_name(story: Story) -> None:
    story.add("row")

    with pytest.raises(StreamingQueryException) as caught:
        story.run(topic="nowhere")

    assert "UnknownTopicError: there is no topic 'nowhere'" in str(caught.value)
    assert "hint: create it with: headwater topic create nowhere" in str(caught.value)


def test_columns_that_cannot_be_written_fail_the_query_by_name(story: Story) -> None:
    story.add("1")

    with pytest.raises(StreamingQueryException) as caught:
        story.run(story.rows().selectExpr("cast(value as int) as value"))

    assert "ColumnError: the column `value`" in str(caught.value)


def test_an_option_that_is_wrong_fails_the_start(story: Story) -> None:
    story.add("row")

    with pytest.raises(PySparkException, match="did you mean sinkName"):
        story.run(sinkNam="x")


@pytest.mark.parametrize("check_is_overridden", ["", "true"])
def test_async_progress_tracking_is_refused(story: Story, check_is_overridden: str) -> None:
    story.add("row")

    with pytest.raises(PySparkException):
        story.run(
            asyncProgressTrackingEnabled="true",
            _asyncProgressTrackingOverrideSinkSupportCheck=check_is_overridden,
        )

    assert story.written() == []


def test_what_is_too_large_for_messages_is_staged(story: Story, tmp_path: Path) -> None:
    row = "x" * 1_000
    story.add(*[row] * 10_000)

    story.run(stagingLocation=str(tmp_path / "staging"))

    assert len(story.written()) == 10_000
    assert [path for path in (tmp_path / "staging").rglob("*") if path.is_file()] == []
    assert (tmp_path / "staging").is_dir()


def test_a_data_frame_is_written_in_one_transaction(spark: SparkSession, broker: Broker) -> None:
    topic = broker.topic("batch", partitions=2)
    frame = spark.range(0, 1_000, 1, 4).selectExpr("cast(id as string) as value")

    frame.write.format("headwater").option("topic", topic).option(
        "kafka.bootstrap.servers", broker.bootstrap
    ).mode("append").save()

    assert values(broker.bootstrap, topic) == sorted(b"%d" % number for number in range(1_000))


def test_a_data_frame_of_which_a_row_fails_writes_nothing(
    spark: SparkSession, broker: Broker
) -> None:
    topic = broker.topic("batch", partitions=2)
    frame = spark.range(0, 100, 1, 4).selectExpr(
        "if(id = 99, raise_error('no'), cast(id as string)) as value"
    )

    with pytest.raises(PySparkException):
        frame.write.format("headwater").option("topic", topic).option(
            "kafka.bootstrap.servers", broker.bootstrap
        ).mode("append").save()

    assert values(broker.bootstrap, topic) == []


def test_a_topic_cannot_be_overwritten(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        spark.range(1).selectExpr("cast(id as string) as value").write.format("headwater").option(
            "topic", broker.topic()
        ).mode("overwrite").save()


def test_what_the_source_reads_the_sink_can_write(spark: SparkSession, story: Story) -> None:
    read_from = story.broker.topic("in", partitions=2)
    story.broker.send(read_from, [(b"%d" % number, b"v%d" % number) for number in range(500)])
    frame = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", story.broker.bootstrap)
        .option("subscribe", read_from)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .option("includeHeaders", "true")
        .load()
        .select("key", "value", "headers", "timestamp")
    )

    story.run(frame)
    story.forget_last_commit()
    story.run(frame)

    assert story.written() == sorted(b"v%d" % number for number in range(500))


class Restored:
    """A copy of a topic, whose checkpoint is set back to the state before its last batch."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.story = Story(spark, broker, folder)
        self._source = broker.topic("in", partitions=2)
        self._sent = 0
        self.newer = folder / "newer"

    def send(self, count: int) -> None:
        """Add rows to the topic that is read."""
        rows = _numbered(count, first=self._sent)
        self.story.broker.send(self._source, [(None, row.encode()) for row in rows])
        self._sent += count

    def rows(self, starting: str = "earliest") -> DataFrame:
        return (
            self.story.spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self.story.broker.bootstrap)
            .option("subscribe", self._source)
            .option("startingOffsets", starting)
            .load()
            .select("value")
        )

    def run(self, starting: str = "earliest", **options: str) -> None:
        self.story.run(self.rows(starting), **options)

    def set_back(self, **options: str) -> None:
        """Run two batches, and bring back the checkpoint as it was after the first."""
        older = self.story.checkpoint.with_name("older")
        self.send(10)
        self.run(**options)
        shutil.copytree(self.story.checkpoint, older)
        self.send(5)
        self.run(**options)
        self.story.checkpoint.rename(self.newer)
        older.rename(self.story.checkpoint)
        self.send(5)

    def all(self) -> list[bytes]:
        return _bytes(_numbered(self._sent))


@pytest.fixture
def restored(spark: SparkSession, near: Broker, tmp_path: Path) -> Restored:
    return Restored(spark, near, tmp_path)


def test_a_checkpoint_that_is_one_batch_old_is_refused_as_often_as_it_is_started(
    restored: Restored,
) -> None:
    restored.set_back()

    for _ in range(2):  # the second start finds the plan that the first has made
        with pytest.raises(StreamingQueryException) as caught:
            restored.run()
        assert "CheckpointBehindError: batch 1 of query" in str(caught.value)
        assert "was planned again" in str(caught.value)

    assert restored.story.written() == _bytes(_numbered(15))


def test_a_newer_checkpoint_makes_good_for_one_that_is_old(restored: Restored) -> None:
    restored.set_back()
    with pytest.raises(StreamingQueryException, match="restore one that was made after batch 1"):
        restored.run()
    shutil.rmtree(restored.story.checkpoint)
    restored.newer.rename(restored.story.checkpoint)

    restored.run()

    assert restored.story.written() == restored.all()


def test_a_new_checkpoint_goes_on_from_the_offsets_that_the_refusal_names(
    restored: Restored,
) -> None:
    restored.set_back()
    with pytest.raises(StreamingQueryException) as caught:
        restored.run()
    named = re.search(r"new checkpointLocation and startingOffsets = (\{.*\})", str(caught.value))
    assert named is not None
    restored.story.checkpoint = restored.story.checkpoint.with_name("another")

    restored.run(starting=named[1])

    assert restored.story.written() == restored.all()


def test_a_checkpoint_in_the_sessions_place_is_known_by_the_querys_name(
    restored: Restored,
) -> None:
    folder, spark = restored.story.checkpoint.parent / "of the session", restored.story.spark
    restored.story.checkpoint = folder / "named"
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(folder))
    try:
        options = {"checkpointLocation": "", "queryName": "named"}
        restored.set_back(**options)
        with pytest.raises(StreamingQueryException, match="CheckpointBehindError: batch 1"):
            restored.run(**options)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")

    assert restored.story.written() == _bytes(_numbered(15))


@pytest.mark.parametrize("way", ["sink", "foreachBatch"])
def test_a_checkpoint_that_is_old_is_refused_also_where_the_batch_it_plans_has_no_rows(
    spark: SparkSession, near: Broker, tmp_path: Path, way: str
) -> None:
    story = Story(spark, near, tmp_path)

    def run() -> None:
        if way == "sink":
            return story.run()
        options = {"bootstrap": near.bootstrap, "topic": story.topic}
        given = sink_options({**options, "checkpointLocation": str(story.checkpoint)})
        writing = story.rows().writeStream.foreachBatch(each_batch(own_writers(given)))
        writing = writing.option("checkpointLocation", str(story.checkpoint))
        query = writing.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(_WITHIN_S)
        finally:
            query.stop()
        return None

    story.add("first")
    run()
    older = tmp_path / "older"
    shutil.copytree(story.checkpoint, older)
    story.add("second")
    run()
    shutil.rmtree(story.checkpoint)
    older.rename(story.checkpoint)
    # Spark takes the file with the earlier time first: one without a row, and so without a task.
    story.add()
    os.utime(tmp_path / "input" / "0003.txt", (time.time() - 60, time.time() - 60))

    with pytest.raises(StreamingQueryException, match="CheckpointBehindError: batch 1 of query"):
        run()

    assert story.written() == [b"first", b"second"]


def test_a_pattern_that_matches_the_querys_own_topic_is_refused_by_name(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    story = Story(spark, near, tmp_path)
    near.send(near.topic(f"{story.topic}-in"), [(None, b"row")])
    frame = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", near.bootstrap)
        .option("subscribePattern", f"{story.topic}.*")
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
    )

    with pytest.raises(StreamingQueryException) as caught:
        story.run(frame)

    assert f"FeedbackError: the query writes to '{story.topic}' and reads it" in str(caught.value)
    assert "hint: let the pattern leave that topic out" in str(caught.value)
    assert story.written() == []
