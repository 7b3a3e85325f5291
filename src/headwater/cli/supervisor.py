"""The pipelines that `headwater up` keeps running.

This file alone decides which pipelines `headwater.toml` lists, when one that has ended is started
again, and what is told of that. A pipeline is a process of its own, `headwater run`, which ends
when its supervisor is gone::

    [pipelines.revenue]
    file = "revenue.py"  # beside headwater.toml
    master = "local[2]"  # and every = "5 seconds", if wanted
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headwater.base.private import make_private_directory, private_opener, write_private_text
from headwater.base.spelling import suggestion
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import BOOTSTRAP_VARIABLE
from headwater.streams.running.checkpoints import check_name
from headwater.streams.running.errors import DefinitionError

_LOG = logging.getLogger(__name__)
TABLE = "pipelines"
RUN_FILE = "pipelines.run"
_KEYS = ("file", "master", "every")
_PROGRAM = "import sys; from headwater.cli import main; sys.exit(main())"
_BACK_OFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
# Whatever ran for so long has begun well: its next failure is a new one.
_HEALTHY_AFTER_S = 60.0
_END_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Listed:
    """A pipeline that is to be kept running."""

    name: str
    file: str
    master: str | None = None
    every: str | None = None


@dataclass(slots=True)
class Supervised:
    """How one of them is."""

    name: str
    state: str = "starting"
    pid: int | None = None
    restarts: int = 0
    last_exit: int | None = None
    next_start_ms: int | None = None


def listed_pipelines(config: str | None) -> list[Listed]:
    """Read which pipelines a settings file lists; its other tables are not our concern.

    Raises:
        CommandError: A name, a key or a value will not do.
    """
    if config is None or not Path(config).exists():
        return []
    table = tomllib.loads(Path(config).read_text(encoding="utf-8")).get(TABLE, {})
    if not isinstance(table, dict):
        raise _wrong(config, f"{TABLE} must be a table")
    return [_listed(config, name, given) for name, given in table.items()]


def _listed(config: str, name: str, given: object) -> Listed:
    try:
        check_name(name)
    except DefinitionError as error:
        raise _wrong(config, error.message) from error
    if not isinstance(given, dict):
        raise _wrong(config, f"{TABLE}.{name} must be a table")
    for key, value in given.items():
        if key not in _KEYS:
            raise _wrong(config, f"{TABLE}.{name}: unknown key {key}{suggestion(key, _KEYS)}")
        if not isinstance(value, str):
            raise _wrong(config, f"{TABLE}.{name}.{key} must be a text")
    if "file" not in given:
        raise _wrong(config, f"{TABLE}.{name} names no file")
    path = Path(config).absolute().parent / given["file"]
    if not path.is_file():
        raise _wrong(config, f"{TABLE}.{name}: {path} does not exist")
    return Listed(name, str(path), given.get("master"), given.get("every"))


def _wrong(config: str, message: str) -> CommandError:
    hint = f'a pipeline is listed as: [{TABLE}.NAME] and file = "FILE.py"'
    return CommandError(Exit.USAGE, "INVALID_SETTING", f"{config}: {message}", hint=hint)


def read_supervised(data_directory: str) -> list[dict[str, Any]]:
    """Return how the pipelines are that a running `headwater up` keeps running."""
    try:
        found = json.loads(Path(data_directory, RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


class Supervisor:
    """Keeps pipelines running until it is stopped."""

    def __init__(
        self,
        pipelines: Sequence[Listed],
        *,
        address: str,
        data_directory: str,
        back_off_s: Sequence[float] = _BACK_OFF_S,
    ) -> None:
        """Prepare.

        Args:
            pipelines: Which.
            address: The broker that they are told of.
            data_directory: Where checkpoints and logs are.
            back_off_s: How long to wait before each start in a row of failures.
        """
        self._pipelines = pipelines
        self._address = address
        self._data_directory = data_directory
        self._back_off_s = back_off_s
        self._states = {each.name: Supervised(each.name) for each in pipelines}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def start(self) -> None:
        """Start them all; they are looked after from now on."""
        self._tasks = [asyncio.create_task(self._keep(each)) for each in self._pipelines]

    async def stop(self) -> None:
        """End them all, gently at first."""
        self._stopping.set()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_END_WITHIN_S)
            for process in self._processes.values() if late else ():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*self._tasks)
        self._forget()

    async def _keep(self, listed: Listed) -> None:
        state = self._states[listed.name]
        failures = 0
        while not self._stopping.is_set():
            begun_s = time.monotonic()
            try:
                code = await self._run_once(listed, state)
            except OSError as error:
                # No room for its log, or for one more process: that may pass.
                _LOG.warning("pipeline %s cannot be started: %s", listed.name, error)
                code = Exit.ENVIRONMENT
            state.pid, state.last_exit = None, code
            if code == 0 or self._stopping.is_set():
                # It was told to stop, by us or by a person, who starts it again when it suits.
                self._tell(state, "stopped")
                return
            failures = 0 if time.monotonic() - begun_s > _HEALTHY_AFTER_S else failures
            pause_s = self._back_off_s[min(failures, len(self._back_off_s) - 1)]
            failures += 1
            state.next_start_ms = time.time_ns() // 1_000_000 + round(pause_s * 1000)
            self._tell(state, "waiting")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            state.restarts += 1
            state.next_start_ms = None

    async def _run_once(self, listed: Listed, state: Supervised) -> int:
        with self._open_log(listed.name) as output:
            process = await asyncio.create_subprocess_exec(
                *self._command(listed),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, BOOTSTRAP_VARIABLE: self._address},
                # Ctrl-C at the terminal is for us; we tell them.
                start_new_session=True,
            )
        self._processes[listed.name] = process
        state.pid = process.pid
        self._tell(state, "running")
        if self._stopping.is_set():
            process.terminate()
        code = await process.wait()
        del self._processes[listed.name]
        return code

    def _command(self, listed: Listed) -> list[str]:
        command = [sys.executable, "-c", _PROGRAM, "run", f"{listed.file}:{listed.name}", "--json"]
        command += ["--supervised", "--data", self._data_directory]
        for option, value in (("--master", listed.master), ("--every", listed.every)):
            command += [option, value] if value is not None else []
        return command

    def _open_log(self, name: str) -> BinaryIO:
        log = Path(self._data_directory, "logs", f"{name}.log")
        make_private_directory(log.parent)
        return open(log, "ab", opener=private_opener)

    def _forget(self) -> None:
        Path(self._data_directory, RUN_FILE).unlink(missing_ok=True)

    def _tell(self, state: Supervised, word: str) -> None:
        state.state = word
        path = Path(self._data_directory, RUN_FILE)
        fresh = path.with_suffix(".tmp")
        text = json.dumps([asdict(each) for each in self._states.values()])
        # A full disk is the broker's concern; what runs goes on.
        with contextlib.suppress(OSError):
            write_private_text(fresh, text + "\n")
            fresh.replace(path)


def supervised_text(each: Mapping[str, Any]) -> str:
    """Return one of them in a line."""
    told = str(each["state"])
    if each.get("pid"):
        told += f", pid {each['pid']}"
    if each.get("restarts"):
        told += f", started again {each['restarts']} times, last exit {each['last_exit']}"
    return told
