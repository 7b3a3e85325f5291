"""Spark Connect: what the page says that works, works, and the rest is refused by name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.streams.remote import RemoteSessionError, refuse_remote
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.needs import require_sparks_own_start

PROGRAM = Path(__file__).with_name("connected.py")
TOPICS = ("orders", "copied", "streamed", "decoded", "letters", "counted")
WITHIN_S = 240


class Connected:
    """What the program has told, and the broker it has used."""

    def __init__(self, broker: Broker, told: dict[str, Any]) -> None:
        self.broker, self.told = broker, told


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    require_sparks_own_start()
    with EmbeddedBroker() as embedded:
        broker = Broker(HEADWATER, embedded.bootstrap_servers)
        for topic in TOPICS:
            broker.create(topic, partitions=2)
        values = [b'{"id": 1}', b'{"id": 2}', b"junk"]
        broker.send("orders", [(str(n).encode(), value) for n, value in enumerate(values)])
        # Where it is set, the server takes any free port.
        environment = {**os.environ, "SPARK_TESTING": "yes", "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), broker.bootstrap],
            cwd=tmp_path_factory.mktemp("connected"),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield Connected(broker, json.loads(done.stdout.splitlines()[-1]))


def test_topics_are_read_and_written_as_batches(connected: Connected) -> None:
    assert connected.told["batch_source"] == [1, 2]
    assert connected.broker.values("copied") == [b'{"id": 1}', b'{"id": 2}']


def test_topics_are_read_and_written_as_streams(connected: Connected) -> None:
    assert connected.told["stream"] is True
    assert connected.broker.values("streamed") == [b"junk", b'{"id": 1}', b'{"id": 2}']


def test_formats_that_python_decodes(connected: Connected) -> None:
    assert connected.told["avro"] == [0, 1]


def test_a_pipeline_with_dead_letters(connected: Connected) -> None:
    assert connected.told["pipeline"] == [3, 1, 0]
    assert connected.broker.values("decoded") == [b'{"id":1}', b'{"id":2}']
    (letter,) = connected.broker.read("letters")
    assert letter.value() == b"junk"


def test_an_aggregate_in_update_mode_over_a_repeated_batch(connected: Connected) -> None:
    assert connected.told["counted"] == "update"
    found = [(each.key(), each.value()) for each in connected.broker.read("counted")]
    assert sorted(found) == [(b"%d" % key, b'{"count":1}') for key in range(3)]


def test_another_plan_is_refused_there_too(connected: Connected) -> None:
    name, message, hint = connected.told["changed"]
    assert name == "PipelineChangedError"
    assert "Deduplicate was added" in message
    assert "headwater pipeline reset connected" in hint


def test_a_session_in_this_process_is_refused(connected: Connected) -> None:
    name, _, hint = connected.told["session"]
    assert name == "RemoteSessionError"
    assert "SparkSession.active()" in hint or "SparkSession.builder.remote(" in hint


def test_a_server_is_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_remote(None)
    refuse_remote("spark://cluster:7077")
    with pytest.raises(RemoteSessionError) as raised:
        refuse_remote("sc://cluster")
    assert 'SparkSession.builder.remote("sc://cluster")' in raised.value.hint
    monkeypatch.setenv("SPARK_REMOTE", "sc://other")
    with pytest.raises(RemoteSessionError) as raised:
        refuse_remote("local[2]")
    assert "sc://other" in raised.value.hint
