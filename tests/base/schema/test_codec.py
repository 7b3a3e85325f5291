"""Compiled codecs, on a message that has one field of everything."""

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest

from headwater.base.errors import MalformedMessageError
from headwater.base.schema import UnknownVersionError, codec
from headwater.base.schema.runtime import INLINE_RECORDS_BYTES_MAX, REQUEST_ELEMENTS_MAX
from tests.base.schema.small_table import (
    AnyMessage,
    EverythingRequest,
    NothingResponse,
    OldHeader,
)

Pair, Part, Loose = EverythingRequest.Pair, EverythingRequest.Part, EverythingRequest.Loose

ID = bytes(range(16))

Kind: TypeAlias = Any


def everything() -> AnyMessage:
    return EverythingRequest(
        flag=False,
        small=-2,
        port=65_535,
        crc=2**32 - 1,
        ratio=0.5,
        id=ID,
        name="hü",
        data=b"\x01\x02",
        since_two=9,
        until_two="gone",
        numbers=[1, -1],
        words=["a", ""],
        ids=[ID],
        parts=[Part(3, b"abc"), Part(4, None)],
        pair=Pair(1, 2),
        plain=Pair(3, 4),
        rack="r",
        hint=Pair(5, 6),
        loose=Loose([7]),
        batch=b"xyz",
    )


FIXED = b"\x00\xfe\xff\xff\xff\xff\xff\xff" + struct.pack(">d", 0.5) + ID


def test_bytes_of_the_oldest_version() -> None:
    assert codec(EverythingRequest, 1).encode(everything()) == (
        FIXED
        + b"\x00\x03h\xc3\xbc"  # name
        + b"\x00\x00\x00\x02\x01\x02"  # data
        + b"\x00\x04gone"  # until_two
        + b"\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff\xff\xff"  # numbers
        + b"\x00\x00\x00\x02\x00\x01a\x00\x00"  # words
        + b"\x00\x00\x00\x02"  # parts
        + b"\x00\x00\x00\x03\x00\x00\x00\x03abc"
        + b"\x00\x00\x00\x04\xff\xff\xff\xff"
        + b"\x00\x00\x00\x03xyz"  # batch
    )


def test_bytes_of_the_newest_version() -> None:
    assert codec(EverythingRequest, 4).encode(everything()) == (
        FIXED
        + b"\x04h\xc3\xbc"  # name
        + b"\x03\x01\x02"  # data
        + b"\x00\x00\x00\x09"  # since_two
        + b"\x03\x00\x00\x00\x01\xff\xff\xff\xff"  # numbers
        + b"\x03\x02a\x01"  # words
        + (b"\x02" + ID)  # ids
        + b"\x03"  # parts
        + b"\x00\x00\x00\x03\x04abc\x00"
        + b"\x00\x00\x00\x04\x00\x00"
        + b"\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00"  # pair
        + b"\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04\x00"  # plain
        + b"\x04xyz"  # batch
        + b"\x03"  # tagged fields: hint, rack, loose
        + b"\x00\x0d\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x06\x00"
        + b"\x01\x02\x02r"
        + b"\x02\x07\x01\x02\x00\x00\x00\x07\x00"
    )


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_written_is_read_from_any_buffer_at_any_place(version: int, kind: Kind) -> None:
    written = codec(EverythingRequest, version).encode(everything())
    message, end = codec(EverythingRequest, version).decode(kind(b"??" + written + b"!"), 2)
    assert end == 2 + len(written)
    assert codec(EverythingRequest, version).encode(message) == written
    for field in EverythingRequest.__schema__.root.fields:
        expected = everything() if version in field.versions else EverythingRequest()
        assert getattr(message, field.name) == getattr(expected, field.name), field.name


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_defaults_and_nulls_come_back(version: int) -> None:
    message = EverythingRequest(
        name=None if version >= 2 else "",
        numbers=None if version == 4 else [],
        loose=None if version == 4 else Loose(),
    )
    written = codec(EverythingRequest, version).encode(message)
    assert codec(EverythingRequest, version).decode(written) == (message, len(written))


def test_tagged_fields_at_their_default_are_left_out() -> None:
    assert codec(EverythingRequest, 3).encode(EverythingRequest())[-1:] == b"\x00"
    assert codec(EverythingRequest, 3).encode(EverythingRequest(hint=Pair()))[-1:] == b"\x00"


