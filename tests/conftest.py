"""Fixtures and settings every test shares."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import peers
from tests.peers.kafka_server import ApacheKafka, running_kafka

# Deadlines and the too-slow check measure the machine, which other processes share; the time-out
# of pytest catches what really hangs. The examples are the same every time, so that a commit is
# blamed for what it did and for nothing else. HYPOTHESIS_PROFILE=thorough looks for new ones: for a
# night, not for a commit.
settings.register_profile(
    "headwater",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("headwater"), derandomize=False, max_examples=5_000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headwater"))

peers.have_spark_start_quickly()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background says so to all our children, of which some must stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test beside Apache Kafka, so that `-m peer` and `-m "not peer"` choose them."""
    for item in items:
        if "apache_kafka_node" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.peer)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long each suite took: the tests of one folder, added up over all workers."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                suite = "/".join(report.nodeid.partition("::")[0].split("/")[:2])
                seconds[suite] += report.duration
    terminalreporter.section("seconds per suite")
    for suite, total_s in sorted(seconds.items()):
        terminalreporter.write_line(f"{total_s:8.1f}  {suite}")


@pytest.fixture(scope="session")
def apache_kafka_node() -> Iterator[ApacheKafka]:
    """Give a running Apache Kafka node: its address, its pid, its folder.

    Each worker starts one of its own, at the first test that asks for it.
    """
    peers.require("kafka")
    with running_kafka(heap="512M") as kafka:
        yield kafka


@pytest.fixture(scope="session")
def apache_kafka(apache_kafka_node: ApacheKafka) -> str:
    """Give the bootstrap address of a running Apache Kafka."""
    return apache_kafka_node.bootstrap
