"""The five bytes that Confluent's serializers put before a value.

This file alone decides how framed values are told from others and taken apart: a zero, the number
of a schema in four bytes and, for Protobuf, the way to the message within the schema's file.
"""

import struct

from headwater.streams.formats.letters import NOT_FRAMED, Undecodable

_MAGIC = 0
_HEAD = struct.Struct(">bi")
MAGIC = bytes([_MAGIC])
"""What a framed value begins with."""
HEAD_BYTES = _HEAD.size
"""The magic byte and the number of the schema."""
# Deeper nesting of messages, and more of them in one file, than anybody has.
_PATH_MAX = 1_000


def framed(schema_id: int, payload: bytes) -> bytes:
    """Put the number of a schema before a value."""
    return _HEAD.pack(_MAGIC, schema_id) + payload


def unframed(value: bytes) -> tuple[int, bytes]:
    """Return the number of the schema, and the value itself.

    Raises:
        Undecodable: The value does not begin as a framed one does.
    """
    if len(value) < _HEAD.size:
        raise Undecodable(NOT_FRAMED, f"{len(value)} bytes are less than magic byte and schema id")
    magic, schema_id = _HEAD.unpack_from(value)
    if magic != _MAGIC:
        raise Undecodable(NOT_FRAMED, f"begins with {value[0]:#04x}, not with the magic byte 0x00")
    return schema_id, value[_HEAD.size :]


def why_not_framed(value: bytes) -> str:
    """Return the reason of a value that is not framed."""
    try:
        unframed(value)
    except Undecodable as verdict:
        return verdict.reason
    return NOT_FRAMED


def with_message_path(path: tuple[int, ...], payload: bytes) -> bytes:
    """Put the way to a message before it; the first of a file is one zero byte."""
    if path == (0,):
        return b"\0" + payload
    return b"".join(_zigzag(number) for number in (len(path), *path)) + payload


def message_path(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the way to the message, and the message itself.

    Raises:
        Undecodable: The payload ends within the way, or the way leads nowhere.
    """
    count, at = _from_zigzag(payload, 0)
    if count == 0:
        return (0,), payload[at:]
    if not 0 < count <= _PATH_MAX:
        raise Undecodable(NOT_FRAMED, f"{count} message indexes")
    path = []
    for _ in range(count):
        number, at = _from_zigzag(payload, at)
        path.append(number)
    return tuple(path), payload[at:]


def _zigzag(number: int) -> bytes:
    rest = number << 1
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _from_zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise Undecodable(NOT_FRAMED, "ends within the message indexes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise Undecodable(NOT_FRAMED, "a message index of more than five bytes")