def test_unknown_tagged_fields_are_skipped() -> None:
    written = codec(EverythingRequest, 3).encode(EverythingRequest(rack="r"))
    assert written.endswith(b"\x01" + b"\x01\x02\x02r")
    more = written.removesuffix(b"\x01\x01\x02\x02r") + b"\x03\x01\x02\x02r\x09\x03???\xb0\x09\x00"
    message, end = codec(EverythingRequest, 3).decode(more)
    assert (message.rack, end) == ("r", len(more))


def test_unknown_tagged_fields_are_skipped_where_none_is_known() -> None:
    message, end = codec(OldHeader, 1).decode(b"\x00\x01a" + b"\x01\x05\x02??")
    assert (message.client_id, end) == ("a", 8)


def test_a_tagged_field_must_have_the_size_it_says() -> None:
    written = codec(EverythingRequest, 3).encode(EverythingRequest(rack="r"))
    with pytest.raises(MalformedMessageError, match="rack has another size"):
        codec(EverythingRequest, 3).decode(written[:-3] + b"\x03\x02r?")


def test_a_legacy_length_stays_in_flexible_versions() -> None:
    assert codec(OldHeader, 1).encode(OldHeader(client_id="ab")) == b"\x00\x02ab\x00"
    assert codec(OldHeader, 1).encode(OldHeader(client_id=None)) == b"\xff\xff\x00"


def test_a_message_without_fields() -> None:
    assert codec(NothingResponse, 1).encode(NothingResponse()) == b""
    assert codec(NothingResponse, 1).decode(b"") == (NothingResponse(), 0)


def test_a_codec_is_made_once() -> None:
    assert codec(EverythingRequest, 1) is codec(EverythingRequest, 1)
    assert codec(EverythingRequest, 1).decode is codec(EverythingRequest, 1).decode


@pytest.mark.parametrize("version", [-1, 0, 5])
def test_a_version_that_is_not_there(version: int) -> None:
    with pytest.raises(UnknownVersionError, match="EverythingRequest has no version"):
        codec(EverythingRequest, version)


# Lengths at which the compact form grows by one byte.
@pytest.mark.parametrize("size", [126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152])
@pytest.mark.parametrize("version", [2, 4])
def test_long_values(size: int, version: int) -> None:
    ours = codec(EverythingRequest, version)
    batch = bytes(size)
    fields: dict[str, Any] = {"data": batch, "batch": batch}
    if size <= 16_384:
        fields |= {
            "name": "x" * size,
            "numbers": list(range(size)),
            "words": ["w"] * size,
            "parts": [Part(i, b"p") for i in range(size)],
        }
    message = EverythingRequest(**fields)
    written = ours.encode(message)
    assert ours.decode(written) == (message, len(written))


def test_records_are_read_as_views_of_the_buffer() -> None:
    buffer = bytearray(codec(EverythingRequest, 1).encode(everything()))
    message, _ = codec(EverythingRequest, 1).decode(buffer)
    assert isinstance(message.batch, memoryview)
    assert bytes(message.batch) == b"xyz"
    buffer[-1:] = b"!"
    assert bytes(message.batch) == b"xy!"


def test_bytes_are_copied() -> None:
    buffer = bytearray(codec(EverythingRequest, 1).encode(everything()))
    message, _ = codec(EverythingRequest, 1).decode(memoryview(buffer))
    assert type(message.data) is bytes


@dataclass
class Extent:
    """Bytes that are somewhere else: only their number is known."""

    size: int

    def __len__(self) -> int:
        return self.size


