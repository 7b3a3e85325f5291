"""A small fetch that unpacks to much more: it is read in pieces, within a bound, or refused."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import write_crc
from headwater.base.record.codecs import Codec, compress, decompress
from headwater.base.record.records import RECORDS_BYTES_MAX, Record, build_batch
from headwater.streams.source import decode as decoding
from headwater.streams.source.decode import Decoder

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[3]
PACKED = [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY]


def zeros(size_bytes: int, codec: Codec, *, record_bytes: int, base_offset: int = 0) -> bytes:
    """Return a batch of zeros that are `size_bytes` before they are packed."""
    count = size_bytes // record_bytes
    records = [Record(index, 0, None, bytes(record_bytes)) for index in range(count)]
    return bytes(build_batch(records, codec=codec, base_offset=base_offset))


@pytest.mark.parametrize("codec", PACKED)
def test_rows_come_before_the_next_batch_is_unpacked(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "BYTES_MAX", 100_000)
    fetched = b"".join(
        zeros(60_000, codec, record_bytes=6_000, base_offset=10 * index) for index in range(8)
    )
    unpacked = []

    def counting(codec: int, data: memoryview, limit_bytes: int) -> bytes:
        unpacked.append(len(data))
        return decompress(codec, data, limit_bytes)

    monkeypatch.setattr(decoding, "decompress", counting)
    rows = Decoder("orders", 3, headers=False).decode(
        memoryview(fetched), from_offset=0, upto_offset=80, aborted=()
    )
    ahead = [(next(rows).num_rows, len(unpacked)) for _ in range(8)]
    assert ahead == [(10, 2), (10, 3), (10, 4), (10, 5), (10, 6), (10, 7), (10, 8), (10, 8)]
    assert next(rows, None) is None


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_that_unpacks_to_too_much_is_named(codec: Codec) -> None:
    head = bytes(build_batch([Record(0, 0, None, b"")], codec=codec, base_offset=17))[:61]
    body = compress(codec, bytes(RECORDS_BYTES_MAX + 1))
    bomb = bytearray(head + body)
    bomb[8:12] = (len(bomb) - 12).to_bytes(4, "big")
    write_crc(bomb, 0, len(bomb))
    good = bytes(build_batch([Record(0, 0, None, b"good")] * 17))
    rows = Decoder("orders", 3, headers=False).decode(
        memoryview(good + bomb), from_offset=0, upto_offset=99, aborted=()
    )
    words = f"orders-3 .* at offset 17: .*{codec.name.lower()} .*more than {RECORDS_BYTES_MAX}"
    with pytest.raises(CorruptRecordError, match=words):
        list(rows)


def test_megabytes_that_unpack_to_a_gigabyte_and_a_half_need_a_fraction_of_it() -> None:
    """Sixteen batches of 96 MiB each, all in one fetch of a few hundred KB."""
    code = """
        import resource
        from headwater.base.record.codecs import Codec
        from headwater.base.record.records import Record, build_batch
        from headwater.streams.source.decode import Decoder

        def peak_kib():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        # Whoever starts a process bequeaths its own peak to it.
        before_kib = peak_kib()
        zeros = bytes(1 << 20)
        batch = build_batch([Record(i, 0, None, zeros) for i in range(96)], codec=Codec.ZSTD)
        fetched = b"".join((96 * i).to_bytes(8, "big") + batch[8:] for i in range(16))
        rows = Decoder("t", 0, headers=False).decode(
            memoryview(fetched), from_offset=0, upto_offset=9999, aborted=())
        found = sum(each.num_rows for each in rows)
        print(len(fetched), found, peak_kib() - before_kib)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=120,
    )
    fetched_bytes, found, grown_kib = map(int, ran.stdout.split())
    assert fetched_bytes < 2 * MIB
    assert found == 16 * 96
    # Making the batch takes as much as reading it.
    assert grown_kib < 400 * 1024, f"{grown_kib >> 10} MiB"
