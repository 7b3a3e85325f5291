"""How rows travel to their buckets and back: as one Arrow blob for each bucket.

This file alone decides what such a blob is, and how many rows are gathered for one. Spark moves a
blob as it moves any value, so a million rows cost the shuffle no more than a few hundred of them.

Rows are gathered until there are so many, or so many bytes of them, and never more, whatever the
size of the batches that Spark brings them in: an operator that combines rows is then given the same
ones on replay.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.streams.kernel import arrays
from headwater.streams.kernel.buckets import bucket_of
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.keys import decode_keys, encode_keys, null_mask
from headwater.streams.kernel.operator import KEY, OFFSET, PARTITION, TIME, TOPIC, Operator
from headwater.streams.time.faults import CLAIMED, Faults
from headwater.streams.time.fold import Place, Reach

NULL_KEY: Final = "null_key"
REACH: Final = "reach"
"""How far a row moves the watermark, in microseconds, where that is not its own time."""

ROWS_MAX: Final = 524_288
"""Rows that are gathered before they are sent off."""

BYTES_MAX: Final = 64 * 1024 * 1024
"""The same in bytes, for wide rows."""

_OUTPUT_ROWS_MAX: Final = 65_536
_OFFSET_BYTES: Final = 4
_OF_BYTES: Final = {
    kind.id for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
}
_ORIGIN: Final = (TOPIC, PARTITION, OFFSET)


def key_name(number: int) -> str:
    """Return the name of a key column on its way to the packer, and behind the unpacker."""
    return f"k{number}"


class Blobs(NamedTuple):
    """Rows of several buckets: whose they are, and what they are."""

    buckets: list[int]
    data: pa.BinaryArray


class Packer:
    """Packs the rows that one task has of one input.

    Attributes:
        reached: How far each (topic, partition) has come; the topic is empty where there is one.
        faults: How many rows there were, and how many without a time that can be believed.
    """

    def __init__(
        self,
        operator: Operator,
        which: int,
        schema: pa.Schema,
        *,
        keys: int,
        buckets: int,
        notes_reach: bool = True,
    ) -> None:
        """Prepare for rows.

        Args:
            operator: Whose rows they are.
            which: Of which of its inputs.
            schema: Their columns: `k0`, ..., then those of the operator; rows that cannot have a
                time come without one.
            keys: How many of them are keys.
            buckets: How many buckets there are.
            notes_reach: Whether anybody asks how far they have come.
        """
        self._operator = operator
        self._which = which
        self._schema = schema
        self._keys = keys
        self._buckets = buckets
        self._notes_reach = notes_reach
        self.reached: dict[Place, Reach] = {}
        self.faults = Faults()

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Blobs]:
        """Return blobs, as many at a time as there are buckets with rows."""
        for gathered in _gathered(batches):
            # Spark writes instants in the zone of the session, which means nothing here.
            rows = gathered.cast(self._schema)
            if TIME not in rows.column_names:
                rows = rows.append_column(TIME, pa.nulls(rows.num_rows, pa.int64()))
            if self._notes_reach:
                self._note_reach(rows)
            self.faults = self.faults.with_more(_faults_of(rows))
            passing = [name for name in (CLAIMED, REACH) if name in rows.column_names]
            yield self._packed(rows.drop_columns(passing) if passing else rows)

    def _packed(self, rows: pa.Table) -> Blobs:
        named = [rows.column(key_name(number)) for number in range(self._keys)]
        columns = [arrays.whole(column) for column in named]
        rows = rows.drop_columns([key_name(number) for number in range(self._keys)])
        rows = rows.add_column(0, KEY, encode_keys(columns, rows.num_rows))
        if len(self._operator.inputs) > 1:
            rows = rows.append_column(NULL_KEY, pa.array(null_mask(columns, rows.num_rows)))
        rows = self._operator.combine(self._which, rows)
        buckets = bucket_of(hashes(arrays.whole(rows.column(KEY))), self._buckets)
        order = np.argsort(buckets, kind="stable")
        rows = rows.take(pa.array(order)).combine_chunks()
        cuts = np.searchsorted(buckets[order], np.arange(self._buckets + 1))
        filled = [bucket for bucket in range(self._buckets) if cuts[bucket + 1] > cuts[bucket]]
        sink = pa.BufferOutputStream()
        ends = [0]
        for bucket in filled:
            _write(rows.slice(cuts[bucket], cuts[bucket + 1] - cuts[bucket]), sink)
            ends.append(sink.tell())
        offsets = pa.py_buffer(np.array(ends, np.int32))
        data = pa.BinaryArray.from_buffers(
            pa.binary(), len(filled), [None, offsets, sink.getvalue()]
        )
        return Blobs(filled, data)

    def _note_reach(self, rows: pa.Table) -> None:
        places = [name for name in (TOPIC, PARTITION) if name in rows.column_names]
        time = REACH if REACH in rows.column_names else TIME
        wanted = [(time, "max"), (OFFSET, "min"), (OFFSET, "max")]
        for row in rows.group_by(places, use_threads=False).aggregate(wanted).to_pylist():
            place = (row.get(TOPIC) or "", row[PARTITION])
            now = Reach(row[f"{time}_max"], row[f"{OFFSET}_min"], row[f"{OFFSET}_max"])
            known = self.reached.get(place, now)
            times = [each for each in (known.time_us, now.time_us) if each is not None]
            self.reached[place] = Reach(
                max(times, default=None), min(known.first, now.first), max(known.last, now.last)
            )


def _faults_of(rows: pa.Table) -> Faults:
    untimed = rows.column(TIME).null_count
    if not untimed or CLAIMED not in rows.column_names:
        return Faults(rows.num_rows, untimed)
    claimed = rows.column(CLAIMED)
    future = rows.num_rows - claimed.null_count
    return Faults(rows.num_rows, untimed - future, future, pc.max(claimed).as_py())


def to_bytes(rows: pa.Table) -> pa.Buffer:
    """Write rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    _write(rows, sink)
    return sink.getvalue()


