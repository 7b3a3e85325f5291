"""Pipelines through real Spark: what is written, what is known of it, what is refused."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater.streams.running import definitions
from headwater.streams.running.checkpoints import Checkpoint
from headwater.streams.running.driver import Driver
from headwater.streams.running.errors import (
    DefinitionError,
    PipelineBusyError,
    PipelineChangedError,
    PipelineFailedError,
    PipelineNotFoundError,
)
from headwater.streams.running.pipeline import Pipeline
from headwater.streams.running.plans import operators, plan_text, section
from headwater.streams.running.progress import TOPIC
from tests.streams.brokers import Broker

WITHIN_S = 120.0
Pipe = Callable[[DataFrame], DataFrame]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    return tmp_path


class Place:
    """A topic to read, one to write, and pipelines between them."""

    def __init__(self, spark: SparkSession, broker: Broker) -> None:
        self.spark, self.broker = spark, broker
        self.read = broker.topic("pipeline-in", partitions=2)
        self.write = broker.topic("pipeline-out", partitions=2)
        self.options = {"kafka.bootstrap.servers": broker.bootstrap}

    def source(self) -> DataFrame:
        reader = self.spark.readStream.format("headwater").options(**self.options)
        return reader.option("subscribe", self.read).option("startingOffsets", "earliest").load()

    def pipeline(self, name: str, pipe: Pipe, *, key: str | None = None) -> Pipeline:
        target = hw.topic(self.write, key=key, options=self.options)
        return hw.pipeline(name, pipe(self.source())).to(target)

    def send(self, *values: str) -> None:
        self.broker.send(self.read, [(value.encode(), value.encode()) for value in values])

    def written(self) -> list[bytes | None]:
        return self.broker.values(self.write)


@pytest.fixture
def place(spark: SparkSession, broker: Broker, data: Path) -> Place:
    return Place(spark, broker)


def upper(frame: DataFrame) -> DataFrame:
    return frame.select("key", F.upper(F.col("value").cast("string")).alias("value"))


def counts(frame: DataFrame) -> DataFrame:
    values = frame.select(F.col("value").cast("string").alias("word"), "timestamp")
    return values.withWatermark("timestamp", "1 second").dropDuplicates(["word"]).select("word")


def test_from_topic_to_topic_once_and_again(place: Place, data: Path) -> None:
    place.send("a", "b", "c")
    place.pipeline("copy", upper).run(once=True)
    assert place.written() == [b"A", b"B", b"C"]
    place.pipeline("copy", upper).run(once=True)
    assert place.written() == [b"A", b"B", b"C"], "what was read is not read again"
    place.send("d")
    place.pipeline("copy", upper).run(once=True)
    assert place.written() == [b"A", b"B", b"C", b"D"]

    checkpoint = Checkpoint(data, "copy")
    assert checkpoint.state() == "stopped"
    progress = checkpoint.progress()
    assert progress is not None
    assert (progress["pipeline"], progress["rows"], progress["lag"]) == ("copy", 1, 0)
    published = [json.loads(each.value() or b"") for each in place.broker.read(TOPIC)]
    ours = [each for each in published if each.get("query") == progress["query"]]
    assert sum(each["rows"] for each in ours) == 4
    log = checkpoint.log.read_text()
    assert log.count("started: query") == 3
    assert log.count("INFO ended") == 3


def test_rows_of_any_columns_become_json(place: Place) -> None:
    place.send("1", "22")
    pipe = lambda frame: frame.select(  # noqa: E731 - short
        F.col("value").cast("string").alias("text"), F.length("value").alias("size")
    )
    place.pipeline("packed", pipe, key="text").run(once=True)
    found = {each.key(): json.loads(each.value() or b"") for each in place.broker.read(place.write)}
    assert found == {b"1": {"text": "1", "size": 1}, b"22": {"text": "22", "size": 2}}


def test_started_and_stopped(place: Place, data: Path) -> None:
    heard = threading.Event()
    driver = Driver([place.pipeline("live", upper)], on_batch=lambda _: heard.set()).start()
    try:
        place.send("x")
        assert heard.wait(WITHIN_S)
        with pytest.raises(PipelineBusyError, match="running already"):
            place.pipeline("live", upper).run(once=True)
        assert Checkpoint(data, "live").state() == "running"
    finally:
        driver.stop()
    assert driver.queries == {}
    assert Checkpoint(data, "live").state() == "stopped"
    assert place.written() == [b"X"]


def test_a_stop_lets_the_batch_finish(place: Place, data: Path) -> None:
    """Else what it has written would be known only after the next start has done it again."""

    def slow(frame: DataFrame) -> DataFrame:
        def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(1.5)
                yield batch

        return upper(frame).mapInArrow(wait, "key binary, value string")

    driver = Driver([place.pipeline("slow", slow)]).start()
    place.send("x")
    (query,) = driver.queries.values()
    wait_until(lambda: query.status["isDataAvailable"])
    driver.stop()
    assert place.written() == [b"X"]
    progress = Checkpoint(data, "slow").progress()
    assert progress is not None
    assert (progress["rows"], progress["lag"]) == (1, 0)
    assert Path(Checkpoint(data, "slow").location, "commits", str(progress["batch"])).exists()


def test_a_failure_before_a_stop_is_a_failure(place: Place, data: Path) -> None:
    driver = place.pipeline("fails", broken_by_one_letter).start()
    place.send("x")
    (query,) = driver.queries.values()
    wait_until(lambda: not query.isActive)
    with pytest.raises(PipelineFailedError):
        driver.stop()
    assert Checkpoint(data, "fails").state() == "failed"


def test_one_that_another_keeps_from_starting_has_not_failed(place: Place, data: Path) -> None:
    place.send("a")
    place.pipeline("good", upper).run(once=True)
    place.pipeline("words", counts).run(once=True)
    changed = place.pipeline("words", lambda frame: frame.select("value"))
    with pytest.raises(PipelineChangedError):
        Driver([place.pipeline("good", upper), changed]).start()
    assert Checkpoint(data, "good").state() == "stopped"


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_an_interrupt_stops_it(place: Place, data: Path, spark: SparkSession) -> None:
    """As in a notebook, where the cell that runs it is interrupted."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    driver = place.pipeline("live", upper).start()
    with pytest.raises(KeyboardInterrupt):
        driver.wait(tick=interrupt)
    assert spark.streams.active == []
    assert Checkpoint(data, "live").state() == "stopped"


