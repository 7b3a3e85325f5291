"""Aggregates whose rows replace each other, through real Spark: judged by kafka-python.

The stream of most tests is a folder of text files, one file a batch, so that a test decides what a
batch is. A pipeline that is run again with the last entry of Spark's commit log gone is one that
was killed between the sink's commit and Spark's.
"""

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from headwater.base.record.records import Record, build_batch
from headwater.streams.running.checkpoints import Checkpoint
from headwater.streams.running.driver import Driver
from headwater.streams.running.errors import PipelineChangedError, PipelineFailedError
from headwater.streams.running.output_mode import maybe_group_columns, mode_of
from headwater.streams.running.pipeline import Pipeline
from headwater.streams.running.plans import plan_text, section
from headwater.streams.running.sampling import take_sample
from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.options import sink_options
from headwater.streams.sink.writer import HeadwaterStreamWriter
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.sink.messages import make_message
from tests.streams.sink.reading import committed

WITHIN_S = 120.0
FIRST_S = 1_700_000_000
Pipe = Callable[[DataFrame], DataFrame]


class Words:
    """Files of words, a topic, and pipelines from the one to the other."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.topic = broker.topic("counts", partitions=3)
        self.options = {"kafka.bootstrap.servers": broker.bootstrap}
        self.all: list[str] = []
        self._spark = spark
        self._input = folder / "input"
        self._input.mkdir()
        self._files = 0
        self.checkpoint = Checkpoint(folder, "words")

    def add(self, *words: str) -> None:
        """Add a batch."""
        self._files += 1
        self.all += words
        hidden = self._input / f".{self._files}"
        hidden.write_text("".join(f"{word}\n" for word in words))
        # Spark takes files in the order of their times, and two may be of one moment.
        os.utime(hidden, times=(FIRST_S + self._files,) * 2)
        hidden.rename(self._input / f"{self._files:04}.txt")

    def source(self) -> DataFrame:
        rows = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._input))
        return rows.withColumnRenamed("value", "word")

    def pipeline(self, pipe: Pipe | None = None, **options: str) -> Pipeline:
        frame = (pipe or counts)(self.source())
        target = hw.topic(self.topic, options={**self.options, **options})
        return hw.pipeline("words", frame).to(target)

    def written(self) -> list[tuple[Any, Any]]:
        """Return keys and values, in the order of each partition."""
        return [
            (json.loads(record.key), json.loads(record.value))
            for record in committed(self.broker.bootstrap, self.topic)
        ]

    def newest(self) -> dict[str | None, int]:
        """Return what a reader knows who keeps the last value of each key."""
        return {key["word"]: value["n"] for key, value in self.written()}

    def forget_last_commit(self) -> None:
        """Take Spark's last commit away, as a kill before it does."""
        commits = Path(self.checkpoint.location, "commits")
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def words(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Words:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    return Words(spark, broker, tmp_path)


def counts(frame: DataFrame) -> DataFrame:
    return frame.groupBy("word").agg(F.count("*").alias("n"))


def test_the_newest_of_each_key_is_the_batch_answer_over_a_repeated_batch(words: Words) -> None:
    words.add("a", "b", "a")
    words.add("b", "c", "")
    words.pipeline().run(once=True)
    expected = [("a", 2), ("b", 1), ("b", 2), ("c", 1), ("", 1)]
    assert Counter((key["word"], value["n"]) for key, value in words.written()) == Counter(expected)
    assert all(value["word"] == key["word"] for key, value in words.written())

    words.forget_last_commit()
    words.add("a", "d")
    words.pipeline(stagingLocation=words.checkpoint.location).run(once=True)

    expected += [("a", 3), ("d", 1)]
    assert Counter((key["word"], value["n"]) for key, value in words.written()) == Counter(expected)
    assert words.newest() == Counter(words.all)
    progress = words.checkpoint.progress()
    assert progress is not None
    assert (progress["rows"], progress["state_rows"]) == (2, 5)


def test_an_older_driver_stops_by_name(words: Words) -> None:
    heard = threading.Event()
    words.add("a")
    driver = Driver([words.pipeline()], on_batch=lambda _: heard.set()).start()
    assert heard.wait(WITHIN_S)
    query_id = words.checkpoint.query_id()
    assert query_id is not None
    newer = HeadwaterStreamWriter(
        sink_options({"bootstrap": words.broker.bootstrap, "topic": words.topic})
    )
    row = bytes(build_batch([Record(0, 1, b'{"word":"a"}', b'{"word":"a","n":2}')]))
    attempt = Attempt(query_id, "newer", 1)
    newer.commit([make_message(attempt, {(words.topic, 0): [row]}, None)], 1)

    words.add("a")
    with pytest.raises(PipelineFailedError, match="OlderDriverError: another driver") as raised:
        driver.wait()

    assert "one checkpoint is for one driver" in raised.value.hint
    assert sorted(value["n"] for _, value in words.written()) == [1, 2]


@pytest.fixture
def own_words(
    spark: SparkSession,
    embedded_broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Words:
    """Give the same for what has nothing to do with the broker."""
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    return Words(spark, Broker(HEADWATER, embedded_broker.bootstrap_servers), tmp_path)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_checkpoint_that_was_set_back_is_refused_by_name(own_words: Words, batches: int) -> None:
    own_words.add("a")
    own_words.pipeline().run(once=True)
    copy = own_words.checkpoint.folder.with_name("copy")
    shutil.copytree(own_words.checkpoint.folder, copy)
    for word in ("b", "c")[:batches]:
        own_words.add(word)
    own_words.pipeline().run(once=True)
    shutil.rmtree(own_words.checkpoint.folder)
    copy.rename(own_words.checkpoint.folder)

    with pytest.raises(PipelineFailedError, match="CheckpointBehindError: batch 1") as raised:
        own_words.pipeline().run(once=True)

    assert "headwater pipeline reset words" in raised.value.hint
    assert raised.value.__notes__ == [f"hint: {raised.value.hint}"]
    assert own_words.newest() == Counter(own_words.all)


@pytest.mark.parametrize("part", ["state", "commits"])
@pytest.mark.parametrize("content", [b"", b"half of a file"], ids=["empty", "torn"])
def test_what_a_power_cut_has_torn_fails_by_name_and_writes_nothing(
    own_words: Words, part: str, content: bytes
) -> None:
    for word in "abc":
        own_words.add(word)
    own_words.pipeline().run(once=True)
    own_words.add("d")
    if part == "state":
        own_words.forget_last_commit()
    files = [
        each for each in Path(own_words.checkpoint.location, part).rglob("*") if each.is_file()
    ]
    recent = [each for each in files if each.name[0] in "123"]
    assert recent
    for each in recent:
        each.write_bytes(content)
        each.with_name(f".{each.name}.crc").unlink(missing_ok=True)

    with pytest.raises(PipelineFailedError):
        own_words.pipeline().run(once=True)

    assert own_words.newest() == {"a": 1, "b": 1, "c": 1}


def test_the_mode_belongs_to_the_checkpoint(own_words: Words) -> None:
    def windows(frame: DataFrame) -> DataFrame:
        timed = frame.select(F.timestamp_seconds(F.length("word")).alias("at"))
        return timed.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds")).count()

    own_words.add("one", "three", "a word that is long")
    target = hw.topic(own_words.topic, options=own_words.options)
    hw.pipeline("words", windows(own_words.source()), mode="update").to(target).run(once=True)

    found = [(key["window"]["start"], value["count"]) for key, value in own_words.written()]
    begins = ("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:10.000000Z")
    assert sorted(found) == [(begins[0], 2), (begins[1], 1)]
    with pytest.raises(PipelineChangedError, match="update mode was removed"):
        own_words.pipeline(windows).run(once=True)


def test_groups_a_microsecond_apart_have_keys_of_their_own(own_words: Words) -> None:
    def by_moment(frame: DataFrame) -> DataFrame:
        moment = F.timestamp_micros(F.length("word")).alias("at")
        return frame.groupBy(moment, F.lit(1).alias("one")).count()

    own_words.add("a", "bb", "cc")
    own_words.pipeline(by_moment).run(once=True)

    found = {key["at"]: value["count"] for key, value in own_words.written()}
    assert found == {"1970-01-01T00:00:00.000001Z": 1, "1970-01-01T00:00:00.000002Z": 2}


def test_a_dry_run_says_what_replaces_what(own_words: Words) -> None:
    own_words.add("a", "b", "a")
    sample = take_sample(own_words.pipeline(), rows_max=10, timeout_s=WITHIN_S)
    found = sorted((bytes(row["key"]), bytes(row["value"])) for row in sample.rows)
    assert found == [
        (b'{"word":"a"}', b'{"word":"a","n":2}'),
        (b'{"word":"b"}', b'{"word":"b","n":1}'),
    ]
    assert sample.written_as == "the newest of each group, rows as JSON, key word"
    assert own_words.written() == []


def test_dead_letters_are_in_the_same_transaction(own_words: Words, spark: SparkSession) -> None:
    broker = own_words.broker
    read, letters = broker.topic("events"), broker.topic("letters")
    broker.send(read, [(b"k", b'{"user": "u"}'), (b"k", b"junk"), (b"k", b'{"user": null}')])
    frame = (
        spark.readStream.format("headwater")
        .options(**own_words.options, subscribe=read, startingOffsets="earliest")
        .option("includeHeaders", "true")
        .load()
        .transform(hf.json("user string", dead_letters=letters))
        .groupBy("user")
        .count()
    )
    target = hw.topic(own_words.topic, options=own_words.options)
    hw.pipeline("words", frame).to(target).run(once=True)

    found = {key["user"]: value["count"] for key, value in own_words.written()}
    assert found == {"u": 1, None: 1}
    assert broker.values(letters) == [b"junk"]
    progress = own_words.checkpoint.progress()
    assert progress is not None
    assert (progress["rows"], progress["undecodable"], progress["lag"]) == (3, 1, 0)


def timed(frame: DataFrame) -> DataFrame:
    return frame.withColumn("at", F.current_timestamp())


def marked(frame: DataFrame) -> DataFrame:
    return timed(frame).withWatermark("at", "1 minute")


PLANS: dict[str, tuple[Pipe, tuple[str, ...] | None]] = {
    "rows": (lambda frame: frame.where("word <> 'x'"), None),
    "counts": (counts, ("word",)),
    "of all": (lambda frame: frame.agg(F.count("*").alias("n")), ()),
    "behind a condition": (lambda frame: counts(frame).where("n > 1"), ("word",)),
    "renamed": (
        lambda frame: counts(frame).withColumnRenamed("word", "w").withColumn("m", F.col("n") + 1),
        ("w",),
    ),
    "of an expression": (
        lambda frame: frame.groupBy(F.upper("word").alias("up"), F.length("word")).count(),
        ("up", "length(word)"),
    ),
    "dropped": (lambda frame: counts(frame).select("n"), None),
    "in windows": (
        lambda frame: timed(frame).groupBy(F.window("at", "1 minute"), "word").count(),
        ("window", "word"),
    ),
    "in windows with a watermark": (
        lambda frame: marked(frame).groupBy("word", F.window("at", "1 minute")).count(),
        ("word", "window"),
    ),
    "by the ends of windows": (
        lambda frame: (
            marked(frame)
            .groupBy(F.window("at", "1 minute", "10 seconds"), "word")
            .count()
            .select("window.start", F.col("window.end").alias("until"), "word", "count")
        ),
        ("start", "word"),
    ),
    "in sessions": (
        lambda frame: marked(frame).groupBy(F.session_window("at", "1 minute"), "word").count(),
        ("session_window", "word"),
    ),
    "without duplicates": (lambda frame: frame.dropDuplicates(["word"]), None),
    "by more columns than Spark prints": (
        lambda frame: (
            marked(frame)
            .withColumns({f"c{number}": F.length("word") for number in range(30)})
            .groupBy(*(f"c{number}" for number in range(30)), F.window("at", "1 minute"))
            .agg(F.count("*").alias("n"))
        ),
        (*(f"c{number}" for number in range(30)), "window"),
    ),
    "with a watermark beside": (lambda frame: marked(frame).groupBy("word").count(), ("word",)),
}


@pytest.mark.parametrize("name", PLANS)
def test_spark_sees_plans_the_same_way(own_words: Words, name: str) -> None:
    pipe, groups = PLANS[name]
    frame = pipe(own_words.source())
    analyzed = section(plan_text(frame), "Analyzed Logical Plan")
    assert mode_of(analyzed) == ("append" if _spark_takes(frame, "Append") else "update")
    assert maybe_group_columns(analyzed, frame.columns) == groups


def _spark_takes(frame: DataFrame, mode: str) -> bool:
    """Ask Spark's own check, which a query passes when it starts."""
    java: Any = frame.sparkSession._jvm
    checker = java.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    output_mode = getattr(java.org.apache.spark.sql.streaming.OutputMode, mode)()
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output_mode)
    except PySparkException:
        return False
    return True
