"""Rows as finished batches, read back by foreign readers of batches."""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import kafka.record.default_records as kafka_python
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.record.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP, parse_header
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.record.validation import validate_for_append
from headwater.delivery.client.cluster import Place
from headwater.delivery.client.partitioner import partition_for_key
from headwater.streams.sink.encode import Encoder
from headwater.streams.sink.partitioning import RUN_BYTES
from headwater.streams.sink.row_columns import ColumnError, RowError
from headwater.streams.source.decode import Decoder
from tests.base.record.samples import CODECS, NOW_MS, headers, payloads, timestamps

Reader = Callable[[bytes], list[Record]]

PARTITION_COUNTS = {"orders": 3, "clicks": 1, "payments": 50}
TOPIC = {"topic": ["orders"]}
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    """A row of a sink."""

    topic: str
    partition: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@st.composite
def rows(draw: st.DrawFn) -> Row:
    topic = draw(st.sampled_from(sorted(PARTITION_COUNTS)))
    partition = draw(st.none() | st.integers(0, PARTITION_COUNTS[topic] - 1))
    return Row(
        topic,
        partition,
        draw(st.none() | timestamps),
        draw(payloads),
        draw(payloads),
        draw(st.none() | headers),
    )


def encoder(**changed: Any) -> Encoder:  # noqa: ANN401 - settings of several types
    settings: dict[str, Any] = {
        "topic": None,
        "partition_counts": PARTITION_COUNTS.__getitem__,
        "codec": Codec.NONE,
        "batch_bytes": 1 << 20,
        "record_bytes_max": 1 << 20,
        "headers": True,
        "now_ms": NOW_MS,
    }
    return Encoder(**(settings | changed))


def arrow(given_rows: list[Row], *, large: bool = False) -> pa.RecordBatch:
    binary = pa.large_binary() if large else pa.binary()
    text = pa.large_string() if large else pa.string()
    times = [None if row.timestamp is None else row.timestamp * 1000 for row in given_rows]
    lists = [
        None if row.headers is None else [{"key": k, "value": v} for k, v in row.headers]
        for row in given_rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in given_rows], binary),
            "value": pa.array([row.value for row in given_rows], binary),
            "topic": pa.array([row.topic for row in given_rows], text),
            "partition": pa.array([row.partition for row in given_rows], pa.int32()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "headers": pa.array(lists, HEADERS_TYPE),
        }
    )


def read_by_aiokafka(batch: bytes) -> list[Record]:
    read = DefaultRecordBatch(batch)
    assert read.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in read]


def read_by_kafka_python(batch: bytes) -> list[Record]:
    read = kafka_python.DefaultRecordBatch(batch)
    assert read.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in read]


def as_record(row: Row, offset: int) -> Record:
    timestamp = NOW_MS if row.timestamp is None else row.timestamp
    return Record(offset, timestamp, row.key, row.value, tuple(row.headers or ()))


def by_place(given_rows: list[Row], written: dict[Place, list[Record]]) -> dict[Place, list[Row]]:
    """Say where each row had to go; one without key and partition may be in any, but in order."""
    expected: dict[Place, list[Row]] = {}
    for row in given_rows:
        count = PARTITION_COUNTS[row.topic]
        if row.partition is not None:
            partition = row.partition
        elif row.key is not None:
            partition = (murmur2(row.key) & 0x7FFFFFFF) % count
        else:
            partition = next(
                partition
                for partition in range(count)
                if (done := len(expected.get((row.topic, partition), [])))
                < len(records := written.get((row.topic, partition), []))
                and records[done] == as_record(row, records[done].offset)
            )
        expected.setdefault((row.topic, partition), []).append(row)
    return expected


