"""Record batches beside other implementations: `make bench-record`.

This file alone decides what is measured of `headwater.base.record`: the steps of the produce path
against a limit in microseconds, reading and writing of records against kafka-python (pure Python
too) and aiokafka (C). Contents are compared before anything is timed.
"""

import json
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from typing import NamedTuple

import crc32c as foreign_crc
import kafka.record.default_records as kafka_python
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder

from headwater.base.record.batch import parse_header, stamp
from headwater.base.record.crc import crc32c
from headwater.base.record.records import Record, build_batch, iterate, iterate_timestamps
from headwater.base.record.validation import validate_for_append

ROUNDS = 7
ROUND_S = 0.05
COUNT = 1_000
NOW_MS = 1_700_000_000_000
ONE = [Record(0, NOW_MS, b"k" * 10, b"v" * 100)]
MANY = [Record(i, NOW_MS + i, b"key-%d" % i, b"v" * 100) for i in range(COUNT)]

Action = Callable[[], object]


class Row(NamedTuple):
    """One comparison, in microseconds."""

    name: str
    ours: float
    theirs: float
    bar: float | None = None

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.theirs / self.ours

    def as_json(self) -> dict[str, object]:
        """Give the row in the form that every benchmark prints."""
        row: dict[str, object] = {
            "name": self.name,
            "ours": round(self.ours, 3),
            "theirs": round(self.theirs, 3),
            "unit": "us",
            "ratio": round(self.ratio, 2),
        }
        return row if self.bar is None else {**row, "bar": self.bar}


def _build_foreign(builder: type) -> bytearray:
    arguments = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    built = builder(2, 0, 0, batch_size=1 << 30, **arguments)
    for record in MANY:
        built.append(record.offset, record.timestamp, record.key, record.value, [])
    return bytearray(built.build())


def _microseconds(action: Action) -> float:
    """Return the processor time of one call, which other processes hardly change."""
    timer = timeit.Timer(action, timer=time.process_time)
    count = max(1, int(ROUND_S / max(timer.timeit(5) / 5, 1e-7)))
    return timer.timeit(count) / count * 1e6


def _compare(name: str, ours: Action, theirs: Action, per: int = 1) -> Row:
    """Time both in turn; the unit is microseconds for one of `per` things an action does."""
    rounds = [(_microseconds(ours), _microseconds(theirs)) for _ in range(ROUNDS)]
    mine, other = (statistics.median(side) / per for side in zip(*rounds, strict=True))
    return Row(name, mine, other)


def _within(name: str, ours: Action, limit: float) -> Row:
    return Row(name, statistics.median(_microseconds(ours) for _ in range(ROUNDS)), limit, 1.0)


def main() -> int:
    """Print the table and, last, its rows as JSON; 1 when a limit was missed."""
    one = memoryview(build_batch(ONE))
    many = build_batch(MANY)
    assert iterate(many) == MANY
    assert many[16:] == _build_foreign(DefaultRecordBatchBuilder)[16:]
    assert many[16:] == _build_foreign(kafka_python.DefaultRecordBatchBuilder)[16:]
    mebibyte = memoryview(bytearray(bytes(range(256)) * 4096))
    assert crc32c(mebibyte) == foreign_crc.crc32c(mebibyte)

    def read_kafka_python() -> object:
        return list(kafka_python.DefaultRecordBatch(many))

    def read_aiokafka() -> object:
        return list(DefaultRecordBatch(bytes(many)))

    rows = [
        _within("header parsed", lambda: parse_header(one, 0), 1.0),
        _within("one-record batch validated", lambda: validate_for_append(one, size_max=4096), 3.0),
        _within("offset and epoch stamped", lambda: stamp(one, 0, 0, 0), 1.0),
        _compare(
            "checksum of 1 MiB, crc32c package",
            lambda: crc32c(mebibyte),
            lambda: foreign_crc.crc32c(mebibyte),
        ),
        _compare("record read, kafka-python", lambda: iterate(many), read_kafka_python, COUNT),
        _compare("record read, aiokafka in C", lambda: iterate(many), read_aiokafka, COUNT),
        _compare(
            "timestamp read, aiokafka in C", lambda: iterate_timestamps(many), read_aiokafka, COUNT
        ),
        _compare(
            "record written, kafka-python",
            lambda: build_batch(MANY),
            lambda: _build_foreign(kafka_python.DefaultRecordBatchBuilder),
            COUNT,
        ),
        _compare(
            "record written, aiokafka in C",
            lambda: build_batch(MANY),
            lambda: _build_foreign(DefaultRecordBatchBuilder),
            COUNT,
        ),
    ]
    for row in rows:
        print(f"{row.name:36} {row.ours:8.3f} us {row.theirs:8.3f} us {row.ratio:8.2f}x")
    print(json.dumps({"rows": [row.as_json() for row in rows]}))
    return int(any(row.bar is not None and row.ratio < row.bar for row in rows))


if __name__ == "__main__":
    sys.exit(main())
