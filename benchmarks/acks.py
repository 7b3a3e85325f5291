"""What an answer to acks=1 costs beside one to acks=all: `make bench-acks`.

This file alone decides what is measured of it: requests of one record, one at a time and many at
once, and large batches, on a durable topic. Both brokers answer the same bytes, interleaved.
"""

import statistics
import sys
import time

from benchmarks.broker import load
from benchmarks.broker.brokers import Contender, both, create_topic
from benchmarks.broker.measures import address
from benchmarks.table import Row, options, print_rows, say

TOPIC = "acks"
PARTITIONS = 4
# Connections, requests in flight on each, records in a batch and their size.
LOADS = [(1, 1, 1, 100), (16, 5, 1, 100), (4, 2, 256, 1_000)]
ACKS = {1: "acks=1", -1: "acks=all"}


def main() -> int:
    """Measure and print the table."""
    arguments = options("benchmarks.acks", seconds=1.5).parse_args()
    began = time.monotonic()
    found: dict[str, dict[str, list[float]]] = {}
    with both(arguments.directory) as contenders:
        for contender in contenders:
            create_topic(contender.port, TOPIC, PARTITIONS, durable=contender.name == "headwater")
            measure(contender, arguments.seconds, {})
        for round_no in range(arguments.rounds):
            for contender in contenders if round_no % 2 else reversed(contenders):
                measure(contender, arguments.seconds, found.setdefault(contender.name, {}))
            say(f"round {round_no + 1} of {arguments.rounds}", began)
    ours, theirs = (found[contender.name] for contender in contenders)
    medians = {name: statistics.median(values) for name, values in theirs.items()}
    print_rows(
        [
            Row(name, statistics.median(values), medians[name], name.rpartition(": ")[2], None)
            for name, values in ours.items()
        ]
    )
    return 0


def measure(contender: Contender, seconds: float, found: dict[str, list[float]]) -> None:
    """Add the figures of one round."""
    for connections, in_flight, records, value_bytes in LOADS:
        batch = load.batch_of(records, value_bytes)
        for acks, label in ACKS.items():
            frames = [
                [load.produce_frame(TOPIC, index % PARTITIONS, batch, acks)]
                for index in range(connections)
            ]
            result = load.run_produce(
                address(contender), frames, in_flight=in_flight, seconds=seconds
            )
            name = f"{label}, {connections}x{in_flight}, {records} x {value_bytes} B"
            figures = {
                "requests/s": result.requests_per_s,
                "p50 ms": result.p50_ms,
                "p99 ms": result.p99_ms,
            }
            for unit, value in figures.items():
                found.setdefault(f"{name}: {unit}", []).append(value)


if __name__ == "__main__":
    sys.exit(main())
