"""`headwater up` as a process of its own.

This file alone decides how tests start the program and see that it is ready; each ends its own by
its id.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = "import sys; from headwater.cli import main; sys.exit(main())"
_READY_WITHIN_S = 60.0


def command(*arguments: str, file_limit: int | None = None) -> list[str]:
    """Return what runs the program, as the installed command would, or with fewer descriptors."""
    limit = ""
    if file_limit is not None:
        pair = (file_limit, file_limit)
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, {pair}); "
    return [sys.executable, "-c", limit + PROGRAM, *arguments]


class Up:
    """A running `headwater up --json`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        file_limit: int | None = None,
    ) -> None:
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command("up", "--json", *listen, *arguments, file_limit=file_limit),
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.lines: list[str] = []

    def read_line(self) -> str:
        """Return the next line on standard error, as it comes."""
        assert self.process.stderr is not None
        deadline_s = time.monotonic() + _READY_WITHIN_S
        readable, _, _ = select.select([self.process.stderr], [], [], _READY_WITHIN_S)
        assert readable, f"nothing said within {deadline_s} s"
        line = self.process.stderr.readline().decode()
        self.lines.append(line)
        return line

    def ready(self) -> dict[str, Any]:
        """Wait for the one line that says so."""
        line = self.read_line()
        assert line, f"it ended with {self.process.wait()}"
        facts: dict[str, Any] = json.loads(line)["ready"]
        return facts

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, within_s: float = 30.0) -> int:
        """Wait for its end; return the exit code."""
        out, err = self.process.communicate(timeout=within_s)
        assert out == b"", "a broker writes nothing to standard output"
        self.lines += err.decode().splitlines()
        return self.process.returncode


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    file_limit: int | None = None,
) -> Iterator[Up]:
    """Start it; kill it at the end, unless it has ended."""
    up = Up(folder, *arguments, env=env, file_limit=file_limit)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.process.kill()
        up.process.communicate()
