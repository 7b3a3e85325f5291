"""Keys are equal exactly where Python's tuples are, and come back as they were."""

import decimal
import math
import struct
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.streams.kernel import keys as keys_module
from headwater.streams.kernel.errors import KeysTooLargeError, KeyTypeError, StateDamagedError
from headwater.streams.kernel.keys import check_key_type, decode_keys, encode_keys, null_mask


def _ints(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    if signed:
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(0, 2**bits - 1)


SIMPLE: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), _ints(8, signed=True)),
    (pa.int16(), _ints(16, signed=True)),
    (pa.int32(), _ints(32, signed=True)),
    (pa.int64(), _ints(64, signed=True)),
    (pa.uint8(), _ints(8, signed=False)),
    (pa.uint64(), _ints(64, signed=False)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=12)),
    (pa.large_string(), st.text(max_size=12)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.large_binary(), st.binary(max_size=12)),
    (pa.date32(), st.dates()),
    # What Python's datetime has: the years 1 to 9999.
    (pa.timestamp("us", "UTC"), st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    (pa.timestamp("ns"), st.integers(-(2**62), 2**62)),
    (pa.duration("us"), st.integers(-(2**62), 2**62)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.decimal128(38, 6), st.decimals(-(10**20), 10**20, places=6)),
]


def _structs() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    def made(
        parts: list[tuple[pa.DataType, st.SearchStrategy[Any]]],
    ) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
        kind = pa.struct([(f"f{number}", part) for number, (part, _) in enumerate(parts)])
        values = {f"f{number}": st.none() | value for number, (_, value) in enumerate(parts)}
        return kind, st.fixed_dictionaries(values)

    return st.recursive(
        st.sampled_from(SIMPLE),
        lambda inner: st.lists(inner, min_size=1, max_size=3).map(made),
        max_leaves=4,
    )


