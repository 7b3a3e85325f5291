"""Pipelines that `headwater up` keeps running: which, when they start again, how they end."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from headwater.cli.errors import CommandError, Exit
from headwater.cli.supervisor import Listed, Supervisor, listed_pipelines, read_supervised
from tests.cli.processes import running
from tests.cli.runner import Runner

WITHIN_S = 30.0
# Counts its starts in a file; ends with an error until it has been started often enough.
FLAKY = """
import sys
from pathlib import Path
count = Path(sys.argv[1])
count.write_text(count.read_text() + "x" if count.exists() else "x")
if len(count.read_text()) <= 3:
    sys.exit(9)
sys.stdin.read()
"""


def write_config(folder: Path, text: str) -> str:
    (folder / "revenue.py").write_text("raise ValueError('not today')\n")
    path = folder / "headwater.toml"
    path.write_text(text)
    return str(path)


def test_what_is_listed(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        '[broker]\nnum.partitions = 3\n[pipelines.revenue]\nfile = "revenue.py"\n'
        'master = "local[2]"\nevery = "5 seconds"\n[pipelines.other]\nfile = "revenue.py"\n',
    )
    file = str(tmp_path / "revenue.py")
    assert listed_pipelines(config) == [
        Listed("revenue", file, "local[2]", "5 seconds"),
        Listed("other", file),
    ]
    assert listed_pipelines(None) == []
    assert listed_pipelines(str(tmp_path / "none.toml")) == []


@pytest.mark.parametrize(
    "text, expected",
    [
        ("pipelines = 1", "must be a table"),
        ("[pipelines]\nx = 1", "pipelines.x must be a table"),
        ("[pipelines.x]", "names no file"),
        ('[pipelines.x]\nfile = "none.py"', "does not exist"),
        ("[pipelines.x]\nfile = 1", "must be a text"),
        ('[pipelines.x]\nfile = "revenue.py"\nmastr = "x"', "did you mean master"),
        ('[pipelines."a/b"]\nfile = "revenue.py"', "no name for a pipeline"),
    ],
)
def test_what_cannot_be_listed(lone_cli: Runner, tmp_path: Path, text: str, expected: str) -> None:
    config = write_config(tmp_path, text)
    with pytest.raises(CommandError, match=expected):
        listed_pipelines(config)
    result = lone_cli.run("up", "--listen", "127.0.0.1:0", "--json")
    assert result.code == Exit.USAGE
    assert result.error()["code"] == "INVALID_SETTING"
    assert not (tmp_path / "headwater-data").exists(), "nothing was begun"


class Scripted(Supervisor):
    """Runs scripts instead of pipelines."""

    script: list[str]

    def _command(self, listed: Listed) -> list[str]:
        return [sys.executable, *self.script]


def supervise(
    folder: Path, script: list[str], until: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Run a script until something is told of it; gives that."""

    async def main() -> dict[str, Any]:
        supervisor = Scripted(
            [Listed("p", "p.py")], address="h:1", data_directory=str(folder), back_off_s=(0.01,)
        )
        supervisor.script = script
        supervisor.start()
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    for told in read_supervised(str(folder)):
                        if until(told):
                            return dict(told)
                    await asyncio.sleep(0.01)
        finally:
            await supervisor.stop()

    return asyncio.run(main())


def test_what_fails_is_started_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    told = supervise(
        tmp_path,
        ["-c", FLAKY, str(count)],
        lambda told: told["state"] == "running" and told["restarts"] == 3,
    )
    assert told["last_exit"] == 9
    assert told["pid"] is not None
    assert not (tmp_path / "pipelines.run").exists()


def test_what_was_told_to_stop_is_not_started_again(tmp_path: Path) -> None:
    told = supervise(tmp_path, ["-c", "pass"], lambda told: told["state"] == "stopped")
    assert (told["restarts"], told["last_exit"], told["pid"]) == (0, 0, None)


def test_what_it_says_is_kept(tmp_path: Path) -> None:
    script = "import sys; print('out'); print('err', file=sys.stderr)"
    supervise(tmp_path, ["-c", script], lambda told: told["state"] == "stopped")
    assert (tmp_path / "logs" / "p.log").read_text() == "err\n"


def test_up_tells_of_them_and_ends_them(
    tmp_path: Path, lone_cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, '[pipelines.revenue]\nfile = "revenue.py"\n')
    with running(tmp_path) as up:
        up.ready()
        for _ in range(600):
            (told,) = lone_cli.ok("status", "--json").json()["pipelines"] or [{}]
            if told.get("restarts"):
                break
            asyncio.run(asyncio.sleep(0.05))
        assert told["name"] == "revenue"
        assert told["last_exit"] in {Exit.BAD_DATA, Exit.ENVIRONMENT}
        assert "pipeline revenue" in lone_cli.ok("status").text
        lone_cli.ok("down")
        assert up.end() == Exit.DONE
    log = (tmp_path / "headwater-data" / "logs" / "revenue.log").read_text()
    errors = [json.loads(line)["error"] for line in log.splitlines() if '"error"' in line]
    assert {each["code"] for each in errors} <= {"BAD_DEFINITION", "NO_SPARK"}
    assert not (tmp_path / "headwater-data" / "pipelines.run").exists()


def test_what_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    """The folder of the logs is a file at first, as if there were no room for it."""
    (tmp_path / "logs").write_text("")

    def until(told: dict[str, Any]) -> bool:
        if told["state"] == "waiting" and (tmp_path / "logs").is_file():
            assert told["last_exit"] == Exit.ENVIRONMENT
            (tmp_path / "logs").unlink()
        return bool(told["state"] == "stopped")

    assert supervise(tmp_path, ["-c", "pass"], until)["last_exit"] == 0


def test_a_driver_whose_supervisor_is_gone_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        asked = threading.Event()

        def ask_to_stop(self) -> None:
            self.asked.set()

    ours, theirs = os.pipe()
    with os.fdopen(ours) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        waiting = threading.Thread(target=run._stop_when_alone, args=(Driver(),))
        waiting.start()
        assert not Driver.asked.is_set()
        os.close(theirs)
        assert Driver.asked.wait(WITHIN_S)
        waiting.join()


def test_a_driver_that_ends_beside_its_supervisor_ends_well() -> None:
    """While a thread waits for the supervisor's end, the interpreter must end without a crash."""
    program = (
        "import threading\n"
        "from headwater.cli import run\n"
        "threading.Thread(target=run._stop_when_alone, args=(None,), daemon=True).start()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as driver:
        assert driver.wait(WITHIN_S) == 0
