"""`headwater run` and what belongs to it, as processes with a Spark of their own."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.errors import Exit
from headwater.streams.running.checkpoints import Checkpoint
from tests.cli.processes import command, running
from tests.cli.runner import Runner
from tests.streams.brokers import Broker
from tests.streams.needs import require_spark

WITHIN_S = 240.0
pytestmark = pytest.mark.timeout(900)
FILE = """
import headwater as hw
from pyspark.sql import functions as F

spark = hw.session(master="local[2]", config={"spark.driver.memory": "1g"})
orders = (
    spark.readStream.format("headwater")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .load()
)
text = F.upper(F.col("value").cast("string"))
rows = orders.select("key", text.alias("value"))
hw.pipeline("shout", rows).to(hw.topic("shouted")).run()
"""


@pytest.fixture(autouse=True, scope="module")
def spark_can_start() -> None:
    require_spark()


def finished(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


class Home:
    """A folder with a running `headwater up` and a file of pipelines."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.file = folder / "pipelines.py"
        self.file.write_text(FILE)
        self.broker = Broker("headwater", bootstrap)
        self.broker.create("orders", partitions=2)
        self.broker.create("shouted", partitions=2)
        self.checkpoint = Checkpoint(folder / "headwater-data", "shout")

    def send(self, *values: str) -> None:
        self.broker.send("orders", [(value.encode(), value.encode()) for value in values])

    def written(self, topic: str = "shouted") -> list[bytes | None]:
        return self.broker.values(topic)

    def wait_for(self, rows: int) -> None:
        end_s = time.monotonic() + WITHIN_S
        while len(self.written()) < rows:
            assert time.monotonic() < end_s, self.checkpoint.log.read_text()
            time.sleep(0.2)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with running(tmp_path) as up:
        yield Home(tmp_path, up.ready()["address"])


def test_shown_then_run_then_repeated(home: Home, lone_cli: Runner) -> None:
    home.send("a", "b", "c")
    shown = finished(home.folder, "dry-run", "pipelines.py", "--rows", "2", "--json")
    assert shown.returncode == 0, shown.stderr
    (report,) = json.loads(shown.stdout)["pipelines"]
    assert report["reads"] == ["orders"]
    assert report["writes"] == [{"topic": "shouted", "exists": True}]
    assert [(each["verb"], each["text"]) for each in report["steps"]] == [
        ("read", "orders"),
        ("select", "value = upper(cast(value as string)), key"),
        ("write", "shouted: records as they are"),
    ]
    assert (report["rows_read"], len(report["sample"])) == (3, 2)
    assert {row["value"] for row in report["sample"]} <= {"A", "B", "C"}
    assert report["unchanged"]
    assert all(each["before"] == each["after"] == 0 for each in report["ends"])
    assert home.written() == []
    assert not home.checkpoint.folder.exists()
    assert lone_cli.ok("group", "ls", "--json").json() == {"groups": []}

    ran = finished(home.folder, "run", "pipelines.py:shout", "--once", "--json")
    assert ran.returncode == 0, ran.stderr
    batches = [json.loads(line) for line in ran.stdout.splitlines()]
    assert sum(batch["rows"] for batch in batches) == 3
    assert batches[-1]["lag"] == 0
    assert home.written() == [b"A", b"B", b"C"]
    (told,) = lone_cli.ok("pipeline", "ls", "--json").json()["pipelines"]
    assert (told["state"], told["file"]) == ("stopped", str(home.file))

    refused = finished(
        home.folder,
        *("pipeline", "backfill", "pipelines.py", "--from", "-1h", "--into", "shouted", "--json"),
    )
    assert refused.returncode == Exit.BAD_DATA
    assert "rows twice" in json.loads(refused.stderr.splitlines()[-1])["error"]["message"]
    home.broker.create("again")
    again = finished(
        home.folder,
        *("pipeline", "backfill", "pipelines.py", "--from", "beginning", "--into", "again"),
    )
    assert again.returncode == 0, again.stderr
    assert home.written("again") == [b"A", b"B", b"C"]
    assert len(home.written()) == 3
    assert [each["pipeline"] for each in pipelines(lone_cli)] == ["shout"]

    home.file.write_text(
        FILE.replace('orders.select("key"', 'orders.dropDuplicates(["key"]).select("key"')
    )
    changed = finished(home.folder, "run", "pipelines.py", "--once", "--json")
    assert changed.returncode == Exit.IN_THE_WAY
    error = json.loads(changed.stderr.splitlines()[-1])["error"]
    assert error["code"] == "PIPELINE_CHANGED"
    assert "headwater pipeline reset shout" in error["hint"]


