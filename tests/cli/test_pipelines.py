"""`headwater pipeline`: what is told of and done to pipelines, without Spark."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from headwater.base.directory_lock import RealLock
from headwater.cli import run_file
from headwater.cli.errors import Exit
from headwater.cli.run import maybe_watermark_text
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.transactor import Transactor
from headwater.streams.client_options import client_options
from headwater.streams.running.checkpoints import Checkpoint, Note
from headwater.streams.sink.marker import Marker
from headwater.streams.sink.marker_log import MarkerLog
from headwater.streams.time.fold import Report
from headwater.streams.time.records import report_record
from headwater.streams.time.time_log import TimeWriter, forget_query
from tests.cli.processes import command
from tests.cli.runner import Runner

BATCH = {
    "pipeline": "revenue",
    "batch": 12,
    "at": "2026-11-16T08:00:12.000Z",
    "rows": 3_000,
    "rows_per_second": 1_500.5,
    "lag": 42,
    "took_ms": 2_000,
    "undecodable": 3,
    "late_rows": 1,
    "no_time_rows": 4,
    "future_rows": 2,
    "watermark": "2026-11-16T08:00:00.250Z",
    "watermark_behind_ms": 12_000,
    "state_rows": 10,
    "state_bytes": 2_048,
}
# A driver: it holds the lock until it is told to stop.
DRIVER = """
import signal, sys
from pathlib import Path
from headwater.streams.running.checkpoints import Checkpoint, Note
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if sys.argv[2] == "polite" else None)
with Checkpoint(Path(sys.argv[1]), "revenue").locked():
    print("held", flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "headwater-data"


@pytest.fixture
def revenue(data: Path) -> Checkpoint:
    checkpoint = Checkpoint(data, "revenue")
    with checkpoint.locked():
        checkpoint.begin(Note("revenue", file="/x/revenue.py", to="out", spark="4.3.0"))
        checkpoint.keep_progress(BATCH)
        checkpoint.end(None)
    checkpoint.log.parent.mkdir()
    checkpoint.log.write_text("".join(f"line {i}\n" for i in range(200)))
    return checkpoint


def drive(data: Path, manner: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DRIVER, str(data), manner]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_none_has_run(lone_cli: Runner) -> None:
    result = lone_cli.ok("pipeline", "ls")
    assert result.stdout == b""
    assert "headwater run" in result.stderr
    assert lone_cli.ok("pipeline", "ls", "--json").json() == {"pipelines": []}


def test_the_list(lone_cli: Runner, revenue: Checkpoint) -> None:
    (head, line) = lone_cli.ok("pipeline", "ls").lines
    assert head.split()[4:] == ["LAST", "BATCH", "BEGUN", "AT", "ROWS/S", "LAG", "THEN"]
    moment = "2026-11-16T08:00:12.000Z"
    assert line.split() == ["revenue", "stopped", "-", "out", "12", moment, "1500.5", "42"]
    (told,) = lone_cli.ok("pipeline", "ls", "--json").json()["pipelines"]
    assert told["last_batch"] == BATCH
    assert told["file"] == "/x/revenue.py"


def test_up_to_now_and_again_and_again_exclude_each_other(lone_cli: Runner) -> None:
    told = lone_cli.run("run", "shop.py", "--once", "--every", "5 seconds")
    assert told.code == Exit.USAGE
    assert "--once and --every exclude each other" in told.stderr


def test_the_state_of_one(lone_cli: Runner, revenue: Checkpoint) -> None:
    text = lone_cli.ok("pipeline", "status", "revenue").text
    for part in ("3,000 rows", "1,500 rows/s", "lag 42", "2.0 s", "3 undecodable", "1 late"):
        assert part in text
    assert "4 without a time, 2 from the future" in text
    assert "2026-11-16 08:00:00, 12.0 s behind the clock of the last batch" in text
    assert "10 rows, 2.0 KiB" in text
    revenue.end("it broke")
    told = lone_cli.ok("pipeline", "status", "revenue", "--json").json()
    assert (told["state"], told["error"]) == ("failed", "it broke")
    assert "it broke" in lone_cli.ok("pipeline", "status", "revenue").text


def test_how_far_the_watermark_is_from_the_clock() -> None:
    at_ms = 1_794_816_000_250
    assert maybe_watermark_text(BATCH, at_ms + 90_000) == (
        "2026-11-16 08:00:00, 1 m 30 s behind the clock"
    )
    assert maybe_watermark_text(BATCH, at_ms - 3_000) == (
        "2026-11-16 08:00:00, 3.0 s ahead of the clock"
    )
    for unknown in ({}, {"watermark": None, "watermark_behind_ms": None}):
        assert maybe_watermark_text(unknown, at_ms) is None


@pytest.mark.parametrize(
    "arguments", [["status"], ["logs"], ["stop"], ["reset", "--yes"]], ids=lambda each: each[0]
)
def test_an_unknown_name_is_3_and_the_nearest_one_is_named(
    lone_cli: Runner, revenue: Checkpoint, arguments: list[str]
) -> None:
    result = lone_cli.run("pipeline", *arguments, "revenu", "--json")
    assert result.code == Exit.NOT_FOUND
    assert result.error()["code"] == "PIPELINE_NOT_FOUND"
    assert "did you mean 'revenue'?" in result.error()["message"]
    assert "headwater pipeline ls" in result.error()["hint"]


def test_the_log(lone_cli: Runner, revenue: Checkpoint) -> None:
    assert len(lone_cli.ok("pipeline", "logs", "revenue").lines) == 100
    assert lone_cli.ok("pipeline", "logs", "revenue", "-n", "2").lines == ["line 198", "line 199"]
    told = lone_cli.ok("pipeline", "logs", "revenue", "-n", "1", "--json").json_lines()
    assert told == [{"line": "line 199"}]
    assert lone_cli.ok("pipeline", "logs", "revenue", "-n", "0").lines == []


@contextmanager
def following(folder: Path) -> Iterator[IO[bytes]]:
    """Follow the log from its last line on."""
    follow = command("pipeline", "logs", "revenue", "-n", "1", "-f")
    with subprocess.Popen(follow, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()


def test_the_log_as_it_grows(revenue: Checkpoint, tmp_path: Path) -> None:
    with following(tmp_path) as lines:
        assert lines.readline() == b"line 199\n"
        with revenue.log.open("a") as log:
            log.write("half")
            log.flush()
            log.write(" a line\nnext\n")
        assert lines.readline() == b"half a line\n"
        assert lines.readline() == b"next\n"


def test_a_line_is_not_torn_where_following_begins(revenue: Checkpoint, tmp_path: Path) -> None:
    with revenue.log.open("a") as log:
        log.write("half")
    with following(tmp_path) as lines:
        assert lines.readline() == b"line 199\n"
        with revenue.log.open("a") as log:
            log.write(" a line\n")
        assert lines.readline() == b"half a line\n"


def test_stop_waits_for_the_end(lone_cli: Runner, revenue: Checkpoint, data: Path) -> None:
    driver = drive(data, "polite")
    try:
        assert lone_cli.ok("pipeline", "ls").lines[1].split()[1:3] == ["running", str(driver.pid)]
        told = lone_cli.ok("pipeline", "stop", "revenue", "--json").json()
        assert told == {"pipeline": "revenue", "pid": driver.pid, "stopped": True}
        assert driver.wait(timeout=30) == 0
    finally:
        driver.kill()
        driver.communicate()
    again = lone_cli.run("pipeline", "stop", "revenue", "--json")
    assert again.code == Exit.NOT_FOUND
    assert again.error()["code"] == "NOT_RUNNING"


def test_stop_does_not_wait_for_ever(lone_cli: Runner, revenue: Checkpoint, data: Path) -> None:
    driver = drive(data, "deaf")
    try:
        result = lone_cli.run("pipeline", "stop", "revenue", "--timeout", "0.2", "--json")
        assert result.code == Exit.UNREACHABLE
        assert f"kill -9 {driver.pid}" in result.error()["hint"]
    finally:
        driver.kill()
        driver.communicate()


@pytest.mark.parametrize(
    "error, expected",
    [(ProcessLookupError, None), (PermissionError, (Exit.NOT_ALLOWED, "NOT_ALLOWED"))],
)
def test_stop_of_a_process_that_is_gone_or_anothers(
    lone_cli: Runner,
    revenue: Checkpoint,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[OSError],
    expected: tuple[Exit, str] | None,
) -> None:
    driver = drive(data, "polite")
    kill = os.kill

    def ended_before(pid: int, number: int) -> None:
        assert (pid, number) == (driver.pid, signal.SIGTERM)
        kill(pid, signal.SIGKILL)
        driver.wait()
        raise error

    monkeypatch.setattr(os, "kill", ended_before)
    try:
        result = lone_cli.run("pipeline", "stop", "revenue", "--json")
    finally:
        monkeypatch.undo()
        driver.kill()
        driver.communicate()
    if expected is None:
        assert result.json()["stopped"]
    else:
        assert (result.code, result.error()["code"]) == expected
        assert str(driver.pid) in result.error()["hint"]


@pytest.mark.parametrize("name", ["revenue", "new"])
@pytest.mark.parametrize("state", ["starting", "waiting", "running"])
def test_stop_of_one_that_up_is_about_to_start(
    lone_cli: Runner, revenue: Checkpoint, data: Path, name: str, state: str
) -> None:
    told = [{"name": "other", "state": "stopped"}, {"name": name, "state": state}]
    (data / "pipelines.run").write_text(json.dumps(told))
    left = lone_cli.run("pipeline", "stop", name, "--json")
    assert left.code == Exit.NOT_FOUND, "word that a killed one has left is not believed"
    (data / "log").mkdir()
    lock = RealLock(str(data / "log" / ".lock"))
    try:
        run_file.write(str(data), run_file.Running(os.getpid(), "127.0.0.1:9092", 1))
        result = lone_cli.run("pipeline", "stop", name, "--json")
    finally:
        lock.release()
    assert result.code == Exit.IN_THE_WAY
    assert "headwater up will start it" in result.error()["message"]


def test_reset(lone_cli: Runner, revenue: Checkpoint, data: Path) -> None:
    asked = lone_cli.run("pipeline", "reset", "revenue", "--json")
    assert asked.code == Exit.IN_THE_WAY
    assert asked.error()["code"] == "NOT_CONFIRMED"
    assert revenue.exists()

    driver = drive(data, "polite")
    try:
        busy = lone_cli.run("pipeline", "reset", "revenue", "--yes", "--json")
    finally:
        driver.kill()
        driver.communicate()
    assert busy.code == Exit.IN_THE_WAY
    assert busy.error()["code"] == "PIPELINE_RUNNING"
    assert "headwater pipeline stop revenue" in busy.error()["hint"]
    assert revenue.exists()

    assert lone_cli.ok("pipeline", "reset", "revenue", "--yes", "--json").json() == {
        "pipeline": "revenue",
        "reset": True,
    }
    assert not revenue.exists()
    assert revenue.log.exists(), "what happened is still known"


def test_reset_lets_the_broker_forget(lone_cli: Runner, ours: str, revenue: Checkpoint) -> None:
    queries = ("of-revenue", "of-another")
    with Cluster(ours) as cluster:
        for query_id in queries:
            log = MarkerLog(cluster, query_id, "sink")
            log.prepare()
            transactor = Transactor(cluster, query_id)
            marker = Marker(7, "run", transactor.begin())
            transactor.send(log.batches(marker))
            transactor.commit()
        options = client_options({})
        reports = [report_record(each, "at", ("t", 0), Report(5, 0, 9, 0)) for each in queries]
        with closing(TimeWriter(ours, options)) as writer:
            writer.write(reports)
    Path(revenue.location).mkdir()
    Path(revenue.location, "metadata").write_text('{"id": "of-revenue"}')

    lone_cli.ok("pipeline", "reset", "revenue", "--yes", "--bootstrap", ours)

    with Cluster(ours) as cluster:
        seen = [MarkerLog(cluster, each, "sink").read() for each in queries]
        assert [each.committed and each.committed.batch_id for each in seen] == [None, 7]
        # What is asked to be forgotten a second time is not there.
        assert [forget_query(cluster, each) for each in queries] == [0, 1]


def test_another_data_directory(lone_cli: Runner, revenue: Checkpoint, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    assert lone_cli.ok("pipeline", "ls", "--data", other, "--json").json() == {"pipelines": []}


def test_a_backfill_begins_at_a_time(lone_cli: Runner) -> None:
    arguments = ["pipeline", "backfill", "f.py", "--from", "17", "--into", "t"]
    result = lone_cli.run(*arguments, "--json")
    assert result.code == Exit.USAGE
    assert "offsets differ by partition" in json.loads(result.stderr)["error"]["message"]
