"""`headwater doctor` and `headwater config show`."""

import os
import resource
import shutil
import socket
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import doctor
from headwater.cli.errors import Exit
from headwater.delivery.wire.kafka import messages
from headwater.streams.java import Java, JavaMissingError
from headwater.streams.session import SparkMissingError
from headwater.testing.broker import EmbeddedBroker
from tests.cli.processes import running
from tests.cli.runner import Result, Runner
from tests.contracts.kit import Subject, create_topic
from tests.contracts.producers import Client
from tests.delivery.client.scripted_broker import ScriptedBroker, one_node

METADATA, LIST_GROUPS, DESCRIBE_PRODUCERS = 3, 16, 61
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66
Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil.disk_usage gives it


def findings(result: Result) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in result.json()["findings"]}


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_machine_that_is_fine(lone_cli: Runner, tmp_path: Path) -> None:
    with running(tmp_path) as up:
        address = up.ready()["address"]
        result = lone_cli.ok("doctor", "--json")
        found = findings(result)
        assert result.json()["healthy"]
        # Where Spark cannot be started, nothing more is asked of it.
        assert set(found) - {"workers", "java"} == {
            *(
                "spark",
                "python",
                "system",
                "file limit",
                "clock",
                "data",
                "disk space",
                "sync",
                "port",
            ),
            *("broker", "transactions"),
        }
        assert found["transactions"]["seen"] == "none is open"
        assert address in found["port"]["seen"]
        assert address in found["broker"]["seen"]
        assert f"process {up.process.pid}" in found["data"]["seen"]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["headwater-data", "stdin"], "it leaves nothing behind"


@pytest.fixture
def spark_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_spark", lambda: "4.3.0")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def pipeline_findings() -> dict[str, doctor.Finding]:
    return {each.check: each for each in doctor.check_pipelines()}


def test_no_spark_is_no_problem_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise SparkMissingError("PySpark is not installed", hint="pip install it")

    monkeypatch.setattr(doctor, "check_spark", absent)
    found = pipeline_findings()
    assert set(found) == {"spark"}
    assert (found["spark"].state, found["spark"].hint) == (doctor.OK, "pip install it")


def test_an_old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_spark", lambda: "3.5.1")
    assert pipeline_findings()["spark"].state == doctor.PROBLEM


@pytest.mark.usefixtures("spark_is_there")
def test_no_java(monkeypatch: pytest.MonkeyPatch, lone_cli: Runner) -> None:
    def absent() -> Java:
        raise JavaMissingError("none was found", hint="apt install one")

    monkeypatch.setattr(doctor, "find_java", absent)
    result = lone_cli.run("doctor", "--listen", free_address(), "--json")
    assert result.code == Exit.ENVIRONMENT
    java = findings(result)["java"]
    assert (java["state"], java["hint"]) == (doctor.PROBLEM, "apt install one")


@pytest.mark.usefixtures("spark_is_there")
def test_workers_on_another_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert pipeline_findings()["workers"].state == doctor.OK
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert pipeline_findings()["workers"].state == doctor.OK
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "none"))
    assert pipeline_findings()["workers"].state == doctor.PROBLEM
    monkeypatch.setenv("PYSPARK_PYTHON", str(shutil.which("sh")))
    found = pipeline_findings()["workers"]
    assert found.state == doctor.WARNING
    assert "unset PYSPARK_PYTHON" in found.hint


