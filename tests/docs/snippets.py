"""Fenced blocks of Markdown, found and run.

This file alone decides which blocks of a page are run and how. Blocks marked `python` share one
namespace per page; blocks marked `sh` run under `sh -eu`, one shell per block, all in one folder
per page. Anything else is text. A comment line before a block says what is special about it:

    <!-- not run: REASON -->             it is excused
    <!-- keeps running -->               it is started and left alone until the page ends
    <!-- keeps running; says: TEXT -->   the same, and the next block waits until it has said so

A page has a broker if the line `<!-- with broker -->` stands anywhere on it, or from the block on
that keeps `headwater up` running. Its address is in HEADWATER_BOOTSTRAP or found by the command
line itself, and `localhost:9092` in a block stands for it, so that a page can show what people
type. A page with the line `<!-- with Spark -->` is left out where Spark cannot be started.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

RUN = frozenset({"python", "sh"})
WITH_BROKER = "<!-- with broker -->"
WITH_SPARK = "<!-- with Spark -->"
# A block may start Spark on a machine that has much else to do.
_BLOCK_WITHIN_S = 300
USUAL_ADDRESS = "localhost:9092"
_NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
_STAYS = re.compile(r"<!-- keeps running(?:; says: (?P<text>\S.*))? -->")
_FENCE = re.compile(r"(?P<indent> *)(?P<mark>```+|~~~+)(?P<language>\w*)")
_READY = re.compile(r"ready on (\S+):")
_PATIENCE_S = 30.0
_LOOK_AGAIN_S = 0.02


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block that will be run; `line` is the line of its first line of code.

    `stays` is None for a block that ends by itself, else what it says when it is ready.
    """

    page: Path
    line: int
    language: str
    code: str
    stays: str | None = None


def find(page: Path, text: str) -> list[Snippet]:
    """Give the blocks of a page that are to be run, in order."""
    snippets: list[Snippet] = []
    lines = text.splitlines()
    mark, number = "", 0
    while number < len(lines):
        line = lines[number]
        number += 1
        opening = _FENCE.match(line)
        if opening is None:
            # Empty lines may stand between the comment and its block.
            mark = line.strip() or mark
            continue
        first = number
        closing = opening["indent"] + opening["mark"]
        while number < len(lines) and lines[number].rstrip() != closing:
            number += 1
        if opening["language"] in RUN and not _NOT_RUN.fullmatch(mark):
            width = len(opening["indent"])
            code = "\n".join(each[width:] for each in lines[first:number]) + "\n"
            stays = _STAYS.fullmatch(mark)
            said = (stays["text"] or "") if stays else None
            snippets.append(Snippet(page, first + 1, opening["language"], code, said))
        mark = ""
        number += 1
    return snippets


class Stage:
    """Where one page is run: its folder, its names, its broker, what it has left running."""

    def __init__(self, folder: Path, broker: str | None = None) -> None:
        self._folder = folder
        self._broker = broker
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, snippet: Snippet) -> None:
        """Run one block, or start it if it stays; a failing block raises."""
        code = snippet.code.replace(USUAL_ADDRESS, self._broker or USUAL_ADDRESS)
        if snippet.stays is not None:
            self._start(snippet, code, snippet.stays)
        elif snippet.language == "python":
            # Leading newlines make the line of a traceback the line of the page.
            whole = "\n" * (snippet.line - 1) + code
            exec(compile(whole, str(snippet.page), "exec"), self._names)
        else:
            self._run_shell(snippet, code)

    def _run_shell(self, snippet: Snippet, code: str) -> None:
        done = subprocess.run(
            ["sh", "-eu", "-c", code],
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BLOCK_WITHIN_S,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(
                f"{_place(snippet)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
            )

    def _start(self, snippet: Snippet, code: str, said: str) -> None:
        assert snippet.language == "sh", f"{_place(snippet)}: only sh blocks can keep running"
        heard = self._folder / f".said-{snippet.line}"
        with heard.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-eu", "-c", code],
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        deadline_s = time.monotonic() + _PATIENCE_S
        while said not in (text := heard.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(f"{_place(snippet)} never said {said!r}\n{text}")
            time.sleep(_LOOK_AGAIN_S)
        if ready := _READY.search(text):
            self._broker = ready[1]

    def _environment(self) -> dict[str, str]:
        # Pages run side by side, so a broker that is started takes any free port.
        return {**os.environ, "HEADWATER_LISTENERS": "127.0.0.1:0"}

    def close(self) -> None:
        """End what is still running, the last first."""
        for process in reversed(self._running):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                    break

    def __enter__(self) -> Self:
        """Use the stage in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Clear it."""
        self.close()


def _place(snippet: Snippet) -> str:
    return f"{snippet.page.name}:{snippet.line}"
