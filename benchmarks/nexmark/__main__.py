"""`make bench-nexmark`: our streams of Nexmark's queries beside stock Spark's and Flink's.

This file alone decides what is compared and which bar has to be reached. All sides read the same
topic of our broker, each query in turn. A run over fewer events comes first, which is not timed: it
warms the side up, and all that it emits has to come to the answer of DuckDB.
"""

import math
import statistics
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.nexmark import answers, spark_sides
from benchmarks.nexmark.flink import FLINK, Flink, maybe_flink
from benchmarks.nexmark.load import Load, fill
from benchmarks.nexmark.spark_sides import OURS, STOCK
from benchmarks.spark import Bench, parser_of, running
from benchmarks.table import Row, print_rows
from examples.nexmark.queries import QUERIES
from examples.nexmark.stock_spark import TAKEN

_BAR: Final = 0.7
_EVENTS: Final = 500_000
_BATCHES: Final = 4
# What Spark takes in place of q4 grows with the square of the events.
_FEWER: Final = {"q4": 25_000}
_CHECKED: Final = 25_000
# The fewest between which state is kept.
_CHECKED_BATCHES: Final = 2


class _Side(NamedTuple):
    """Who runs a query."""

    check: Callable[[], None]
    timed: Callable[[], float]


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    # One round of 23 queries on three sides takes a quarter of an hour.
    parser = parser_of("benchmarks.nexmark", rounds=1)
    parser.add_argument("--no-flink", action="store_true", help="leave PyFlink out")
    arguments = parser.parse_args()
    wanted = [name for name in QUERIES if not arguments.only or name in arguments.only.split(",")]
    found: dict[str, Mapping[str, float]] = {}
    with running("bench-nexmark", arguments.directory) as bench, ExitStack() as opened:
        flink = None if arguments.no_flink else opened.enter_context(maybe_flink(bench))
        counts = {name: int(_FEWER.get(name, _EVENTS) * arguments.scale) for name in wanted}
        loads = {
            count: fill(bench.bootstrap, f"nexmark{count}", count)
            for count in {*counts.values(), _CHECKED}
        }
        bench.say("all events are there")
        for name in wanted:
            sides = _sides(bench, flink, loads[_CHECKED], loads[counts[name]], name)
            found[name] = _compare(bench, sides, arguments.rounds)
            rates = ", ".join(f"{side} {rate:,.0f}" for side, rate in found[name].items())
            bench.say(f"{name}: {rates} events/s")
    print_rows(_rows(found))
    return 0


def _sides(
    bench: Bench, flink: Flink | None, checked: Load, load: Load, name: str
) -> dict[str, _Side]:
    query = QUERIES[name]

    def of_spark(side: str) -> _Side:
        def check() -> None:
            asked = spark_sides.ask(bench, checked, side, name, _CHECKED_BATCHES)
            answers.check(query, checked, spark_sides.emitted(bench, asked, side, name), side)

        def timed() -> float:
            asked = spark_sides.ask(bench, load, side, name, _BATCHES)
            return spark_sides.timed(bench, asked, load, _BATCHES)

        return _Side(check, timed)

    sides = {side: of_spark(side) for side in (OURS, STOCK)}
    if flink is not None:
        flinks = flink

        def check() -> None:
            answers.check(query, checked, flinks.emitted(name, checked), FLINK)

        sides[FLINK] = _Side(check, lambda: flinks.timed(name, load))
    return sides


def _compare(bench: Bench, sides: Mapping[str, _Side], rounds: int) -> dict[str, float]:
    able = []
    for name, side in sides.items():
        try:
            side.check()
        except answers.WrongAnswerError as error:
            if name == OURS:
                raise
            # Whoever does not give the answer has no speed: its row is left out.
            bench.say(str(error))
        else:
            able.append(name)
    rates: dict[str, list[float]] = {name: [] for name in able}
    for round_no in range(rounds):
        for name in sorted(able, reverse=bool(round_no % 2)):
            rates[name].append(sides[name].timed())
    return {name: statistics.median(each) for name, each in rates.items()}


def _rows(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    rows = [
        Row(f"{name}, beside {side}: events/s", rates[OURS], rates[side], "events/s", None)
        for side in (STOCK, FLINK)
        for name, rates in found.items()
        if side in rates
    ]
    as_asked = {name: rates for name, rates in found.items() if name in TAKEN}
    rows += _mean(f"geometric mean, beside {FLINK}", found, FLINK, None)
    rows += _mean(f"geometric mean, beside {STOCK} as it is asked", as_asked, STOCK, _BAR)
    rows += _mean(f"geometric mean, beside {STOCK}", found, STOCK, _BAR)
    return rows


def _mean(
    title: str, found: Mapping[str, Mapping[str, float]], side: str, bar: float | None
) -> list[Row]:
    """Give the row of geometric means, whose ratio is that of the ratios; none if it has none."""
    compared = [rates for rates in found.values() if side in rates]
    if not compared:
        return []
    ours, theirs = (_geometric([rates[each] for rates in compared]) for each in (OURS, side))
    return [Row(f"{title}, {len(compared)} queries: events/s", ours, theirs, "events/s", bar)]


def _geometric(rates: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(rate) for rate in rates))


if __name__ == "__main__":
    sys.exit(main())