def pipelines(cli: Runner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli.ok("pipeline", "ls", "--json").json()["pipelines"]
    return found


@contextmanager
def started(home: Home) -> Iterator[subprocess.Popen[str]]:
    run = command("run", "pipelines.py")
    with subprocess.Popen(run, cwd=home.folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_it_well(home: Home) -> None:
    with started(home) as process:
        home.send("x")
        home.wait_for(1)
        assert home.checkpoint.pid() == process.pid
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, said
    assert "running shout" in said
    assert "shout: batch 0, 1 row," in said
    assert said.splitlines()[-1] == "stopped shout"
    assert "ERROR" not in said
    assert home.checkpoint.state() == "stopped"


def test_a_jvm_that_is_killed_is_named(home: Home) -> None:
    with started(home) as process:
        home.send("x")
        home.wait_for(1)
        children = Path(f"/proc/{process.pid}/task").glob("*/children")
        for child in " ".join(each.read_text() for each in children).split():
            os.kill(int(child), signal.SIGKILL)
        _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == Exit.FAILED, said
    assert "pipeline 'shout' failed: Spark's JVM has ended" in said
    assert home.checkpoint.state() == "failed"


def test_a_topic_that_is_not_there_is_told_before_anything_runs(home: Home) -> None:
    home.file.write_text(FILE.replace('"shouted"', '"shoutd"'))
    told = finished(home.folder, "run", "pipelines.py", "--once")
    assert told.returncode == Exit.NOT_FOUND
    first, second = told.stderr.splitlines()
    assert first.endswith("topic 'shoutd' not found - did you mean 'shouted'?")
    assert "headwater topic create shoutd" in second
    assert not home.checkpoint.exists()


def test_to_be_stopped_before_anything_runs_is_no_failure(home: Home) -> None:
    slow = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(600)"
    home.file.write_text(f"try:\n    {slow}\nexcept Exception:\n    pass\n")
    with started(home) as process:
        end_s = time.monotonic() + WITHIN_S
        while not (home.folder / "begun").exists():
            assert process.poll() is None
            assert time.monotonic() < end_s
            time.sleep(0.05)
        process.terminate()
        _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, said


def test_up_starts_again_what_was_killed(tmp_path: Path, lone_cli: Runner) -> None:
    (tmp_path / "pipelines.py").write_text(FILE)
    (tmp_path / "headwater.toml").write_text('[pipelines.shout]\nfile = "pipelines.py"\n')
    with running(tmp_path) as up:
        home = Home(tmp_path, up.ready()["address"])
        home.send("a")
        home.wait_for(1)
        driver = home.checkpoint.pid()
        assert driver is not None
        os.kill(driver, signal.SIGKILL)
        home.send("b")
        home.wait_for(2)
        (told,) = lone_cli.ok("status", "--json").json()["pipelines"]
        assert (told["name"], told["state"], told["last_exit"]) == ("shout", "running", -9)
        assert told["pid"] == home.checkpoint.pid() != driver
        assert home.written() == [b"A", b"B"]
        up.send(signal.SIGTERM)
        assert up.end(within_s=WITHIN_S) == Exit.DONE
    assert home.checkpoint.state() == "stopped"


FAILING = FILE.replace(
    'text = F.upper(F.col("value").cast("string"))',
    """
@F.udf("string")
def shouted(value):
    return {"a": "A"}[bytes(value).decode()]


text = shouted("value")""",
)


def test_a_failure_is_told_without_javas_frames_and_with_its_traceback(home: Home) -> None:
    home.file.write_text(FAILING)
    home.send("a", "what no udf knows")
    ran = finished(home.folder, "run", "pipelines.py", "--once")
    assert ran.returncode == Exit.FAILED, ran.stderr
    lines = ran.stderr.splitlines()
    assert not [line for line in lines if line.startswith(("\tat ", "Caused by:"))], ran.stderr
    assert len(lines) < 60, ran.stderr
    assert any("in shouted" in line for line in lines)
    assert any("KeyError: 'what no udf knows'" in line for line in lines)
    assert "in shouted" in home.checkpoint.log.read_text()
