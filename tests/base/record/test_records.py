"""Records: there and back, the fast readers, and every way to be malformed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    DELETE_HORIZON_MASK,
    HEADER,
    LOG_APPEND_TIME,
    TruncatedBatchError,
    parse_header,
    write_crc,
)
from headwater.base.record.codecs import Codec, compress
from headwater.base.record.records import (
    Record,
    build_batch,
    iterate,
    iterate_keys,
    iterate_timestamps,
    open_batch,
)
from tests.base.record.samples import CODECS, NOW_MS, attempt, batch_of, record_lists, typical

Reader = Callable[..., list[Any]]
READERS: list[Reader] = [iterate, iterate_timestamps, iterate_keys]


@given(
    record_lists(),
    st.sampled_from(CODECS),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
    st.booleans(),
    st.booleans(),
)
def test_round_trip(
    records: list[Record],
    codec: Codec,
    base_offset: int,
    producer_id: int,
    is_transactional: bool,
    is_control: bool,
) -> None:
    batch = build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=5,
        base_sequence=17,
        is_transactional=is_transactional,
        is_control=is_control,
        leader_epoch=9,
    )
    expected = [record._replace(offset=base_offset + record.offset) for record in records]
    assert iterate(batch) == expected
    assert iterate_timestamps(batch) == [(record.offset, record.timestamp) for record in expected]
    assert iterate_keys(batch) == [(record.offset, record.key) for record in expected]
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert header.codec == codec
    assert header.base_offset == base_offset
    assert header.last_offset == base_offset + len(records) - 1
    assert header.record_count == len(records)
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.producer_id, header.producer_epoch) == (producer_id, 5)
    assert header.base_sequence == 17
    assert header.leader_epoch == 9
    assert header.is_transactional is is_transactional
    assert header.is_control is is_control


def test_a_batch_is_read_in_the_middle_of_any_buffer() -> None:
    first, second = build_batch(typical(1)), build_batch(typical(4))
    data = first + second + b"behind"
    for buffer in (data, bytes(data), memoryview(data)):
        assert iterate(buffer) == typical(1)
        assert iterate(buffer, len(first)) == typical(4)


def test_numbers_of_every_length() -> None:
    sizes = [0, 1, 63, 64, 127, 128, 2047, 2048, 8191, 8192, 16384, 70_000, 1_100_000]
    deltas = [0, -1, 1, 63, 64, -64, -65, 8191, 8192, -8193, 2**20, 2**30, 2**40, -(2**40)]
    records = [
        Record(index, NOW_MS + deltas[index % len(deltas)], bytes(size), b"v" * size)
        for index, size in enumerate(sizes)
    ]
    records += [
        Record(offset, NOW_MS + deltas[offset % len(deltas)], b"k", None)
        for offset in range(len(sizes), 10_000)
    ]
    batch = build_batch(records)
    assert iterate(batch) == records
    assert iterate_keys(batch) == [(record.offset, record.key) for record in records]


def test_records_are_numbered_whatever_offset_they_have() -> None:
    gaps = [Record(offset, NOW_MS, b"k", b"v") for offset in (7, 900, 3)]
    assert [record.offset for record in iterate(build_batch(gaps, base_offset=50))] == [50, 51, 52]


def test_append_time_is_the_time_of_all_records() -> None:
    batch = build_batch(typical(3), timestamp_type=LOG_APPEND_TIME)
    latest = NOW_MS + 14
    assert [record.timestamp for record in iterate(batch)] == [latest] * 3
    assert iterate_timestamps(batch) == [(0, latest), (1, latest), (2, latest)]


def test_a_delete_horizon_moves_the_base_of_timestamps() -> None:
    batch = build_batch(typical(3))
    header = parse_header(batch)
    horizon = header._replace(
        attributes=DELETE_HORIZON_MASK, base_timestamp=header.base_timestamp + 1000
    )
    HEADER.pack_into(batch, 0, *horizon)
    write_crc(batch, 0, len(batch))
    assert parse_header(batch).delete_horizon_ms == NOW_MS + 1000
    assert iterate_timestamps(batch)[0] == (0, NOW_MS + 1000)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_without_records_is_empty(codec: Codec) -> None:
    """Compaction leaves the header of a producer's last batch, and no records part at all."""
    batch = batch_of(b"", count=0, codec=codec)
    for read in READERS:
        assert read(batch) == []


def test_header_keys_that_are_no_text_survive() -> None:
    data = bytes.fromhex("1800000001010206ff61800221")
    batch = batch_of(data, count=1)
    (record,) = iterate(batch)
    assert record.headers == (("\udcffa\udc80", b"!"),)
    assert build_batch([record])[61:] == data


def test_lists_of_headers_are_taken_too() -> None:
    batch = build_batch([Record(0, NOW_MS, None, None, [("a", b"1"), ("a", None)])])
    assert iterate(batch)[0].headers == (("a", b"1"), ("a", None))


@pytest.mark.parametrize("read", READERS)
def test_damage_is_found_before_records_are_read(read: Reader) -> None:
    batch = build_batch(typical())
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum") as caught:
        read(batch)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(TruncatedBatchError):
        read(batch[:-1])


