"""What the new features cost those who do not use them.

This file alone decides how ours is held against itself: one broker as new, one whose features have
all been used, side by side. A difference of a twentieth drowns in the noise of a machine unless the
two are measured in turns that follow each other closely, so turns are many and short.
"""

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.broker import load
from benchmarks.broker.brokers import Headwater, closing_broker, create_topic, end_offsets, scratch
from benchmarks.broker.measures import address
from benchmarks.table import Row
from benchmarks.txn import compaction, transactions
from headwater.base.record.codecs import Codec

_BAR = 0.95
_TURN_S = 0.7
_TURNS_PER_ROUND = 4
_PARTITIONS = 4
_LARGE_RECORDS = 256
_SMALL, _LARGE = "small-records", "large-records"
_PRODUCERS = 100

_Measure = Callable[[Headwater], float]


def rows(directory: Path | None, configs: Mapping[str, str], rounds: int) -> list[Row]:
    """Measure, and return how the used one does beside the new one."""
    with ExitStack() as stack:
        used, new = (
            stack.enter_context(closing_broker(Headwater(folder, configs)))
            for folder in (stack.enter_context(scratch(directory)) for _ in range(2))
        )
        for broker in (used, new):
            broker.start()
            for topic in (_SMALL, _LARGE):
                create_topic(broker.port, topic, _PARTITIONS, durable=True)
        _use(used)
        return [
            _row(name, measure, used, new, rounds * _TURNS_PER_ROUND)
            for name, measure in _MEASURES.items()
        ]


def _use(broker: Headwater) -> None:
    transactions.prepare(broker)
    for records in transactions.RECORD_COUNTS:
        transactions.bare(broker, records, _PRODUCERS, 2.0)
    compaction.clean(broker, Codec.NONE, 0)


def _row(name: str, measure: _Measure, used: Headwater, new: Headwater, turns: int) -> Row:
    found: dict[Headwater, list[float]] = {used: [], new: []}
    for turn in range(turns):
        for broker in (used, new) if turn % 2 else (new, used):
            found[broker].append(measure(broker))
    return Row(
        f"features used, {name}",
        statistics.median(found[used]),
        statistics.median(found[new]),
        name.rpartition(": ")[2],
        _BAR,
    )


def _requests(connections: int, in_flight: int) -> _Measure:
    batch = load.batch_of(1, 100)
    frames = [
        [load.produce_frame(_SMALL, index % _PARTITIONS, batch)] for index in range(connections)
    ]

    def measure(broker: Headwater) -> float:
        result = load.run_produce(address(broker), frames, in_flight=in_flight, seconds=_TURN_S)
        return result.requests_per_s

    return measure


def _produce(broker: Headwater) -> float:
    batch = load.batch_of(_LARGE_RECORDS, 1_000)
    frames = [[load.produce_frame(_LARGE, each, batch)] for each in range(_PARTITIONS)]
    result = load.run_produce(address(broker), frames, in_flight=2, seconds=_TURN_S)
    return result.bytes_per_s / 1e6


def _fetch(broker: Headwater) -> float:
    # As much as both have for sure, so that neither finds more of it in a cache.
    ends = [min(end, _LARGE_RECORDS * 500) for end in end_offsets(broker.port, _LARGE, _PARTITIONS)]
    bytes_per_s, _ = load.run_fetch(address(broker), _LARGE, ends)
    return bytes_per_s / 1e6


_MEASURES: dict[str, _Measure] = {
    "1-record requests, durable, 16x5: requests/s": _requests(16, 5),
    "1-record requests, durable, 1x1: requests/s": _requests(1, 1),
    "produce 1000 B records, durable: MB/s": _produce,
    "fetch 1000 B records, durable: MB/s": _fetch,
}
