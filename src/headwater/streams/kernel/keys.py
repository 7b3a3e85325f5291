"""The canonical bytes of a key: equal keys have equal bytes, and only they.

This file alone decides which bytes a key has and which columns can be part of one. State that lies
in checkpoints is found by these bytes, so they never change. It knows nothing of where keys come
from or of what they are looked up in.

A key is its columns one behind the other. A column is a tag, 0 for null and 1 for a value, and then
the value: little-endian bytes of the width of the type, or, for strings and bytes, their length in
four bytes and then they themselves. A struct is a tag of its own and then its fields, none where it
is null. NaN is one value, whatever its bits, and -0.0 is 0.0. A key without columns has no bytes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.streams.kernel import arrays, key_loops
from headwater.streams.kernel.arrays import EVERYTHING, Bytes, Int64s
from headwater.streams.kernel.errors import KeysTooLargeError, KeyTypeError, StateDamagedError

_BYTES_MAX: Final = 2**31 - 1
_STRINGS: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


class _Field(NamedTuple):
    """A column, or a part of a struct, of all rows.

    Attributes:
        present: Which rows have it: not those whose struct is null.
        valid: Which of them have a value.
        values: `width` bytes for each row, or the bytes of all rows.
        width: Bytes of each value; 0 for a struct's own tag; -1 where each has a length of its own.
        offsets: Where each begins in `values`, where each has a length of its own.
    """

    present: Bytes
    valid: Bytes
    values: Bytes
    width: int
    offsets: npt.NDArray[Any]


_ANY_WIDTH: Final = -1
_NO_OFFSETS: Final = arrays.frozen(np.empty(0, np.int32))


def encode_keys(columns: Sequence[pa.Array], rows: int) -> pa.BinaryArray:
    """Return the key of each row.

    Args:
        columns: The key columns, each with `rows` values; sliced and chunked ones too.
        rows: How many rows there are, which no columns could tell.

    Raises:
        KeyTypeError: A column cannot be part of a key.
        KeysTooLargeError: The keys have 2 GB or more.
    """
    for number, column in enumerate(columns):
        check_key_type(f"number {number + 1} of the key", column.type)
    fields = [field for column in columns for field in _fields(arrays.whole(column), EVERYTHING)]
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(_lengths(fields, rows), out=starts[1:])
    size = int(starts[-1])
    if size > _BYTES_MAX:
        raise KeysTooLargeError(
            f"the keys of {rows} rows have {size} bytes together, at most {_BYTES_MAX} fit",
            hint="group by less, or by a hash of the long columns",
        )
    offsets = starts.astype(np.int32)
    target, cursor = np.empty(size, np.uint8), starts[:-1].copy()
    for field in fields:
        if field.width == _ANY_WIDTH:
            key_loops.write_bytes(
                target, cursor, field.present, field.valid, field.offsets, field.values
            )
        else:
            key_loops.write_fixed(
                target, cursor, field.present, field.valid, field.values, field.width
            )
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(target)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def decode_keys(keys: pa.BinaryArray, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Return the columns that `encode_keys` was given, each number in its canonical form.

    Raises:
        StateDamagedError: These are not keys of these types.
    """
    reader = _Reader(keys)
    columns = [reader.read(kind, EVERYTHING) for kind in types]
    reader.finish()
    return columns


def null_mask(columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.bool_]:
    """Tell for which rows some key column is null; a null inside of a struct does not count."""
    mask = np.zeros(rows, np.bool_)
    for column in columns:
        valid = arrays.validity(arrays.whole(column))
        if len(valid):
            mask |= valid == 0
    return mask


def check_key_type(name: str, kind: pa.DataType) -> None:
    """Refuse a column that cannot be part of a key.

    Raises:
        KeyTypeError: Its values are lists, maps or the like.
    """
    found = _unfit(kind)
    if found is None:
        return
    inside = "" if found == kind else f", which has a {found} in it,"
    raise KeyTypeError(
        f"column {name} of type {kind}{inside} cannot be part of a key",
        hint="a key can have booleans, numbers, decimals, strings, bytes, dates, times and structs "
        "of them; cast the column, or use a string of it",
    )


def _unfit(kind: pa.DataType) -> pa.DataType | None:
    """Return the type, or the part of it, that has no canonical bytes."""
    if pa.types.is_struct(kind):
        parts = (_unfit(field.type) for field in kind)
        return next((part for part in parts if part is not None), None)
    return None if kind in _STRINGS or _width(kind) else kind


def _width(kind: pa.DataType) -> int:
    """Return how many bytes a value has in a key, 0 for types that do not have a fixed width."""
    if pa.types.is_boolean(kind):
        return 1
    has_width = (
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_decimal128(kind)
    )
    return kind.bit_width // 8 if has_width else 0


