"""Records that were found become a RecordBatch.

This file alone decides the Arrow types of the source's columns. Where the records lie was noted by
`record_columns`; which ones are wanted, `decode` decides.

Buffers come from Arrow's pool, which hands out again what Spark has read: fresh memory from the
system costs more than the copying.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.streams.source import record_columns as kernel
from headwater.streams.source.record_columns import Bytes, Int64s

HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)
TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP_TYPE),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS_TYPE))


class ColumnBuilder:
    """Makes the RecordBatches of one partition, of at most `rows_max` rows each."""

    def __init__(self, topic: str, partition: int, *, headers: bool, rows_max: int) -> None:
        """Make what is the same in every row once."""
        self._with_headers = headers
        # Not `pa.repeat`: a scalar of Arrow's imports pandas, a quarter of a second.
        name = topic.encode()
        offsets = np.arange(rows_max + 1, dtype=np.int32) * len(name)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(name * rows_max)]
        self._topics = pa.Array.from_buffers(pa.string(), rows_max, buffers)
        self._partitions = _numbers(np.full(rows_max, partition), pa.int32(), np.int32)

    def build(self, source: Bytes, rows: Int64s) -> pa.RecordBatch:
        """Make the columns of the records that are noted in `rows` and lie in `source`."""
        count = rows.shape[1]
        arrays = [
            _binary(source, rows[kernel.KEY_AT], rows[kernel.KEY_BYTES]),
            _binary(source, rows[kernel.VALUE_AT], rows[kernel.VALUE_BYTES]),
            self._topics.slice(0, count),
            self._partitions.slice(0, count),
            _numbers(rows[kernel.OFFSET], pa.int64(), np.int64),
            _numbers(rows[kernel.TIMESTAMP_US], TIMESTAMP_TYPE, np.int64),
            _numbers(rows[kernel.TIMESTAMP_TYPE], pa.int32(), np.int32),
        ]
        if not self._with_headers:
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        arrays.append(_headers(source, rows[kernel.HEADERS_AT], rows[kernel.HEADER_COUNT]))
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


def _allocate(count: int, dtype: npt.DTypeLike) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    """Return a buffer of Arrow's, and the same memory as an array."""
    buffer = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return buffer, np.frombuffer(buffer, dtype)


def _numbers(values: Int64s, kind: pa.DataType, dtype: npt.DTypeLike) -> pa.Array:
    buffer, array = _allocate(len(values), dtype)
    array[:] = values
    return pa.Array.from_buffers(kind, len(values), [None, buffer])


def _binary(source: Bytes, at: Int64s, lengths: Int64s) -> pa.Array:
    count = len(at)
    offsets_buffer, offsets = _allocate(count + 1, np.int32)
    data_buffer, data = _allocate(int(np.maximum(lengths, 0).sum()), np.uint8)
    valid_buffer, valid = _allocate((count + 7) // 8, np.uint8)
    valid[:] = 255
    kernel.gather(source, at, lengths, offsets, data, valid)
    return pa.Array.from_buffers(pa.binary(), count, [valid_buffer, offsets_buffer, data_buffer])


def _headers(source: Bytes, at: Int64s, counts: Int64s) -> pa.Array:
    found = np.empty((kernel.HEADER_FIELDS, int(counts.sum())), np.int64)
    kernel.find_headers(source, at, counts, found)
    keys = _binary(source, found[kernel.HEADER_KEY_AT], found[kernel.HEADER_KEY_BYTES])
    values = _binary(source, found[kernel.HEADER_VALUE_AT], found[kernel.HEADER_VALUE_BYTES])
    headers = pa.StructArray.from_arrays([_as_text(keys), values], fields=list(HEADER_TYPE))
    offsets_buffer, offsets = _allocate(len(counts) + 1, np.int32)
    offsets[0] = 0
    np.cumsum(counts, out=offsets[1:])
    valid = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(counts), [valid, offsets_buffer], children=[headers]
    )


def _as_text(raw: pa.Array) -> pa.Array:
    """See bytes as UTF-8, with U+FFFD for what is none: Spark would fail on it much later."""
    text = raw.view(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        names = [name.decode("utf-8", "replace") for name in raw.to_pylist()]
        return pa.array(names, pa.string())
    return text
