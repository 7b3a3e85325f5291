"""Tables whose primary keys are columns: they are told apart by all of them, to the last bit."""

import datetime as dt
from typing import Any

import pyarrow as pa

from headwater.streams.joins.identified import IdentifiedTables
from headwater.streams.kernel.keys import encode_keys
from headwater.streams.kernel.operator import Time

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema([("c0", pa.string()), ("c1", TIME), ("c2", pa.int64()), ("c3", pa.int64())])
RIGHT = pa.schema([("c0", pa.float64()), ("c1", pa.int64())])
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)


def rows(schema: pa.Schema, *given: tuple[Any, ...]) -> pa.Table:
    """Return rows of the one join key: a weight, then values, then a version."""
    count = len(given)
    keys = pa.array(["k"] * count, pa.string())
    columns = {
        "key": encode_keys([keys], count),
        "time": pa.nulls(count, pa.int64()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "weight": pa.array([row[0] for row in given], pa.int8()),
    }
    for at, field in enumerate(schema):
        columns[field.name] = pa.array([row[1 + at] for row in given], field.type)
    columns["null_key"] = pa.array([False] * count)
    return pa.table(columns)


def test_rows_are_told_apart_by_their_whole_key_and_by_nothing_else() -> None:
    join = IdentifiedTables(LEFT, RIGHT, identities=(("c0", "c1"), ("c0",)), kind="left")
    assert join.output.types == [pa.string(), TIME, pa.int64(), pa.float64()]
    state = join.start()
    left = rows(
        LEFT, (1, "a", NOON, 1, 4), (1, "a", NOON + MICROSECOND, 2, 4), (1, None, NOON, 3, 4)
    )
    # One key in two forms: 0.0 goes, and -0.0 comes in its place.
    right = rows(RIGHT, (1, 0.0, 0), (-1, 0.0, 0), (1, -0.0, 1))
    packed = [join.combine(which, table) for which, table in enumerate((left, right))]
    step = join.step(state, packed, Time(None, None))
    found = step.rows.select(["weight", "c0", "c1", "c2", "c3"]).to_pylist()
    assert sorted(row["c2"] for row in found) == [1, 2, 3]
    assert {(row["weight"], row["c3"]) for row in found} == {(1, 0.0)}
    assert set(step.rows["version"].to_pylist()) == {5}

    gone = rows(LEFT, (-1, "a", NOON, 1, 4))
    packed = [join.combine(0, gone), join.combine(1, rows(RIGHT))]
    step = join.step(step.state, packed, Time(None, None))
    assert [(row["weight"], row["c2"]) for row in step.rows.to_pylist()] == [(-1, 1)]
