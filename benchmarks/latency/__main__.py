"""`make bench-latency`: from topic to topic, by trigger interval, ours beside Spark's own.

This file alone decides which pipelines are measured, for how long, and what becomes a row. Two
things are measured of each trigger interval. At 1,000 records a second, 200 in Real-Time Mode: how
long each record is on its way. And when there is always more to read: how many rows a second go
through in batches as large as one interval brings at 200,000 rows a second.

Ours writes each batch in one transaction, exactly once. Spark's own sink writes at least once: its
readers need not wait for the end of a batch, and it may write a batch twice. Real-Time Mode is
Spark's own connector on either broker, ours in the column "ours", Apache Kafka in "theirs".
"""

import argparse
import statistics
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from benchmarks.broker.brokers import Kafka, closing_broker, create_topic, delete_topic, end_offsets
from benchmarks.latency import pipelines
from benchmarks.latency.pacing import Arrivals, PacedProducer, Window, latencies_ms
from benchmarks.latency.pipelines import Route
from benchmarks.source.topics import Topic, fill
from benchmarks.spark import OURS, THEIRS, Bench, can_run, parser_of, running
from benchmarks.table import Row, print_rows
from headwater.base.record.codecs import Codec

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

INTERVALS_S = (0.1, 0.5, 1.0, 2.0, 5.0)
_PARTITIONS = 2
# The JVM compiles what runs often; the first seconds of a query are slower than those that follow.
_SETTLE_S = 2.0
_WINDOW_S = 4.0
_RECORDS_PER_S = 1_000
# Each record is a request and a sync of its own here, and again on its way out: at a thousand a
# second Apache Kafka does not keep up, and what is measured is its backlog.
_REAL_TIME_RECORDS_PER_S = 200
_ROWS_PER_S = 200_000
# Batches counted, by interval: about as many seconds of each, and one more before them.
_BATCHES = {0.1: 10, 0.5: 6, 1.0: 4, 2.0: 2, 5.0: 1}
_P50, _P99 = "p50 ms", "p99 ms"

Figures = dict[str, dict[str, list[float]]]


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = parser_of("benchmarks.latency", rounds=2).parse_args()
    if not can_run("spark-kafka", "kafka"):
        return 1
    figures: Figures = {}
    with running("bench-latency", arguments.directory) as bench:
        _warm_up(bench)
        for round_no in range(arguments.rounds):
            _paced(bench, figures, arguments, round_no)
        _real_time(bench, figures, arguments)
        _saturated(bench, figures, arguments)
    rows = []
    for name, found in figures.items():
        ours, theirs = statistics.median(found[OURS]), statistics.median(found[THEIRS])
        rows.append(Row(name, ours, theirs, name.rpartition(": ")[2], None))
    print_rows(rows)
    return 0


def trigger_name(interval_s: float | None) -> str:
    """Return what rows call a trigger."""
    return "no trigger interval" if interval_s is None else f"trigger {interval_s:g} s"


def _warm_up(bench: Bench) -> None:
    """Let the JVM load and compile what the first query of a session would wait for."""
    for connector in (OURS, THEIRS):
        _steady_ms(bench, connector, None, Window(settle_s=_SETTLE_S, seconds=0.5))
    bench.say("warm")


def _paced(bench: Bench, figures: Figures, arguments: argparse.Namespace, round_no: int) -> None:
    for interval_s in (None, *INTERVALS_S):
        name = trigger_name(interval_s)
        if arguments.only not in name:
            continue
        window = _window(interval_s or 0, arguments.scale)
        for connector in sorted((OURS, THEIRS), reverse=bool(round_no % 2)):
            _note(figures, name, connector, _steady_ms(bench, connector, interval_s, window))
        bench.say(f"{name}, round {round_no + 1}")


def _window(interval_s: float, scale: float) -> Window:
    # Whole intervals, so that each moment of one counts as often as any other.
    least_s = interval_s if scale < 1 else 2 * interval_s
    return Window(max(_SETTLE_S * scale, interval_s), max(_WINDOW_S * scale, least_s))


