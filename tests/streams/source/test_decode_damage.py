"""Damaged records: never a crash, never a byte from outside, never other rows than ours or none.

The compiled walk checks its bounds by itself. Here it meets arbitrary bytes beside the reader of
single records, which Python keeps within bounds; and once more compiled with numba's own checks,
which turn a read from outside into an IndexError.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import write_crc
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.record.varint import encode_varint
from headwater.streams.source.decode import Decoder
from tests.base.record.samples import CODECS, attempt, batch_of, record_lists, typical

changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)


def decoded(fetched: bytes | bytearray, last_offset: int = 2**40) -> list[Record]:
    """Decode to records, with the time as it is stored."""
    batches = Decoder("orders", 3, headers=True).decode(
        memoryview(fetched), from_offset=-(2**40), upto_offset=last_offset, aborted=()
    )
    found = []
    for batch in batches:
        batch.validate(full=True)
        times = batch.column("timestamp").view("int64").to_pylist()
        names = ["offset", "key", "value", "headers"]
        for row, time_us in zip(batch.select(names).to_pylist(), times, strict=True):
            headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
            found.append(Record(row["offset"], time_us // 1000, row["key"], row["value"], headers))
    return found


def shown(record: Record) -> Record:
    """The record as rows show it: times within Spark's range, header keys as text."""
    limit = (2**63 - 1) // 1000
    # As Java and Kafka add them: 64 bits, and no more.
    wrapped = (record.timestamp + 2**63) % 2**64 - 2**63
    headers = tuple(
        (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
        for key, value in record.headers
    )
    return record._replace(timestamp=max(-limit, min(limit, wrapped)), headers=headers)


def judge(batch: bytearray) -> None:
    """Compare with the reader of single records; only rising offsets are asked for beyond it."""
    ours = attempt(lambda: decoded(batch))
    expected = attempt(lambda: iterate(batch))
    if isinstance(expected, CorruptRecordError):
        assert isinstance(ours, CorruptRecordError), expected
        return
    last_offset = int.from_bytes(batch[23:27], signed=True)
    offsets = [record.offset for record in expected]
    if offsets != sorted(set(offsets)) or any(not 0 <= o <= last_offset for o in offsets):
        assert isinstance(ours, CorruptRecordError)
        return
    assert ours == [shown(record) for record in expected]


@given(record_lists(max_size=5), changes)
def test_a_changed_byte_gives_the_same_records_or_an_error(
    records: list[Record], changed: list[tuple[int, int]]
) -> None:
    batch = build_batch(records)
    for place, byte in changed:
        batch[61 + place % (len(batch) - 61)] = byte
    write_crc(batch, 0, len(batch))
    judge(batch)


@given(st.binary(max_size=60), st.integers(0, 6))
@example(b"\x0e\x00\x00\x00\x01\x01\x00", 1)
@example(b"\x0e\x00\x00\x00\x01\x01\x00", 2)
def test_arbitrary_bytes_give_the_same_records_or_an_error(data: bytes, count: int) -> None:
    judge(batch_of(data, count=count))


numbers = st.integers(-3, 20) | st.sampled_from([2**31 - 1, -(2**31), 2**31, 2**35, 2**63 - 1])


@given(st.lists(numbers | st.binary(max_size=4), max_size=20), st.integers(1, 3))
def test_wild_lengths_and_counts_give_the_same_records_or_an_error(
    pieces: list[int | bytes], count: int
) -> None:
    data = b"".join(p if isinstance(p, bytes) else encode_varint(p) for p in pieces)
    judge(batch_of(encode_varint(len(data) + 1) + b"\x00" + data, count=count))


@given(record_lists(max_size=3), st.sampled_from(CODECS), changes, st.integers(0, 300))
def test_a_damaged_fetch_is_an_error_or_less_rows(
    records: list[Record], codec: Codec, changed: list[tuple[int, int]], cut: int
) -> None:
    """Headers of batches included, checksums left as they are."""
    fetched = build_batch(records, codec=codec) + build_batch(typical(2), base_offset=len(records))
    for place, byte in changed:
        fetched[place % len(fetched)] = byte
    found = attempt(lambda: decoded(fetched[: len(fetched) - cut]))
    assert isinstance(found, CorruptRecordError) or len(found) <= len(records) + 2


@pytest.mark.parametrize(
    "body, cause",
    [
        (b"\xff\xff\xff\xff\xff\xff", "a number in it is cut or too long"),
        (b"\x80\x80\x80\x80\x10", "a number in it is cut or too long"),
        (b"\x02\x00", "a number in it is cut or too long"),
        (b"\x40\x00\x00", "more bytes than its batch has"),
        (b"\x01\x00\x00", "more bytes than its batch has"),
        (b"\x0e\x00\x00\x00\x08\x01\x00\x00", "a field claims more bytes"),
        (b"\x0e\x00\x00\x00\x03\x01\x00\x00", "a field claims more bytes"),
        (b"\x0e\x00\x00\x00\x01\x01\x7e\x00", "its headers contradict"),
        (b"\x12\x00\x00\x00\x01\x01\x02\x01\x01\x00", "its headers contradict"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "do not fill its length"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "its offset does not follow"),
        (b"\x0c\x00\x00\x01\x01\x01\x00", "its offset does not follow"),
        (b"\x0c\x00\x00\x00\x01\x01\x00!", "goes on behind its last record"),
    ],
)
def test_each_damage_has_its_name(body: bytes, cause: str) -> None:
    with pytest.raises(CorruptRecordError, match=cause) as info:
        decoded(batch_of(body, count=1))
    assert info.value.message.startswith("orders-3 is damaged at offset 0: record 0 of 1: ")


def test_nothing_is_read_or_written_outside(tmp_path: Path) -> None:
    """All of the above, compiled with numba's own checks of every index."""
    chosen = "changed_byte or arbitrary_bytes or wild_lengths or between_the_offsets"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n0", "-k", chosen),
            *(__file__, str(Path(__file__).with_name("test_decode.py"))),
        ],
        # A cache of its own: numba would load what was compiled without the checks.
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-5_000:]
    assert "4 passed" in ended.stdout
