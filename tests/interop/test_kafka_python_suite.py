"""kafka-python's own integration tests, as they come with its source, against Headwater.

They are run once, by a pytest of their own; each test here looks at the result.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.interop.kafka_python_excluded import EXCLUDED

pytestmark = pytest.mark.peer

# As the suite's own Kafka is configured: the only broker has id 0, a topic has four partitions.
SETTINGS = {
    "node.id": "0",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
}
KAFKA_VERSION = "4.3.0"
# All of them take 20 s on an idle machine; one that hangs is ended by its own time-out.
TEST_TIMEOUT_S = 60
SUITE_TIMEOUT_S = 240


class Outcome(NamedTuple):
    """How one of the tests ended: passed, failed or skipped; and what it said."""

    kind: str
    said: str


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Run the suite."""
    peers.require("kafka-python's tests")
    folder = peers.FETCHED / "kafka-python"
    report = tmp_path_factory.mktemp("kafka-python") / "report.xml"
    with EmbeddedBroker(settings=SETTINGS) as broker:
        environment = {
            **os.environ,
            "KAFKA_URI": f"kafka://{broker.bootstrap_servers}",
            "KAFKA_VERSION": KAFKA_VERSION,
            # Where Kafka would be installed; any folder will do where none is started.
            "KAFKA_ROOT": str(folder),
        }
        done = subprocess.run(
            _command(folder, report),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SUITE_TIMEOUT_S,
            check=False,
        )
    assert report.is_file(), done.stdout + done.stderr
    return _read(report)


def _command(folder: Path, report: Path) -> list[str]:
    # None of our own settings or plugins, and the order that its authors know.
    plugins = ["headwater", "randomly", "xdist", "cacheprovider", "hypothesispytest"]
    return [
        *(sys.executable, "-m", "pytest", "-q", "test/integration"),
        *("-c", os.devnull, "--rootdir", str(folder), f"--junit-xml={report}"),
        *("--timeout", str(TEST_TIMEOUT_S), "--timeout-method", "signal"),
        *(part for plugin in plugins for part in ("-p", f"no:{plugin}")),
    ]


def _read(report: Path) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        module = case.get("classname", "").removeprefix("test.integration.")
        outcome = Outcome("passed", "")
        for result in case:
            if result.tag in {"failure", "error", "skipped"}:
                kind = "skipped" if result.tag == "skipped" else "failed"
                outcome = Outcome(kind, f"{result.get('message')}\n{result.text}")
        found[f"{module}::{case.get('name')}"] = outcome
    return found


def test_the_suite_is_passed(outcomes: dict[str, Outcome]) -> None:
    missed = {
        name: outcome.said
        for name, outcome in outcomes.items()
        if outcome.kind != "passed" and name not in EXCLUDED
    }

    assert not missed, "\n".join(f"{name}\n{said}" for name, said in missed.items())


def test_the_suite_is_whole(outcomes: dict[str, Outcome]) -> None:
    modules = {name.partition("::")[0].partition(".")[0] for name in outcomes}
    written = {
        path.stem for path in (peers.FETCHED / "kafka-python/test/integration").glob("test_*")
    }

    assert modules == written
    assert sum(outcome.kind == "passed" for outcome in outcomes.values()) >= 54


@pytest.mark.parametrize("name", EXCLUDED)
def test_an_excluded_test_still_does_not_pass(outcomes: dict[str, Outcome], name: str) -> None:
    assert name in outcomes, "there is no such test any more"
    assert outcomes[name].kind != "passed", "it passes: take it off the list"
    assert EXCLUDED[name].seen_by in outcomes[name].said, "it fails for another reason"
