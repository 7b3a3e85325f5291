"""The laws that every operator holds, as one harness for the tests of all of them.

`play` runs an operator over batches as the kernel would: rows are combined in pieces, sent to
buckets, put in order and stepped over, with the state saved and restored between any two steps.
`check_laws` plays the same batches in several ways and checks that

- a step that is run again gives the same state and the same rows, to the byte, whether its state
  was kept or restored, in whatever order its pieces came;
- other pieces, and 64 buckets instead of one, give the same rows in the end (and, where
  `pieces_show` is False, one bucket gives the same bytes);
- a row is taken back only while it is there, exactly as it was inserted; and the weights of one
  identity are 0 or 1 whenever the rows are looked at.

It returns what is left in the end, for a comparison with an oracle. How events are cut into
batches, and which order they come in, is the test's own matter: `cut` and `watermarks_within` help.

    operator = AlignedWindows(...)
    batches = [Batch((rows([("a", 1, 2.5)], SCHEMA),), 10), Batch((rows([], SCHEMA),), 100)]
    left = check_laws(operator, batches, identity=("c0", "c1"))
    assert left.rows == expected({("a", 0, 10, 2.5)})
"""

import itertools
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.streams.kernel.arrays import whole
from headwater.streams.kernel.buckets import bucket_of
from headwater.streams.kernel.canonical import canonical
from headwater.streams.kernel.chunks import DictStore
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.keys import decode_keys, encode_keys
from headwater.streams.kernel.operator import KEY, TIME, VERSION, WEIGHT, Operator, Time
from headwater.streams.kernel.packing import in_order, to_bytes
from headwater.streams.kernel.state import State

FOREVER = 2**60
"""A watermark behind which nothing can be; the year 9999 is before it."""


class Batch(NamedTuple):
    """What one batch brings: raw rows of each input, and the watermark."""

    inputs: tuple[pa.Table, ...]
    watermark: int | None


class Played(NamedTuple):
    """What came of batches.

    Attributes:
        given: The rows that each batch gave, bucket by bucket.
        late: How many events each batch called late.
        headers: The state of each bucket behind each batch, as JSON: names of chunks included.
    """

    given: list[pa.Table]
    late: list[int]
    headers: list[list[str]]


class Left(NamedTuple):
    """What is left when all rows that are taken back are gone.

    Attributes:
        rows: How often each row is there: the key, then the values, each made comparable.
        late: How many events were late.
        versions: The largest version that was given.
        played: How it came about, in one bucket.
    """

    rows: Counter[tuple[Hashable, ...]]
    late: int
    versions: int
    played: Played


