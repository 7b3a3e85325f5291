"""The header: its bytes, its bits, stamping, and walking over many batches."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    CREATE_TIME,
    HEADER,
    LOG_APPEND_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    TruncatedBatchError,
    check_crc,
    parse_header,
    scan,
    stamp,
    stamp_append_time,
    stamp_transaction,
)
from headwater.base.record.records import Record, build_batch, iterate
from tests.base.record.samples import NOW_MS, typical

# Written by hand from the format, its checksum computed bit by bit; it never changes.
GOLDEN = bytes.fromhex(
    "0000000000000000"  # base_offset 0
    "00000047"  # batch_length 71
    "ffffffff"  # leader_epoch -1
    "02"  # magic
    "0a43effe"  # crc
    "0000"  # attributes
    "00000001"  # last_offset_delta 1
    "0000018bcfe56800"  # base_timestamp 1700000000000
    "0000018bcfe56864"  # max_timestamp 1700000000100
    "ffffffffffffffff"  # producer_id -1
    "ffff"  # producer_epoch -1
    "ffffffff"  # base_sequence -1
    "00000002"  # record_count 2
    "1a"  # length 13
    "00"  # attributes
    "00"  # timestamp delta 0
    "00"  # offset delta 0
    "026b"  # key "k"
    "047676"  # value "vv"
    "02"  # one header
    "0268"  # its key "h"
    "0221"  # its value "!"
    "0e"  # length 7
    "00"  # attributes
    "c801"  # timestamp delta 100
    "02"  # offset delta 1
    "01"  # key null
    "01"  # value null
    "00"  # no header
)
GOLDEN_RECORDS = [
    Record(0, NOW_MS, b"k", b"vv", (("h", b"!"),)),
    Record(1, NOW_MS + 100, None, None),
]


def test_golden_bytes() -> None:
    assert build_batch(GOLDEN_RECORDS) == GOLDEN
    assert iterate(GOLDEN) == GOLDEN_RECORDS
    assert parse_header(GOLDEN) == BatchHeader(
        base_offset=0,
        batch_length=71,
        leader_epoch=-1,
        magic=2,
        crc=0x0A43EFFE,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS + 100,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=2,
    )


def _header(**changes: int) -> BatchHeader:
    fields = {
        "base_offset": 500,
        "batch_length": 100,
        "leader_epoch": 3,
        "magic": 2,
        "crc": 0xDEADBEEF,
        "attributes": 0,
        "last_offset_delta": 9,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS + 5,
        "producer_id": 77,
        "producer_epoch": 2,
        "base_sequence": 40,
        "record_count": 10,
    }
    return BatchHeader(**fields | changes)


def test_the_header_has_61_bytes() -> None:
    assert BATCH_HEADER_BYTES == 61
    assert len(BatchHeader._fields) == len(HEADER.unpack(bytes(61)))


@given(
    st.builds(
        _header,
        base_offset=st.integers(-(2**63), 2**63 - 1),
        batch_length=st.integers(-(2**31), 2**31 - 1),
        crc=st.integers(0, 2**32 - 1),
        attributes=st.integers(-(2**15), 2**15 - 1),
        producer_id=st.integers(-(2**63), 2**63 - 1),
    ),
    st.binary(max_size=9),
)
def test_every_header_survives_at_any_position(header: BatchHeader, front: bytes) -> None:
    data = front + HEADER.pack(*header) + b"behind"
    assert parse_header(data, len(front)) == header
    assert parse_header(memoryview(bytearray(data)), len(front)) == header


def test_a_short_header_is_truncated() -> None:
    batch = build_batch(typical())
    for size in range(61):
        with pytest.raises(TruncatedBatchError, match=f"{size} are left"):
            parse_header(batch[:size])
    with pytest.raises(TruncatedBatchError, match="0 are left"):
        parse_header(batch, len(batch) + 5)


def test_what_the_numbers_mean() -> None:
    header = _header()
    assert header.size_bytes == 112
    assert header.last_offset == 509
    assert header.next_offset == 510
    assert header.last_sequence == 49
    assert header.has_producer_id
    assert not _header(producer_id=NO_PRODUCER_ID).has_producer_id


def test_sequence_numbers_wrap_to_zero() -> None:
    assert _header(base_sequence=2**31 - 3, last_offset_delta=2).last_sequence == 2**31 - 1
    assert _header(base_sequence=2**31 - 2, last_offset_delta=2).last_sequence == 0
    assert _header(base_sequence=2**31 - 1, last_offset_delta=2).last_sequence == 1
    assert _header(base_sequence=NO_SEQUENCE).last_sequence == NO_SEQUENCE


@pytest.mark.parametrize("codec", range(8))
@pytest.mark.parametrize("bits", range(16))
def test_what_the_bits_mean(codec: int, bits: int) -> None:
    header = _header(attributes=codec | bits << 3)
    assert header.codec == codec
    assert header.timestamp_type == (LOG_APPEND_TIME if bits & 1 else CREATE_TIME)
    assert header.is_transactional is bool(bits & 2)
    assert header.is_control is bool(bits & 4)
    assert header.delete_horizon_ms == (NOW_MS if bits & 8 else None)


def test_stamping_moves_a_batch_and_keeps_its_checksum() -> None:
    front = b"12345"
    batch = memoryview(bytearray(front + build_batch(typical()) + b"behind"))
    before = parse_header(batch, 5)
    stamp(batch, 5, 2**40, 7)
    after = parse_header(batch, 5)
    assert after == before._replace(base_offset=2**40, leader_epoch=7)
    assert check_crc(batch, 5, after.size_bytes)
    assert bytes(batch[:5]) == front
    assert bytes(batch[-6:]) == b"behind"
    assert [record.offset for record in iterate(batch, 5)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_append_time_is_stamped_with_a_new_checksum() -> None:
    batch = bytearray(b"12345") + build_batch(typical()) + b"behind"
    before = parse_header(batch, 5)
    stamp_append_time(batch, 5, NOW_MS + 999)
    after = parse_header(batch, 5)
    assert after.crc != before.crc
    assert after == before._replace(
        crc=after.crc, attributes=before.attributes | 8, max_timestamp=NOW_MS + 999
    )
    assert check_crc(batch, 5, after.size_bytes)
    assert {record.timestamp for record in iterate(batch, 5)} == {NOW_MS + 999}


def test_a_transaction_is_stamped_with_a_new_checksum() -> None:
    batch = bytearray(b"12345") + build_batch(typical()) + b"behind"
    before = parse_header(batch, 5)
    stamp_transaction(batch, 5, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1)
    after = parse_header(batch, 5)
    assert after == before._replace(
        crc=after.crc,
        attributes=before.attributes | 16,
        producer_id=2**40,
        producer_epoch=7,
        base_sequence=2**31 - 1,
    )
    assert check_crc(batch, 5, after.size_bytes)


def test_the_checksum_covers_everything_from_the_attributes_on() -> None:
    batch = build_batch(typical())
    for index in range(len(batch)):
        batch[index] ^= 0x10
        assert check_crc(batch, 0, len(batch)) is (index < 17), index
        batch[index] ^= 0x10


def _several() -> tuple[bytearray, list[int]]:
    sizes = []
    data = bytearray()
    for count in (1, 3, 50):
        sizes.append(len(data))
        data += build_batch(typical(count), base_offset=len(sizes) * 100)
    return data, sizes


def test_scan_finds_every_batch() -> None:
    data, positions = _several()
    found = list(scan(data))
    assert [pos for pos, _ in found] == positions
    assert [header.base_offset for _, header in found] == [100, 200, 300]
    assert [pos for pos, _ in scan(memoryview(data), positions[1])] == positions[1:]
    assert list(scan(b"")) == []
    assert list(scan(data, len(data))) == []


def test_scan_gives_the_whole_batches_before_a_torn_one() -> None:
    data, positions = _several()
    ends = [*positions, len(data)]
    for size in range(len(data)):
        whole = sum(1 for end in ends[1:] if end <= size)
        batches = scan(data[:size])
        for pos in positions[:whole]:
            assert next(batches)[0] == pos
        if size in ends:
            assert list(batches) == []
        else:
            with pytest.raises(TruncatedBatchError, match=f"{size - ends[whole]} are left"):
                next(batches)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48])
def test_scan_refuses_an_impossible_size(length: int) -> None:
    data, positions = _several()
    struct.pack_into(">i", data, positions[1] + 8, length)
    batches = scan(data)
    next(batches)
    with pytest.raises(CorruptRecordError, match=f"length of {length}") as caught:
        next(batches)
    assert not isinstance(caught.value, TruncatedBatchError)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [-1, 0, 1, 3])
def test_scan_refuses_another_magic(magic: int) -> None:
    data, _ = _several()
    struct.pack_into(">b", data, 16, magic)
    with pytest.raises(CorruptRecordError, match=f"magic {magic}"):
        next(scan(data))


def test_scan_refuses_zeros() -> None:
    with pytest.raises(CorruptRecordError):
        next(scan(bytes(4096)))


def test_defaults_of_a_new_batch() -> None:
    header = parse_header(build_batch([Record(0, NOW_MS, None, None)]))
    assert header.producer_id == NO_PRODUCER_ID
    assert header.producer_epoch == NO_PRODUCER_EPOCH
    assert header.base_sequence == NO_SEQUENCE
    assert header.leader_epoch == -1
    assert header.attributes == 0
    assert header.delete_horizon_ms is None
