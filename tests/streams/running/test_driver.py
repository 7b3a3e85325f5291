"""How queries end, and who hears of it, without Spark."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import IllegalArgumentException

from headwater.streams.running.checkpoints import FAILED, Checkpoint, Note
from headwater.streams.running.driver import Driver
from headwater.streams.running.errors import DefinitionError, PipelineFailedError

WITHIN_S = 30.0


def test_nothing_is_let_go_while_another_thread_ends_it() -> None:
    """Whoever stops them and whoever waits for them: both return when all is closed."""
    driver = Driver([])
    ending, may_end, is_free = threading.Event(), threading.Event(), threading.Event()

    def end() -> None:
        ending.set()
        assert may_end.wait(WITHIN_S)

    driver._held.callback(is_free.set)
    driver._held.callback(end)
    waits = threading.Thread(target=driver.wait)
    waits.start()
    assert ending.wait(WITHIN_S)
    stops = threading.Thread(target=driver.stop)
    stops.start()
    try:
        assert not is_free.wait(0.3)
        assert stops.is_alive()
    finally:
        may_end.set()
        waits.join(WITHIN_S)
        stops.join(WITHIN_S)
    assert is_free.is_set()


def test_up_to_now_and_again_and_again_exclude_each_other() -> None:
    with pytest.raises(DefinitionError, match="once and every='5 seconds' exclude each other"):
        Driver([], once=True, every="5 seconds")


class Gone:
    """A query whose JVM has ended, as Py4J tells of it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _raise(self) -> Any:  # noqa: ANN401 - it returns nothing at all
        raise self._error

    isActive = status = lastProgress = property(_raise)  # noqa: N815 - the names are Spark's
    stop = exception = _raise


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """A driver of pipelines that have begun."""
    driver = Driver([], data=str(tmp_path), every="soon")
    for name in ("a", "b"):
        driver._checkpoints[name] = Checkpoint(tmp_path, name)
        driver._logs[name] = logging.getLogger(name)
        with driver._checkpoints[name].locked():
            driver._checkpoints[name].begin(Note(name))
    yield driver
    driver._held.close()


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), Py4JNetworkError("empty"), Py4JError("while calling")]
)
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_jvm_that_has_ended_is_told_and_kept(
    driver: Driver, error: Exception, *, is_stopped: bool
) -> None:
    driver._running = {name: cast("Any", Gone(error)) for name in driver._checkpoints}
    driver._held.callback(driver._end_all)
    with pytest.raises(PipelineFailedError, match="Spark's JVM has ended") as raised:
        driver.stop() if is_stopped else driver.wait()
    assert "memory" in raised.value.hint
    for each in driver._checkpoints.values():
        assert each.state() == FAILED
        assert "Spark's JVM has ended" in str(each.note().error)


class Writer:
    """A pipeline, and a writer that refuses a trigger, as Spark's does."""

    name = "a"

    def writer(self, *_: object) -> Self:
        return self

    def trigger(self, **given: str) -> Self:
        raise IllegalArgumentException(f"Error parsing {given['processingTime']!r} to interval")


def test_an_interval_that_is_none_is_a_named_error(driver: Driver) -> None:
    with pytest.raises(PipelineFailedError, match="Error parsing 'soon' to interval"):
        driver._begin(cast("Any", Writer()), cast("Any", None))
    assert "soon" in str(driver._checkpoints["a"].note().error)


BATCH = {"pipeline": "a", "batch": 1, "rows": 0, "warnings": ["look at this", "and at that"]}


def test_what_is_wrong_with_batches_is_said_once_for_each_query(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        driver._heard({**BATCH, "pipeline": name, "warnings": []})
        driver._heard({**BATCH, "pipeline": name})
        driver._heard({**BATCH, "pipeline": name, "batch": 2})
    told = [each.getMessage() for each in caplog.records if each.name == "a"]
    assert told == ["look at this", "and at that"]
    shown = [each.getMessage() for each in caplog.records if each.name.endswith(".driver")]
    assert shown == [
        f"pipeline {name!r}: {text}"
        for name in ("a", "b")
        for text in ("look at this", "and at that")
    ]
