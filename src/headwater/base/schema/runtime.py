"""What compiled codecs call when the straight road ends.

This file alone decides how the rare cases go: lengths of more than one byte, unknown tagged
fields, arrays of numbers of any length, records that are not plain bytes. It knows no message.
"""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from headwater.base.errors import MalformedMessageError

Input = bytes | bytearray | memoryview

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The unsigned varints of one byte, by value."""

UVARINT_BYTES_MAX = 5
UVARINT_VALUE_MAX = 2**32 - 1

# Arrays in Kafka's messages hold a handful of replicas or a few hundred partitions; longer ones
# are rare enough to compile their format anew.
CACHED_ARRAY_COUNT_MAX = 512

# Below this size copying records beside the fields around them costs less than one more buffer in
# the list; above it the copy does (memory copies about 10 bytes a nanosecond).
INLINE_RECORDS_BYTES_MAX = 4096


def refuse(what: str) -> NoReturn:
    """Raise for bytes that are there but mean nothing."""
    raise MalformedMessageError(what)


def malformed(name: str, version: int, error: Exception) -> MalformedMessageError:
    """Return the one error that a reader of bad bytes sees, whatever went wrong inside."""
    if isinstance(error, MalformedMessageError):
        return MalformedMessageError(f"{name} v{version}: {error.message}")
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessageError(f"{name} v{version}: a string is not UTF-8")
    return MalformedMessageError(f"{name} v{version}: the bytes end too early")


def longer_uvarint(buffer: Input, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose first byte says that more follow.

    Args:
        buffer: The bytes.
        pos: The position of the second byte.
        first: The first byte.

    Returns:
        The value and the position behind it.
    """
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > UVARINT_VALUE_MAX:
                break
            return value, pos
    refuse("a varint is longer than 32 bits")


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(buffer: Input, pos: int, count: int) -> int:
    """Step over tagged fields, none of which is known.

    Args:
        buffer: The bytes.
        pos: The position behind the first byte of their count.
        count: That first byte.

    Returns:
        The position behind them.
    """
    if count > 127:
        count, pos = longer_uvarint(buffer, pos, count)
    for _ in range(count):
        if buffer[pos] > 127:
            _, pos = longer_uvarint(buffer, pos + 1, buffer[pos])
        else:
            pos += 1
        size = buffer[pos]
        pos += 1
        if size > 127:
            size, pos = longer_uvarint(buffer, pos, size)
        pos += size
    return pos


def array_format(element: str, count: int) -> str:
    """Return the format of `count` elements: a number before a letter, else the repetition."""
    return f"{count}{element}" if len(element) == 1 else element * count


class ArrayReaders(dict[int, Callable[[Input, int], tuple[Any, ...]]]):
    """``readers[count](buffer, pos)`` reads an array of one fixed-size type."""

    def __init__(self, element: str) -> None:
        super().__init__()
        self._element = element

    def __missing__(self, count: int) -> Callable[[Input, int], tuple[Any, ...]]:
        reader = struct.Struct(">" + array_format(self._element, count)).unpack_from
        if count <= CACHED_ARRAY_COUNT_MAX:
            self[count] = reader
        return reader


class ArrayWriters(dict[int, Callable[..., bytes]]):
    """``writers[count](prefix, *values)`` writes an array of one fixed-size type and its length.

    The prefix is count in the fixed-size form and count + 1 in the compact one.
    """

    def __init__(self, element: str, *, compact: bool) -> None:
        super().__init__()
        self._element = element
        self._compact = compact

    def __missing__(self, count: int) -> Callable[..., bytes]:
        body = array_format(self._element, count)
        if self._compact and count + 1 > 127:
            return self._long_writer(struct.Struct(">" + body).pack)
        writer = struct.Struct((">B" if self._compact else ">i") + body).pack
        if count <= CACHED_ARRAY_COUNT_MAX:
            self[count] = writer
        return writer

    @staticmethod
    def _long_writer(body: Callable[..., bytes]) -> Callable[..., bytes]:
        return lambda prefix, *values: uvarint(prefix) + body(*values)


def records_bytes(records: Any) -> int:  # noqa: ANN401 - whatever has a length, see `Codec`
    """Return the size of a records value: one piece, or a list of pieces that belong together."""
    if isinstance(records, list | tuple):
        return sum(map(len, records))
    return len(records)


def put_records(parts: list[Any], out: list[Any], records: Any) -> None:  # noqa: ANN401 - as above
    """Add a records value behind `out`, copying it only if it is small.

    Args:
        parts: The finished parts of the message.
        out: Bytes that are not yet in a part; emptied when a piece is passed through.
        records: One piece or a list of pieces.
    """
    for piece in records if isinstance(records, list | tuple) else (records,):
        is_bytes = isinstance(piece, bytes | bytearray | memoryview)
        if is_bytes and len(piece) <= INLINE_RECORDS_BYTES_MAX:
            out.append(piece)
            continue
        if out:
            parts.append(b"".join(out))
            out.clear()
        parts.append(piece)
