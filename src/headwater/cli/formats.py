"""Records as text: kcat's format strings and kcat's JSON.

This file alone decides how a record is written for people and programs, and how the JSON is read
back. Field names are those of ``kcat -J``, so that recipes for jq work; what kcat cannot say, bytes
that are no UTF-8, stands base64-encoded under ``key_b64``, ``payload_b64`` and ``headers_b64``.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from headwater.base.record.batch import LOG_APPEND_TIME
from headwater.cli.output import time_text
from headwater.delivery.client.consumer import Message

Header = tuple[str, bytes | None]

DIRECTIVES = """%s value, %k key, %t topic, %p partition, %o offset, %T timestamp (ms),
%D timestamp (date), %h headers, %S and %K sizes of value and key (-1: null), %% percent;
\\n \\t \\r \\0 \\\\ as usual."""

_KNOWN = {
    "topic",
    "partition",
    "offset",
    "tstype",
    "ts",
    "broker",
    "headers",
    "headers_b64",
    "key",
    "key_b64",
    "payload",
    "payload_b64",
}


class Entry(NamedTuple):
    """A record that is to be written; None where the broker or the clock decides."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int | None
    partition: int | None


# --- format strings -----------------------------------------------------------------------------

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_DIRECTIVES: Mapping[str, Callable[[Message], bytes]] = {
    "s": lambda message: message.value or b"",
    "k": lambda message: message.key or b"",
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.partition,
    "o": lambda message: b"%d" % message.offset,
    "T": lambda message: b"%d" % message.timestamp_ms,
    "D": lambda message: (time_text(message.timestamp_ms) or "-").encode(),
    "S": lambda message: b"%d" % (-1 if message.value is None else len(message.value)),
    "K": lambda message: b"%d" % (-1 if message.key is None else len(message.key)),
    "h": lambda message: b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in message.headers
    ),
    "%": lambda _: b"%",
}


def compile_format(text: str) -> Callable[[Message], bytes]:
    """Turn a format string into a function.

    Raises:
        click.UsageError: It has a directive or an escape that does not exist.
    """
    parts: list[bytes | Callable[[Message], bytes]] = []
    characters = iter(text)
    for character in characters:
        if character == "%":
            name = next(characters, "")
            if name not in _DIRECTIVES:
                raise click.UsageError(f"format: %{name} does not exist; there are: {DIRECTIVES}")
            parts.append(_DIRECTIVES[name])
        elif character == "\\":
            name = next(characters, "")
            if name not in _ESCAPES:
                raise click.UsageError(f"format: \\{name} does not exist")
            parts.append(_ESCAPES[name])
        else:
            parts.append(character.encode())

    def render(message: Message) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)

    return render


# --- JSON ---------------------------------------------------------------------------------------


def to_json(message: Message, broker: int) -> bytes:
    """Write a record as one line."""
    record: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "tstype": "logappend" if message.timestamp_type == LOG_APPEND_TIME else "create",
        "ts": message.timestamp_ms,
        "broker": broker,
    }
    put_headers(record, message.headers)
    put_bytes(record, "key", message.key)
    put_bytes(record, "payload", message.value)
    try:
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        # A header's name that is no UTF-8 has lone surrogates, which only escapes can carry.
        return json.dumps(record).encode() + b"\n"


def put_bytes(record: dict[str, Any], name: str, data: bytes | None) -> None:
    """Add bytes as text, or in base64 under another name where they are none."""
    try:
        record[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        record[f"{name}_b64"] = base64.b64encode(data).decode()


def put_headers(record: dict[str, Any], headers: Sequence[Header]) -> None:
    """Add headers as a flat list, if there are any."""
    if not headers:
        return
    flat: list[str | None] = []
    try:
        for name, value in headers:
            flat += (name, None if value is None else value.decode())
    except UnicodeDecodeError:
        flat = []
        for name, value in headers:
            flat += (name, None if value is None else base64.b64encode(value).decode())
        record["headers_b64"] = flat
        return
    record["headers"] = flat


def parse_json(line: bytes) -> Entry:
    """Read a line of ``to_json``, or one that a person wrote.

    A payload that is no text, such as an object, becomes JSON again.

    Raises:
        ValueError: The line is no such record; the message says why.
    """
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for all bad lines
    unknown = record.keys() - _KNOWN
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}; known are {', '.join(sorted(_KNOWN))}")
    return Entry(
        _take_bytes(record, "key"),
        _take_bytes(record, "payload"),
        _take_headers(record),
        _take_number(record, "ts"),
        _take_number(record, "partition"),
    )


def _take_bytes(record: Mapping[str, Any], name: str) -> bytes | None:
    encoded = record.get(f"{name}_b64")
    if encoded is not None:
        return _decode(encoded, f"{name}_b64")
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _take_headers(record: Mapping[str, Any]) -> list[Header]:
    encoded = "headers_b64" in record
    flat = record.get("headers_b64" if encoded else "headers") or []
    if not isinstance(flat, list) or len(flat) % 2:
        raise ValueError("headers must be a flat list: name, value, name, value ...")
    headers: list[Header] = []
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        if not isinstance(name, str) or not isinstance(value, str | None):
            raise ValueError("headers must be texts")  # noqa: TRY004 - as above
        if value is None:
            headers.append((name, None))
        else:
            headers.append((name, _decode(value, "headers_b64") if encoded else value.encode()))
    return headers


def _take_number(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name} must be a whole number")
    return value


def _decode(text: object, name: str) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64: {error}") from None