def test_another_plan_is_refused_until_it_is_reset(place: Place, data: Path) -> None:
    place.send("a", "a", "b")
    place.pipeline("words", counts).run(once=True)
    assert place.written() == [b'{"word":"a"}', b'{"word":"b"}']

    def without(frame: DataFrame) -> DataFrame:
        return frame.select(F.col("value").cast("string").alias("word"))

    with pytest.raises(PipelineChangedError, match="Deduplicate was removed") as raised:
        place.pipeline("words", without).run(once=True)
    assert "headwater pipeline reset words" in raised.value.hint

    def filtered(frame: DataFrame) -> DataFrame:
        return counts(frame.filter("value is not null")).filter("word <> 'c'")

    place.send("a", "c", "d")
    place.pipeline("words", filtered).run(once=True)
    assert place.written()[-1] == b'{"word":"d"}'
    assert len(place.written()) == 3, "what keeps no state may change"

    Checkpoint(data, "words").remove()
    place.pipeline("words", without).run(once=True)
    assert len(place.written()) == 3 + 6


def test_what_spark_itself_finds_in_the_state_is_told_in_our_words(
    place: Place, data: Path
) -> None:
    place.send("a")
    place.pipeline("words", counts).run(once=True)

    def by_length(frame: DataFrame) -> DataFrame:
        words = frame.select(F.length("value").alias("size"), "timestamp")
        return words.withWatermark("timestamp", "1 second").dropDuplicates(["size"]).select("size")

    # As if nobody had noted the old plan.
    changed = place.pipeline("words", by_length)
    found = operators(section(plan_text(changed.rows()), "Analyzed Logical Plan"))
    path = Checkpoint(data, "words").folder / "pipeline.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "operators": found}))
    place.send("b")
    with pytest.raises(PipelineChangedError, match="STATE_STORE") as raised:
        changed.run(once=True)
    assert "headwater pipeline reset words" in raised.value.hint


def broken_by_one_letter(frame: DataFrame) -> DataFrame:
    fail = F.udf(lambda value: str(1 / (len(value) - 1)), "string", useArrow=False)
    return frame.select(fail("value").alias("value"))


def test_a_failure_is_told_and_kept(place: Place, data: Path) -> None:
    place.send("a")
    broken = place.pipeline("broken", broken_by_one_letter)
    with pytest.raises(PipelineFailedError, match="ZeroDivisionError: division by zero") as raised:
        broken.run(once=True)
    assert "headwater pipeline logs broken" in raised.value.hint
    checkpoint = Checkpoint(data, "broken")
    assert checkpoint.state() == "failed"
    assert "ZeroDivisionError" in str(checkpoint.note().error)
    assert "Traceback" in checkpoint.log.read_text()
    assert place.written() == []


def test_what_cannot_be_a_pipeline(place: Place, spark: SparkSession) -> None:
    with pytest.raises(DefinitionError, match="reads nothing that streams"):
        hw.pipeline("batch", spark.range(3))
    with pytest.raises(DefinitionError, match="no name"):
        hw.pipeline("a/b", place.source())
    with pytest.raises(DefinitionError, match="goes nowhere"):
        hw.pipeline("nowhere", place.source()).run()
    with pytest.raises(DefinitionError, match="no column 'id'"):
        place.pipeline("keyless", lambda frame: frame.select("offset"), key="id").run()


FILE = """
import headwater as hw
from pyspark.sql import SparkSession
spark = SparkSession.getActiveSession()
rates = spark.readStream.format("rate").load()
if __name__ == "__main__":
    hw.pipeline("one", rates).to(hw.topic("x")).run()
    hw.pipeline("two", rates).to(hw.topic("y")).start()
"""


def test_a_file_with_several(spark: SparkSession, tmp_path: Path, data: Path) -> None:
    path = tmp_path / "pipelines.py"
    path.write_text(FILE)
    assert [each.name for each in definitions.load(path)] == ["one", "two"]
    assert [each.name for each in definitions.load(path, "two")] == ["two"]
    assert spark.streams.active == [], "nothing was started"
    with pytest.raises(PipelineNotFoundError, match="did you mean 'two'"):
        definitions.load(path, "twoo")
    assert definitions.split(f"{path}:two") == (path, "two")
    assert definitions.split(str(path)) == (path, None)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = 1", "defines no pipeline"),
        ("x = (", r"bad\.py:1: SyntaxError"),
        ("x = 1\ny = x / 0", r"bad\.py:2: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "ended with 3"),
        (FILE.replace("two", "one"), "two pipelines are called 'one'"),
    ],
)
def test_files_that_will_not_do(
    spark: SparkSession, tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(DefinitionError, match=expected):
        definitions.load(path)
    with pytest.raises(PipelineNotFoundError, match="does not exist"):
        definitions.load(tmp_path / "none.py")
    assert not definitions.are_collected()
