"""`make bench-broker`: the broker beside Apache Kafka 4.3, interleaved, medians of the rounds.

This file alone decides which figures become rows and which bar each has to reach.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from benchmarks.broker import load, measures
from benchmarks.broker.brokers import (
    Contender,
    Headwater,
    Rival,
    both,
    closing_broker,
    create_topic,
    make_rival,
    resident_bytes,
    scratch,
)
from benchmarks.table import Row, options_beside, print_rows, say
from tests import peers

_RECOVERY_BYTES = 1_000_000_000
_IDLE_S = 60.0


# Bars by name of the figure; a name that is not here has none.
_BARS = {
    "1-record requests, durable, 1x1: requests/s": 0.8,
    "1-record requests, durable, 16x5: requests/s": 2.0,
    "1-record requests, durable, 16x5: p99 ms": 1.0,
    "produce 1000 B records, durable: MB/s": 0.9,
    "fetch 1000 B records, durable: MB/s": 0.9,
    "produce 1000 B through confluent-kafka: MB/s": 0.9,
    "fetch 1000 B through confluent-kafka: MB/s": 0.9,
}


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = _parse()
    if arguments.beside_tree is None and (reason := peers.missing("kafka")):
        print(reason, file=sys.stderr)
        return 1
    began = time.monotonic()
    rows = _start_rows(arguments)
    say("start measured", began)
    with both(arguments.directory, beside_tree=arguments.beside_tree) as (ours, theirs):
        rows += _compared_rows(ours, theirs, arguments, began)
        if arguments.beside_tree is None:
            rows += _stalled_rows(ours, arguments)
            say("stalled readers measured", began)
    if arguments.beside_tree is None:
        rows.append(_idle_row(arguments))
        say("idle consumer measured", began)
        rows += _recovery_rows(arguments.directory)
        say("recovery measured", began)
    print_rows(rows)
    return 0


def _parse() -> argparse.Namespace:
    parser = options_beside("benchmarks.broker", seconds=1.5)
    parser.add_argument("--idle-seconds", type=float, default=_IDLE_S)
    return parser.parse_args()


def _start_rows(arguments: argparse.Namespace) -> list[Row]:
    directory, beside_tree = arguments.directory, arguments.beside_tree
    ours_s, ours_mb, theirs_s, theirs_mb = [], [], [], []
    for _ in range(arguments.rounds):
        with scratch(directory) as folder, closing_broker(Headwater(folder / "ours")) as ours:
            ours.start()
            ours_s.append(ours.started_in_s)
            time.sleep(0.5)
            ours_mb.append(resident_bytes(ours.pid) / 1e6)
    for _ in range(min(arguments.rounds, 2) if beside_tree is None else arguments.rounds):
        with (
            scratch(directory) as folder,
            closing_broker(make_rival(folder / "theirs", tree=beside_tree)) as theirs,
        ):
            theirs.start()
            theirs_s.append(theirs.started_in_s)
            time.sleep(2)
            theirs_mb.append(resident_bytes(theirs.pid) / 1e6)
    start, memory = statistics.median(ours_s), statistics.median(ours_mb)
    return [
        Row("start on an empty directory", start, statistics.median(theirs_s), "s", None),
        Row("start on an empty directory, limit", start, 0.5, "s", 1.0),
        Row("idle memory", memory, statistics.median(theirs_mb), "MB resident", None),
        Row("idle memory, limit", memory, 100.0, "MB resident", 1.0),
    ]


def _compared_rows(
    ours: Headwater, theirs: Rival, arguments: argparse.Namespace, began: float
) -> list[Row]:
    contenders: list[Contender] = [ours, theirs]
    found: dict[str, dict[str, list[float]]] = {each.name: {} for each in contenders}
    for contender in contenders:
        measures.prepare(contender)
        # The first load warms caches and the JVM's compiler; it does not count.
        for step in measures.steps(arguments.seconds / 4, -1):
            step(contender)
    for round_no in range(arguments.rounds):
        # Who goes first changes, so that neither always has the warmer disk.
        order = contenders if round_no % 2 else contenders[::-1]
        for step in measures.steps(arguments.seconds, round_no):
            for contender in order:
                for name, value in step(contender).items():
                    found[contender.name].setdefault(name, []).append(value)
        say(f"round {round_no + 1} of {arguments.rounds}", began)
    rows = []
    for name, values in found[ours.name].items():
        unit = name.rpartition(": ")[2]
        if name.startswith("generator busy"):
            busiest = max(values + found[theirs.name][name])
            rows.append(Row(f"{name}, limit", busiest, 1.0, "% of a core", None))
            continue
        rows.append(
            Row(
                name,
                statistics.median(values),
                statistics.median(found[theirs.name][name]),
                unit,
                _BARS.get(name),
            )
        )
    rows.append(
        Row(
            "memory after load",
            resident_bytes(ours.pid) / 1e6,
            resident_bytes(theirs.pid) / 1e6,
            "MB resident",
            None,
        )
    )
    return rows


def _stalled_rows(ours: Headwater, arguments: argparse.Namespace) -> list[Row]:
    """Ours beside itself: what a reader that has stopped reading costs everybody else."""
    found: dict[str, list[float]] = {}
    for round_no in range(arguments.rounds):
        figures = measures.beside_stalled_reader(ours, arguments.seconds, round_no)
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
    return [
        Row(
            f"beside 4 stalled readers: {unit}",
            statistics.median(found[f"stalled readers, with: {unit}"]),
            statistics.median(found[f"stalled readers, without: {unit}"]),
            unit,
            0.95,
        )
        for unit in ("requests/s", "fetch MB/s")
    ]


def _idle_row(arguments: argparse.Namespace) -> Row:
    """A broker of its own: what others have left to be removed is not the consumer's cost."""
    with (
        scratch(arguments.directory) as folder,
        closing_broker(Headwater(folder / "ours")) as broker,
    ):
        broker.start()
        measures.prepare(broker)
        used = measures.idle_consumer_cpu(broker, arguments.idle_seconds)
    return Row("1,000 partitions, one idle consumer", used, 1.0, "% of a core", 1.0)


def _recovery_rows(directory: Path | None) -> list[Row]:
    """Write a gigabyte in batches of 16 KiB, crash, and time the start that scans all of it."""
    batch = load.batch_of(16 * 1024 // 1_010, 1_000)
    rates = []
    with scratch(directory) as folder, closing_broker(Headwater(folder / "ours")) as broker:
        broker.start()
        empty_start_s = broker.started_in_s
        create_topic(broker.port, "recovery", 1, durable=False)
        frames = [[load.produce_frame("recovery", 0, batch)]] * 4
        log = broker.log_directory / "recovery-0"
        while _bytes_in(log) < _RECOVERY_BYTES:
            load.run_produce(measures.address(broker), frames, in_flight=5, seconds=1)
        for _ in range(3):
            broker.kill()
            # As if no checkpoint had been written yet: everything has to be scanned.
            (broker.log_directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
            broker.start()
            scan_s = max(broker.started_in_s - empty_start_s, 1e-3)
            rates.append(_bytes_in(log) / 1e6 / scan_s)
    return [Row("recovery, 16 KiB batches, limit", statistics.median(rates), 500.0, "MB/s", 1.0)]


def _bytes_in(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


if __name__ == "__main__":
    sys.exit(main())
