"""Batches and keys, as compaction reads them: the same as the careful reader, or an error."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import parse_header
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch, iterate
from headwater.log.compaction.rewriting import empty, rewrite
from headwater.log.compaction.scanning import (
    KEY_BYTES_MAX,
    BrokenSegmentError,
    FoundBatch,
    scan_dense_keys,
    scan_records,
    skip_records,
    unpack,
    walk_batches,
)
from headwater.testing.memory_disk import MemoryDisk

BYTES = st.binary(max_size=60) | st.none()
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=2).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(0, 2**45), BYTES, BYTES, HEADERS),
    min_size=1,
    max_size=150,
)


def found(batch: bytearray) -> FoundBatch:
    return FoundBatch(parse_header(batch), memoryview(bytes(batch)), 0, 0, len(batch))


@given(RECORDS, st.sampled_from(list(Codec)))
def test_every_reader_finds_the_same(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, codec=codec, base_offset=7)
    header = parse_header(batch)
    data = unpack(found(batch))
    scanned = scan_records(header, data)

    assert scanned.deltas == list(range(len(records)))
    assert scanned.tombstones == [n for n, record in enumerate(records) if record.value is None]
    for record, key in zip(records, scanned.keys, strict=True):
        short = record.key is None or len(record.key) <= KEY_BYTES_MAX
        assert (key == record.key) is short
    assert scan_dense_keys(header, data) == (scanned.keys, bool(scanned.tombstones))
    assert skip_records(header, data) == scanned.starts


@given(RECORDS, st.sampled_from(list(Codec)), st.data())
def test_a_rewritten_batch_holds_what_was_kept(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = build_batch(records, codec=codec, base_offset=7)
    header = parse_header(batch)
    whole = iterate(batch)
    kept = sorted(data.draw(st.sets(st.sampled_from(range(len(records))), min_size=1)))
    horizon_ms = data.draw(st.none() | st.integers(0, 2**45))
    scanned = scan_records(header, unpack(found(batch)))

    new = rewrite(header, scanned.data, scanned.starts, kept, delete_horizon_ms=horizon_ms)

    assert iterate(new) == [whole[index] for index in kept]
    changed = parse_header(new)
    assert changed.delete_horizon_ms == horizon_ms
    assert changed.max_timestamp == max(whole[index].timestamp for index in kept)
    assert (changed.base_offset, changed.last_offset) == (7, header.last_offset)
    # What compaction has written it can read.
    again = scan_records(changed, unpack(found(new)))
    assert again.keys == [scanned.keys[index] for index in kept]
    if len(kept) < len(records):
        assert scan_dense_keys(changed, again.data) is None
    none = parse_header(empty(header))
    assert (none.record_count, none.last_offset) == (0, header.last_offset)
    assert iterate(empty(header)) == []


@given(RECORDS, st.data())
def test_damaged_records_are_an_error_and_nothing_else(
    records: list[Record], data: st.DataObject
) -> None:
    batch = build_batch(records)
    header = parse_header(batch)
    content = bytearray(unpack(found(batch)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
    damaged = bytes(content[: data.draw(st.integers(0, len(content)))])

    scanned = dense = None
    with contextlib.suppress(CorruptRecordError):
        scanned = scan_records(header, damaged)
    with contextlib.suppress(CorruptRecordError):
        dense = scan_dense_keys(header, damaged)
    if dense is not None:
        assert scanned is not None
        assert dense[0] == scanned.keys


def test_a_segment_that_ends_inside_a_batch_is_broken() -> None:
    disk = MemoryDisk()
    file = disk.open("/s", create=True)
    batch = build_batch([Record(0, 1, b"k", b"v")])
    file.append([batch, batch[:65]])
    walked = walk_batches(file, file.size())
    assert next(walked).size == len(batch)
    with pytest.raises(BrokenSegmentError):
        next(walked)


def test_batches_larger_than_a_chunk_are_walked_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.compaction.scanning.CHUNK_BYTES", 100)
    disk = MemoryDisk()
    file = disk.open("/s", create=True)
    batches = [build_batch([Record(0, 1, b"k", bytes(size))]) for size in (10, 500, 20, 90, 1)]
    file.append(batches)
    walked = list(walk_batches(file, file.size()))
    assert [bytes(batch.content()) for batch in walked] == [bytes(batch) for batch in batches]
