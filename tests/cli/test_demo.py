"""`headwater demo`: it shows what it says, counts right, and leaves nothing behind."""

import json
import os
import pty
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headwater.cli import demo
from headwater.cli.demo import Counted
from headwater.cli.demo_orders import PIPELINE
from headwater.cli.errors import Exit
from tests.cli.processes import command
from tests.cli.runner import Runner


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie whose parent is gone is as good as dead.
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_the_whole_story(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command("demo", "--for", "12s", "--rate", "300", "--no-spark"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.partition("* ")[2] for line in done.stdout.splitlines() if "* " in line]
    story = "\n".join(told)
    assert "a broker on 127.0.0.1:" in story
    assert "consumer-b is killed (SIGKILL)" in story
    assert "consumer-a has partitions 0, 1, 2, 3" in story
    assert "consumer-a has taken them over" in story
    assert "0 missing, 0 doubled" in done.stdout
    assert "0 lost, 0 counted twice" in done.stdout
    assert "orders-" in done.stdout, "the tail is shown"
    assert list(tmp_path.iterdir()) == []


def test_the_result_as_json(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo", "--for", "6s", "--rate", "100", "--no-spark", "--json"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["good"]
    assert result["written"] == result["in_log"] == result["counted"] > 0
    assert result["killed_after_s"] == pytest.approx(3, abs=2)
    assert result["taken_over_after_s"] > 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
def test_ctrl_c_at_a_terminal_ends_it_well(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {name: text for name, text in os.environ.items() if name != "CI"}
    process = subprocess.Popen(
        command("demo", "--rate", "100", "--no-spark"),
        env={**environment, "TMPDIR": str(tmp_path), "TERM": "xterm", "COLUMNS": "100"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    children: set[int] = set()
    try:
        while b"consumer-b has partitions" not in shown:
            shown += os.read(ours, 100_000)
        children = set(children_of(process.pid))
        assert len(children) == 4
        process.send_signal(signal.SIGINT)
        while b"headwater topic create" not in shown:
            shown += os.read(ours, 100_000)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"tail of orders" in shown
    assert b"0 missing, 0 doubled" in shown
    assert not [pid for pid in children if alive(pid)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for children in /proc")
def test_nobody_outlives_a_demo_that_was_killed(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("demo", "--rate", "100", "--no-spark"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "consumer-b has partitions" not in process.stdout.readline():
        pass
    children = children_of(process.pid)
    process.kill()
    process.communicate()
    deadline_s = time.monotonic() + 30
    while any(alive(pid) for pid in children):
        assert time.monotonic() < deadline_s, "a child was left behind"
        time.sleep(0.05)


def test_a_demo_too_short_for_a_takeover_is_refused(lone_cli: Runner) -> None:
    assert lone_cli.run("demo", "--for", "2s").code == Exit.USAGE
    assert lone_cli.run("demo", "--for", "soon").code == Exit.USAGE


def test_a_pipeline_that_cannot_run(
    lone_cli: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_JAVA_HOME", str(tmp_path))
    refused = lone_cli.run("demo", "--for", "6s", "--spark", "--json")
    assert refused.code == Exit.ENVIRONMENT
    assert refused.error()["code"] in ("NO_JAVA", "NO_SPARK")
    done = subprocess.run(
        command("demo", "--for", "6s", "--rate", "100", "--json"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["pipeline"] is None
    assert "pip install" in result["pipeline_missing"]


def test_a_pipeline_that_is_too_slow_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended whatever it does, and nothing is said of what it would have written."""
    monkeypatch.setattr(demo, "_STOP_S", 0.2)
    monkeypatch.setattr(demo, "_PIPELINE_S", 0.0)
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('[]')\n"
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(f"{program}time.sleep(600)\n")
    monkeypatch.setattr(demo, "_WORKER", "runpy")
    play = demo.Play(str(tmp_path), seconds=1, rate=1, quiet=True)
    child = play.children[PIPELINE] = demo.Child(PIPELINE, [str(stubborn)], tmp_path / "log")
    try:
        child.records = 3
        play._finish_pipeline(10)
        assert not child.alive
        assert "3 of 10 orders" in str(play.pipeline_missing)
        assert play._priced is None
    finally:
        child.process.kill()
        child.close()


def test_counting_is_right_in_any_order() -> None:
    """Ranges that overlap and come shuffled are counted as a set of offsets would be."""
    for seed in range(200):
        dice = random.Random(seed)
        counted = Counted()
        seen: set[int] = set()
        reported = fresh = 0
        ranges = []
        at = 0
        for _ in range(12):
            first = max(0, at - dice.randrange(3))
            last = first + dice.randrange(5)
            ranges.append((first, last))
            at = max(at, last + 1)
        dice.shuffle(ranges)
        for first, last in ranges:
            fresh += counted.add(0, first, last)
            seen |= set(range(first, last + 1))
            reported += last + 1 - first
        assert counted.total == len(seen) == fresh
        assert counted.again == reported - len(seen)
        assert counted.upto(0) == at
