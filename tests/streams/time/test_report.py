"""Reports when the broker is away, and what a task is told that cannot report."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.delivery.client import cluster, producer
from headwater.streams.client_options import ClientOptions
from headwater.streams.time import report, time_log
from headwater.streams.time.errors import ReportError
from headwater.streams.time.fold import Reach
from headwater.streams.time.records import TIME_TOPIC, Names, TimeScan
from headwater.streams.time.report import Reporter
from headwater.streams.time.time_log import TimeLog
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker

PATIENT = ClientOptions(timeout_s=20.0)
REACHED = {("a", 0): Reach(7, 0, 9)}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_directory=str(tmp_path / "data")) as running:
        yield running
    report._close()


@pytest.fixture
def away(own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[float]]:
    """Give what stops the broker until somebody pauses; it returns the pauses that were made."""

    def stop() -> list[float]:
        pauses: list[float] = []

        class Clock:
            monotonic = staticmethod(time.monotonic)
            time_ns = staticmethod(time.time_ns)

            @staticmethod
            def sleep(pause_s: float) -> None:
                pauses.append(pause_s)
                if len(pauses) == 1:
                    own_broker.start()

        for module in (cluster, producer, time_log):
            monkeypatch.setattr(module, "time", Clock)
        own_broker.stop()
        return pauses

    return stop


def found(running: EmbeddedBroker) -> dict[tuple[str, int], int | None]:
    scan = TimeScan("q", Names("name", "name"))
    log = TimeLog(running.bootstrap_servers, PATIENT)
    log.read(scan)
    log.close()
    scan.fold({("a", 0): 1000})
    return {place: each.time_us for place, each in scan.progress().items()}


@pytest.fixture(autouse=True)
def query_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_query_id", lambda: "q")


def test_a_first_report_waits(own_broker: EmbeddedBroker, away: Callable[[], list[float]]) -> None:
    reporter = Reporter(own_broker.bootstrap_servers, PATIENT, "name")
    pauses = away()
    reporter.report(REACHED)
    assert pauses
    assert found(own_broker) == {("a", 0): 7}


def test_a_later_report_waits_too(
    own_broker: EmbeddedBroker, away: Callable[[], list[float]]
) -> None:
    reporter = Reporter(own_broker.bootstrap_servers, PATIENT, "name")
    reporter.report(REACHED)
    pauses = away()
    reporter.report({("a", 0): Reach(8, 10, 19)})
    assert pauses
    assert found(own_broker) == {("a", 0): 8}


def test_a_broker_that_stays_away_fails_the_task_by_name(own_broker: EmbeddedBroker) -> None:
    reporter = Reporter(own_broker.bootstrap_servers, ClientOptions(timeout_s=0.2), "name")
    own_broker.stop()
    with pytest.raises(ReportError, match=TIME_TOPIC) as caught:
        reporter.report(REACHED)
    assert caught.value.hint
    own_broker.start()
    reporter.report(REACHED)
    assert found(own_broker) == {("a", 0): 7}


def test_nothing_seen_is_nothing_to_say() -> None:
    reporter = Reporter("localhost:1", ClientOptions(timeout_s=0.2), "name")
    reporter.report({})
    reporter.report({("a", 0): Reach(None, 0, 9)})


def test_the_topic_is_made_with_what_keeps_it_short(own_broker: EmbeddedBroker) -> None:
    Reporter(own_broker.bootstrap_servers, PATIENT, "name", "one").report({("", 3): Reach(1, 0, 0)})
    (message,) = Broker(HEADWATER, own_broker.bootstrap_servers).read(TIME_TOPIC)
    assert message.key() == b'["report","q","name","one",3,0,0]'
    assert message.value() == b'{"version":1,"time":1}'


def test_outside_of_a_query_there_is_nobody_to_report_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ReportError, match="no streaming query"):
        Reporter("localhost:1", PATIENT, "name").report(REACHED)
