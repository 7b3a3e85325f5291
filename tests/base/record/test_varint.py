"""Variable-length integers against two foreign implementations and at their bounds."""

import io

import pytest
from aiokafka.record._crecords import decode_varint_cython
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.readers import read_signed_varlong, read_unsigned_varint
from kio.serial.writers import write_signed_varlong, write_unsigned_varint

from headwater.base.errors import CorruptRecordError
from headwater.base.record.varint import (
    VARINTS,
    decode_unsigned_varint,
    decode_varint,
    decode_varlong,
    encode_unsigned_varint,
    encode_varint,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    "value, encoded",
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert VARINTS[value].hex() == encoded


@given(INT64)
def test_varlong_agrees_with_others(value: int) -> None:
    out = io.BytesIO()
    write_signed_varlong(out, value)
    encoded = encode_varint(value)
    assert encoded == out.getvalue()
    assert read_signed_varlong(encoded, 0) == (value, len(encoded))
    assert decode_varint_cython(bytearray(encoded), 0) == (value, len(encoded))
    assert decode_varlong(encoded, 0) == (value, len(encoded))


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_varint_is_read_in_the_middle_of_any_buffer(value: int, front: bytes, back: bytes) -> None:
    encoded = encode_varint(value)
    for buffer in (front + encoded + back, memoryview(bytearray(front + encoded + back))):
        assert decode_varint(buffer, len(front)) == (value, len(front) + len(encoded))


@given(UINT32)
def test_unsigned_varint_agrees_with_kio(value: int) -> None:
    out = io.BytesIO()
    write_unsigned_varint(out, value)  # type: ignore[arg-type]
    encoded = encode_unsigned_varint(value)
    assert encoded == out.getvalue()
    assert read_unsigned_varint(encoded, 0) == (value, len(encoded))
    assert decode_unsigned_varint(encoded, 0) == (value, len(encoded))


@given(INT32)
def test_a_cut_number_is_refused(value: int) -> None:
    encoded = encode_varint(value)
    for cut in range(len(encoded)):
        for decode in (decode_varint, decode_varlong, decode_unsigned_varint):
            with pytest.raises(CorruptRecordError, match="ends inside"):
                decode(encoded[:cut], 0)


def test_more_bytes_than_the_type_has_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="longer than 5 bytes"):
        decode_varint(b"\x80\x80\x80\x80\x80\x00", 0)
    with pytest.raises(CorruptRecordError, match="longer than 5 bytes"):
        decode_unsigned_varint(b"\xff" * 10, 0)
    with pytest.raises(CorruptRecordError, match="longer than 10 bytes"):
        decode_varlong(b"\xff" * 11, 0)


def test_more_bits_than_the_type_has_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="does not fit 32 bits"):
        decode_varint(b"\xff\xff\xff\xff\x10", 0)
    with pytest.raises(CorruptRecordError, match="does not fit 64 bits"):
        decode_varlong(b"\xff" * 9 + b"\x02", 0)


def test_padding_within_the_length_is_accepted() -> None:
    assert decode_varint(b"\x82\x00", 0) == (1, 2)
    assert decode_varint(b"\x82\x80\x80\x80\x00", 0) == (1, 5)
    assert decode_unsigned_varint(b"\x81\x80\x00", 0) == (1, 3)