@given(
    st.lists(rows(), max_size=30),
    st.sampled_from(CODECS),
    st.integers(100, 3_000) | st.just(1 << 20),
    st.integers(0, 30),
    st.booleans(),
    st.sampled_from([read_by_aiokafka, read_by_kafka_python, iterate]),
)
def test_every_row_is_read_by_others_in_its_place(
    given_rows: list[Row], codec: Codec, batch_bytes: int, cut: int, large: bool, reader: Reader
) -> None:
    # Rows that may go anywhere have times of their own, by which they are found.
    given_rows = [
        row._replace(timestamp=5 * 10**12 + index)
        if row.key is None and row.partition is None
        else row
        for index, row in enumerate(given_rows)
    ]
    encoding = encoder(codec=codec, batch_bytes=batch_bytes)
    table = arrow(given_rows, large=large)
    encoding.add(table.slice(0, cut))
    encoding.add(table.slice(cut))
    finished = encoding.finish()
    written: dict[Place, list[Record]] = {}
    for place, batches in finished.items():
        for batch in batches:
            header = validate_for_append(batch, size_max=1 << 20)
            records = reader(batch)
            assert header.record_count == 1 or len(batch) <= batch_bytes
            assert header.max_timestamp == max(record.timestamp for record in records)
            assert not header.has_producer_id
            assert header.timestamp_type == 0
            written.setdefault(place, []).extend(records)
    for place, expected in by_place(given_rows, written).items():
        offsets = [record.offset for record in written[place]]
        assert [as_record(row, o) for row, o in zip(expected, offsets, strict=True)] == written.pop(
            place
        )
    assert not written
    assert not encoding.oversized


