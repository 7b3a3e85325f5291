"""Records to Arrow columns and back: `make bench-columns`.

This file alone decides what is measured of Spark's hot path, on one core and in processor time,
which other processes hardly change: rows a second through our compiled code, beside what a Python
connector would do with the fastest parts there are. That is aiokafka's parser and builder (C), and
kafka-python's builder (Python), each with pyarrow. Theirs writes one partition and hashes no key;
ours chooses a partition for every row. Contents are compared before anything is timed.

The start of a process is measured too, from nothing to its first row, with the compiled code in
numba's cache and without: what is saved for a row has to pay for that.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import kafka.record.default_records as kafka_python
import pyarrow as pa
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords

from benchmarks.table import Row, options, print_rows, say
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.streams.sink.encode import Encoder
from headwater.streams.source.decode import Decoder

NOW_MS = 1_700_000_000_000
FETCH_BYTES = 4 << 20
DATA_BYTES = 32 << 20
BATCH_BYTES = 1_000_000
ARROW_ROWS = 10_000
PARTITIONS = 4
NAMES = ["key", "value", "offset", "timestamp"]
START_OURS = """
from headwater.streams.source.decode import Decoder
decoder = Decoder("t", 0, headers=False)
data = memoryview(bytes.fromhex({batch!r}))
list(decoder.decode(data, from_offset=0, upto_offset=9, aborted=()))
"""
START_THEIRS = """
import pyarrow as pa
from aiokafka.record._crecords import MemoryRecords
batch = MemoryRecords(bytes.fromhex({batch!r})).next_batch()
pa.array([record.value for record in batch], pa.binary())
"""

Action = Callable[[], object]


class Case(NamedTuple):
    """Records of one size, in batches of another."""

    name: str
    value_bytes: int
    batch_bytes: int
    codec: Codec = Codec.NONE

    def records(self) -> list[Record]:
        """Make them: JSON-like values that differ, so that compression has something to do."""
        count = DATA_BYTES // (self.value_bytes + 20)
        filler = b'{"customer": 4711, "country": "NO", "amount": 12.50}, ' * (
            1 + self.value_bytes // 54
        )
        return [
            Record(
                index,
                NOW_MS + index,
                b"key-%d" % index,
                (b"%08d" % index + filler)[: self.value_bytes],
            )
            for index in range(count)
        ]

    def fetches(self, records: list[Record]) -> list[tuple[int, bytes]]:
        """Lay them out as a broker sends them: the first offset and the bytes of each fetch."""
        per_batch = max(1, self.batch_bytes // (self.value_bytes + 20))
        fetches: list[tuple[int, bytearray]] = [(0, bytearray())]
        for first in range(0, len(records), per_batch):
            batch = build_batch(
                records[first : first + per_batch], codec=self.codec, base_offset=first
            )
            if len(fetches[-1][1]) + len(batch) > FETCH_BYTES:
                fetches.append((first, bytearray()))
            fetches[-1][1].extend(batch)
        return [(first, bytes(data)) for first, data in fetches]


DECODED = (
    Case("decode 100 B, batches of 16 KB", 100, 16_000),
    Case("decode 100 B, batches of 1 MB", 100, 1_000_000),
    Case("decode 1 KB, batches of 16 KB", 1_000, 16_000),
    Case("decode 1 KB, batches of 1 MB", 1_000, 1_000_000),
    Case("decode 100 B, batches of 16 KB, lz4", 100, 16_000, Codec.LZ4),
    Case("decode 100 B, batches of 16 KB, zstd", 100, 16_000, Codec.ZSTD),
)
ENCODED = (
    Case("encode 100 B", 100, BATCH_BYTES),
    Case("encode 1 KB", 1_000, BATCH_BYTES),
    Case("encode 100 B, lz4", 100, BATCH_BYTES, Codec.LZ4),
)


def decode_ours(fetches: list[tuple[int, bytes]]) -> list[pa.RecordBatch]:
    """Decode with all the columns that Spark gets."""
    decoder = Decoder("orders", 0, headers=False)
    found: list[pa.RecordBatch] = []
    for first, data in fetches:
        found += decoder.decode(memoryview(data), from_offset=first, upto_offset=2**60, aborted=())
    return found


def decode_theirs(fetches: list[tuple[int, bytes]]) -> list[pa.RecordBatch]:
    """Decode to those columns that differ from row to row."""
    found = []
    for _, data in fetches:
        keys, values, offsets, times = [], [], [], []
        memory = MemoryRecords(data)
        while memory.has_next():
            batch = memory.next_batch()
            assert batch.validate_crc()
            for record in batch:
                keys.append(record.key)
                values.append(record.value)
                offsets.append(record.offset)
                times.append(record.timestamp)
        columns = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(offsets, pa.int64()),
            pa.array(times, pa.int64())
            .view(pa.timestamp("ms", "UTC"))
            .cast(pa.timestamp("us", "UTC")),
        ]
        found.append(pa.RecordBatch.from_arrays(columns, NAMES))
    return found


def encode_ours(tables: list[pa.RecordBatch], codec: Codec, partitions: int) -> list[bytes]:
    """Encode as a task of the sink does."""
    encoder = Encoder(
        topic="orders",
        partition_counts=lambda _: partitions,
        codec=codec,
        batch_bytes=BATCH_BYTES,
        record_bytes_max=BATCH_BYTES,
        headers=False,
        now_ms=NOW_MS,
    )
    for table in tables:
        encoder.add(table)
    return [batch for batches in encoder.finish().values() for batch in batches]


def encode_theirs(tables: list[pa.RecordBatch], codec: Codec, builder: Any) -> list[bytes]:  # noqa: ANN401 - two classes of one shape
    """Encode into one partition with a builder that says when its batch is full."""
    finished = []
    building, count = builder(2, codec, 0, -1, -1, -1, BATCH_BYTES), 0
    for table in tables:
        columns = (table.column(index).to_pylist() for index in range(2))
        for key, value in zip(*columns, strict=True):
            if building.append(count, NOW_MS, key, value, []) is None:
                finished.append(bytes(building.build()))
                building, count = builder(2, codec, 0, -1, -1, -1, BATCH_BYTES), 0
                building.append(count, NOW_MS, key, value, [])
            count += 1
    finished.append(bytes(building.build()))
    return finished


def compare(name: str, count: int, ours: Action, theirs: Action, rounds: int) -> Row:
    """Time both in turn, and give thousands of rows a second."""
    taken: list[tuple[float, float]] = []
    for _ in range(rounds):
        first_s = time.process_time()
        ours()
        second_s = time.process_time()
        theirs()
        taken.append((second_s - first_s, time.process_time() - second_s))
    mine_s, their_s = (statistics.median(side) for side in zip(*taken, strict=True))
    return Row(name, count / mine_s / 1_000, count / their_s / 1_000, "k rows/s", 1.0)


def decoding(case: Case, rounds: int) -> Row:
    """Compare decoding, first its results."""
    records = case.records()
    fetches = case.fetches(records)
    ours = pa.Table.from_batches(decode_ours(fetches)).select(NAMES)
    assert ours.equals(pa.Table.from_batches(decode_theirs(fetches)))
    assert ours.num_rows == len(records)
    return compare(
        case.name,
        len(records),
        lambda: decode_ours(fetches),
        lambda: decode_theirs(fetches),
        rounds,
    )


def encoding(case: Case, rounds: int) -> list[Row]:
    """Compare encoding beside both builders, first its results."""
    records = case.records()
    tables = [
        pa.record_batch(
            {
                "key": [record.key for record in records[first : first + ARROW_ROWS]],
                "value": [record.value for record in records[first : first + ARROW_ROWS]],
            }
        )
        for first in range(0, len(records), ARROW_ROWS)
    ]
    rows = []
    for name, builder in (
        ("aiokafka", DefaultRecordBatchBuilder),
        ("kafka-python", kafka_python.DefaultRecordBatchBuilder),
    ):
        written = [
            (record.key, record.value)
            for batch in encode_ours(tables, case.codec, 1)
            for record in MemoryRecords(batch).next_batch()
        ]
        assert written == [(record.key, record.value) for record in records]
        rows.append(
            compare(
                f"{case.name}, beside {name}",
                len(records),
                lambda: encode_ours(tables, case.codec, PARTITIONS),
                lambda builder=builder: encode_theirs(tables, case.codec, builder),  # type: ignore[misc]
                rounds,
            )
        )
    return rows


def start_s(program: str, cache: Path) -> float:
    """Return the processor time of a process that runs the program, to its end."""
    batch = bytes(build_batch([Record(0, NOW_MS, b"k", b"v")])).hex()
    timed = program.format(batch=batch) + "import time; print(time.process_time())"
    ended = subprocess.run(
        [sys.executable, "-c", timed],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(ended.stdout)


def starting(rounds: int) -> list[Row]:
    """Compare the time to the first row: the first process compiles, the others load."""
    compiled, loaded, theirs = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            compiled.append(start_s(START_OURS, Path(folder)))
            loaded.append(start_s(START_OURS, Path(folder)))
            theirs.append(start_s(START_THEIRS, Path(folder)))
    return [
        Row(name, statistics.median(ours), statistics.median(theirs), "s", None)
        for name, ours in (
            ("first row of a process, compiled before", loaded),
            ("first row of the first process of all", compiled),
        )
    ]


def main() -> None:
    """Print the table; the last line is JSON."""
    chosen = options("bench-columns", 0).parse_args()
    began = time.monotonic()
    rows: list[Row] = []
    for case in DECODED:
        say(case.name, began)
        rows.append(decoding(case, chosen.rounds))
    for case in ENCODED:
        say(case.name, began)
        rows += encoding(case, chosen.rounds)
    say("starting", began)
    rows += starting(chosen.rounds)
    print_rows(rows)


if __name__ == "__main__":
    main()
