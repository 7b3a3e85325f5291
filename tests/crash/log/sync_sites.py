"""Every place in the code that makes something durable.

This file alone decides what counts as such a place, by reading the source: each call of ``sync`` or
``sync_directory``, and each call of a helper in ``base/disk.py`` or ``log/unsynced.py`` that makes
one. A place is taken out of action by letting the disk lie whenever the call is on the stack. What
a commit hands to the committer is synced outside the log; there the places are the kinds of files.
"""

import ast
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import headwater
from headwater.testing.memory_disk import Operation
from tests.crash.log.campaign import judge
from tests.crash.log.workload import Life

SOURCE = Path(headwater.__file__).parent
FILES = [SOURCE / "base" / "disk.py", *sorted((SOURCE / "log").glob("*.py"))]
"""Without those of compaction, whose own tests ask the same of them."""
LIBRARIES = [SOURCE / "base" / "disk.py", SOURCE / "log" / "unsynced.py"]
PRIMITIVES = frozenset({"sync", "sync_directory"})

COMMITTED = ("active .log", "closed .log", ".index", ".timeindex", ".txnindex", ".snapshot")
"""The kinds of files that a commit syncs."""


@dataclass(frozen=True)
class Site:
    """One call, or one kind of file in a commit.

    Attributes:
        file: The source file; empty for a kind of file.
        lines: The first and the last line of the call.
        name: How people see it.
    """

    file: str
    lines: tuple[int, int]
    name: str

    def __str__(self) -> str:
        return self.name

    def under_way(self) -> bool:
        """Tell whether the caller was called from this place."""
        if not self.file:
            return Life.syncing == self.name
        frame: FrameType | None = sys._getframe(1)
        # A judgement runs in the middle of the life that it judges, and is no part of it.
        while frame is not None and frame.f_code is not judge.__code__:
            if frame.f_code.co_filename == self.file:
                first, last = self.lines
                if first <= frame.f_lineno <= last:
                    return True
            frame = frame.f_back
        return False

    def lies(self, _operation: Operation) -> bool:
        """Make this place one that only pretends."""
        return self.under_way()


def find_all_sites() -> list[Site]:
    """Return all places, in the order of the source, and what a commit hands over."""
    return [*(Site("", (0, 0), kind) for kind in COMMITTED), *find_sites(FILES)]


def find_sites(paths: Sequence[Path]) -> list[Site]:
    """Return the places in some files, in the order of the source."""
    names = PRIMITIVES | helpers()
    sites = []
    for path in paths:
        for call in _calls(ast.parse(path.read_text())):
            if _called(call) in names:
                assert call.end_lineno is not None
                name = f"{path.relative_to(SOURCE)}:{call.lineno} {ast.unparse(call)}"
                sites.append(Site(str(path), (call.lineno, call.end_lineno), name))
    return sites


def helpers() -> frozenset[str]:
    """Return the functions that exist to make something durable."""
    found: set[str] = set()
    before = -1
    while len(found) != before:
        before = len(found)
        for path in LIBRARIES:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and any(
                    _called(call) in PRIMITIVES | found for call in _calls(node)
                ):
                    found.add(node.name)
    return frozenset(found)


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
