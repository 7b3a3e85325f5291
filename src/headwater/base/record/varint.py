"""Variable-length integers, as Kafka's records and flexible messages write them.

This file alone decides how an integer becomes one to ten bytes: seven bits a byte, the lowest
first, the top bit set on every byte but the last. Signed numbers are zigzag-folded before (0, -1,
1, -2 become 0, 1, 2, 3), so that small negative numbers stay short. A *varint* carries 32 bits in
at most five bytes, a *varlong* 64 bits in at most ten.

Reading refuses what has more bytes or more bits than the type allows. A number padded with
needless zero bytes within that length is accepted, as by Kafka's own reader.

It knows nothing of what the numbers mean.
"""

from typing import Final

from headwater.base.errors import CorruptRecordError

BytesLike = bytes | bytearray | memoryview
"""What every reader of this room takes; an `mmap` is handed over as a memoryview of it."""

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def encode_unsigned_varint(value: int) -> bytes:
    """Encode a number from 0 to 2**64 - 1."""
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Encode a signed number of 32 or 64 bits: below 32 bits a varlong has the same bytes."""
    return encode_unsigned_varint((value << 1) ^ (value >> 63))


class _Varints(dict[int, bytes]):
    """Encodings made once; what is not among them is made when asked for and not kept."""

    def __missing__(self, value: int) -> bytes:
        return encode_varint(value)


VARINTS: Final = _Varints((value, encode_varint(value)) for value in range(2048))
"""`VARINTS[value]` is `encode_varint(value)`, at a tenth of the price for small values.

A record has six lengths, deltas and counts; this halves the time to write one. 2,048 reaches
beyond the records of 1 KB that are usual, for 200 KB of memory.
"""


def decode_unsigned_varint(buffer: BytesLike, pos: int) -> tuple[int, int]:
    """Read a number of at most 32 bits.

    Returns:
        The number, and the position after it.

    Raises:
        CorruptRecordError: The buffer ends inside the number, or it is longer than 32 bits.
    """
    return _decode(buffer, pos, VARINT_BYTES_MAX, 32)


def decode_varint(buffer: BytesLike, pos: int) -> tuple[int, int]:
    """Read a signed number of at most 32 bits; see `decode_unsigned_varint`."""
    # Nearly all numbers of a record have one or two bytes, and these need no bound on their bits.
    try:
        folded = buffer[pos]
        if folded < 128:
            return (folded >> 1) ^ -(folded & 1), pos + 1
        high = buffer[pos + 1]
        if high < 128:
            folded += (high - 1) << 7
            return (folded >> 1) ^ -(folded & 1), pos + 2
    except IndexError:
        raise _ends_inside(pos) from None
    folded, pos = _decode(buffer, pos, VARINT_BYTES_MAX, 32)
    return (folded >> 1) ^ -(folded & 1), pos


def decode_varlong(buffer: BytesLike, pos: int) -> tuple[int, int]:
    """Read a signed number of at most 64 bits; see `decode_unsigned_varint`."""
    folded, pos = _decode(buffer, pos, VARLONG_BYTES_MAX, 64)
    return (folded >> 1) ^ -(folded & 1), pos


def _decode(buffer: BytesLike, pos: int, bytes_max: int, bits: int) -> tuple[int, int]:
    start = pos
    value = shift = 0
    try:
        byte = buffer[pos]
        while byte > 127:
            value |= (byte & 0x7F) << shift
            shift += 7
            pos += 1
            if pos - start == bytes_max:
                raise CorruptRecordError(
                    f"the number at byte {start} is longer than {bytes_max} bytes"
                )
            byte = buffer[pos]
    except IndexError:
        raise _ends_inside(start) from None
    value |= byte << shift
    if value >> bits:
        raise CorruptRecordError(f"the number at byte {start} does not fit {bits} bits")
    return value, pos + 1


def _ends_inside(start: int) -> CorruptRecordError:
    return CorruptRecordError(f"the data ends inside the number at byte {start}")