@pytest.mark.parametrize("version", [1, 3])
def test_opaque_records_keep_their_place(version: int) -> None:
    extent = Extent(2000)
    ours = codec(EverythingRequest, version)
    parts = ours.encode_parts(EverythingRequest(parts=[Part(1, extent), Part(2, b"small")]))
    assert [type(part) for part in parts] == [bytes, Extent, bytes]
    assert parts[1] is extent
    whole = b"".join(bytes(2000) if part is extent else part for part in parts)
    like = EverythingRequest(parts=[Part(1, bytes(2000)), Part(2, b"small")])
    assert whole == ours.encode(like)


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("kind", [list, tuple])
def test_records_may_come_in_pieces(version: int, kind: Kind) -> None:
    extent = Extent(100)
    large = bytes(INLINE_RECORDS_BYTES_MAX + 1)
    pieces = kind([b"small", extent, bytearray(b"ab"), memoryview(b"cd"), large])
    ours = codec(EverythingRequest, version)
    parts = ours.encode_parts(EverythingRequest(batch=pieces))
    whole = b"".join(bytes(100) if part is extent else part for part in parts)
    like = EverythingRequest(batch=b"small" + bytes(100) + b"abcd" + large)
    assert whole == ours.encode(like)
    assert any(part is large for part in parts)


@pytest.mark.parametrize("version", [1, 4])
def test_no_pieces_are_no_bytes_but_not_null(version: int) -> None:
    ours = codec(EverythingRequest, version)
    assert ours.encode(EverythingRequest(batch=[])) == ours.encode(EverythingRequest(batch=b""))
    assert ours.encode(EverythingRequest(batch=[])) != ours.encode(EverythingRequest(batch=None))


def test_small_records_are_copied_and_large_ones_are_not() -> None:
    small, large = bytes(INLINE_RECORDS_BYTES_MAX - 1), bytes(INLINE_RECORDS_BYTES_MAX + 1)
    ours = codec(EverythingRequest, 1)
    assert len(ours.encode_parts(EverythingRequest(batch=small))) == 1
    parts = ours.encode_parts(EverythingRequest(batch=large))
    assert len(parts) == 2
    assert parts[1] is large


def test_a_message_without_records_is_one_part() -> None:
    assert codec(OldHeader, 1).encode_parts(OldHeader(client_id="a")) == [b"\x00\x01a\x00"]


@pytest.mark.parametrize("version", [1, 4])
def test_a_request_of_countless_elements_is_refused(version: int) -> None:
    ours = codec(EverythingRequest, version)
    half = REQUEST_ELEMENTS_MAX // 2
    most = EverythingRequest(words=[""] * half, parts=[Part()] * half)
    assert len(ours.decode(ours.encode(most))[0].parts) == half
    most.parts.append(Part())
    with pytest.raises(MalformedMessageError, match="too many elements"):
        ours.decode(ours.encode(most))


NAME = len(FIXED)


@pytest.mark.parametrize(
    "version, at, bad, reason",
    [
        (1, NAME, b"\xff\xff", "name is null"),
        (2, NAME, b"\xff\xfe", "name has a negative length"),
        (3, NAME, b"\xff\xff\xff\xff\xff", "a varint is longer than 32 bits"),
        (3, NAME, b"\xff\xff\xff\xff\x1f", "a varint is longer than 32 bits"),
        (3, NAME, b"\x02\xff", "a string is not UTF-8"),
        (1, NAME + 2, b"\x80\x00\x00\x00", "data is null"),
        (1, NAME + 2, b"\x7f\xff\xff\xff", "the bytes end too early"),
        (1, NAME + 8, b"\xff\xff\xff\xff", "numbers is null"),
        (1, NAME + 8, b"\x00\x00\x00\xff", "numbers has more elements than bytes are left"),
        (1, NAME + 12, b"\x7f\xff\xff\xff", "words has more elements than bytes are left"),
        (1, NAME + 16, b"\x00\x00\x00\x03", "parts has more elements than bytes are left"),
    ],
)
def test_bad_bytes_are_refused_by_name(version: int, at: int, bad: bytes, reason: str) -> None:
    written = bytearray(codec(EverythingRequest, version).encode(EverythingRequest()))
    written[at : at + len(bad)] = bad
    with pytest.raises(MalformedMessageError, match=f"EverythingRequest v{version}: {reason}"):
        codec(EverythingRequest, version).decode(written)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_element_that_was_encoded_before_stands_for_itself(version: int) -> None:
    whole = everything()
    in_pieces = everything()
    encode = codec(EverythingRequest, version).element_encoder(Part)

    in_pieces.parts = [encode(whole.parts[0]), whole.parts[1]]

    assert codec(EverythingRequest, version).encode(in_pieces) == codec(
        EverythingRequest, version
    ).encode(whole)
