"""Fetched batches as rows: whatever the batches look like, beside foreign writers of batches."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import kafka.record.default_records as kafka_python
import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import LOG_APPEND_TIME, write_crc
from headwater.base.record.codecs import Codec, compress
from headwater.base.record.control import EndTransactionMarker, build_end_transaction
from headwater.base.record.records import Record, build_batch
from headwater.streams.source import decode as decoding
from headwater.streams.source.decode import Decoder, OldMessageFormatError
from tests.base.record.samples import CODECS, NOW_MS, batch_of, record_lists, typical

ALL = 2**62
Rows = list[dict[str, Any]]


def decoded(
    records: bytes | bytearray,
    *,
    from_offset: int = 0,
    upto_offset: int = ALL,
    aborted: Sequence[tuple[int, int]] = (),
) -> tuple[Rows, int]:
    """Decode with headers, and return rows as Python has them."""
    batches = Decoder("orders", 3, headers=True).decode(
        memoryview(records), from_offset=from_offset, upto_offset=upto_offset, aborted=aborted
    )
    rows: Rows = []
    while True:
        try:
            batch = next(batches)
        except StopIteration as end:
            return rows, end.value
        batch.validate(full=True)
        rows += batch.to_pylist()


def offsets_of(found: tuple[Rows, int]) -> list[int]:
    return [row["offset"] for row in found[0]]


def as_records(rows: Rows) -> list[Record]:
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    ]


@given(
    st.lists(st.tuples(record_lists(), st.sampled_from(CODECS), st.integers(0, 9)), max_size=4),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_rows_are_the_records_between_the_offsets(
    pieces: list[tuple[list[Record], Codec, int]], from_offset: int, length: int
) -> None:
    upto_offset = from_offset + length
    fetched, expected, base_offset = bytearray(), list[Record](), 0
    for records, codec, gap in pieces:
        base_offset += gap
        fetched += build_batch(records, codec=codec, base_offset=base_offset)
        expected += [record._replace(offset=base_offset + record.offset) for record in records]
        base_offset += len(records)
    rows, next_offset = decoded(fetched, from_offset=from_offset, upto_offset=upto_offset)
    assert as_records(rows) == [
        record for record in expected if from_offset <= record.offset < upto_offset
    ]
    assert next_offset == max(from_offset, min(base_offset, upto_offset))


@pytest.mark.parametrize(
    "builder",
    [DefaultRecordBatchBuilder, kafka_python.DefaultRecordBatchBuilder],
    ids=["aiokafka", "kafka-python"],
)
@given(records=record_lists(), codec=st.sampled_from(CODECS))
def test_batches_of_others_are_read(builder: type, records: list[Record], codec: Codec) -> None:
    arguments = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    built = builder(2, codec, 0, batch_size=1 << 30, **arguments)
    for record in records:
        built.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    rows, next_offset = decoded(bytes(built.build()))
    assert as_records(rows) == records
    assert next_offset == len(records)


def test_the_columns_are_those_of_sparks_own_source() -> None:
    fetched = memoryview(build_batch(typical(2), base_offset=5))
    (batch,) = Decoder("orders", 3, headers=True).decode(
        fetched, from_offset=0, upto_offset=ALL, aborted=()
    )
    assert batch.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )
    assert batch.column("topic").to_pylist() == ["orders", "orders"]
    assert batch.column("partition").to_pylist() == [3, 3]
    assert batch.column("timestampType").to_pylist() == [0, 0]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        NOW_MS * 1000,
        (NOW_MS + 7) * 1000,
    ]
    (without,) = Decoder("orders", 3, headers=False).decode(
        fetched, from_offset=0, upto_offset=ALL, aborted=()
    )
    assert without.equals(batch.drop_columns(["headers"]))


@pytest.mark.parametrize("codec", CODECS)
def test_rows_stay_when_all_memory_is_used_again(codec: Codec) -> None:
    """That of the fetch, and that of the decoder."""
    decoder = Decoder("orders", 3, headers=True)
    fetched = bytearray(build_batch(typical(300), codec=codec))
    (batch,) = decoder.decode(memoryview(fetched), from_offset=0, upto_offset=ALL, aborted=())
    before = batch.to_pylist()
    fetched[:] = bytes(len(fetched))
    other = [Record(0, NOW_MS, b"?" * 50, b"!" * 50)] * 900
    used = memoryview(build_batch(other, codec=codec))
    assert list(decoder.decode(used, from_offset=0, upto_offset=ALL, aborted=()))
    assert batch.to_pylist() == before


def test_nulls_and_headers_come_as_they_were_written() -> None:
    headers = (("a", None), ("a", b""), ("", b"x"), ("ü", b"\xff"))
    rows, _ = decoded(
        build_batch(
            [
                Record(0, NOW_MS, None, None),
                Record(1, NOW_MS, b"", b"", headers),
                Record(2, NOW_MS, b"k", None),
            ]
        )
    )
    assert [(row["key"], row["value"]) for row in rows] == [(None, None), (b"", b""), (b"k", None)]
    assert [row["headers"] for row in rows] == [
        None,
        [{"key": key, "value": value} for key, value in headers],
        None,
    ]


def test_a_header_key_that_is_no_text_is_readable() -> None:
    broken = b"\xff".decode("utf-8", "surrogateescape")
    rows, _ = decoded(build_batch([Record(0, NOW_MS, None, None, ((broken, b"x"), ("ok", b"y")))]))
    assert [header["key"] for header in rows[0]["headers"]] == ["\ufffd", "ok"]


@pytest.mark.parametrize("codec", CODECS)
def test_the_time_of_the_append_counts_where_the_batch_says_so(codec: Codec) -> None:
    records = [Record(0, NOW_MS, None, b"a"), Record(1, NOW_MS + 9, None, b"b")]
    rows, _ = decoded(build_batch(records, codec=codec, timestamp_type=LOG_APPEND_TIME))
    assert [record.timestamp for record in as_records(rows)] == [NOW_MS + 9] * 2
    assert [row["timestampType"] for row in rows] == [1, 1]


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 0, 2**63 - 1])
def test_timestamps_beyond_sparks_range_stay_at_its_end(timestamp: int) -> None:
    fetched = memoryview(build_batch([Record(0, timestamp, None, b"")]))
    (batch,) = Decoder("orders", 3, headers=False).decode(
        fetched, from_offset=0, upto_offset=ALL, aborted=()
    )
    limit = (2**63 - 1) // 1000
    expected = max(-limit, min(limit, timestamp)) * 1000
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [expected]


@pytest.mark.parametrize("codec", CODECS)
def test_gaps_that_compaction_left_are_no_rows(codec: Codec) -> None:
    # Of the offsets 0 to 9, compaction has kept 2 and 7.
    body = bytearray()
    for delta in (2, 7):
        record = bytes([0, 0, delta << 1, 1, 2, 65 + delta, 0])
        body += bytes([len(record) << 1]) + record
    batch = batch_of(compress(codec, body), count=2, codec=codec)
    batch[23:27] = (9).to_bytes(4)
    write_crc(batch, 0, len(batch))
    assert offsets_of(decoded(batch)) == [2, 7]
    assert decoded(batch)[1] == 10
    assert offsets_of(decoded(batch, from_offset=3)) == [7]
    assert decoded(batch, from_offset=8) == ([], 10)
    assert decoded(batch, from_offset=3, upto_offset=7) == ([], 7)


def test_a_batch_that_compaction_emptied_is_passed_over() -> None:
    empty = batch_of(b"", count=0)
    empty[23:27] = (4).to_bytes(4)
    write_crc(empty, 0, len(empty))
    assert decoded(empty) == ([], 5)
    assert offsets_of(decoded(empty + build_batch(typical(1), base_offset=5))) == [5]
    packed = batch_of(compress(Codec.GZIP, b""), count=0, codec=Codec.GZIP)
    assert decoded(packed, from_offset=0)[0] == []


def test_a_cut_batch_is_left_for_the_next_fetch() -> None:
    whole = build_batch(typical(3))
    fetched = whole + build_batch(typical(2), base_offset=3)
    for size in range(len(whole), len(fetched)):
        found = decoded(fetched[:size])
        assert offsets_of(found) == [0, 1, 2]
        assert found[1] == 3
    for size in range(len(whole)):
        assert decoded(whole[:size], from_offset=1) == ([], 1)


def test_a_fetch_that_begins_beyond_the_wanted_ends_it() -> None:
    fetched = build_batch(typical(2), base_offset=8)
    assert decoded(fetched, from_offset=2, upto_offset=5) == ([], 5)
    assert decoded(b"", from_offset=2, upto_offset=5) == ([], 2)


def _transactional(offset: int, producer_id: int) -> bytearray:
    return build_batch(
        [Record(0, NOW_MS, None, b"%d" % offset)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def _marker(offset: int, producer_id: int, *, is_commit: bool) -> bytearray:
    return build_end_transaction(
        EndTransactionMarker(is_commit, 0),
        timestamp=NOW_MS,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=offset,
    )


def test_aborted_transactions_and_markers_are_not_shown() -> None:
    # Producer 1 aborts and then commits; producer 2 commits; both are interleaved.
    fetched = (
        _transactional(0, 1)
        + _transactional(1, 2)
        + build_batch(typical(1), base_offset=2)
        + _transactional(3, 1)
        + _marker(4, 1, is_commit=False)
        + _transactional(5, 1)
        + _marker(6, 2, is_commit=True)
        + _marker(7, 1, is_commit=True)
    )
    found = decoded(fetched, aborted=[(1, 0)])
    assert offsets_of(found) == [1, 2, 5]
    assert found[1] == 8
    assert offsets_of(decoded(fetched)) == [0, 1, 2, 3, 5]
    assert offsets_of(decoded(fetched, from_offset=2, aborted=[(1, 0)])) == [2, 5]


def test_a_transaction_is_aborted_from_its_first_offset_on() -> None:
    fetched = _transactional(0, 1) + _marker(1, 1, is_commit=True) + _transactional(2, 1)
    assert offsets_of(decoded(fetched, aborted=[(1, 2)])) == [0]


def test_batches_of_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "ROWS_MAX", 100)
    monkeypatch.setattr(decoding, "BYTES_MAX", 5_000)
    records = [Record(i, NOW_MS, b"", bytes(7)) for i in range(250)]
    records += [Record(i, NOW_MS, b"", bytes(900)) for i in range(20)]
    records += [Record(0, NOW_MS, b"", bytes(90_000)), Record(0, NOW_MS, b"", b"")]
    fetched = bytearray()
    for first in range(0, len(records), 40):
        codec = Codec.ZSTD if first % 80 else Codec.NONE
        fetched += build_batch(records[first : first + 40], codec=codec, base_offset=first)
    decoder = Decoder("orders", 3, headers=False)
    batches = list(decoder.decode(memoryview(fetched), from_offset=0, upto_offset=ALL, aborted=()))
    assert [row["value"] for batch in batches for row in batch.to_pylist()] == [
        record.value for record in records
    ]
    assert max(batch.num_rows for batch in batches) <= 100
    assert all(batch.num_rows == 1 or batch.nbytes < 12_000 for batch in batches)
    for batch in batches:
        held = sum(b.size for c in batch.columns[:2] for b in c.buffers() if b is not None)
        assert held < 2 * batch.nbytes + 1_000


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_format_is_named(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    builder.append(0, NOW_MS, b"k", b"v")
    with pytest.raises(
        OldMessageFormatError, match=f"orders-3 .* format {magic} at offset"
    ) as info:
        decoded(bytes(builder.build()))
    assert info.value.hint


def test_damage_is_named_by_its_place() -> None:
    first, second = build_batch(typical(3)), build_batch(typical(2), base_offset=3)
    second[-1] ^= 1
    with pytest.raises(CorruptRecordError, match=r"orders-3 is damaged at offset 3: .* checksum"):
        decoded(first + second)
    second[-1] ^= 1
    second[16] = 9
    with pytest.raises(CorruptRecordError, match=r"orders-3 is damaged at offset 3: .* magic 9"):
        decoded(first + second)
    unknown = batch_of(b"", count=1, codec=7)
    with pytest.raises(CorruptRecordError, match="offset 0: compression 7 is unknown") as info:
        decoded(unknown)
    assert info.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    packed = bytearray(build_batch(typical(3), codec=Codec.ZSTD))
    packed[70] ^= 0xFF
    write_crc(packed, 0, len(packed))
    with pytest.raises(CorruptRecordError, match="orders-3 is damaged at offset 0: the zstd"):
        decoded(packed)


def test_without_numba_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from headwater.base.errors import HeadwaterError\n"
        "try:\n    import headwater.streams.source.decode\n"
        "except HeadwaterError as error:\n    print(error.message, '|', error.hint)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "numba" in ended.stdout
    assert ended.stdout.strip().endswith("| pip install 'headwater[spark]'")


def test_offsets_are_64_bits_wide() -> None:
    base_offset = 2**62 - 5
    found = decoded(build_batch(typical(2), base_offset=base_offset), upto_offset=2**63 - 1)
    assert offsets_of(found) == [base_offset, base_offset + 1]
    assert np.iinfo(np.int64).max > found[1] == base_offset + 2