def test_a_transaction_that_is_held_open(
    cli: Runner, bootstrap: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Subject("either", bootstrap).connect() as talk:
        topic = create_topic(talk, partitions=2)
        client = Client(talk, name)
        client.find()
        client.init(timeout_ms=900_000)
        client.add_all({(topic.name, 0), (topic.name, 1)})

        def ours(found: dict[str, Any]) -> dict[str, Any]:
            (detail,) = [one for one in found["details"] if one["transactional_id"] == name]
            return dict(detail)

        young = findings(cli.ok("doctor", "--json"))["transactions"]
        detail = ours(young)
        producer_id, epoch = client.me
        assert (detail["producer_id"], detail["producer_epoch"]) == (producer_id, epoch)
        assert (detail["timeout_ms"], detail["partitions"]) == (900_000, 2)
        assert 0 <= detail["age_ms"] < 60_000
        assert (detail["late"], detail["hangs"]) == (False, None)
        monkeypatch.setattr(doctor, "_OPEN_S_MAX", -1)
        # Other tests leave transactions open too.
        monkeypatch.setattr(doctor, "_DETAILS_MAX", 1_000)
        old = findings(cli.ok("doctor", "--json"))["transactions"]
        assert old["state"] == "warning"
        assert "time-out" in old["hint"]
        assert ours(old)["late"]
        text = cli.ok("doctor").text
        assert f"{name!r} (producer {producer_id} epoch {epoch}), open" in text
        assert "of at most 15 m 0 s" in text
        client.end(commit=False)

    assert not [
        one
        for one in findings(cli.ok("doctor", "--json"))["transactions"]["details"]
        if one["transactional_id"] == name
    ]


class HangingTransactions:
    """A broker with one transaction that its coordinator knows, and some that it does not."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        # Producer id, when it wrote last, for how many questions it is still there.
        self.in_log = {1: (now_ms, 9), 7: (now_ms - 120_000, 9), 8: (now_ms - 120_000, 1)}
        self.asked = 0

    def answer(self, key: int, version: int, request: Any) -> Any:  # noqa: ANN401 - any message
        if key == METADATA:
            return one_node(self.broker.port, "t")
        if key == LIST_GROUPS:
            return messages.ListGroupsResponse()
        if key == LIST_TRANSACTIONS:
            listed = messages.ListTransactionsResponse.TransactionState("known", 1, "Ongoing")
            return messages.ListTransactionsResponse(transaction_states=[listed])
        if key == DESCRIBE_TRANSACTIONS:
            state = messages.DescribeTransactionsResponse.TransactionState(
                0, "known", "Ongoing", 20_000, self.now_ms - 30_000, 1, 0, []
            )
            return messages.DescribeTransactionsResponse(transaction_states=[state])
        assert key == DESCRIBE_PRODUCERS
        self.asked += 1
        response = messages.DescribeProducersResponse
        active = [
            response.ProducerState(
                producer_id=each,
                producer_epoch=3,
                last_timestamp=last_ms,
                current_txn_start_offset=each * 100,
            )
            for each, (last_ms, times) in self.in_log.items()
            if self.asked <= times
        ] + [response.ProducerState(producer_id=9, current_txn_start_offset=-1)]
        partition = response.PartitionResponse(partition_index=0, active_producers=active)
        return response(topics=[response.TopicResponse("t", [partition])])

    def __enter__(self) -> str:
        self.broker = ScriptedBroker(self.answer)
        return self.broker.address

    def __exit__(self, *_: object) -> None:
        self.broker.__exit__()


def test_a_transaction_that_nobody_will_end(lone_cli: Runner) -> None:
    with HangingTransactions(time.time_ns() // 1_000_000) as address:
        found = findings(lone_cli.ok("doctor", "--json", "-b", address))["transactions"]

    hanging, known = found["details"]
    assert found["state"] == "warning"
    assert (hanging["transactional_id"], hanging["producer_id"]) == (None, 7)
    assert hanging["hangs"] == {"topic": "t", "partition": 0, "offset": 700}
    assert hanging["late"]
    assert "abort --topic t --partition 0 --start-offset 700" in found["hint"]
    assert (known["transactional_id"], known["hangs"]) == ("known", None)
    assert known["late"], "it is open for longer than its time-out"


def test_no_broker_is_only_a_warning_unless_it_was_named(lone_cli: Runner) -> None:
    address = free_address()
    unasked = findings(lone_cli.ok("doctor", "--listen", address, "--json"))
    assert unasked["broker"]["state"] in {"ok", "warning"}
    asked = lone_cli.run("doctor", "--listen", address, "-b", address, "--json")
    assert asked.code == Exit.ENVIRONMENT
    assert findings(asked)["broker"]["state"] == "problem"
    assert "headwater up" in findings(asked)["broker"]["hint"]


def test_a_taken_port(lone_cli: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = lone_cli.run("doctor", "--listen", f"127.0.0.1:{port}", "--json")
    assert result.code == Exit.ENVIRONMENT
    assert findings(result)["port"]["state"] == "problem"
    assert "--listen" in findings(result)["port"]["hint"]


def test_a_full_disk(lone_cli: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 << 30, 0, 1 << 20))
    result = lone_cli.run("doctor", "--listen", free_address(), "--json")
    assert result.code == Exit.ENVIRONMENT
    assert findings(result)["disk space"]["state"] == "problem"


def test_a_directory_of_a_newer_program(lone_cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "headwater-data").mkdir()
    (tmp_path / "headwater-data" / "VERSION").write_text("99")
    result = lone_cli.run("doctor", "--listen", free_address(), "--json")
    assert "layout 99" in findings(result)["data"]["seen"]


def test_a_directory_that_cannot_be_written(lone_cli: Runner, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = lone_cli.run("doctor", "--data", "file/data", "--listen", free_address(), "--json")
    assert result.code == Exit.ENVIRONMENT
    found = findings(result)
    assert found["data"]["state"] == "problem"
    assert found["data"]["seen"].endswith("file is a file, and no directory")
    assert "chown" not in found["data"]["hint"]
    assert found["sync"]["state"] == "problem"


def test_nobody_is_told_to_take_what_is_not_ours(
    lone_cli: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    place = tmp_path / "place"
    place.mkdir()

    def hint(path: Path) -> str:
        result = lone_cli.run("doctor", "--data", str(path), "--listen", free_address(), "--json")
        found = findings(result)["data"]
        assert found["state"] == "problem"
        return str(found["hint"])

    assert "chown" not in hint(place / "data")
    assert "chown" not in hint(place)
    (place / "VERSION").write_text("1\n")
    assert hint(place).endswith(f"chown -R $USER {place}")


def test_a_directory_that_cannot_be_looked_at(lone_cli: Runner) -> None:
    result = lone_cli.run("doctor", "--data", "x" * 300, "--listen", free_address(), "--json")
    assert result.code == Exit.ENVIRONMENT
    found = findings(result)
    assert found["data"]["state"] == "problem"
    assert "too long" in found["data"]["seen"]


def test_a_low_file_limit_and_a_slow_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    assert doctor.check_file_limit().state == "warning"
    monkeypatch.setattr(doctor, "_sync_ms", lambda _: 80.0)
    assert doctor.check_sync(str(tmp_path)).state == "warning"


def test_a_wrong_clock_and_an_old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert doctor.check_clock().state == "problem"
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    assert doctor.check_python().state == "problem"


def test_the_doctor_for_people(lone_cli: Runner) -> None:
    result = lone_cli.run("doctor", "--listen", free_address(), "-b", free_address())
    assert result.code == Exit.ENVIRONMENT
    assert any(line.startswith("ok       python") for line in result.lines)
    assert any(line.startswith("problem  broker") for line in result.lines)
    assert "1 problem found" in result.stderr


def test_the_doctor_knows_apache_kafka(cli: Runner, bootstrap: str) -> None:
    assert findings(cli.run("doctor", "--json"))["broker"]["state"] == "ok"


# --- config -------------------------------------------------------------------------------------


def test_origins(lone_cli: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headwater.toml").write_text('[broker]\nlog.retention.ms = "3d"\nnode.id = 2\n')
    monkeypatch.setenv("HEADWATER_NODE_ID", "3")
    result = lone_cli.ok("config", "show", "--set", "num.partitions=4", "--json")
    shown = {each["name"]: each for each in result.json()["settings"]}
    assert (shown["log.retention.ms"]["value"], shown["log.retention.ms"]["origin"]) == (
        "259200000",
        "headwater.toml",
    )
    assert (shown["node.id"]["value"], shown["node.id"]["origin"]) == ("3", "HEADWATER_NODE_ID")
    assert shown["num.partitions"]["origin"] == "flag num.partitions"
    assert shown["group.max.size"]["origin"] == "default"
    changed = lone_cli.ok("config", "show", "--changed", "--origin").lines
    assert [line.split()[0] for line in changed] == ["SETTING", "node.id", "log.retention.ms"]


def test_one_setting_with_its_meaning(lone_cli: Runner) -> None:
    head, row = lone_cli.ok("config", "show", "node.id", "--explain").lines
    assert head.split() == ["SETTING", "VALUE", "MEANING"]
    assert row == "node.id  1      The id of this broker."
    assert lone_cli.run("config", "show", "nod.id").code == Exit.USAGE


def test_settings_that_are_shown_are_those_a_broker_has(lone_cli: Runner) -> None:
    """What the broker itself answers over the protocol is what was shown beforehand."""
    shown = {
        each["name"]: each["value"]
        for each in lone_cli.ok("config", "show", "--json").json()["settings"]
    }
    with EmbeddedBroker() as broker:
        settings = broker.node.broker.settings
        for name in ("num.partitions", "log.retention.hours", "message.max.bytes"):
            assert settings.render(name) == shown[name]


def test_a_misspelt_variable_is_warned_of(
    lone_cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_NUM_PARTITIONZ", "4")
    assert "HEADWATER_NUM_PARTITIONS" in lone_cli.ok("config", "show").stderr
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", "localhost:9092")
    assert "BOOTSTRAP" not in lone_cli.ok("config", "show").stderr
