"""What Spark says of a query's end, in our words."""

import pytest

from headwater.streams.running.errors import (
    DiskFullError,
    PipelineChangedError,
    PipelineFailedError,
    translated,
)


@pytest.mark.parametrize(
    "text",
    [
        "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] The operator",
        "x [STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema does not match",
        "x [STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match",
    ],
)
def test_state_of_another_plan_names_the_way_out(text: str) -> None:
    error = translated("p", text)
    assert isinstance(error, PipelineChangedError)
    assert "headwater pipeline reset p" in error.hint


def test_our_own_errors_come_through_with_their_hints() -> None:
    text = """[STREAM_FAILED] Query failed: Traceback (most recent call last):
  File "x.py", line 3, in commit
headwater.streams.sink.errors.OlderDriverError: a newer driver writes
hint: stop this one

\tat org.apache.spark.Thing
"""
    error = translated("p", text)
    assert isinstance(error, PipelineFailedError)
    assert error.message == "pipeline 'p' failed: OlderDriverError: a newer driver writes"
    assert error.hint == "stop this one"


def test_of_anything_else_the_line_that_says_most() -> None:
    text = "[STREAM_FAILED] Query\nTraceback\n  File x\nZeroDivisionError: division by zero\n\tat y"
    error = translated("p", text)
    assert error.message == "pipeline 'p' failed: ZeroDivisionError: division by zero"
    assert "headwater pipeline logs p" in error.hint
    assert translated("p", "").message == "pipeline 'p' failed: it did not say why"


@pytest.mark.parametrize(
    "text",
    [
        "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device",
        "java.io.FileNotFoundException: /data/1.delta (Disk quota exceeded)",
    ],
)
def test_a_full_disk_is_told_with_its_place(text: str) -> None:
    error = translated("p", text, where="/data/checkpoints/p")
    assert isinstance(error, DiskFullError)
    assert error.message.endswith(
        "because a disk is full; its checkpoint is in /data/checkpoints/p"
    )
    assert "make room there" in error.hint


def test_another_disk_that_is_full_is_not_taken_for_the_checkpoint() -> None:
    text = """Traceback (most recent call last):
headwater.streams.sink.errors.StagingError: /x cannot be written: No space left on device
hint: see that stagingLocation has room
"""
    error = translated("p", text, where="/data/checkpoints/p")
    assert isinstance(error, PipelineFailedError)
    assert "/x cannot be written" in error.message
    assert error.hint == "see that stagingLocation has room"


def test_a_second_driver_that_spark_notices_first_is_told() -> None:
    text = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs"
    error = translated("p", text, where="/data/checkpoints/p")
    assert "another driver writes to its checkpoint in /data/checkpoints/p" in error.message
    assert "one checkpoint is for one driver" in error.hint


@pytest.mark.parametrize("kind", ["TopicRecreatedError", "SourcesChangedError", "FeedbackError"])
def test_a_topic_that_is_another_one_names_the_reset(kind: str) -> None:
    text = f"headwater.streams.errors.{kind}: it is not the same log\nhint: begin anew"
    assert translated("p", text).hint == (
        "begin anew; a new checkpoint: headwater pipeline reset p"
    )


def test_hints_for_others_are_not_for_this_error() -> None:
    plan = "+- Project [raise_error(not JSON\n    hint: give dead_letters=TOPIC to set it aside)]\n"
    error = "headwater.base.errors.KafkaError: topic 'a b'\n"
    assert translated("p", plan + error + plan).hint == "all of it: headwater pipeline logs p"
    hinted = translated("p", f"{plan}{error}hint: name another\n{plan}")
    assert hinted.hint == "name another"