def _canonical(value: object) -> object:
    """What Python calls equal, with NaN equal to itself."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple(_canonical(part) for part in value.values())
    return value


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[pa.Array], int]:
    rows = draw(st.integers(0, 12))
    columns = []
    for kind, values in draw(st.lists(_structs(), max_size=3)):
        # Few values, so that equal keys are common.
        few = draw(st.lists(st.none() | values, min_size=1, max_size=3))
        chosen = draw(st.lists(st.sampled_from(few), min_size=rows, max_size=rows))
        columns.append(pa.array(chosen, kind))
    return columns, rows


@settings(max_examples=200, deadline=None)
@given(_tables())
@example(([pa.array([0.0, -0.0, math.nan, None], pa.float64())], 4))
def test_keys_have_equal_bytes_exactly_where_their_values_are_equal(
    table: tuple[list[pa.Array], int],
) -> None:
    columns, rows = table
    found = encode_keys(columns, rows).to_pylist()
    lists = [column.to_pylist() for column in columns]
    values = [tuple(_canonical(column[row]) for column in lists) for row in range(rows)]
    assert [[one == other for other in found] for one in found] == [
        [one == other for other in values] for one in values
    ]


@settings(max_examples=200, deadline=None)
@given(_tables())
def test_keys_come_back_as_columns(table: tuple[list[pa.Array], int]) -> None:
    columns, rows = table
    back = decode_keys(encode_keys(columns, rows), [column.type for column in columns])
    for column, found in zip(columns, back, strict=True):
        found.validate(full=True)
        assert found.type == column.type
        wanted = [_canonical(value) for value in column.to_pylist()]
        assert [_canonical(value) for value in found.to_pylist()] == wanted
        assert repr(_floats(found)) == repr([_positive(value) for value in _floats(found)])


def _floats(column: pa.Array) -> list[float]:
    return [value for value in column.to_pylist() if isinstance(value, float)]


def _positive(value: float) -> float:
    return 0.0 if value == 0 else value


@settings(max_examples=100, deadline=None)
@given(_tables(), st.integers(0, 5), st.integers(0, 5), st.integers(0, 12))
def test_slices_and_chunks_give_the_same_keys(
    table: tuple[list[pa.Array], int], before: int, behind: int, cut: int
) -> None:
    columns, rows = table
    whole = encode_keys(columns, rows)
    padded = []
    for column in columns:
        around = [pa.nulls(before, column.type), column, pa.nulls(behind, column.type)]
        padded.append(pa.concat_arrays(around).slice(before, rows))
    assert encode_keys(padded, rows).equals(whole)
    chunked = [
        pa.chunked_array([column.slice(0, cut), column.slice(cut)], column.type)
        for column in padded
    ]
    assert encode_keys(chunked, rows).equals(whole)
    keys = pa.concat_arrays([pa.array([b"x"] * before, pa.binary()), whole]).slice(before)
    back = decode_keys(keys, [column.type for column in columns])
    assert [column.to_pylist() for column in back] == [
        column.to_pylist() for column in decode_keys(whole, [column.type for column in columns])
    ]


def test_groups_are_those_of_duckdb() -> None:
    dice = np.random.default_rng(11)
    rows = 5000
    floats = dice.choice([0.0, -0.0, math.nan, 1.5, math.inf], rows)
    words = dice.choice(["", "a", "ab", "b", "\0"], rows)
    money = [decimal.Decimal(int(cents)).scaleb(-2) for cents in dice.integers(0, 4, rows)]
    table = pa.table(
        {
            "f": pa.array(floats, mask=dice.random(rows) < 0.1),
            "w": pa.array(words, mask=dice.random(rows) < 0.1),
            "m": pa.array(money, pa.decimal128(10, 2), mask=dice.random(rows) < 0.1),
        }
    )
    ours = encode_keys([column.combine_chunks() for column in table.columns], rows)
    table = table.append_column("k", ours)
    # As many pairs of groups as groups: each key is one group, and each group one key.
    with duckdb.connect() as connection:
        connection.register("t", table)
        counts = connection.execute(
            "select count(distinct k), "
            "(select count(*) from (select f, w, m from t group by all)), "
            "(select count(*) from (select f, w, m, k from t group by all)) from t"
        ).fetchall()
    groups, theirs, pairs = counts[0]
    assert groups == theirs == pairs > 100


def test_the_bytes_of_a_key_are_written_down() -> None:
    kind = pa.struct([("a", pa.int16()), ("b", pa.string())])
    columns = [
        pa.array([7, None], pa.int32()),
        pa.array(["é", ""]),
        pa.array([{"a": 1, "b": None}, None], kind),
        pa.array([-0.0, struct.unpack("<d", b"\1\0\0\0\0\0\xf8\xff")[0]]),
        pa.array([True, False]),
    ]
    nan = bytes.fromhex("000000000000f87f")
    assert encode_keys(columns, 2).to_pylist() == [
        b"\1\7\0\0\0" + b"\1\2\0\0\0\xc3\xa9" + b"\1\1\1\0\0" + b"\1" + bytes(8) + b"\1\1",
        b"\0" + b"\1\0\0\0\0" + b"\0" + b"\1" + nan + b"\1\0",
    ]


def test_times_that_python_does_not_have_are_kept() -> None:
    ends = pa.array([-(2**63), 2**63 - 1, None], pa.int64())
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("s"), pa.duration("ns"), pa.date64()):
        column = ends.view(kind)
        (back,) = decode_keys(encode_keys([column], 3), [kind])
        assert back.view(pa.int64()).equals(ends)


def test_a_key_without_columns_is_empty() -> None:
    keys = encode_keys([], 3)
    assert keys.to_pylist() == [b"", b"", b""]
    assert decode_keys(keys, []) == []
    assert len(encode_keys([], 0)) == 0


def test_a_null_counts_in_a_column_and_not_in_a_struct() -> None:
    kind = pa.struct([("a", pa.int16())])
    columns = [
        pa.array([1, None, 3, 4, 5]).slice(1),
        pa.array([{"a": None}, {"a": 1}, None, {"a": 2}], kind),
    ]
    assert null_mask(columns, 4).tolist() == [True, False, True, False]
    assert null_mask([], 2).tolist() == [False, False]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.map_(pa.string(), pa.int32()),
        pa.float16(),
        pa.null(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.string_view(),
        pa.struct([("a", pa.struct([("b", pa.list_(pa.int8()))]))]),
    ],
    ids=str,
)
def test_other_types_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(KeyTypeError, match="column tags of type") as caught:
        check_key_type("tags", kind)
    assert str(kind) in caught.value.message
    with pytest.raises(KeyTypeError, match="number 1 of the key"):
        encode_keys([pa.nulls(1, kind)], 1)


def test_keys_above_two_gigabytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_BYTES_MAX", 17)
    with pytest.raises(KeysTooLargeError, match="18 bytes"):
        encode_keys([pa.array([1, 2])], 2)


@pytest.mark.parametrize(
    "key, kind",
    [
        (b"", pa.int32()),
        (b"\1\0\0\0", pa.int32()),
        (b"\2\0\0\0\0", pa.int32()),
        (b"\1\0\0\0\0\0", pa.int32()),
        (b"\1\1\0\0", pa.string()),
        (b"\1\2\0\0\0a", pa.string()),
        (b"\1\xff\xff\xff\xffa", pa.binary()),
        (b"\1", pa.struct([("a", pa.int8())])),
    ],
)
def test_bytes_that_are_no_key_are_refused(key: bytes, kind: pa.DataType) -> None:
    with pytest.raises(StateDamagedError):
        decode_keys(pa.array([key, key], pa.binary()), [kind])
