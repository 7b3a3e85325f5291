"""Run every strategy against every load, interleaved, and print medians.

This file alone decides what is measured. It must not know how a strategy works.

Usage, from the root of the repository: `python -m benchmarks.group_commit [--directory DIR]`.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.group_commit.load import FRAME_BYTES
from benchmarks.group_commit.strategies import STRATEGIES

# (connections, requests in flight on each) -> numbers of partitions.
_LOADS = {(16, 5): (1, 100, 1000), (16, 1): (1, 1000), (1, 1): (1,)}
# A slow disk and a noisy one are measured for one strategy of each family.
_FAMILIES = ("inline", "thread-4-fast", "syncfs", "helper-4", "aio", "adaptive", "wal-aio")
_NEIGHBOUR = """
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
block = bytes(1 << 20)
place = 0
while True:
    os.pwrite(descriptor, block, place % (64 << 20))
    place += len(block)
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Scenario:
    """One load on one kind of disk."""

    partitions: int
    connections: int
    in_flight: int
    delay_ms: float = 0.0
    neighbour: bool = False

    @property
    def disk(self) -> str:
        """Name the kind of disk."""
        if self.neighbour:
            return "beside a writer of 50 MB/s"
        return f"{self.delay_ms:g} ms slower" if self.delay_ms else "as it is"


def scenarios(*, only_main: bool) -> list[tuple[Scenario, tuple[str, ...]]]:
    """List what is measured, with the strategies that take part."""
    everything = tuple(STRATEGIES)
    listed = [
        (Scenario(partitions, *shape), everything)
        for shape, counts in _LOADS.items()
        for partitions in counts
    ]
    if not only_main:
        for partitions in (1, 100):
            listed.append((Scenario(partitions, 16, 5, delay_ms=10.0), _FAMILIES))
            listed.append((Scenario(partitions, 16, 5, neighbour=True), _FAMILIES))
    return listed


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def measure(name: str, scenario: Scenario, directory: Path, seconds: float) -> dict[str, float]:
    """Run one server and one load generator, and check that what was answered was written."""
    here = directory / "files"
    here.mkdir()
    partitions = str(scenario.partitions)
    module = [sys.executable, "-m", "benchmarks.group_commit."]
    serve = [*module[:2], f"{module[2]}server", name, str(here), partitions, str(scenario.delay_ms)]
    writer = [sys.executable, "-c", _NEIGHBOUR, str(directory / "neighbour")]
    with _process(writer) if scenario.neighbour else nullcontext(), _process(serve) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        shape = [str(scenario.connections), str(scenario.in_flight)]
        load = [*module[:2], f"{module[2]}load", port, partitions, *shape, str(seconds)]
        done = subprocess.run(load, stdout=subprocess.PIPE, check=True, timeout=120)
    figures: dict[str, float] = json.loads(done.stdout)
    written = sum(path.stat().st_size for path in here.glob("*.log"))
    if written < figures["acknowledged"] * FRAME_BYTES:
        message = f"{name}: {figures['acknowledged']} answers but only {written} bytes"
        raise RuntimeError(message)
    shutil.rmtree(here)
    return figures


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    medians = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    medians["requests_per_s_best"] = max(run["requests_per_s"] for run in runs)
    medians["blocked_ms_worst"] = max(run["blocked_ms_max"] for run in runs)
    return medians


def _print_table(scenario: Scenario, rows: list[dict[str, object]]) -> None:
    title = f"{scenario.connections} x {scenario.in_flight}, {scenario.partitions} partitions"
    print(f"\n{title}, disk {scenario.disk}\n")
    print(
        "| strategy | requests/s | best | p50 ms | p99 ms | CPU s/10k | blocked ms | in a round |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['strategy']} | {row['requests_per_s']:,.0f} "
            f"| {row['requests_per_s_best']:,.0f} | {row['p50_ms']:.2f} "
            f"| {row['p99_ms']:.2f} | {row['cpu_s_per_10k']:.2f} | {row['blocked_ms_max']:.1f} "
            f"| {row['requests_per_round']:.0f} |"
        )


def main() -> None:
    """Measure, print tables, and end with one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_commit", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--strategies", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--only-main", action="store_true", help="no slow and no noisy disk")
    parser.add_argument("--shapes", nargs="*", default=[], help="such as 16x5; default all")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the strategies")
    options = parser.parse_args()
    chosen = [
        (scenario, [name for name in names if name in options.strategies])
        for scenario, names in scenarios(only_main=options.only_main)
        if not options.shapes or f"{scenario.connections}x{scenario.in_flight}" in options.shapes
    ]
    shuffled = random.Random(options.seed)
    runs: dict[tuple[Scenario, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=options.directory, prefix=".group-commit-") as name:
        for round_ in range(options.rounds):
            print(f"round {round_ + 1} of {options.rounds}", file=sys.stderr)
            for scenario, strategies in chosen:
                # A busy spell of the machine must not always meet the same neighbours.
                for strategy in shuffled.sample(strategies, len(strategies)):
                    figures = measure(strategy, scenario, Path(name), options.seconds)
                    runs.setdefault((scenario, strategy), []).append(figures)
    rows: list[dict[str, object]] = []
    for scenario, strategies in chosen:
        table = [
            {"strategy": s, **asdict(scenario), **_medians(runs[scenario, s])} for s in strategies
        ]
        _print_table(scenario, table)
        rows += table
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