def from_bytes(data: bytes | pa.Buffer) -> pa.Table:
    """Read what `to_bytes` has written."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def in_order(blobs: Sequence[pa.Table]) -> pa.Table:
    """Put the rows of one input together, in the order of where they come from."""
    rows = pa.concat_tables(blobs)
    origin = [(name, "ascending") for name in _ORIGIN if name in rows.column_names]
    return rows.take(pc.sort_indices(rows, sort_keys=origin)).combine_chunks()


def pieces(rows: pa.Table) -> Iterator[pa.Buffer]:
    """Return the rows that an operator gives, as blobs of a size that Spark can swallow."""
    row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
    step = max(1, min(_OUTPUT_ROWS_MAX, BYTES_MAX // row_bytes))
    for start in range(0, rows.num_rows, step):
        yield to_bytes(rows.slice(start, step))


def unpacked(data: pa.Buffer, key_types: Sequence[pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a blob, with the key as columns again."""
    rows = from_bytes(data).combine_chunks()
    columns = decode_keys(arrays.whole(rows.column(KEY)), key_types)
    named = {key_name(number): column for number, column in enumerate(columns)}
    others = [name for name in rows.column_names if name != KEY]
    yield from pa.table(named | {name: rows.column(name) for name in others}).to_batches()


def _write(rows: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            taken, taken_bytes = _first(rest, ROWS_MAX - rows, BYTES_MAX - size)
            rest = rest.slice(taken.num_rows)
            waiting.append(taken)
            rows += taken.num_rows
            size += taken_bytes
            if rows == ROWS_MAX or size >= BYTES_MAX:
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _first(batch: pa.RecordBatch, rows_max: int, bytes_wanted: int) -> tuple[pa.RecordBatch, int]:
    """Return rows up to the one with which they are enough, or all, and how many bytes they are."""
    batch = batch.slice(0, rows_max)
    size = _bytes_of(batch)
    if size >= bytes_wanted:
        counts = range(1, batch.num_rows)
        less = bisect_left(counts, bytes_wanted, key=lambda count: _bytes_of(batch.slice(0, count)))
        batch = batch.slice(0, less + 1)
        size = _bytes_of(batch)
    return batch, size


def _bytes_of(batch: pa.RecordBatch) -> int:
    return sum(map(_value_bytes, batch.columns))


def _value_bytes(column: pa.Array) -> int:
    """Return how many bytes values take: for each the same, whichever others are beside it.

    Arrow's own count is not of this kind. It has bitmaps, which are there or not and begin within
    a byte, and one more offset than there are values.
    """
    kind = column.type
    if kind.id in _OF_BYTES:
        offsets = arrays.binary(column).offsets
        return _OFFSET_BYTES * len(column) + int(offsets[-1] - offsets[0])
    if pa.types.is_struct(kind):
        return sum(_value_bytes(column.field(number)) for number in range(kind.num_fields))
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if not len(column):
            return 0
        start, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return _OFFSET_BYTES * len(column) + _value_bytes(column.values.slice(start, end - start))
    bits = 0 if pa.types.is_null(kind) else int(kind.bit_width)
    return len(column) * -(-bits // 8)
