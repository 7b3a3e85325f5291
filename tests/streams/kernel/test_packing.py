"""Rows to blobs and back, without Spark."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel import packing
from headwater.streams.kernel.buckets import bucket_of
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.keys import encode_keys
from headwater.streams.kernel.packing import REACH, Packer, from_bytes, in_order, unpacked
from headwater.streams.time.faults import CLAIMED, Faults
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.running import RunningGroups

SCHEMA = pa.schema(
    [
        ("k0", pa.string()),
        ("k1", pa.int32()),
        ("time", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("c0", pa.int64()),
    ]
)
VALUES = pa.schema([("c0", pa.int64())])
ROW = st.tuples(
    st.sampled_from(["a", "b", "", None, "a longer key"]),
    st.integers(-2, 2) | st.none(),
    st.integers(-100, 100) | st.none(),
    st.sampled_from(["one", "two"]),
    st.integers(0, 2),
)


class Untouched:
    """An operator that has nothing to combine."""

    inputs = (VALUES,)

    def combine(self, which: int, rows: pa.Table) -> pa.Table:
        return rows


def table(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    numbered = [(*row, number, 7 * number) for number, row in enumerate(rows)]
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in numbered], schema=SCHEMA
    )


@given(st.lists(ROW, max_size=50), st.integers(1, 70), st.integers(1, 20))
@settings(max_examples=100, deadline=None)
def test_every_row_arrives_once_in_the_bucket_of_its_key(
    rows: list[tuple[object, ...]], buckets: int, batch_rows: int
) -> None:
    wanted = table(rows)
    packer = Packer(Untouched(), 0, SCHEMA, keys=2, buckets=buckets)  # type: ignore[arg-type]
    found = []
    for blobs in packer.pack(wanted.to_batches(batch_rows)):
        for bucket, data in zip(blobs.buckets, blobs.data, strict=True):
            packed = from_bytes(data.as_buffer())
            keys = packed.column("key").combine_chunks()
            assert set(bucket_of(hashes(keys), buckets).tolist()) == {bucket}
            for batch in unpacked(data.as_buffer(), SCHEMA.types[:2]):
                found += batch.to_pylist()

    assert sorted(found, key=lambda row: row["offset"]) == wanted.to_pylist()


@given(st.lists(ROW, max_size=50), st.integers(1, 20), st.data())
@settings(max_examples=100, deadline=None)
def test_rows_without_a_time_are_counted_apart_and_what_they_claim_does_not_travel(
    rows: list[tuple[object, ...]], batch_rows: int, data: st.DataObject
) -> None:
    plain = table(rows)
    claims = [
        data.draw(st.none() | st.integers(1, 9)) if time is None else None
        for time in plain.column("time").to_pylist()
    ]
    claimed = pa.array(claims, pa.int64())
    wanted = plain.append_column(CLAIMED, claimed)
    packer = Packer(Untouched(), 0, wanted.schema, keys=2, buckets=3)  # type: ignore[arg-type]
    blobs = [each for some in packer.pack(wanted.to_batches(batch_rows)) for each in some.data]

    future = [each for each in claims if each is not None]
    untimed = plain.column("time").null_count
    assert packer.faults == Faults(
        len(rows), untimed - len(future), len(future), max(future, default=None)
    )
    assert all(CLAIMED not in from_bytes(blob.as_buffer()).column_names for blob in blobs)


@given(st.lists(ROW, min_size=1, max_size=50))
@settings(max_examples=100, deadline=None)
def test_how_far_each_partition_has_come_is_noted(rows: list[tuple[object, ...]]) -> None:
    packer = Packer(Untouched(), 0, SCHEMA, keys=2, buckets=3)  # type: ignore[arg-type]
    for _ in packer.pack(table(rows).to_batches(7)):
        pass

    expected: dict[tuple[str, int], list[tuple[int | None, int]]] = {}
    for row in table(rows).to_pylist():
        known = expected.setdefault((row["topic"], row["partition"]), [])
        known.append((row["time"], row["offset"]))
    assert packer.reached == {
        place: (
            max((time for time, _ in seen if time is not None), default=None),
            min(offset for _, offset in seen),
            max(offset for _, offset in seen),
        )
        for place, seen in expected.items()
    }


def test_what_is_gathered_does_not_depend_on_the_batches_it_comes_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "ROWS_MAX", 100)
    dice = random.Random(5)
    wanted = table([(f"k{dice.randint(0, 9)}", 1, None, "one", 0) for _ in range(1000)])
    operator = RunningGroups([aggregation("sum", "c0", pa.int64())], VALUES)

    def packed(sizes: list[int]) -> list[tuple[list[int], list[bytes]]]:
        batches: list[pa.RecordBatch] = []
        place = 0
        while place < wanted.num_rows:
            size = sizes[len(batches) % len(sizes)]
            batches += wanted.slice(place, size).combine_chunks().to_batches()
            place += size
        packer = Packer(operator, 0, SCHEMA, keys=2, buckets=4)
        return [
            (blobs.buckets, [each.as_py() for each in blobs.data]) for blobs in packer.pack(batches)
        ]

    assert packed([1000]) == packed([7, 130, 1]) == packed([100])


NESTED = pa.schema(
    [
        ("text", pa.large_string()),
        ("flag", pa.bool_()),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("struct", pa.struct([("data", pa.binary()), ("price", pa.decimal128(9, 2))])),
        ("nothing", pa.null()),
    ]
)
TEXT = st.none() | st.text("ab", max_size=9)
NESTED_ROW = st.fixed_dictionaries(
    {
        "text": TEXT,
        "flag": st.none() | st.booleans(),
        "list": st.none() | st.lists(TEXT, max_size=3),
        "map": st.none() | st.dictionaries(st.text("ab", max_size=3), st.none() | st.just(1)),
        "struct": st.none() | st.fixed_dictionaries({"data": st.none() | st.binary(max_size=9)}),
    }
)


@given(st.lists(st.tuples(ROW, st.integers(-100, 100) | st.none()), max_size=30))
@settings(max_examples=50, deadline=None)
def test_what_moves_the_watermark_may_be_another_time_and_does_not_travel(
    listed: list[tuple[tuple[object, ...], int | None]],
) -> None:
    rows = [row for row, _ in listed]
    schema = SCHEMA.append(pa.field(REACH, pa.int64()))
    reach = pa.array([reached for _, reached in listed], pa.int64())
    packer = Packer(Untouched(), 0, schema, keys=2, buckets=1)  # type: ignore[arg-type]
    blobs = list(packer.pack(table(rows).append_column(REACH, reach).to_batches()))
    assert all(
        REACH not in from_bytes(blob.as_buffer()).column_names
        for each in blobs
        for blob in each.data
    )
    for place, reached in packer.reached.items():
        times = [time for row, time in listed if row[3:5] == place and time is not None]
        assert reached.time_us == max(times, default=None)
    assert packer.reached.keys() == {row[3:5] for row in rows}


@given(st.lists(NESTED_ROW, max_size=40), st.lists(st.integers(1, 40), min_size=1), st.data())
@settings(max_examples=200, deadline=None)
def test_bytes_cut_where_they_would_cut_any_other_batches(
    listed: list[dict[str, object]], sizes: list[int], data: st.DataObject
) -> None:
    wanted = pa.Table.from_pylist(listed, schema=NESTED)
    one_by_one = [wanted.slice(row, 1).combine_chunks() for row in range(wanted.num_rows)]
    batches: list[pa.RecordBatch] = []
    place = 0
    while place < wanted.num_rows:
        size = sizes[len(batches) % len(sizes)]
        # Slices, with offsets of their own and the bitmaps of all, as well as fresh batches.
        part = wanted.slice(place, size)
        batches += (part if data.draw(st.booleans()) else part.combine_chunks()).to_batches()
        place += size

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "BYTES_MAX", data.draw(st.integers(1, 400)))
        patch.setattr(packing, "ROWS_MAX", 20)
        cuts = [
            [table.num_rows for table in packing._gathered(way)]
            for way in (batches, [batch for row in one_by_one for batch in row.to_batches()])
        ]
        whole = list(packing._gathered(wanted.combine_chunks().to_batches()))

    assert cuts[0] == cuts[1] == [table.num_rows for table in whole]
    assert [row for table in whole for row in table.to_pylist()] == wanted.to_pylist()


def test_wide_rows_are_sent_off_as_soon_as_they_have_so_many_bytes() -> None:
    wanted = pa.table({"v": ["x" * 20_000] * 12_000})

    found = [table.nbytes for table in packing._gathered(wanted.to_batches(10_000))]

    assert max(found) < packing.BYTES_MAX + 30_000
    assert len(found) == 4


def test_rows_of_one_input_are_put_in_the_order_of_their_origin() -> None:
    rows = table([("a", 1, 1, topic, partition) for topic in "ba" for partition in (2, 0, 1)] * 3)
    rows = rows.add_column(0, "key", encode_keys([rows.column("k1").combine_chunks()], len(rows)))
    pieces = [rows.slice(start, 5) for start in range(0, len(rows), 5)]
    random.Random(3).shuffle(pieces)

    found = in_order(pieces).to_pylist()

    assert found == sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))
    assert len(found) == len(rows)


def test_rows_that_come_without_a_time_have_none() -> None:
    wanted = table([("a", 1, 5, "one", 0), ("b", 2, 6, "one", 1)]).drop_columns(["time"])
    packer = Packer(
        Untouched(),  # type: ignore[arg-type]
        0,
        wanted.schema,
        keys=2,
        buckets=1,
        notes_reach=False,
    )
    (blobs,) = packer.pack(wanted.to_batches())
    (blob,) = blobs.data
    packed = from_bytes(blob.as_buffer())
    assert packed.schema.field("time").type == pa.int64()
    assert packed.column("time").null_count == packed.num_rows == 2
    assert packer.reached == {}, "nobody has asked"