def _steady_ms(
    bench: Bench, connector: str, interval_s: float | None, window: Window
) -> list[float]:
    with _topics(bench.broker.port) as (from_topic, to_topic):
        route = Route(connector, bench.bootstrap, from_topic, to_topic)
        query = pipelines.steady(bench.spark, route, interval_s)
        return _measure(route, query, window, _RECORDS_PER_S)


def _real_time(bench: Bench, figures: Figures, arguments: argparse.Namespace) -> None:
    name = "Real-Time Mode"
    if arguments.only not in name:
        return
    window = _window(0, arguments.scale)
    with closing_broker(Kafka(bench.folder / "kafka")) as kafka:
        kafka.start()
        # A broker in Java is slow at first, too: the first round is for practice.
        for round_no in range(-1, arguments.rounds):
            columns = ((OURS, bench.broker.port), (THEIRS, kafka.port))
            for column, port in columns if round_no % 2 else reversed(columns):
                with _topics(port) as (from_topic, to_topic):
                    route = Route(THEIRS, f"127.0.0.1:{port}", from_topic, to_topic)
                    query = pipelines.real_time(bench.spark, route)
                    found = _measure(route, query, window, _REAL_TIME_RECORDS_PER_S)
                if round_no >= 0:
                    _note(figures, name, column, found)
    bench.say(name)


def _saturated(bench: Bench, figures: Figures, arguments: argparse.Namespace) -> None:
    name = "saturated"
    if arguments.only not in name:
        return
    per_s = int(_ROWS_PER_S * arguments.scale)
    most = max(per_s * interval_s * (count + 1) for interval_s, count in _BATCHES.items())
    # Some to spare: which partition has how many is the producer's affair.
    fill(bench.bootstrap, Topic("backlog", 100, Codec.NONE, _PARTITIONS, int(most * 1.01) + 1_000))
    for round_no in range(arguments.rounds):
        for interval_s, count in _BATCHES.items():
            batch_rows = int(per_s * interval_s)
            for connector in sorted((OURS, THEIRS), reverse=bool(round_no % 2)):
                rate = _rate(bench, connector, batch_rows, count)
                row = f"{name}, {trigger_name(interval_s)}: rows/s"
                figures.setdefault(row, {}).setdefault(connector, []).append(rate)
        bench.say(f"{name}, round {round_no + 1}")


def _rate(bench: Bench, connector: str, batch_rows: int, count: int) -> float:
    ends = end_offsets(bench.broker.port, "backlog", _PARTITIONS)
    share = batch_rows * (count + 1) // _PARTITIONS
    with _topics(bench.broker.port) as (_, to_topic):
        route = Route(connector, bench.bootstrap, "backlog", to_topic)
        starting = [end - share for end in ends]
        batches = pipelines.saturated(bench.spark, route, starting, batch_rows)
    # A first batch is slower; a last one may hold what division has left over.
    counted = [each for each in batches[1:] if each[0] > batch_rows // 2]
    assert len(counted) == count, f"{connector}: {len(counted)} of {count} batches of {batch_rows}"
    return sum(rows for rows, _ in counted) / sum(took_s for _, took_s in counted)


def _measure(
    route: Route, query: AbstractContextManager["StreamingQuery"], window: Window, per_s: int
) -> list[float]:
    with (
        query as started,
        PacedProducer(route.bootstrap, route.from_topic, per_s) as producer,
        Arrivals(route.bootstrap, route.to_topic, _PARTITIONS) as arrivals,
    ):
        return latencies_ms(producer, arrivals, window, lambda: pipelines.check(started))


def _note(figures: Figures, name: str, column: str, found: list[float]) -> None:
    cuts = statistics.quantiles(found, n=100)
    for unit, value in ((_P50, cuts[49]), (_P99, cuts[98])):
        figures.setdefault(f"{name}: {unit}", {}).setdefault(column, []).append(value)


@contextmanager
def _topics(port: int) -> Iterator[tuple[str, str]]:
    # Never the same names again: a client that has not noticed its end would create them anew.
    unique = uuid.uuid4().hex[:8]
    names = (f"records.in.{unique}", f"records.out.{unique}")
    for each in names:
        create_topic(port, each, _PARTITIONS, durable=True)
    try:
        yield names
    finally:
        for each in names:
            delete_topic(port, each)


if __name__ == "__main__":
    sys.exit(main())
