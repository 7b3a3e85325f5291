"""Compression: both ways with foreign implementations, damage, and bombs."""

import gzip
import random
import tracemalloc
import zlib

import aiokafka.codec
import cramjam
import kafka.codec
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.codecs import (
    STREAMS_MAX,
    XERIAL_BLOCK_BYTES,
    XERIAL_MAGIC,
    Codec,
    compress,
    decompress,
)
from tests.base.record.samples import CODECS, attempt

LIMIT = 1 << 20
PACKING = [codec for codec in CODECS if codec != Codec.NONE]

# Text that compresses, noise that does not, and sizes on both sides of every block size.
_RANDOM = random.Random(20_240_501)
DATA = {
    "empty": b"",
    "one": b"x",
    "text": b'{"id": 1, "name": "ada"}' * 100,
    "noise": _RANDOM.randbytes(5_000),
    "xerial block": b"ab" * (XERIAL_BLOCK_BYTES // 2),
    "xerial block + 1": _RANDOM.randbytes(XERIAL_BLOCK_BYTES + 1),
    "lz4 blocks": b"abcdefghij" * 20_000 + _RANDOM.randbytes(70_000),
}


def _stream_zstd(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


FOREIGN_ENCODERS = [
    (Codec.GZIP, gzip.compress),
    (Codec.GZIP, aiokafka.codec.gzip_encode),
    (Codec.GZIP, kafka.codec.gzip_encode),
    (Codec.SNAPPY, aiokafka.codec.snappy_encode),
    (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    (Codec.LZ4, aiokafka.codec.lz4_encode),
    (Codec.LZ4, kafka.codec.lz4_encode),
    (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=True, content_checksum=True)),
    (Codec.ZSTD, aiokafka.codec.zstd_encode),
    (Codec.ZSTD, kafka.codec.zstd_encode),
    # As Java writes it: by streaming, so that the frame does not say how large it becomes.
    (Codec.ZSTD, _stream_zstd),
]
FOREIGN_DECODERS = [
    (Codec.GZIP, gzip.decompress),
    (Codec.GZIP, aiokafka.codec.gzip_decode),
    (Codec.GZIP, kafka.codec.gzip_decode),
    (Codec.SNAPPY, aiokafka.codec.snappy_decode),
    (Codec.LZ4, aiokafka.codec.lz4_decode),
    (Codec.LZ4, kafka.codec.lz4_decode),
    (Codec.ZSTD, aiokafka.codec.zstd_decode),
    (Codec.ZSTD, kafka.codec.zstd_decode),
    (Codec.ZSTD, zstandard.decompress),
]


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(codec: Codec, name: str) -> None:
    data = DATA[name]
    for buffer in (data, bytearray(data), memoryview(data)):
        packed = compress(codec, buffer)
        assert type(packed) is bytes
        assert decompress(codec, packed, LIMIT) == data
        assert decompress(codec, memoryview(bytearray(packed)), LIMIT) == data


@pytest.mark.parametrize("name", [name for name in DATA if name != "empty"])
@pytest.mark.parametrize("case", range(len(FOREIGN_ENCODERS)))
def test_reads_what_others_pack(case: int, name: str) -> None:
    codec, encode = FOREIGN_ENCODERS[case]
    assert decompress(codec, encode(DATA[name]), LIMIT) == DATA[name]


@pytest.mark.parametrize("name", [name for name in DATA if name != "empty"])
@pytest.mark.parametrize("case", range(len(FOREIGN_DECODERS)))
def test_others_read_what_we_pack(case: int, name: str) -> None:
    codec, decode = FOREIGN_DECODERS[case]
    assert decode(compress(codec, DATA[name])) == DATA[name]


def test_lz4_frames_are_what_the_java_client_accepts() -> None:
    packed = compress(Codec.LZ4, DATA["lz4 blocks"])
    info = lz4.frame.get_frame_info(packed)
    assert not info["block_linked"]
    assert not info["block_checksum"]
    assert not info["content_checksum"]
    assert info["block_size"] == 64 * 1024
    assert packed[4] >> 6 == 1, "version"


def test_snappy_is_written_in_xerial_blocks() -> None:
    packed = compress(Codec.SNAPPY, DATA["xerial block + 1"])
    assert packed[:16] == b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2
    first = int.from_bytes(packed[16:20])
    assert len(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == XERIAL_BLOCK_BYTES


def test_xerial_versions_are_not_judged() -> None:
    packed = compress(Codec.SNAPPY, b"hello")
    little_endian = XERIAL_MAGIC + b"\x01\x00\x00\x00" * 2 + packed[16:]
    assert decompress(Codec.SNAPPY, little_endian, LIMIT) == b"hello"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_streams_one_after_another_are_one(codec: Codec) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"second")
    assert decompress(codec, packed, 12) == b"first second"
    with pytest.raises(CorruptRecordError, match="more than 11 bytes"):
        decompress(codec, packed, 11)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_streams_are_counted(codec: Codec) -> None:
    packed = compress(codec, b"x")
    assert decompress(codec, packed * STREAMS_MAX, LIMIT) == b"x" * STREAMS_MAX
    with pytest.raises(CorruptRecordError, match="more than 16 streams"):
        decompress(codec, packed * (STREAMS_MAX + 1), LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    data = DATA["lz4 blocks"]
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(CorruptRecordError, match=f"more than {len(data) - 1} bytes"):
        decompress(codec, packed, len(data) - 1)


def _raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@pytest.mark.parametrize("case", [*PACKING, "raw snappy", "streamed zstd"], ids=str)
def test_a_bomb_is_refused_before_it_takes_memory(case: Codec | str) -> None:
    zeros = bytes(64 << 20)
    if case == "raw snappy":
        codec, bomb = Codec.SNAPPY, _raw_snappy(zeros)
    elif case == "streamed zstd":
        codec, bomb = Codec.ZSTD, _stream_zstd(zeros)
    else:
        assert isinstance(case, Codec)
        codec, bomb = case, compress(case, zeros)
    del zeros
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match=f"more than {LIMIT} bytes"):
            decompress(codec, bomb, LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The output so far, room for it to grow, and what is left of the input.
    assert peak < 3 * LIMIT + len(bomb)


def test_a_snappy_block_that_lies_about_its_size_is_refused() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    with pytest.raises(CorruptRecordError, match="more than"):
        decompress(Codec.SNAPPY, claims_4_gib, LIMIT)
    claims_100 = b"\x64\x00a"
    with pytest.raises(CorruptRecordError, match="damaged"):
        decompress(Codec.SNAPPY, claims_100, LIMIT)


@pytest.mark.parametrize("length", [-(2**31), -20, -4, -1, 8, 2**31 - 1])
def test_a_xerial_block_that_lies_about_its_size_is_refused(length: int) -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"hello"))
    assert len(packed) == 16 + 4 + 7
    packed[16:20] = length.to_bytes(4, signed=True)
    with pytest.raises(CorruptRecordError, match=f"claims {length} bytes, 7 are left"):
        decompress(Codec.SNAPPY, packed, LIMIT)


@pytest.mark.parametrize("codec", PACKING)
def test_every_truncation_is_refused(codec: Codec) -> None:
    packed = compress(codec, DATA["text"])
    # A xerial stream that ends between two blocks, here behind its header, is a whole stream.
    whole = {len(packed), 16} if codec == Codec.SNAPPY else {len(packed)}
    for size in set(range(len(packed))) - whole:
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", PACKING)
def test_bytes_behind_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, compress(codec, DATA["text"]) + b"\x01\x02\x03", LIMIT)


