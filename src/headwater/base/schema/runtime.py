"""What compiled codecs call when the straight road ends.

This file alone decides how the rare cases go: lengths of more than one byte, unknown tagged
fields, arrays of numbers of any length, records that are not plain bytes. It knows no message.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from headwater.base.errors import MalformedMessageError

Input = bytes | bytearray | memoryview

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The unsigned varints of one byte, by value."""

UVARINT_BYTES_MAX = 5
UVARINT_VALUE_MAX = 2**32 - 1

# Most arrays hold a handful of replicas or a few dozen partitions; longer ones
# are rare enough to compile their format anew.
CACHED_ARRAY_COUNT_MAX = 64

# Structs and strings in one request. A client of 100,000 partitions is unheard of; a quarter of a
# million small objects take 30 to 110 MB, and up to a second to read.
REQUEST_ELEMENTS_MAX = 250_000

# Replicas of a partition: three as a rule, and few sets of them.
KEPT_ARRAY_COUNT_MAX = 5
KEPT_ARRAYS_MAX = 1024

# Below this size copying records beside the fields around them costs less than one more buffer in
# the list; above it the copy does (memory copies about 10 bytes a nanosecond).
INLINE_RECORDS_BYTES_MAX = 4096

BYTES_TYPES = frozenset({bytes, bytearray, memoryview})


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
    if value < 2**7:
        return ONE_BYTE[value]
    if value < 2**14:
        return bytes((value & 0x7F | 0x80, value >> 7))
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


class ArrayBytes(dict[tuple[Any, ...], bytes]):
    """``arrays[tuple(values)]`` is an array of one fixed-size type, with its length before it.

    Most arrays are the same few replicas over and over, so short ones are kept.
    """

    def __init__(self, element: str, *, compact: bool) -> None:
        super().__init__()
        self._element = element
        self._compact = compact

    def __missing__(self, values: tuple[Any, ...]) -> bytes:
        count = len(values)
        prefix = uvarint(count + 1) if self._compact else struct.pack(">i", count)
        written = prefix + struct.pack(">" + array_format(self._element, count), *values)
        if count <= KEPT_ARRAY_COUNT_MAX and len(self) < KEPT_ARRAYS_MAX:
            self[values] = written
        return written


def put_records(parts: list[Any], out: list[Any], records: Iterable[Any]) -> None:
    """Add pieces of records behind `out`, copying only the small ones.

    Args:
        parts: The finished parts of the message.
        out: Bytes that are not yet in a part; emptied when a piece is passed through.
        records: The pieces.
    """
    for piece in records:
        if type(piece) in BYTES_TYPES and len(piece) <= INLINE_RECORDS_BYTES_MAX:
            out.append(piece)
            continue
        if out:
            parts.append(b"".join(out))
            out.clear()
        parts.append(piece)
