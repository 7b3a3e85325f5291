"""The columns that a sink takes, as the compiled code wants them.

This file alone decides which Arrow types a column may have and what a row must not lack: as in
Spark's own Kafka sink, and `timestamp` beside its columns. Types are judged before rows, so that a
wrong one is reported before anything is encoded.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from headwater.base.errors import HeadwaterError
from headwater.base.record.batch import NO_TIMESTAMP
from headwater.streams.sink import record_encoding as kernel
from headwater.streams.sink.partitioning import NO_PARTITION
from headwater.streams.sink.record_encoding import Bytes, Int64s

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# A count of headers of zero, and what stands for the bytes of a field that has none.
_ZERO: Final = np.zeros(1, np.uint8)


class ColumnError(HeadwaterError):
    """A column is missing, or has a type that cannot be written."""


class RowError(HeadwaterError):
    """A row cannot be written."""


class Field(NamedTuple):
    """One field of all rows: bytes, where each row's part begins, how long it is (-1 is null)."""

    data: Bytes
    at: Int64s
    lengths: Int64s

    def of(self, row: int) -> bytes | None:
        """Return the part of one row."""
        at, length = int(self.at[row]), int(self.lengths[row])
        return None if length < 0 else self.data[at : at + length].tobytes()


class Rows(NamedTuple):
    """What an Arrow batch holds: three fields of bytes, and numbers."""

    key: Field
    value: Field
    tail: Field
    lengths: Int64s
    timestamps: Int64s
    partitions: Int64s


def check_columns(schema: pa.Schema, *, headers: bool, needs_topic: bool) -> None:
    """Judge the columns by their types.

    Raises:
        ColumnError: One is missing, or cannot be written.
    """
    types = {field.name: field.type for field in schema}
    if "value" not in types:
        raise ColumnError(
            "there is no column `value`", hint="df.selectExpr('to_json(struct(*)) AS value')"
        )
    if needs_topic and "topic" not in types:
        raise ColumnError(
            "there is neither an option nor a column `topic`", hint=".option('topic', NAME)"
        )
    _check("key", types, "string or binary", _is_bytes)
    _check("value", types, "string or binary", _is_bytes)
    _check("partition", types, "int", kinds.is_signed_integer)
    _check("timestamp", types, "timestamp", kinds.is_timestamp)
    if needs_topic:
        _check("topic", types, "string", _is_text)
    if headers:
        _check("headers", types, "array<struct<key: string, value: binary>>", _is_headers)


def read_rows(batch: pa.RecordBatch, *, headers: bool, now_ms: int) -> Rows:
    """Take the columns of a batch whose types were judged.

    Raises:
        RowError: A header has no key, or a timestamp lies before 1970.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    count = batch.num_rows
    value = _bytes_field(columns["value"])
    key = _bytes_field(columns["key"]) if "key" in columns else _nulls(count)
    tail = _tails(columns["headers"]) if headers and "headers" in columns else _no_headers(count)
    return Rows(
        key,
        value,
        tail,
        np.stack((key.lengths, value.lengths, tail.lengths)),
        _timestamps(columns.get("timestamp"), count, now_ms),
        _partitions(columns.get("partition"), count),
    )


def _check(
    name: str, types: dict[str, pa.DataType], wanted: str, fits: Callable[[pa.DataType], bool]
) -> None:
    found = types.get(name)
    if found is not None and not fits(found):
        raise ColumnError(
            f"the column `{name}` has the type {found}, it must be {wanted}",
            hint=f"cast it: df.withColumn('{name}', df['{name}'].cast(...)); to_json makes text of"
            " a struct",
        )


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_is_text(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not (kinds.is_list(kind) or kinds.is_large_list(kind)):
        return False
    item = kind.value_type
    return (
        kinds.is_struct(item)
        and [field.name for field in item] == ["key", "value"]
        and _is_text(item[0].type)
        and _is_bytes(item[1].type)
    )


def _is_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Tell of each row whether it is null."""
    validity = array.buffers()[0]
    if validity is None or array.null_count == 0:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    is_null: npt.NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return is_null


