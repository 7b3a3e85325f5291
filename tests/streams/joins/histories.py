"""Histories of two streams, cut into batches, and how an operator is led through them.

Rows have short names for keys and a number of their own as their last value, so that no two rows of
a history are equal and each row of a result can be counted.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from headwater.streams.joins.rows import LEFT, RIGHT
from headwater.streams.kernel.buckets import bucket_of
from headwater.streams.kernel.chunks import DictStore
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.keys import decode_keys, encode_keys, null_mask
from headwater.streams.kernel.operator import Operator, Time
from headwater.streams.kernel.state import State


class Event(NamedTuple):
    """A row of one side; `number` is its own."""

    side: int
    key: str | None
    time: int | None
    number: int
    value: Any = None
    weight: int = 1
    topic: str = "t"
    partition: int = 0
    version: int = 0


class Batch(NamedTuple):
    """What comes at once, and the watermark that is decided with it."""

    events: tuple[Event, ...]
    watermark: int | None


class Row(NamedTuple):
    """A row of a result."""

    batch: int
    key: str | None
    time: int | None
    weight: int
    version: int
    values: tuple[Any, ...]


VALUES = pa.schema([("c0", pa.int64()), ("c1", pa.int64())])
"""The number of an event, and its value."""


def rows_of(events: Sequence[Event], side: int, schema: pa.Schema = VALUES) -> pa.Table:
    """Return the events of one side as an operator is given them: offsets are their numbers."""
    mine = [event for event in events if event.side == side]
    mine.sort(key=lambda event: (event.topic, event.partition, event.number))
    keys = [pa.array([event.key for event in mine], pa.string())]
    columns = {
        "key": encode_keys(keys, len(mine)),
        "null_key": pa.array(null_mask(keys, len(mine))),
        "time": pa.array([event.time for event in mine], pa.int64()),
        "topic": pa.array([event.topic for event in mine], pa.string()),
        "partition": pa.array([event.partition for event in mine], pa.int32()),
        "offset": pa.array([event.number for event in mine], pa.int64()),
        "weight": pa.array([event.weight for event in mine], pa.int8()),
        "version": pa.array([event.version for event in mine], pa.int64()),
    }
    # A row of a table brings its primary key along, as the first of its values.
    own = [
        event.value if isinstance(event.value, tuple) else (event.number, event.value)
        for event in mine
    ]
    for at, field in enumerate(schema):
        columns[field.name] = pa.array([values[at] for values in own], field.type)
    return pa.table(columns)


def restored(state: State, store: DictStore) -> State:
    """Return a state as it is read after a crash: through its header and its chunks."""
    store.chunks |= {chunk.name: chunk.data() for chunk in state.chunks}
    return State.restore(json.loads(json.dumps(state.describe())), store)


def played(
    operator: Operator, batches: Sequence[Batch], *, buckets: int = 1
) -> tuple[list[Row], int]:
    """Lead the operator through batches, states through a store; return rows and late events."""
    store = DictStore()
    states = [operator.start() for _ in range(buckets)]
    found: list[Row] = []
    late = 0
    previous = None
    for number, batch in enumerate(batches):
        inputs = [
            rows_of(batch.events, side, schema) for side, schema in enumerate(operator.inputs)
        ]
        time = Time(previous, batch.watermark)
        for bucket in range(buckets):
            mine = [
                rows.filter(pa.array(bucket_of(hashes(rows["key"]), buckets) == bucket))
                for rows in inputs
            ]
            step = operator.step(states[bucket], mine, time)
            states[bucket] = restored(step.state, store)
            late += step.late
            found += _rows(number, step.rows)
        previous = batch.watermark
    return found, late


def _rows(batch: int, rows: pa.Table) -> Iterator[Row]:
    keys = decode_keys(rows["key"].combine_chunks(), [pa.string()])[0].to_pylist()
    values = [column.to_pylist() for column in rows.columns[4:]]
    plain = [rows[name].to_pylist() for name in ("time", "weight", "version")]
    for key, time, weight, version, *rest in zip(keys, *plain, *values, strict=True):
        yield Row(batch, key, time, weight, version, tuple(rest))


def standing(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    """Apply changes one by one, each to a row that is there once or not at all; what is left."""
    weights: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        identity = (row.key, row.time, row.version, row.values)
        weights[identity] += row.weight
        assert weights[identity] in {0, 1}, identity
    left: Counter[tuple[Any, ...]] = Counter()
    for (key, time, _, values), weight in weights.items():
        if weight:
            left[(key, time, *values)] += 1
    return left


KEYS = ("a", "b")


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    nulls: bool = True,
    deletes: bool = False,
    events_max: int = 30,
    delay_max: int = 4,
) -> list[Batch]:
    """Return batches with disorder, late rows, and a watermark that ends behind all."""
    count = draw(st.integers(0, events_max))
    delay = draw(st.integers(0, delay_max))
    batches: list[Batch] = []
    number = 0
    watermark: int | None = None
    reached: int | None = None
    while number < count:
        size = draw(st.integers(0, 8))
        events = []
        for _ in range(size):
            # Few times and keys, so that much is equal, and much is just within a bound.
            drift = draw(st.integers(-5, 3))
            key = draw(st.sampled_from((*KEYS, None) if nulls else KEYS))
            time = None if nulls and draw(st.integers(0, 20)) == 20 else number // 2 + drift
            side = draw(st.sampled_from((LEFT, RIGHT)))
            weight = -1 if deletes and side == RIGHT and draw(st.integers(0, 3)) == 0 else 1
            events.append(
                Event(
                    side,
                    key,
                    time,
                    number,
                    draw(st.integers(0, 3)),
                    weight,
                    draw(st.sampled_from(("t", "s"))),
                    draw(st.integers(0, 1)),
                )
            )
            number += 1
        number += size == 0
        times = [event.time for event in events if event.time is not None]
        moves: bool = draw(st.booleans())
        if times and moves:
            reached = max(times) if reached is None else max(reached, *times)
            watermark = reached - delay if watermark is None else max(watermark, reached - delay)
        batches.append(Batch(tuple(events), watermark))
    batches.append(Batch((), 1_000_000_000))
    return batches


def admitted(batches: Sequence[Batch]) -> list[Event]:
    """Return the events that are not before the watermark of the batch before theirs."""
    found = []
    previous: int | None = None
    for batch in batches:
        found += [event for event in batch.events if not is_late(event, previous)]
        previous = batch.watermark
    return found


def late_count(batches: Sequence[Batch]) -> int:
    """Return how many events are late."""
    return sum(len(batch.events) for batch in batches) - len(admitted(batches))


def is_late(event: Event, previous: int | None) -> bool:
    """Tell whether an event is before the watermark of the last batch."""
    return event.time is not None and previous is not None and event.time < previous
