"""Frames: a size, a header, a message.

This file alone decides how frames are laid out, for both ends of a connection. It takes and gives
whole frames; where they come from and go to, and how large they may be, is decided elsewhere.

A request frame, behind its four bytes of size::

    api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string
    | tagged fields (flexible versions) | request

The client id keeps its two-byte length in flexible versions, so that every broker can read the
header of every ApiVersions request.
"""

import struct
from dataclasses import dataclass
from typing import Any

from headwater.base.errors import MalformedMessageError
from headwater.base.schema import Message
from headwater.base.schema.runtime import (
    INLINE_RECORDS_BYTES_MAX,
    Input,
    malformed,
    skip_tagged_fields,
)
from headwater.delivery.wire.kafka.apis import UnsupportedApiError, codec

SIZE_BYTES = 4

_REQUEST_HEAD = struct.Struct(">hhih")
_REQUEST_HEAD_WITH_SIZE = struct.Struct(">ihhih")
_RESPONSE_HEAD = struct.Struct(">ii")
_RESPONSE_HEAD_FLEXIBLE = struct.Struct(">iix")
_CORRELATION_ID = struct.Struct(">i")

_NULL = -1
_MALFORMED = (IndexError, struct.error, UnicodeDecodeError, MalformedMessageError)


@dataclass(slots=True)
class RequestHeader:
    """Who asks for what.

    Attributes:
        api_key: The API.
        api_version: The version of the request, and of its response.
        correlation_id: The number that the response repeats.
        client_id: What the client calls itself.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_header(frame: Input) -> tuple[RequestHeader, int]:
    """Return a request's header and the position of the message behind it.

    Args:
        frame: The frame without its size.

    Raises:
        UnsupportedApiError: Nobody knows what follows; the error carries the correlation id.
        MalformedMessageError: The bytes are no header.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEAD.unpack_from(frame)
        pos = _REQUEST_HEAD.size
        client_id = None
        if length >= 0:
            client_id = str(frame[pos : pos + length], "utf-8")
            pos += length
        elif length != _NULL:
            raise MalformedMessageError("client_id has a negative length")
        header = RequestHeader(api_key, version, correlation_id, client_id)
        if codec(api_key, version).request_header_version == 2:
            count = frame[pos]
            pos += 1
            if count:
                pos = skip_tagged_fields(frame, pos, count)
        if pos > len(frame):
            raise MalformedMessageError("the bytes end too early")
    except UnsupportedApiError as error:
        error.correlation_id = correlation_id
        raise
    except _MALFORMED as error:
        raise malformed("RequestHeader", 2, error) from error
    return header, pos


def decode_request(frame: Input) -> tuple[RequestHeader, Any]:
    """Return a request's header and message; raises what `decode_header` raises.

    Args:
        frame: The frame without its size. Records in the message are views of it.
    """
    header, pos = decode_header(frame)
    message, _ = codec(header.api_key, header.api_version).decode_request(frame, pos)
    return header, message


def encode_response(header: RequestHeader, message: Message) -> list[Any]:
    """Return the frame that answers a request, as parts; see `Codec.encode_parts`.

    Every part has a length; the first is bytes and starts with the frame's size.
    """
    version_codec = codec(header.api_key, header.api_version)
    parts = version_codec.encode_response(message)
    if version_codec.response_header_version:
        head, tail_bytes = _RESPONSE_HEAD_FLEXIBLE, 5
    else:
        head, tail_bytes = _RESPONSE_HEAD, 4
    size = sum(map(len, parts)) + tail_bytes
    return _prepend(head.pack(size, header.correlation_id), parts)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message
) -> list[Any]:
    """Return a request's frame as parts, as `encode_response` does."""
    version_codec = codec(api_key, version)
    parts = version_codec.encode_request(message)
    name = b"" if client_id is None else client_id.encode()
    tail = name + b"\0" if version_codec.request_header_version == 2 else name
    size = sum(map(len, parts)) + _REQUEST_HEAD.size + len(tail)
    length = _NULL if client_id is None else len(name)
    head = _REQUEST_HEAD_WITH_SIZE.pack(size, api_key, version, correlation_id, length)
    return _prepend(head + tail, parts)


def correlation_id_of(frame: Input) -> int:
    """Return which request a response answers.

    Args:
        frame: The frame without its size.
    """
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedMessageError("a response of less than four bytes")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def decode_response(api_key: int, version: int, frame: Input) -> tuple[int, Any]:
    """Return a response's correlation id and message.

    Args:
        api_key: The API of the request that it answers.
        version: The version of that request.
        frame: The frame without its size. Records in the message are views of it.
    """
    version_codec = codec(api_key, version)
    correlation_id = correlation_id_of(frame)
    pos = _CORRELATION_ID.size
    if version_codec.response_header_version:
        try:
            pos = skip_tagged_fields(frame, pos + 1, frame[pos])
        except _MALFORMED as error:
            raise malformed("ResponseHeader", 1, error) from error
    message, _ = version_codec.decode_response(frame, pos)
    return correlation_id, message


def _prepend(head: bytes, parts: list[Any]) -> list[Any]:
    if parts and isinstance(parts[0], bytes) and len(parts[0]) <= INLINE_RECORDS_BYTES_MAX:
        parts[0] = head + parts[0]
    else:
        parts.insert(0, head)
    return parts
