"""What the benchmarks beside Apache Kafka share: their options, their progress and their table.

This file alone decides what a ratio means and how rows are shown: above 1 is better for us,
whatever the unit; for people as a table, for machines as JSON.
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path
from typing import NamedTuple

SMALLER_IS_BETTER = {"p50 ms", "p99 ms", "s", "CPU s/GB", "MB resident", "% of a core"}


class Row(NamedTuple):
    """One line of the table; an absolute bar is a row whose `theirs` is the limit.

    Where nobody else can do it, `theirs` is NaN, and the row has no ratio.
    """

    name: str
    ours: float
    theirs: float
    unit: str
    bar: float | None

    @property
    def ratio(self) -> float:
        """How much better ours is."""
        if self.unit in SMALLER_IS_BETTER:
            return self.theirs / max(self.ours, 1e-9)
        return self.ours / max(self.theirs, 1e-9)

    def as_json(self) -> dict[str, object]:
        """Give the row as the last line of a benchmark has it."""
        shown: dict[str, object] = {
            "name": self.name,
            "ours": round(self.ours, 4),
            "unit": self.unit,
        }
        if not math.isnan(self.theirs):
            shown |= {"theirs": round(self.theirs, 4), "ratio": round(self.ratio, 3)}
        if self.bar is not None:
            shown["bar"] = self.bar
        return shown


def print_rows(rows: list[Row]) -> None:
    """Print the table, and the rows as JSON on the last line."""
    width = max(len(row.name) for row in rows)
    print(f"{'':{width}}  {'ours':>12}  {'theirs':>12}  {'ratio':>7}  {'bar':>5}")
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:g}"
        verdict = "" if row.bar is None or row.ratio >= row.bar else "  BELOW"
        beside = f"{'':>12}  {'':>7}"
        if not math.isnan(row.theirs):
            beside = f"{row.theirs:>12,.2f}  {row.ratio:>6.2f}x"
        line = f"{row.name:{width}}  {row.ours:>12,.2f}  {beside}  {bar:>5}{verdict}"
        print(line.rstrip())
    print(json.dumps({"rows": [row.as_json() for row in rows]}))


def options(prog: str, seconds: float) -> argparse.ArgumentParser:
    """Return a parser of what can be said to each of them."""
    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("--directory", type=Path, help="where the data lies (its disk is measured)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="of load per figure and round"
    )
    return parser


def options_beside(prog: str, seconds: float) -> argparse.ArgumentParser:
    """Return such a parser for benchmarks of brokers, whose rival may be of an earlier tree."""
    parser = options(prog, seconds)
    parser.add_argument(
        "--beside-tree",
        type=Path,
        help="a checkout of Headwater in place of Apache Kafka; what has no rival is left out",
    )
    return parser


def say(what: str, began: float) -> None:
    """Tell whoever waits how far it is."""
    print(f"[{time.monotonic() - began:5.0f} s] {what}", file=sys.stderr, flush=True)