def test_a_batch_must_not_unpack_beyond_the_limit() -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(100_000))], codec=Codec.ZSTD)
    size = len(open_batch(batch)[1])
    assert len(iterate(batch, limit_bytes=size)) == 1
    with pytest.raises(CorruptRecordError, match="more than"):
        iterate(batch, limit_bytes=size - 1)


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(CorruptRecordError, match="compression 5") as caught:
        iterate(batch_of(b"\x00", count=1, codec=5))
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def _record(hexadecimal: str) -> bytes:
    body = bytes.fromhex(hexadecimal)
    return bytes([len(body) << 1]) + body


GOOD = _record("00 00 00 02 6b 02 76 00")


@pytest.mark.parametrize(
    "data, count, wrong",
    [
        pytest.param(b"", 1, "record 0 of 1: it ends early", id="nothing"),
        pytest.param(GOOD, 2, "record 1 of 2: it ends early", id="too few"),
        pytest.param(GOOD + GOOD, 1, "record 1 of 1: 9 bytes follow", id="too many"),
        pytest.param(GOOD, 0, "record 0 of 0: 9 bytes follow", id="none announced"),
        pytest.param(GOOD, -5, "claims -5 records", id="negative count"),
        pytest.param(b"", -1, "claims -1 records", id="negative count, no data"),
        pytest.param(GOOD, 2**31 - 1, "record 1 of 2147483647: it ends", id="huge count"),
        pytest.param(b"\x01" + GOOD[1:], 1, "claims -1 bytes", id="negative length"),
        pytest.param(b"\x12" + GOOD[1:], 1, "claims 9 bytes, 8 are left", id="length too large"),
        pytest.param(b"\x0e" + GOOD[1:], 1, "do not fill", id="length too small"),
        pytest.param(b"\x00", 1, "it ends early", id="empty record at the end"),
        pytest.param(b"\xff\xff\xff\xff\xff", 1, "longer than 5", id="length of 6 bytes"),
        pytest.param(b"\x80\x80", 1, "ends inside", id="length cut"),
        pytest.param(b"\xff\xff\xff\xff\x1f", 1, "32 bits", id="length of 33 bits"),
        pytest.param(_record("00" + "ff" * 10 + "00"), 1, "longer than 10", id="long timestamp"),
        pytest.param(_record("00 00 00 03"), 1, "claims -2 bytes", id="key of -2 bytes"),
        pytest.param(_record("00 00 00 0a 6b 02 76 00"), 1, "ends early", id="key too long"),
        pytest.param(_record("00 00 00 06 6b 02 76 00"), 1, "ends early", id="key over value"),
        pytest.param(_record("00 00 00 8002 6b"), 1, "field claims 128", id="long key too long"),
        pytest.param(_record("00 00 00 02 6b 03 76 00"), 1, "claims -2", id="value of -2 bytes"),
        pytest.param(_record("00 00 00 02 6b 04 76 00"), 1, "ends early", id="value too long"),
        pytest.param(_record("00 00 00 01 01 01"), 1, "claims -1 headers", id="-1 headers"),
        pytest.param(_record("00 00 00 01 01 0a 02"), 1, "claims 5 headers", id="many headers"),
        pytest.param(_record("00 00 00 01 01 02 01 01"), 1, "header is null", id="null header key"),
        pytest.param(_record("00 00 00 01 01 02 08 68"), 1, "claims 4", id="header key too long"),
        pytest.param(_record("00 00 00 01 01 02 02 68 04 21"), 1, "claims 2", id="header value"),
        pytest.param(_record("00 00 00 01 01 00 00"), 1, "do not fill", id="byte behind headers"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_malformed_records_are_named(codec: Codec, data: bytes, count: int, wrong: str) -> None:
    batch = batch_of(compress(codec, data), count=count, codec=codec)
    with pytest.raises(CorruptRecordError, match=wrong) as caught:
        iterate(batch)
    assert caught.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("read", [iterate_timestamps, iterate_keys])
@pytest.mark.parametrize(
    "data, count",
    [
        (b"", 1),
        (GOOD, 2),
        (GOOD + GOOD, 1),
        (b"\x01" + GOOD[1:], 1),
        (b"\x12" + GOOD[1:], 1),
        (b"\x00", 1),
        (_record("00" + "ff" * 10 + "00"), 1),
    ],
)
def test_the_fast_readers_find_wrong_counts_and_lengths(
    read: Reader,
    data: bytes,
    count: int,
) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        read(batch_of(data, count=count))
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_key_beyond_its_record_is_found() -> None:
    data = _record("00 00 00 06 6b") + GOOD
    with pytest.raises(CorruptRecordError, match="claims 3 bytes, 1 are left"):
        iterate_keys(batch_of(data, count=2))


@given(st.binary(max_size=120), st.integers(-2, 12))
def test_nonsense_raises_our_error_only(data: bytes, count: int) -> None:
    batch = batch_of(data, count=count)
    for read in READERS:
        result = attempt(partial(read, batch))
        assert isinstance(result, CorruptRecordError) or len(result) == count


@given(st.data())
def test_a_changed_byte_raises_our_error_only(data: st.DataObject) -> None:
    part = bytearray(build_batch(typical(4))[61:])
    part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    batch = batch_of(part, count=4)
    for read in READERS:
        result = attempt(partial(read, batch))
        if isinstance(result, CorruptRecordError):
            assert result.code == ErrorCode.INVALID_RECORD
        else:
            assert len(result) == 4