@given(st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=20))
def test_a_batch_has_the_bytes_of_the_builder_of_aiokafka(
    drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    theirs = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for offset, record in enumerate(drawn):
        theirs.append(offset, *record)
    encoding = encoder(topic="clicks")
    encoding.add(arrow([Row("", 0, *record) for record in drawn]))
    (batch,) = encoding.finish()["clicks", 0]
    assert batch == bytes(theirs.build())


@given(st.lists(st.binary(max_size=50), max_size=40), st.integers(1, 1_000))
def test_keys_choose_as_the_java_client_does(keys: list[bytes], count: int) -> None:
    encoding = encoder(topic="t", partition_counts=lambda _: count)
    column = pa.array(keys, pa.binary())
    encoding.add(pa.record_batch({"key": column, "value": column}))
    for (_, partition), batches in encoding.finish().items():
        for key in (record.key for batch in batches for record in iterate(batch)):
            assert key is not None
            assert partition == (murmur2(key) & 0x7FFFFFFF) % count
            assert partition == partition_for_key(key, count)


def test_text_is_written_as_utf8() -> None:
    encoding = encoder(topic="clicks")
    encoding.add(pa.record_batch({"key": ["ä", None], "value": ["", "ß"]}))
    (batch,) = encoding.finish()["clicks", 0]
    assert [(r.key, r.value) for r in iterate(batch)] == [("ä".encode(), b""), (None, "ß".encode())]


def test_a_column_of_values_is_enough() -> None:
    encoding = encoder(topic="clicks", headers=False)
    encoding.add(pa.record_batch({"value": [b"x"], "unrelated": [1.5]}))
    (batch,) = encoding.finish()["clicks", 0]
    assert iterate(batch) == [Record(0, NOW_MS, None, b"x")]
    assert parse_header(batch).base_timestamp == NOW_MS


def test_the_option_wins_over_the_column() -> None:
    encoding = encoder(topic="clicks")
    encoding.add(pa.record_batch({"value": [b"x"], "topic": ["orders"]}))
    assert list(encoding.finish()) == [("clicks", 0)]


def test_rows_without_key_go_round_in_runs() -> None:
    encoding = encoder(topic="orders", batch_bytes=10 * RUN_BYTES)
    value = bytes(1_000)
    for _ in range(6):
        encoding.add(pa.record_batch({"value": [value] * 100}))
    finished = encoding.finish()
    shares = [sum(len(batch) for batch in finished["orders", partition]) for partition in range(3)]
    assert max(shares) - min(shares) <= 2 * RUN_BYTES
    # However the rows go round, they fill their batches.
    assert all(len(finished["orders", partition]) == 2 for partition in range(3))


def test_tasks_do_not_begin_with_the_same_partition() -> None:
    begun = set()
    for now_ms in range(3):
        encoding = encoder(topic="orders", now_ms=now_ms)
        encoding.add(pa.record_batch({"value": [b"x"]}))
        begun |= set(encoding.finish())
    assert begun == {("orders", 0), ("orders", 1), ("orders", 2)}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", None, "Asia/Tokyo"])
def test_timestamps_of_every_unit_are_milliseconds(unit: str, zone: str | None) -> None:
    moment = dt.datetime.fromtimestamp(NOW_MS / 1000, dt.UTC).replace(microsecond=0)
    times = pa.array([moment, None], pa.timestamp("us", tz="UTC")).cast(pa.timestamp(unit, zone))
    encoding = encoder(topic="clicks", now_ms=5)
    encoding.add(pa.record_batch({"value": [b"x", b"y"], "timestamp": times}))
    (batch,) = encoding.finish()["clicks", 0]
    assert [r.timestamp for r in iterate(batch)] == [NOW_MS // 1000 * 1000, 5]


def test_a_record_without_a_time_gets_one_when_it_is_copied() -> None:
    (read,) = Decoder("clicks", 0, headers=True).decode(
        memoryview(build_batch([Record(0, NO_TIMESTAMP, None, b"x")])),
        from_offset=0,
        upto_offset=9,
        aborted=(),
    )
    encoding = encoder()
    encoding.add(read)
    (batch,) = encoding.finish()["clicks", 0]
    assert [record.timestamp for record in iterate(batch)] == [NOW_MS]


def test_what_does_not_shrink_is_sent_as_it_is() -> None:
    noise = os.urandom(5_000)
    for codec in CODECS:
        encoding = encoder(topic="clicks", codec=codec)
        encoding.add(pa.record_batch({"value": [noise]}))
        (batch,) = encoding.finish()["clicks", 0]
        assert parse_header(batch).codec == Codec.NONE
        assert len(batch) < BATCH_HEADER_BYTES + 5_020


@pytest.mark.parametrize("codec", CODECS)
def test_large_records_stand_alone(codec: Codec) -> None:
    sizes = [10, 5_000, 10, 10, 900_000, 10]
    encoding = encoder(topic="clicks", codec=codec, batch_bytes=1_000)
    encoding.add(pa.record_batch({"value": [os.urandom(size) for size in sizes]}))
    batches = encoding.finish()["clicks", 0]
    found = [[len(record.value or b"") for record in iterate(batch)] for batch in batches]
    assert found == [[10], [5_000], [10, 10], [900_000], [10]]


def test_oversized_records_are_put_aside() -> None:
    given_rows = [
        Row("orders", 1, NOW_MS, b"k", bytes(size), [("h", None)]) for size in (10, 500, 11)
    ]
    encoding = encoder(record_bytes_max=300)
    encoding.add(arrow(given_rows))
    (batch,) = encoding.finish()["orders", 1]
    assert [len(record.value or b"") for record in iterate(batch)] == [10, 11]
    (aside,) = encoding.oversized
    assert aside.place == ("orders", 1)
    assert (aside.key, aside.value, aside.headers) == (b"k", bytes(500), [("h", None)])
    assert aside.timestamp == NOW_MS
    alone = encoder(record_bytes_max=aside.size_bytes)
    alone.add(arrow(given_rows[1:2]))
    assert len(alone.finish()["orders", 1][0]) == aside.size_bytes
    barely = encoder(record_bytes_max=aside.size_bytes - 1)
    barely.add(arrow(given_rows[1:2]))
    assert barely.finish() == {}
    assert len(barely.oversized) == 1


@pytest.mark.parametrize(
    "columns, message",
    [
        ({**TOPIC, "key": [b"k"]}, "no column `value`"),
        ({**TOPIC, "value": [1]}, "`value` has the type int64, it must be string or binary"),
        ({**TOPIC, "value": [b""], "key": [1.5]}, "`key` has the type double"),
        ({**TOPIC, "value": [b""], "partition": ["0"]}, "`partition` has the type string"),
        (
            {**TOPIC, "value": [b""], "partition": pa.array([0], pa.uint32())},
            "`partition` has the type",
        ),
        ({**TOPIC, "value": [b""], "timestamp": [5]}, "`timestamp` has the type int64"),
        ({"value": [b""], "topic": [b"t"]}, "`topic` has the type binary"),
        ({**TOPIC, "value": [b""], "headers": [["x"]]}, "`headers` has the type list"),
        (
            {**TOPIC, "value": [b""], "headers": [[{"k": "x", "v": b""}]]},
            "`headers` has the type list",
        ),
        ({"value": [b""]}, "neither an option nor a column `topic`"),
    ],
)
def test_wrong_columns_are_named_before_anything_is_encoded(
    columns: dict[str, Any], message: str
) -> None:
    encoding = encoder()
    with pytest.raises(ColumnError, match=message) as info:
        encoding.add(pa.record_batch(columns))
    assert info.value.hint
    assert encoding.finish() == {}


@pytest.mark.parametrize(
    "row, message",
    [
        ({"topic": None}, "`topic` of a row is null"),
        ({"partition": 3}, "partition 3 of orders, which has 3"),
        ({"partition": -1}, "partition -1 of orders, which has 3"),
        ({"timestamp": -2}, "-2 ms lies before 1970"),
        ({"headers": [(None, b"x")]}, "a header has no key"),
    ],
)
def test_wrong_rows_are_named(row: dict[str, Any], message: str) -> None:
    good = Row("orders", 0, NOW_MS, None, b"good", None)
    encoding = encoder()
    encoding.add(arrow([good]))
    with pytest.raises(RowError, match=message) as info:
        encoding.add(arrow([good, good._replace(**row)]))
    assert info.value.hint
    # What came before is whole, and nothing of the batch is in.
    (batch,) = encoding.finish()["orders", 0]
    assert [record.value for record in iterate(batch)] == [b"good"]


def test_headers_of_a_null_row_are_not_written() -> None:
    """A list that is null may still have elements beneath."""
    items = pa.array(
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADERS_TYPE.value_type
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), items, mask=pa.array([True, False])
    )
    encoding = encoder(topic="clicks")
    encoding.add(pa.record_batch({"value": [b"x", b"y"], "headers": lists}))
    (batch,) = encoding.finish()["clicks", 0]
    assert [record.headers for record in iterate(batch)] == [(), (("b", b"2"),)]


def test_partitions_of_a_topic_are_asked_for_once() -> None:
    asked = []

    def count(topic: str) -> int:
        asked.append(topic)
        return 2

    encoding = encoder(partition_counts=count)
    for _ in range(3):
        encoding.add(pa.record_batch({"value": [b"x"] * 4, "topic": ["a", "b", "a", "c"]}))
    assert sorted(asked) == ["a", "b", "c"]


@given(st.lists(rows(), max_size=10), st.sampled_from(CODECS))
def test_our_own_reader_gives_the_rows_back(given_rows: list[Row], codec: Codec) -> None:
    encoding = encoder(codec=codec)
    encoding.add(arrow(given_rows))
    for (topic, partition), batches in encoding.finish().items():
        for batch in batches:
            (read,) = Decoder(topic, partition, headers=True).decode(
                memoryview(batch), from_offset=0, upto_offset=2**60, aborted=()
            )
            again = encoder(codec=codec)
            again.add(read)
            assert again.finish() == {(topic, partition): [batch]}


def test_nothing_is_read_or_written_outside(tmp_path: Path) -> None:
    """The arbitrary rows from above, compiled with numba's own checks of every index."""
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n0", __file__),
            *("-k", "read_by_others or keys_choose or builder_of or stand_alone"),
        ],
        # A cache of its own: numba would load what was compiled without the checks.
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5_000:]
    assert "8 passed" in ended.stdout