def rows(
    events: Iterable[Sequence[Any]],
    values: pa.Schema,
    *,
    key: pa.DataType | None = None,
    first_offset: int = 0,
    partitions: int = 2,
    topics: Sequence[str] = (),
) -> pa.Table:
    """Return rows of (key, time, value...), with offsets in their order over several partitions.

    Of three rows, two come from the same place, as when one record becomes several rows; if a table
    is cut between them, the place comes again in another batch.

    Args:
        events: A tuple for each.
        values: The columns behind key and time.
        key: The type of the key; a string if not given.
        first_offset: Of the first row.
        partitions: Rows go round them.
        topics: Rows go round them too, if there are any.
    """
    listed = list(events)
    count = len(listed)
    columns: dict[str, pa.Array] = {
        KEY: encode_keys([pa.array([event[0] for event in listed], key or pa.string())], count),
        TIME: pa.array([event[1] for event in listed], pa.int64()),
    }
    numbers = np.arange(first_offset, first_offset + count)
    numbers -= numbers % 3 == 2
    if topics:
        columns["topic"] = pa.array([topics[number % len(topics)] for number in numbers.tolist()])
    columns["partition"] = pa.array((numbers % partitions).astype(np.int32))
    columns["offset"] = pa.array(numbers // partitions)
    for at, field in enumerate(values):
        columns[field.name] = pa.array([event[2 + at] for event in listed], field.type)
    return pa.table(columns)


def cut(table: pa.Table, places: Iterable[int]) -> list[pa.Table]:
    """Cut a table before rows with these numbers."""
    at = [0, *sorted(place % (table.num_rows + 1) for place in places), table.num_rows]
    return [table.slice(start, end - start) for start, end in itertools.pairwise(at)]


def dealt(table: pa.Table, count: int, dice: random.Random) -> list[pa.Table]:
    """Deal rows out to so many tasks, and return what those have that have any.

    Rows of one record are always with one task, which has them in their order.
    """
    named = [name for name in ("topic", "partition", "offset") if name in table.column_names]
    places = [tuple(place.values()) for place in table.select(named).to_pylist()]
    chosen = {place: dice.randrange(count) for place in dict.fromkeys(places)}
    owners = np.array([chosen[place] for place in places], np.int64)
    parts = [table.take(pa.array(np.flatnonzero(owners == owner))) for owner in range(count)]
    return [part for part in parts if part.num_rows]


def watermarks_within(
    pieces: Sequence[pa.Table], slack: Sequence[int], *, known_after: int = 0
) -> list[int | None]:
    """Return watermarks that no row is late for: none is above a time that is still to come.

    Args:
        pieces: The rows of each batch, of all inputs.
        slack: By how much each watermark stays below what would be possible.
        known_after: Batches before the first watermark.
    """
    result: list[int | None] = []
    latest: int | None = None
    for number in range(len(pieces)):
        rest = [time for piece in pieces[number + 1 :] for time in piece.column(TIME).to_pylist()]
        bound = min((time for time in rest if time is not None), default=FOREVER)
        bound -= slack[number % len(slack)] if slack and bound != FOREVER else 0
        if number >= known_after or bound == FOREVER:
            latest = bound if latest is None else max(latest, bound)
        result.append(latest)
    return result


def play(
    operator: Operator,
    batches: Sequence[Batch],
    *,
    buckets: int = 1,
    pieces: random.Random | None = None,
    order: random.Random | None = None,
    restore: bool = False,
) -> Played:
    """Run an operator as the kernel does.

    Args:
        operator: The operator.
        batches: What comes.
        buckets: How many buckets keys are spread over.
        pieces: Says where the rows of a batch are cut before they are combined; not at all if None.
        order: Says in which order the combined pieces arrive.
        restore: Whether each step starts from a state that was written down and read again.
    """
    fresh = operator.start()
    states = [fresh] * buckets
    store = DictStore()
    previous: int | None = None
    played = Played([], [], [])
    for batch in batches:
        sent = [
            _spread(_sent(operator, which, table, pieces), buckets)
            for which, table in enumerate(batch.inputs)
        ]
        steps = []
        for bucket in range(buckets):
            inputs = [_arrived(blobs[bucket], order) for blobs in sent]
            if (
                buckets > 1
                and states[bucket] is fresh
                and not any(table.num_rows for table in inputs)
            ):
                # Most of many buckets never have a row, and what one does with none is known.
                continue
            state = _reopened(states[bucket], store) if restore else states[bucket]
            steps.append(operator.step(state, inputs, Time(previous, batch.watermark)))
            states[bucket] = steps[-1].state
            _check_columns(operator, steps[-1].rows)
        given = [step.rows for step in steps]
        played.given.append(pa.concat_tables(given) if given else _nothing(operator))
        played.late.append(sum(step.late for step in steps))
        played.headers.append([_header(state) for state in states])
        previous = batch.watermark
    return played


def check_laws(
    operator: Operator,
    batches: Sequence[Batch],
    *,
    seed: int = 0,
    identity: Sequence[str] | None = (),
    key: pa.DataType | None = None,
    pieces_show: bool = False,
) -> Left:
    """Play batches in several ways, check the laws, and return what is left.

    Args:
        operator: The operator.
        batches: What comes.
        seed: Of pieces and orders.
        identity: The values that, with the key, say what a row is the result of; its weights are 0
            or 1. None where equal rows may be there several times.
        key: The type of the key; a string if not given.
        pieces_show: Whether it can be seen in the state how a batch was cut into pieces.
    """
    plain = play(operator, batches)
    left = Left(
        consolidate(plain.given, identity=identity, key=key),
        sum(plain.late),
        max((max(_versions(table), default=0) for table in plain.given), default=0),
        plain,
    )
    chance = random.Random(seed)
    one = play(operator, batches, pieces=random.Random(seed), order=chance)
    other = play(operator, batches, pieces=random.Random(seed), order=chance, restore=True)
    assert_same(one, other, "the same pieces in another order, the state restored")
    if not pieces_show:
        assert_same(plain, one, "other pieces")
    many = play(operator, batches, buckets=64, pieces=random.Random(seed + 1), order=chance)
    for way in (one, many):
        assert consolidate(way.given, identity=identity, key=key) == left.rows
        assert way.late == plain.late
    return left


def assert_same(one: Played, other: Played, what: str) -> None:
    """Compare bytes of rows and states."""
    for number, (mine, yours) in enumerate(zip(one.given, other.given, strict=True)):
        assert _in_bytes(mine) == _in_bytes(yours), f"batch {number}, {what}: other rows"
    for number, (left, right) in enumerate(zip(one.headers, other.headers, strict=True)):
        assert left == right, f"batch {number}, {what}: another state"
    assert one.late == other.late, what


def consolidate(
    given: Sequence[pa.Table],
    *,
    identity: Sequence[str] | None = (),
    key: pa.DataType | None = None,
) -> Counter[tuple[Hashable, ...]]:
    """Apply rows one by one, check that each can be applied, and return what is there then."""
    there: Counter[tuple[Hashable, ...]] = Counter()
    weights: Counter[tuple[Hashable, ...]] = Counter()
    for table in given:
        for row in _listed(table, key):
            weight, version = row.pop(WEIGHT), row.pop(VERSION)
            assert weight in {1, -1}
            whole_row = (version, *(comparable(value) for value in row.values()))
            there[whole_row] += weight
            assert there[whole_row] >= 0, f"taken back, but not there: {row}, version {version}"
            if identity is not None:
                whose = tuple(comparable(row[name]) for name in (KEY, *identity))
                weights[whose] += weight
                assert weights[whose] in {0, 1}, f"{weights[whose]} results at once: {row}"
    left: Counter[tuple[Hashable, ...]] = Counter()
    for (_, who, _, *values), count in there.items():
        if count:
            left[(who, *values)] += count
    return left


def expected(wanted: Iterable[Sequence[Any]]) -> Counter[tuple[Hashable, ...]]:
    """Return rows of (key, value...) in the form that `consolidate` returns."""
    return Counter(tuple(comparable(value) for value in row) for row in wanted)


def comparable(value: object) -> Hashable:
    """Return a value that equals itself and can be counted: NaN too, and lists."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value + 0.0)
    if isinstance(value, list | tuple):
        return tuple(comparable(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, comparable(item)) for name, item in value.items())
    assert isinstance(value, Hashable)
    return value


def _sent(
    operator: Operator, which: int, table: pa.Table, pieces: random.Random | None
) -> list[pa.Table]:
    """Combine rows in pieces, as tasks do."""
    if pieces is None:
        return [operator.combine(which, table)]
    return [operator.combine(which, part) for part in dealt(table, 3, pieces)] or [
        operator.combine(which, table)
    ]


def _spread(blobs: Sequence[pa.Table], buckets: int) -> list[list[pa.Table]]:
    """Return the parts of blobs that go to each bucket."""
    if buckets == 1:
        return [list(blobs)]
    found: list[list[pa.Table]] = [[blobs[0].slice(0, 0)] for _ in range(buckets)]
    for blob in blobs:
        owners = bucket_of(hashes(whole(blob.column(KEY))), buckets)
        for bucket in np.unique(owners):
            found[bucket].append(blob.filter(pa.array(owners == bucket)))
    return found


def _arrived(blobs: Sequence[pa.Table], order: random.Random | None) -> pa.Table:
    """Return the rows of a bucket, as the kernel gives them to a step."""
    if not any(blob.num_rows for blob in blobs):
        return blobs[0]
    mine = list(blobs)
    if order is not None:
        order.shuffle(mine)
    return in_order(mine)


def _reopened(state: State, store: DictStore) -> State:
    for chunk in state.chunks:
        store.chunks[chunk.name] = pa.py_buffer(chunk.data().to_pybytes())
    return State.restore(json.loads(_header(state)), store)


def _header(state: State) -> str:
    return json.dumps(state.describe(), sort_keys=True)


def _check_columns(operator: Operator, table: pa.Table) -> None:
    assert table.column_names == [KEY, TIME, WEIGHT, VERSION, *operator.output.names]
    assert table.schema.field(WEIGHT).type == pa.int8()
    assert table.schema.field(VERSION).type == pa.int32()
    for field in operator.output:
        assert table.schema.field(field.name).type == field.type


def _in_bytes(table: pa.Table) -> bytes:
    columns = [canonical(whole(column.combine_chunks())) for column in table.columns]
    data: bytes = to_bytes(pa.Table.from_arrays(columns, schema=table.schema)).to_pybytes()
    return data


def _nothing(operator: Operator) -> pa.Table:
    head = [(KEY, pa.binary()), (TIME, pa.int64()), (WEIGHT, pa.int8()), (VERSION, pa.int32())]
    return pa.schema([*(pa.field(*each) for each in head), *operator.output]).empty_table()


def _versions(table: pa.Table) -> list[int]:
    found: list[int] = table.column(VERSION).to_pylist()
    return found


def _listed(table: pa.Table, key: pa.DataType | None) -> list[dict[str, Any]]:
    (keys,) = decode_keys(whole(table.column(KEY).combine_chunks()), [key or pa.string()])
    found: list[dict[str, Any]] = table.set_column(0, KEY, keys).to_pylist()
    return found