def _fields(column: pa.Array, present: Bytes) -> Iterator[_Field]:
    """Return what a column has in each key: more than one field for a struct."""
    valid = arrays.both(present, arrays.validity(column))
    if pa.types.is_struct(column.type):
        yield _Field(present, valid, EVERYTHING, 0, _NO_OFFSETS)
        for number in range(column.type.num_fields):
            # `field` heeds the offset of a sliced struct, but not its nulls: `valid` does.
            yield from _fields(column.field(number), valid)
    elif column.type in _STRINGS:
        offsets, data = arrays.binary(column)
        yield _Field(present, valid, data, _ANY_WIDTH, offsets)
    else:
        values = _canonical_values(column)
        yield _Field(present, valid, values, _width(column.type), _NO_OFFSETS)


def _canonical_values(column: pa.Array) -> Bytes:
    """Return the bytes of the values, `_width` for each row, whatever those of nulls are."""
    if pa.types.is_boolean(column.type):
        return arrays.bits(column.buffers()[1], column.offset, len(column))
    if pa.types.is_floating(column.type):
        dtype = np.dtype(column.type.to_pandas_dtype())
        values = arrays.numbers(column, dtype)
        # Adding 0.0 turns -0.0 into 0.0, and changes nothing else.
        canonical = np.where(np.isnan(values), dtype.type(np.nan), values + dtype.type(0.0))
        return arrays.frozen(canonical.view(np.uint8))
    width = _width(column.type)
    raw = arrays.seen(column.buffers()[1], np.uint8) if len(column) else EVERYTHING
    return raw[column.offset * width : (column.offset + len(column)) * width]


def _lengths(fields: Sequence[_Field], rows: int) -> Int64s:
    lengths = np.zeros(rows, np.int64)
    for field in fields:
        lengths += 1 if not len(field.present) else field.present
        sizes: Any = field.width
        if field.width == _ANY_WIDTH:
            sizes = np.diff(field.offsets) + key_loops.LENGTH_BYTES
        lengths += sizes if not len(field.valid) else field.valid * np.int64(1) * sizes
    return lengths


class _Reader:
    """Reads the fields of keys, one after the other."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        offsets, self._source = arrays.binary(keys)
        self._cursor = offsets[:-1].astype(np.int64)
        self._ends = offsets[1:]
        self._rows = len(keys)

    def read(self, kind: pa.DataType, present: Bytes) -> pa.Array:
        """Return the next column, null in rows that are not present."""
        if pa.types.is_struct(kind):
            return self._read_struct(kind, present)
        if kind in _STRINGS:
            return self._read_strings(kind, present)
        valid, values = self._read_fixed(_width(kind), present)
        data = values
        if pa.types.is_boolean(kind):
            data = np.packbits(values, bitorder="little")
        buffers = [arrays.packed(valid), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, self._rows, buffers)

    def finish(self) -> None:
        """Prove that nothing is left."""
        self._require(ok=bool((self._cursor == self._ends).all()))

    def _read_fixed(self, width: int, present: Bytes) -> tuple[Bytes, Bytes]:
        valid, values = np.empty(self._rows, np.uint8), np.zeros(self._rows * width, np.uint8)
        ok = key_loops.read_fixed(
            self._source, self._cursor, self._ends, present, valid, values, width
        )
        self._require(ok=ok)
        return valid, values

    def _read_struct(self, kind: pa.DataType, present: Bytes) -> pa.Array:
        valid, _ = self._read_fixed(0, present)
        inside = arrays.frozen(valid)
        children = [self.read(field.type, inside) for field in kind]
        return pa.Array.from_buffers(kind, self._rows, [arrays.packed(valid)], children=children)

    def _read_strings(self, kind: pa.DataType, present: Bytes) -> pa.Array:
        valid, lengths = np.empty(self._rows, np.uint8), np.empty(self._rows, np.int64)
        ok = key_loops.find_bytes(self._source, self._cursor, self._ends, present, valid, lengths)
        self._require(ok=ok)
        is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        offsets = np.zeros(self._rows + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        key_loops.gather(self._source, self._cursor, lengths, offsets, data)
        kept = offsets if is_large else offsets.astype(np.int32)
        buffers = [arrays.packed(valid), pa.py_buffer(kept), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, self._rows, buffers)

    def _require(self, *, ok: bool) -> None:
        if not ok:
            raise StateDamagedError(
                "the bytes of a key do not have the columns that they should have",
                hint="the types of the key have changed since the checkpoint was made: give the "
                "query a new checkpoint, or the key its old types",
            )