@pytest.mark.parametrize("codec", PACKING)
def test_every_bit_flip_is_refused_or_stays_within_the_limit(codec: Codec) -> None:
    packed = bytearray(compress(codec, b'{"id": 1, "name": "ada"}' * 5))
    for bit in range(8 * len(packed)):
        packed[bit // 8] ^= 1 << bit % 8
        result = attempt(lambda: decompress(codec, packed, 5_000))
        assert isinstance(result, CorruptRecordError) or len(result) <= 5_000
        packed[bit // 8] ^= 1 << bit % 8


_STARTS = {
    Codec.GZIP: b"\x1f\x8b\x08\x00",
    Codec.SNAPPY: XERIAL_MAGIC + bytes(8),
    Codec.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
    Codec.ZSTD: b"\x28\xb5\x2f\xfd",
}


@given(st.sampled_from(PACKING), st.booleans(), st.binary(max_size=300))
def test_nonsense_raises_our_error_only(codec: Codec, with_start: bool, tail: bytes) -> None:
    data = _STARTS[codec] + tail if with_start else tail
    result = attempt(lambda: decompress(codec, data, 10_000))
    if isinstance(result, CorruptRecordError):
        assert result.code == ErrorCode.CORRUPT_MESSAGE
    else:
        assert len(result) <= 10_000


def test_a_wrong_gzip_checksum_is_found() -> None:
    packed = bytearray(compress(Codec.GZIP, DATA["text"]))
    packed[-8] ^= 1
    with pytest.raises(CorruptRecordError, match="incorrect data check"):
        decompress(Codec.GZIP, packed, LIMIT)
    assert zlib.decompress(compress(Codec.GZIP, DATA["text"]), wbits=31) == DATA["text"]


def test_an_unknown_codec_is_refused() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptRecordError) as caught:
            decompress(codec, b"", LIMIT)
        assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_names() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.by_name(name) for name in names] == [0, 1, 2, 3, 4]
    assert Codec.by_name("uncompressed") == Codec.NONE
    with pytest.raises(KeyError):
        Codec.by_name("brotli")
