"""Whether a pipeline would read what it writes, as the text of its plan says."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.streams.running.checkpoints import Checkpoint
from headwater.streams.running.feedback import refuse_feedback
from headwater.streams.running.pipeline import Pipeline
from headwater.streams.sink.errors import FeedbackError
from tests.streams.brokers import Broker

HERE = "here:9092"


def plan(*options: str, source: str = "headwater") -> str:
    """Return a plan as Spark 4.3 prints it."""
    return "\n".join(
        (
            "~Union false, false",
            ":- ~Project [value#1]",
            (
                ":  +- ~StreamingRelationV2 org.x.Source@4f4d7e32, headwater, org.x.Table@4c65d5c6,"
                " [kafka.bootstrap.servers=here:9092, subscribe=in], [key#0, value#1],"
                " name=<Unassigned>"
            ),
            "+- ~Project [value#8]",
            (
                f"   +- ~StreamingRelationV2 org.x.Source@54614b39, {source}, org.x.Table@10aa17c3,"
                f" [{', '.join(options)}], [key#7, value#8, topic#9], name=<Unassigned>"
            ),
        )
    )


@pytest.mark.parametrize(
    "options",
    [
        ("kafka.bootstrap.servers=here:9092", "subscribePattern=out.*"),
        ("subscribepattern=o[a-z]{2,3}, x=|ou[t]", "kafka.bootstrap.servers=there:1,here:9092"),
        ("bootstrap=here:9092", "subscribePattern=o.*", 'startingOffsets={"a":{"0":[1]}}'),
    ],
)
def test_a_pattern_that_matches_what_is_written_is_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(FeedbackError, match="pipeline 'p' writes to 'out' and would read it"):
        refuse_feedback("p", ["else-where", "out"], bootstrap=HERE, analyzed=plan(*options))


@pytest.mark.parametrize(
    "options,source",
    [
        (("kafka.bootstrap.servers=here:9092", "subscribePattern=out.+"), "headwater"),
        (("kafka.bootstrap.servers=here:9092", "subscribe=out"), "headwater"),
        (("kafka.bootstrap.servers=there:9092", "subscribePattern=out.*"), "headwater"),
        (("kafka.bootstrap.servers=here:9092", "subscribePattern=o(ut"), "headwater"),
        (("subscribePattern=out.*", "path=/data"), "text"),
    ],
)
def test_what_reads_other_topics_or_other_brokers_or_names_its_topics_may_run(
    options: tuple[str, ...], source: str
) -> None:
    refuse_feedback("p", ["out"], bootstrap=HERE, analyzed=plan(*options, source=source))


def test_a_pipeline_that_would_read_its_own_rows_is_not_started_and_can_be_changed(
    spark: SparkSession, near: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_DATA", str(tmp_path))
    written = near.topic("feedback")
    near.send(near.topic(f"{written}-in"), [(None, b"row")])
    options = {"kafka.bootstrap.servers": near.bootstrap}

    def pipeline(pattern: str) -> Pipeline:
        reader = spark.readStream.format("headwater").options(**options, subscribePattern=pattern)
        rows = reader.option("startingOffsets", "earliest").load().select("value")
        return hw.pipeline("loop", rows).to(hw.topic(written, options=options))

    with pytest.raises(FeedbackError, match=f"writes to '{written}' and would read it"):
        pipeline(f"{written}.*").run(once=True)
    assert not Path(Checkpoint(tmp_path, "loop").location).exists()

    pipeline(f"{written}-.*").run(once=True)

    assert near.values(written) == [b"row"]
