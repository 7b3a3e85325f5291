"""Keys and values of internal topics, as the bytes of records.

This file alone decides how a key or value stands in a record: two bytes of version, then the
message. A key's version tells its kind, a value's version its layout. It knows nothing of topics.
"""

import struct
from typing import TypeVar

from headwater.base.errors import MalformedMessageError
from headwater.base.schema import Message, UnknownVersionError, codec

MessageT = TypeVar("MessageT", bound=Message)

_VERSION = struct.Struct(">h")
_LENGTH = struct.Struct(">h")
_OWNER_POS = _VERSION.size + _LENGTH.size


def encode_key(key: Message) -> bytes:
    """Return a key's bytes: the number of its kind, then the key."""
    number = type(key).__schema__.api_key
    assert number is not None
    return _VERSION.pack(number) + codec(type(key), 0).encode(key)


def encode_value(value: Message, version: int) -> bytes:
    """Return a value's bytes: its version, then the value."""
    return _VERSION.pack(version) + codec(type(value), version).encode(value)


def key_number(data: bytes) -> int:
    """Return which kind of key these bytes are; raises MalformedMessageError if they are none."""
    if len(data) < _VERSION.size:
        raise MalformedMessageError("a key of less than two bytes")
    number: int = _VERSION.unpack_from(data)[0]
    return number


def key_owner(data: bytes) -> str | None:
    """Return whose key this is: every kind begins with the name of a group or the like.

    None for bytes that have no such name.
    """
    if len(data) < _OWNER_POS:
        return None
    end = _OWNER_POS + _LENGTH.unpack_from(data, _VERSION.size)[0]
    if not _OWNER_POS <= end <= len(data):
        return None
    try:
        return data[_OWNER_POS:end].decode()
    except UnicodeDecodeError:
        return None


def decode_key(key: type[MessageT], data: bytes) -> MessageT:
    """Return the key of a kind that `key_number` has told apart from the others."""
    assert key_number(data) == key.__schema__.api_key
    return codec(key, 0).decode(data, _VERSION.size)[0]


def decode_value(value: type[MessageT], data: bytes) -> MessageT:
    """Return a value in whatever version it was written.

    Raises MalformedMessageError for bytes that are not such a value, of a version from the future
    too: state that cannot be read must not be taken for something else.
    """
    try:
        return codec(value, key_number(data)).decode(data, _VERSION.size)[0]
    except UnknownVersionError as error:
        raise MalformedMessageError(error.message) from error
