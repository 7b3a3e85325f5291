"""The peers themselves: present, startable, and able to talk to Apache Kafka.

A fault here is a fault of the yardstick; read these results before those of any interop test.
"""

import subprocess
from pathlib import Path

import pytest

from tests import peers
from tests.peers.kafka_server import ApacheKafka

COUNT = 5
EXPECTED = [f"key-{i}=value-{i}" for i in range(COUNT)]


def create_topic(bootstrap: str, name: str) -> None:
    peers.java(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", bootstrap, "--create", "--topic", name, "--partitions", "1"),
    )


def test_an_absent_peer_is_a_skip_that_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PRESENT, "kcat", lambda: False)
    monkeypatch.delenv("HEADWATER_PEERS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="make peers"):
        peers.require("kcat")


def test_an_absent_peer_is_a_failure_where_peers_are_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(peers.PRESENT, "kcat", lambda: False)
    monkeypatch.setenv("HEADWATER_PEERS", "required")
    with pytest.raises(pytest.fail.Exception, match="make peers"):
        peers.require("kcat")


def test_a_present_peer_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PRESENT, "kcat", lambda: True)
    peers.require("kcat")


@pytest.mark.parametrize("jars", ["kafka-4.3", "clients-3.9"])
def test_java_clients(apache_kafka: str, tmp_path: Path, jars: peers.Jars) -> None:
    peers.require("javac")
    peers.require("kafka" if jars == "kafka-4.3" else jars)
    topic = f"java-{jars}"
    create_topic(apache_kafka, topic)
    classes = peers.compile_java(peers.HERE / "RoundTrip.java", tmp_path, jars=jars)
    done = peers.java(
        "RoundTrip", apache_kafka, topic, "readers", str(COUNT), jars=jars, more=[classes]
    )
    assert [line for line in done.stdout.splitlines() if "=" in line] == EXPECTED


def test_kafkajs(apache_kafka: str) -> None:
    peers.require("kafkajs")
    create_topic(apache_kafka, "node")
    command = ["node", str(peers.HERE / "roundtrip.js"), apache_kafka, "node", "js", str(COUNT)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=peers.node_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == EXPECTED


def test_kcat(apache_kafka: str) -> None:
    peers.require("kcat")
    create_topic(apache_kafka, "cat")
    lines = "".join(f"{line}\n" for line in EXPECTED)
    to_topic = ["kcat", "-b", apache_kafka, "-t", "cat"]
    subprocess.run([*to_topic, "-P", "-K", "="], input=lines, text=True, timeout=60, check=True)
    read = subprocess.run(
        [*to_topic, "-C", "-e", "-q", "-K", "="],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert read.stdout.split() == EXPECTED


def test_dump_log_segments(apache_kafka_node: ApacheKafka) -> None:
    create_topic(apache_kafka_node.bootstrap, "dumped")
    peers.java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", apache_kafka_node.bootstrap, "--topic", "dumped"),
        *("--num-records", "10", "--record-size", "20", "--throughput", "-1"),
    )
    segment = apache_kafka_node.log_dir / "dumped-0" / ("0" * 20 + ".log")
    done = peers.java(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(segment)
    )
    assert done.stdout.count("| offset: ") == 10
