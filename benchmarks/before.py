"""`make bench-before BENCH_ARGS="REVISION broker sink"`: benchmarks of this tree and of another.

This file alone decides whether a row has become worse. The revision is checked out into a folder of
its own. Benchmarks of the broker start one of each tree and load them in turn, every second or so:
disks and machines change more in a minute than the code does. Every other benchmark is run in both
trees in turn, in the order before, after, after, before. Options after `--` are handed to each
benchmark.

A row is worse when its figure is more than 5 % worse and, where a peer was measured in the same
runs, its ratio to the peer is too: what slows the peer as much is the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import SMALLER_IS_BETTER, say

_ROOT = Path(__file__).resolve().parent.parent
_WORST = 0.95
_SIDE_BY_SIDE = {"broker", "txn"}


class Figures(NamedTuple):
    """What several runs of one tree have measured for a row.

    Attributes:
        ours: The figure of Headwater.
        ratios: The same beside a peer, above 1 where it is better; empty without a peer.
    """

    ours: list[float]
    ratios: list[float]


class Compared(NamedTuple):
    """One row of both trees; ratios above 1 mean that this tree does better.

    Attributes:
        name: The row's name, with its benchmark.
        before: The figure in the earlier tree.
        after: The figure in this tree.
        ratio: By how much this tree is better.
        beside_peer: The same by the ratio to the peer; None where there is none.
    """

    name: str
    before: float
    after: float
    ratio: float
    beside_peer: float | None

    @property
    def worse(self) -> bool:
        """Whether both ratios are below the bar."""
        return max(self.ratio, self.beside_peer or 0.0) < _WORST


def compare(name: str, unit: str, before: Figures, after: Figures) -> Compared:
    """Compare the medians of a row in both trees."""
    ours_before, ours_after = statistics.median(before.ours), statistics.median(after.ours)
    smaller_is_better = unit in SMALLER_IS_BETTER
    better, worse = (ours_before, ours_after) if smaller_is_better else (ours_after, ours_before)
    beside_peer = None
    if before.ratios and after.ratios:
        beside_peer = statistics.median(after.ratios) / max(statistics.median(before.ratios), 1e-9)
    return Compared(name, ours_before, ours_after, better / max(worse, 1e-9), beside_peer)


def main() -> int:
    """Run the benchmarks in both trees; 1 if a row is worse or a run fails."""
    arguments, handed_on = _parse()
    began = time.monotonic()
    rows: list[Compared] = []
    with tempfile.TemporaryDirectory(prefix="headwater-before-") as name:
        before = Path(name) / "tree"
        _check_out(arguments.revision, before)
        for benchmark in arguments.benchmarks:
            if benchmark in _SIDE_BY_SIDE:
                beside = ["--beside-tree", str(before), *handed_on]
                rows += side_by_side(benchmark, _run(_ROOT, benchmark, beside))
                say(f"{benchmark}: done", began)
                continue
            found: dict[Path, list[dict[str, object]]] = {before: [], _ROOT: []}
            for turn in range(arguments.turns):
                for tree in (before, _ROOT) if turn % 2 == 0 else (_ROOT, before):
                    found[tree] += _run(tree, benchmark, handed_on)
                say(f"{benchmark}: turn {turn + 1} of {arguments.turns}", began)
            rows += _compared(benchmark, found[before], found[_ROOT])
    _print(rows)
    return 1 if any(row.worse for row in rows) else 0


def _parse() -> tuple[argparse.Namespace, list[str]]:
    own, _, handed_on = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(prog="benchmarks.before")
    parser.add_argument("revision", help="the earlier tree, as git names it")
    parser.add_argument("benchmarks", nargs="+", help="such as broker")
    parser.add_argument("--turns", type=int, default=2, help="runs of each tree")
    return parser.parse_args(own.split()), handed_on.split()


def _check_out(revision: str, tree: Path) -> None:
    subprocess.run(["git", "clone", "--quiet", "--shared", _ROOT, tree], check=True)
    subprocess.run(["git", "checkout", "--quiet", revision], cwd=tree, check=True)
    (tree / ".peers").symlink_to(_ROOT / ".peers")


def _run(tree: Path, benchmark: str, handed_on: list[str]) -> list[dict[str, object]]:
    """Run a benchmark on the code of a tree; both have the installed packages of this one."""
    completed = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *handed_on],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows: list[dict[str, object]] = json.loads(completed.stdout.splitlines()[-1])["rows"]
    return rows


def side_by_side(benchmark: str, rows: list[dict[str, object]]) -> list[Compared]:
    """Read the rows of a benchmark whose rival was the earlier tree; a limit is no rival."""
    return [
        Compared(
            f"{benchmark}: {row['name']}",
            before=float(str(row["theirs"])),
            after=float(str(row["ours"])),
            ratio=float(str(row["ratio"])),
            beside_peer=None,
        )
        for row in rows
        if "ratio" in row and not str(row["name"]).endswith("limit")
    ]


def _compared(
    benchmark: str, before: list[dict[str, object]], after: list[dict[str, object]]
) -> list[Compared]:
    figures_before, figures_after = _by_name(before), _by_name(after)
    return [
        compare(f"{benchmark}: {name}", unit, figures_before[name, unit], figures)
        for (name, unit), figures in figures_after.items()
        if (name, unit) in figures_before
    ]


def _by_name(rows: list[dict[str, object]]) -> dict[tuple[str, str], Figures]:
    found: dict[tuple[str, str], Figures] = {}
    for row in rows:
        figures = found.setdefault((str(row["name"]), str(row["unit"])), Figures([], []))
        figures.ours.append(float(str(row["ours"])))
        # A limit is the same in every run and tells nothing of the machine.
        if "ratio" in row and not str(row["name"]).endswith("limit"):
            figures.ratios.append(float(str(row["ratio"])))
    return found


def _print(rows: list[Compared]) -> None:
    width = max(len(row.name) for row in rows)
    print(f"{'':{width}}  {'before':>12}  {'after':>12}  {'ratio':>6}  {'beside the peer':>15}")
    for row in rows:
        beside = "" if row.beside_peer is None else f"{row.beside_peer:.2f}"
        verdict = "  WORSE" if row.worse else ""
        line = f"{row.name:{width}}  {row.before:>12,.2f}  {row.after:>12,.2f}  {row.ratio:>6.2f}"
        print(f"{line}  {beside:>15}{verdict}".rstrip())
    print(json.dumps({"rows": [row._asdict() | {"worse": row.worse} for row in rows]}))


if __name__ == "__main__":
    sys.exit(main())