def _numbers(buffer: pa.Buffer, dtype: npt.DTypeLike, array: pa.Array, more: int = 0) -> Int64s:
    """Return the numbers of the rows, and `more` behind them, as 64 bits."""
    count = len(array) + more
    if buffer is None or buffer.size == 0:
        return np.zeros(count, np.int64)
    stored = np.frombuffer(buffer, dtype)
    return stored[array.offset : array.offset + count].astype(np.int64)


def _bounds(array: pa.Array) -> Int64s:
    """Return where the rows of a column of variable length begin, and the end of the last."""
    is_large = (
        kinds.is_large_string(array.type)
        or kinds.is_large_binary(array.type)
        or kinds.is_large_list(array.type)
    )
    return _numbers(array.buffers()[1], np.int64 if is_large else np.int32, array, more=1)


def _bytes_field(array: pa.Array) -> Field:
    bounds = _bounds(array)
    lengths = np.diff(bounds)
    lengths[_is_null(array)] = -1
    data = array.buffers()[2]
    return Field(_readable(data), bounds[:-1], lengths)


def _readable(buffer: pa.Buffer | None) -> Bytes:
    # Whether memory could be written is part of its type: one type, one compilation.
    data = _ZERO if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)
    view = data.view()
    view.flags.writeable = False
    return view


def _nulls(count: int) -> Field:
    return Field(_readable(None), np.zeros(count, np.int64), np.full(count, -1, np.int64))


def _no_headers(count: int) -> Field:
    return Field(_readable(None), np.zeros(count, np.int64), np.ones(count, np.int64))


def _tails(array: pa.Array) -> Field:
    """Encode the headers of all rows, as each ends its record."""
    bounds = _bounds(array)
    counts = np.diff(bounds)
    counts[_is_null(array)] = 0
    headers = array.values.take(pa.array(_listed(bounds[:-1], counts)))
    keys, values = _bytes_field(headers.field(0)), _bytes_field(headers.field(1))
    if headers.null_count or (keys.lengths < 0).any():
        raise RowError("a header has no key", hint="leave headers without a key out of `headers`")
    sizes = np.empty(len(counts), np.int64)
    kernel.tail_bytes(counts, keys.lengths, values.lengths, sizes)
    tails = np.empty(int(sizes.sum()), np.uint8)
    places = np.empty((kernel.FIELD_COUNT, len(headers)), np.int64)
    kernel.write_tails(counts, keys.lengths, values.lengths, tails, places)
    everyone = np.arange(len(headers))
    kernel.scatter(everyone, *keys, tails, places[kernel.KEY])
    kernel.scatter(everyone, *values, tails, places[kernel.VALUE])
    tails.flags.writeable = False
    return Field(tails if len(tails) else _readable(None), np.cumsum(sizes) - sizes, sizes)


def _listed(starts: Int64s, counts: Int64s) -> Int64s:
    """Return start, start + 1, ... of each row: the headers of a null row may still lie there."""
    shift = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return shift + np.arange(len(shift))


def _timestamps(array: pa.Array | None, count: int, now_ms: int) -> Int64s:
    """Return milliseconds; a record without a time is -1 in the source, and may come back so."""
    if array is None:
        return np.full(count, now_ms, np.int64)
    per_second = _PER_SECOND[array.type.unit]
    stored = _numbers(array.buffers()[1], np.int64, array)
    if per_second < 1_000:
        stored = stored * 1_000
    elif per_second > 1_000:
        stored = stored // (per_second // 1_000)
    stored[_is_null(array) | (stored == NO_TIMESTAMP)] = now_ms
    if len(stored) and stored.min() < 0:
        raise RowError(
            f"a timestamp of {int(stored.min())} ms lies before 1970, which Kafka cannot store",
            hint="df.withColumn('timestamp', ...), or drop the column to use the time of writing",
        )
    return stored


def _partitions(array: pa.Array | None, count: int) -> Int64s:
    if array is None:
        return np.full(count, NO_PARTITION, np.int64)
    stored = _numbers(array.buffers()[1], array.type.to_pandas_dtype(), array)
    stored[_is_null(array)] = NO_PARTITION
    return stored
