"""Rows of a task become finished record batches, by partition.

This file alone decides when a batch is cut and what its header says. Columns are read by
`row_columns`, partitions chosen by `destinations`, records written by `record_encoding`.

Each destination has one batch open, and rows are added to it whatever Arrow batch they come in, so
that batches grow full however many partitions the rows scatter over. Batches carry no producer:
whoever sends them stamps it. One that does not shrink is sent uncompressed, so that a limit on its
size holds for every codec. Finished ones are held until they are taken.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    HEADER,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SIZE_OVERHEAD_BYTES,
    BatchHeader,
    write_crc,
)
from headwater.base.record.codecs import Codec, compress
from headwater.base.record.records import Header
from headwater.delivery.client.cluster import Place
from headwater.streams.sink import record_encoding as kernel
from headwater.streams.sink.destinations import LEFT_OUT, Destinations
from headwater.streams.sink.record_encoding import Bytes, Int64s
from headwater.streams.sink.row_columns import RowError, Rows, check_columns, read_rows


class Oversized(NamedTuple):
    """A record that is larger than allowed, by itself, before compression."""

    place: Place
    size_bytes: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp: int


class Encoder:
    """Takes the rows of one task; gives the batches that hold them.

    Attributes:
        oversized: The records that are in no batch, because they are too large for any.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        partition_counts: Callable[[str], int],
        codec: Codec,
        batch_bytes: int,
        record_bytes_max: int,
        headers: bool,
        now_ms: int,
    ) -> None:
        """Begin without rows.

        Args:
            topic: Where all rows go; None: where their column `topic` says.
            partition_counts: How many partitions a topic has; asked once for each.
            codec: The compression of the batches.
            batch_bytes: The largest batch, unless a single record is larger.
            record_bytes_max: The largest record, with the header of a batch around it.
            headers: Whether the column `headers` is written.
            now_ms: The timestamp of rows that have none.
        """
        self._topic = topic
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._record_bytes_max = record_bytes_max
        self._with_headers = headers
        self._now_ms = now_ms
        self._destinations = Destinations(partition_counts, now_ms)
        self._open: dict[Place, _OpenBatch] = {}
        self._finished: list[tuple[Place, bytes]] = []
        self._spare: Bytes | None = None
        self.oversized: list[Oversized] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode the rows of an Arrow batch with the columns of Spark's Kafka sink.

        Raises:
            ColumnError: A column is missing or has a wrong type; no row was encoded.
            RowError: A row cannot be written; none of the batch was encoded.
        """
        check_columns(batch.schema, headers=self._with_headers, needs_topic=self._topic is None)
        if batch.num_rows == 0:
            return
        rows = read_rows(batch, headers=self._with_headers, now_ms=self._now_ms)
        sizes = np.empty(batch.num_rows, np.int64)
        kernel.measure(rows.lengths, sizes)
        sizes += BATCH_HEADER_BYTES
        places = self._destinations.choose(rows, sizes, self._topics_of(batch))
        for row in np.flatnonzero(sizes > self._record_bytes_max).tolist():
            place = self._destinations.place(places[row])
            self.oversized.append(
                Oversized(
                    place,
                    int(sizes[row]),
                    rows.key.of(row),
                    rows.value.of(row),
                    self._headers_of(batch, row),
                    int(rows.timestamps[row]),
                )
            )
            places[row] = LEFT_OUT
        for place, order in self._destinations.grouped(places):
            self._append(place, rows, order, int(sizes[order].max()))

    @property
    def open_bytes(self) -> int:
        """How much is in batches that still take rows."""
        return sum(each.filled_bytes for each in self._open.values())

    def take_finished(self) -> list[tuple[Place, bytes]]:
        """Return the batches that have been finished since, those of a partition in their order."""
        finished, self._finished = self._finished, []
        return finished

    def take_oversized(self) -> list[Oversized]:
        """Return the records that were found to be too large since."""
        oversized, self.oversized = self.oversized, []
        return oversized

    def close_open(self) -> None:
        """Finish all batches as they are; rows that follow begin new ones."""
        for place in list(self._open):
            self._close(place)

    def finish(self) -> dict[Place, list[bytes]]:
        """Finish all batches, and return by partition those that nobody has taken yet."""
        self.close_open()
        batches: dict[Place, list[bytes]] = {}
        for place, batch in self.take_finished():
            batches.setdefault(place, []).append(batch)
        return batches

    def _topics_of(self, batch: pa.RecordBatch) -> pa.Array | str:
        if self._topic is not None:
            return self._topic
        topics = batch.column("topic")
        if topics.null_count:
            raise RowError(
                "the `topic` of a row is null", hint=".option('topic', NAME), or fill the column"
            )
        return topics

    def _append(self, place: Place, rows: Rows, order: Int64s, size_bytes_max: int) -> None:
        """Write rows behind those of their destination, closing batches as they fill."""
        places = np.empty((kernel.FIELD_COUNT, len(order)), np.int64)
        while len(order):
            batch = self._open.get(place)
            if batch is None:
                batch = _OpenBatch(self._memory(max(self._batch_bytes, size_bytes_max)))
                self._open[place] = batch
            written = batch.append(rows, order, places, self._batch_bytes)
            order = order[written:]
            if len(order):
                self._close(place)

    def _close(self, place: Place) -> None:
        batch = self._open.pop(place)
        self._finished.append((place, batch.finish(self._codec)))
        self._spare = batch.memory

    def _memory(self, size_bytes: int) -> Bytes:
        """Return what the last batch was written in, if it is large enough.

        Memory that is touched for the first time costs as much as all the rest.
        """
        spare, self._spare = self._spare, None
        return (
            spare
            if spare is not None and len(spare) >= size_bytes
            else np.empty(size_bytes, np.uint8)
        )

    def _headers_of(self, batch: pa.RecordBatch, row: int) -> list[Header]:
        if not self._with_headers or "headers" not in batch.schema.names:
            return []
        headers = batch.column("headers")[row].as_py() or []
        return [(header["key"], _as_bytes(header["value"])) for header in headers]


class _OpenBatch:
    """A batch that still takes records: room for the header, then what was written."""

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self._state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self._state[kernel.FILLED_BYTES] = BATCH_HEADER_BYTES

    @property
    def filled_bytes(self) -> int:
        """How much of the memory is in use."""
        return int(self._state[kernel.FILLED_BYTES])

    def append(self, rows: Rows, order: Int64s, places: Int64s, limit_bytes: int) -> int:
        """Write rows as long as they fit, and return how many did."""
        limit_bytes = min(limit_bytes, len(self.memory))
        written: int = kernel.lay_out(
            order, rows.lengths, rows.timestamps, limit_bytes, self.memory, self._state, places
        )
        fitting = order[:written]
        kernel.scatter(fitting, *rows.key, self.memory, places[kernel.KEY])
        kernel.scatter(fitting, *rows.value, self.memory, places[kernel.VALUE])
        kernel.scatter(fitting, *rows.tail, self.memory, places[kernel.TAIL])
        return written

    def finish(self, codec: Codec) -> bytes:
        """Give the batch its header, compressed if that makes it smaller."""
        state = self._state
        batch = self.memory.data[: int(state[kernel.FILLED_BYTES])]
        records = batch[BATCH_HEADER_BYTES:]
        packed = compress(codec, records) if codec != Codec.NONE else b""
        if codec == Codec.NONE or len(packed) >= len(records):
            codec = Codec.NONE
        else:
            batch = memoryview(bytearray(BATCH_HEADER_BYTES) + packed)
        header = BatchHeader(
            base_offset=0,
            batch_length=len(batch) - SIZE_OVERHEAD_BYTES,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=codec,
            last_offset_delta=int(state[kernel.RECORD_COUNT]) - 1,
            base_timestamp=int(state[kernel.BASE_TIMESTAMP]),
            max_timestamp=int(state[kernel.MAX_TIMESTAMP]),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=int(state[kernel.RECORD_COUNT]),
        )
        HEADER.pack_into(batch, 0, *header)
        write_crc(batch, 0, len(batch))
        return bytes(batch)


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
