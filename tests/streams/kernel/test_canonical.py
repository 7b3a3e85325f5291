"""Equal columns are written with equal bytes, whatever lies under nulls and around slices."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.canonical import canonical, check_value_type
from headwater.streams.kernel.chunks import Chunk
from headwater.streams.kernel.errors import ValueTypeError

Kind = tuple[pa.DataType, st.SearchStrategy[Any]]
FLAT: list[Kind] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.string(), st.text(max_size=5)),
    (pa.large_binary(), st.binary(max_size=5)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    (pa.decimal128(20, 2), st.decimals(-(10**9), 10**9, places=2)),
    (pa.timestamp("us", "UTC"), st.integers(0, 10**15)),
    (pa.null(), st.none()),
]


def _nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def listed(kind: Kind) -> Kind:
        return pa.list_(kind[0]), st.lists(st.none() | kind[1], max_size=3)

    def pair(kind: Kind) -> Kind:
        values = st.lists(st.none() | kind[1], min_size=2, max_size=2)
        return pa.list_(kind[0], 2), values

    def mapped(kind: Kind) -> Kind:
        entries = st.dictionaries(st.text(max_size=2), st.none() | kind[1], max_size=2)
        return pa.map_(pa.string(), kind[0]), entries.map(lambda found: list(found.items()))

    def struct(kinds: list[Kind]) -> Kind:
        fields = [(f"f{number}", kind) for number, (kind, _) in enumerate(kinds)]
        parts = {f"f{number}": st.none() | values for number, (_, values) in enumerate(kinds)}
        return pa.struct(fields), st.fixed_dictionaries(parts)

    return st.one_of(
        inner.map(listed),
        inner.map(pair),
        inner.map(mapped),
        st.lists(inner, min_size=1, max_size=2).map(struct),
    )


KINDS = st.recursive(st.sampled_from(FLAT), _nested, max_leaves=4)


def _bytes_of(array: pa.Array) -> bytes:
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    return bytes(Chunk.of(batch).data())


def _hidden(array: pa.Array, mask: list[bool]) -> pa.Array:
    """Make some values null, and leave what they were under the null."""
    kind, count = array.type, len(array)
    if pa.types.is_null(kind):
        return array
    valid = np.array([not hide for hide in mask]) & np.array(array.is_valid().to_pylist(), bool)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little") | np.uint8(0))
    if pa.types.is_struct(kind):
        children = [array.field(number) for number in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [bitmap], children=children)
    if pa.types.is_map(kind):
        entries = pa.Array.from_buffers(
            pa.struct([kind.key_field, kind.item_field]),
            len(array.keys),
            [None],
            children=[array.keys, array.items],
        )
        return pa.Array.from_buffers(kind, count, [bitmap, array.buffers()[1]], children=[entries])
    if pa.types.is_list(kind):
        buffers = [bitmap, array.buffers()[1]]
        return pa.Array.from_buffers(kind, count, buffers, children=[array.values])
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, count, [bitmap], children=[array.values])
    return pa.Array.from_buffers(kind, count, [bitmap, *array.buffers()[1:]])


@settings(max_examples=200, deadline=None)
@given(KINDS, st.data())
def test_equal_columns_have_equal_bytes(kind: Kind, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    values = data.draw(st.lists(st.none() | kind[1], min_size=count, max_size=count))
    mask = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    before = data.draw(st.integers(0, count))
    behind = data.draw(st.integers(before, count))
    array = pa.array(values, kind[0])
    hidden = _hidden(array, mask)
    assert hidden.null_count >= sum(mask)
    plain = [None if hide else value for hide, value in zip(mask, array.to_pylist(), strict=True)]
    rebuilt = pa.array(plain, kind[0])
    found = canonical(hidden.slice(before, behind - before))
    found.validate(full=True)
    assert found.to_pylist() == plain[before:behind]
    assert _bytes_of(found) == _bytes_of(rebuilt.slice(before, behind - before))
    assert _bytes_of(hidden) == _bytes_of(rebuilt)


def test_bytes_are_the_same_in_another_memory() -> None:
    """Padding must not be what the memory had before."""
    values = {
        "a": pa.array([1, None, 3], pa.int16()),
        "b": pa.array(["x", None, "yz"]),
        "c": pa.array([True, None, False]),
        "d": pa.array([decimal.Decimal("1.5"), None, None], pa.decimal128(5, 2)),
        "e": pa.array([dt.date(2024, 2, 29), None, None]),
    }
    names = set()
    for fill in range(40):
        dirt = [np.full(1 << (fill % 12), 255, np.uint8).tobytes() for _ in range(20)]
        del dirt
        batch = pa.RecordBatch.from_pydict(values).take(pa.array([2, 1, 0, 1]))
        names.add(Chunk.of(batch).name)
    assert len(names) == 1


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.string_view(),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.struct([("a", pa.map_(pa.string(), pa.binary_view()))]),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.uuid(),
    ],
    ids=str,
)
def test_what_has_no_layout_of_ours_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(ValueTypeError, match="column tags of type"):
        check_value_type("tags", kind)


@settings(max_examples=50, deadline=None)
@given(KINDS)
def test_what_has_one_is_not(kind: Kind) -> None:
    check_value_type("tags", kind[0])
