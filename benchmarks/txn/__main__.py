"""`make bench-txn`: transactions and compaction beside Apache Kafka 4.3, medians of the rounds.

This file alone decides which figures become rows and which bar each has to reach. Both brokers
sync every batch of the topics (`flush.messages=1`); ours syncs `__transaction_state` too, which
Apache Kafka leaves to the page cache and its replicas. Last, ours is held against itself:
plain produce and fetch in a broker that has used none of the new features, and in one that has.
"""

import argparse
import statistics
import sys
import time

from benchmarks.broker.brokers import Contender, Headwater, Rival, both
from benchmarks.table import Row, options_beside, print_rows, say
from benchmarks.txn import compaction, transactions, unchanged
from headwater.base.record.codecs import Codec
from tests import peers

_CLEANER = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
_TRANSACTIONS_BAR = 1.0
_COMPACTION_BAR = 0.5
_PARTS = ("transactions", "compaction", "unchanged")


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    parser = options_beside("benchmarks.txn", seconds=2.0)
    parser.add_argument("--only", choices=_PARTS, action="append", help="a part of it")
    arguments = parser.parse_args()
    parts = arguments.only or (_PARTS if arguments.beside_tree is None else _PARTS[:2])
    if arguments.beside_tree is None and (reason := peers.missing("kafka")):
        print(reason, file=sys.stderr)
        return 1
    began = time.monotonic()
    rows = []
    for part, measure in (("transactions", _transaction_rows), ("compaction", _compaction_rows)):
        if part in parts:
            with both(arguments.directory, _CLEANER, beside_tree=arguments.beside_tree) as (
                ours,
                theirs,
            ):
                rows += measure(ours, theirs, arguments, began)
    if "unchanged" in parts:
        rows += unchanged.rows(arguments.directory, _CLEANER, arguments.rounds)
        say("plain produce and fetch measured", began)
    print_rows(rows)
    return 0


def _transaction_rows(
    ours: Headwater, theirs: Rival, arguments: argparse.Namespace, began: float
) -> list[Row]:
    contenders: list[Contender] = [ours, theirs]
    found: dict[str, dict[str, list[float]]] = {each.name: {} for each in contenders}
    for contender in contenders:
        transactions.prepare(contender)
        # The first load warms caches and the JVM's compiler; it does not count.
        transactions.bare(contender, 10, transactions.PRODUCERS, 2 * arguments.seconds)
    for round_no in range(arguments.rounds):
        for contender in contenders if round_no % 2 else reversed(contenders):
            for records in transactions.RECORD_COUNTS:
                figures = transactions.bare(contender, records, 1, arguments.seconds)
                figures |= transactions.bare(
                    contender, records, transactions.PRODUCERS, arguments.seconds
                )
                figures |= transactions.through_confluent_kafka(
                    contender, records, arguments.seconds
                )
                for name, value in figures.items():
                    found[contender.name].setdefault(name, []).append(value)
        say(f"transactions, round {round_no + 1} of {arguments.rounds}", began)
        if round_no == 0:
            # Later there would be more than a client in Python reads in the time of a benchmark.
            for contender in contenders:
                for records in transactions.RECORD_COUNTS:
                    transactions.check(contender, records, 120)
            say("committed records compared", began)
    rows = []
    for name, values in found[ours.name].items():
        others = found[theirs.name][name]
        if name.startswith("generator busy"):
            rows.append(Row(f"{name}, limit", max(values + others), 1.0, "% of a core", None))
            continue
        rows.append(
            Row(
                name,
                statistics.median(values),
                statistics.median(others),
                "transactions/s",
                _TRANSACTIONS_BAR,
            )
        )
    return rows


def _compaction_rows(
    ours: Headwater, theirs: Rival, arguments: argparse.Namespace, began: float
) -> list[Row]:
    rows = []
    for codec in (Codec.NONE, Codec.LZ4):
        rates: dict[str, list[float]] = {ours.name: [], theirs.name: []}
        for round_no in range(arguments.rounds):
            order: list[Contender] = [ours, theirs] if round_no % 2 else [theirs, ours]
            for contender in order:
                rates[contender.name].append(compaction.clean(contender, codec, round_no))
            told = ", ".join(f"{name} {found[-1]:,.0f}" for name, found in rates.items())
            say(f"compaction of {codec.name.lower()}, round {round_no + 1}: MB/s {told}", began)
        rows.append(
            Row(
                f"compaction, {codec.name.lower()}: MB/s",
                statistics.median(rates[ours.name]),
                statistics.median(rates[theirs.name]),
                "MB/s",
                _COMPACTION_BAR,
            )
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
