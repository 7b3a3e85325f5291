"""The five compressions of a record batch: none, gzip, snappy, lz4, zstd.

This file alone decides which bytes a compressed batch carries and how far they may grow when
unpacked. It knows nothing of batches or records: it takes bytes and gives bytes.

What is written can be read by the Java client and by librdkafka:

    gzip     one member, level 6
    snappy   the xerial stream of the Java client: a 16-byte header, then blocks of 32 KiB, each
             as a big-endian length and raw snappy; librdkafka and the Java client read both this
             and a bare raw snappy block, and so does `decompress`
    lz4      one frame of *independent* 64 KiB blocks without checksums (the Java client refuses
             linked blocks)
    zstd     one frame, level 3

Unpacking never makes more than the limit it is given, whatever the input claims: the streaming
decompressors stop there, and raw snappy states its size in its first bytes.

Packages: the standard library for gzip and, from Python 3.14 on, zstd (`backports.zstd` is the
same code for older ones); `lz4`; cramjam for snappy, of which it has the only maintained binding.
cramjam could do all five, but its decompressors either make all of the output or fill a buffer of
the limit's size. In microseconds for JSON, packed / unpacked:

                        200 B        16 KiB        1 MiB
    lz4                 1.1 / 1.4    15 / 7       1700 / 300
    cramjam lz4         3.6 / 2.9    16 / 11      2000 / 690     at the same level
    backports.zstd       12 / 9.5    54 / 22      3980 / 1020
    cramjam zstd         12 / 9.7    54 / 22      3740 / 940
    zstandard           3.3 / 2.3    43 / 15      4010 / 1010    does not report a cut frame
    cramjam snappy      0.3 / 0.4    15 / 7       1820 / 650
    zlib                 58 / 2.1   134 / 22     24000 / 2180
"""

import struct
import sys
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Protocol

import cramjam
import lz4.frame

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.varint import BytesLike, decode_unsigned_varint

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Codec(IntEnum):
    """The compressions, by the number that a batch carries."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def by_name(cls, name: str) -> "Codec":
        """Find a codec by Kafka's name; topics say `uncompressed` where producers say `none`.

        Raises:
            KeyError: No codec has the name.
        """
        return cls.NONE if name == "uncompressed" else cls[name.upper()]


XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

STREAMS_MAX: Final = 16
"""How many gzip, lz4 or zstd streams may follow one another in a batch.

Every known producer writes one. The rest of the input is copied for each, so that without a bound
a megabyte of empty streams would cost minutes.
"""

_LZ4_RATIO_MAX: Final = 256
"""No lz4 stream unpacks to more, as each of its bytes adds at most 255 to a length.

The package takes as much memory from the system as it may fill. With the bound of a whole request
that costs five times what unpacking a batch of 16 KiB does.
"""

_ANY_RATIO: Final = 1 << 40
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_BLOCK_LENGTH: Final = struct.Struct(">i")


class _Decompressor(Protocol):
    """What zlib, lz4 and zstd have in common: one stream, unpacked up to a bound."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: Any, max_length: int) -> bytes: ...  # noqa: ANN401


def compress(codec: int, data: BytesLike) -> bytes:
    """Pack `data` with a known codec."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return zlib.compress(data, wbits=_GZIP_WBITS)
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        packed: bytes = lz4.frame.compress(
            data,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    assert codec == Codec.ZSTD, codec
    return zstd.compress(data, level=3)


def decompress(codec: int, data: BytesLike, limit_bytes: int) -> bytes:
    """Unpack `data`, making at most `limit_bytes`.

    Raises:
        CorruptRecordError: The data is damaged, ends early, carries something behind its end, or
            unpacks to more than the limit. An unknown codec has UNSUPPORTED_COMPRESSION_TYPE.
    """
    if codec == Codec.NONE:
        if len(data) > limit_bytes:
            raise _too_large("none", limit_bytes)
        return bytes(data)
    if codec == Codec.SNAPPY:
        if data[: len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            return _decompress_xerial(memoryview(data), limit_bytes)
        return _decompress_raw_snappy(data, limit_bytes, limit_bytes)
    if codec == Codec.GZIP:
        return _decompress_streams("gzip", _new_gunzip, data, limit_bytes)
    if codec == Codec.LZ4:
        return _decompress_streams(
            "lz4", lz4.frame.LZ4FrameDecompressor, data, limit_bytes, ratio_max=_LZ4_RATIO_MAX
        )
    if codec == Codec.ZSTD:
        return _decompress_streams("zstd", zstd.ZstdDecompressor, data, limit_bytes)
    raise CorruptRecordError(
        f"compression {codec} is unknown", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    )


def _new_gunzip() -> _Decompressor:
    return zlib.decompressobj(_GZIP_WBITS)


def _decompress_streams(
    name: str,
    new: Callable[[], _Decompressor],
    data: BytesLike,
    limit_bytes: int,
    *,
    ratio_max: int = _ANY_RATIO,
) -> bytes:
    """Unpack one stream after another, as gunzip and zstd do with concatenated files."""
    parts: list[bytes] = []
    room = limit_bytes
    rest: BytesLike | None = data
    while rest or not parts:
        stream = new()
        try:
            # One byte more than there is room for tells "too large" from "just fits".
            part = stream.decompress(rest, min(room + 1, ratio_max * len(rest or b"") + 1))
        except (zlib.error, zstd.ZstdError, RuntimeError, EOFError, ValueError) as error:
            raise CorruptRecordError(f"the {name} data is damaged: {error}") from error
        if len(part) > room:
            raise _too_large(name, limit_bytes)
        if not stream.eof:
            raise CorruptRecordError(f"the {name} data ends early")
        parts.append(part)
        room -= len(part)
        rest = stream.unused_data
        if rest and len(parts) == STREAMS_MAX:
            raise CorruptRecordError(f"the {name} data has more than {STREAMS_MAX} streams")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_xerial(data: BytesLike) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_xerial(data: memoryview, limit_bytes: int) -> bytes:
    """Unpack block after block; the two version numbers in the header are not judged.

    Some producers write them little-endian, and there has never been a second version.
    """
    parts: list[bytes] = []
    room = limit_bytes
    pos = len(XERIAL_HEADER)
    end = len(data)
    if end < pos:
        raise CorruptRecordError("the snappy data ends early")
    while pos < end:
        if end - pos < _BLOCK_LENGTH.size:
            raise CorruptRecordError("the snappy data ends early")
        (length,) = _BLOCK_LENGTH.unpack_from(data, pos)
        pos += _BLOCK_LENGTH.size
        if length < 0 or length > end - pos:
            raise CorruptRecordError(f"a snappy block claims {length} bytes, {end - pos} are left")
        part = _decompress_raw_snappy(data[pos : pos + length], room, limit_bytes)
        room -= len(part)
        parts.append(part)
        pos += length
    return b"".join(parts)


def _decompress_raw_snappy(data: BytesLike, room: int, limit_bytes: int) -> bytes:
    size, _ = decode_unsigned_varint(data, 0)
    if size > room:
        raise _too_large("snappy", limit_bytes)
    try:
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"the snappy data is damaged: {error}") from error


def _too_large(name: str, limit_bytes: int) -> CorruptRecordError:
    return CorruptRecordError(f"the {name} data unpacks to more than {limit_bytes} bytes")
