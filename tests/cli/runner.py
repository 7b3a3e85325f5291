"""Calls the program as a function and keeps what it wrote.

This file alone decides how a test gives it arguments and standard input. Nothing of the program is
replaced but the three streams.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.cli import main


class Result(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def json(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Return the one document on standard output."""
        return json.loads(self.stdout)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    def error(self) -> dict[str, str]:
        """Return the error that ``--json`` writes."""
        error: dict[str, str] = json.loads(self.stderr)["error"]
        return error


class Runner:
    """Runs commands one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._folder = folder

    def run(self, *arguments: str, stdin: bytes = b"") -> Result:
        """Run a command, however it ends."""
        given = self._folder / "stdin"
        given.write_bytes(stdin)
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        err = io.StringIO()
        with given.open() as standard_input, self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", standard_input)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(arguments)
            out.flush()
        assert isinstance(out.buffer, io.BytesIO)
        return Result(int(code), out.buffer.getvalue(), err.getvalue())

    def ok(self, *arguments: str, stdin: bytes = b"") -> Result:
        """Run a command that must succeed."""
        result = self.run(*arguments, stdin=stdin)
        assert result.code == 0, f"{arguments} ended with {result.code}: {result.stderr}"
        return result
