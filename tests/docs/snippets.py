"""Fenced blocks of Markdown, found and run.

This file alone decides which blocks of a page are run and how. Blocks marked `python` share one
namespace per page; blocks marked `sh` run under `sh -eu`, one shell per block, all in one folder
per page. Anything else is text. A comment line `<!-- not run: REASON -->` before a block excuses
it; one line `<!-- with broker -->` anywhere on the page gives all its blocks a running broker,
whose address is in HEADWATER_BOOTSTRAP.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RUN = frozenset({"python", "sh"})
WITH_BROKER = "<!-- with broker -->"
_NOT_RUN = re.compile(r"<!-- not run: \S.* -->")
_FENCE = re.compile(r"(?P<indent> *)(?P<mark>```+|~~~+)(?P<language>\w*)")


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block that will be run; `line` is the line of its first line of code."""

    page: Path
    line: int
    language: str
    code: str


def find(page: Path, text: str) -> list[Snippet]:
    """Give the blocks of a page that are to be run, in order."""
    snippets: list[Snippet] = []
    lines = text.splitlines()
    excused, number = False, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        opening = _FENCE.match(line)
        if opening is None:
            # Empty lines may stand between the excuse and its block.
            excused = bool(_NOT_RUN.fullmatch(line.strip())) or (excused and not line.strip())
            continue
        first = number
        closing = opening["indent"] + opening["mark"]
        while number < len(lines) and lines[number].rstrip() != closing:
            number += 1
        if opening["language"] in RUN and not excused:
            width = len(opening["indent"])
            code = "\n".join(each[width:] for each in lines[first:number]) + "\n"
            snippets.append(Snippet(page, first + 1, opening["language"], code))
        excused = False
        number += 1
    return snippets


def run(snippet: Snippet, folder: Path, names: dict[str, object], more: Mapping[str, str]) -> None:
    """Run one block in a folder; a failing block raises."""
    if snippet.language == "python":
        # Leading newlines make the line of a traceback the line of the page.
        code = "\n" * (snippet.line - 1) + snippet.code
        exec(compile(code, str(snippet.page), "exec"), names)
        return
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["sh", "-eu", "-c", snippet.code],
        cwd=folder,
        env={**os.environ, **more, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        place = f"{snippet.page.name}:{snippet.line}"
        raise AssertionError(f"{place} ended with {done.returncode}\n{done.stdout}{done.stderr}")
