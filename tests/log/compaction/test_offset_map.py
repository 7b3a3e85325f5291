"""The latest offset of each key, within a given memory."""

import tracemalloc

import pytest

from headwater.log.compaction.offset_map import ENTRY_BYTES, OffsetMap
from headwater.log.compaction.scanning import ScannedRecords


def records(*keys: bytes | None, deltas: list[int] | None = None) -> ScannedRecords:
    numbers = deltas or list(range(len(keys)))
    return ScannedRecords(b"", [], numbers, list(keys), [])


@pytest.mark.parametrize("key_bytes", [1, 14, 36])
def test_the_memory_is_kept_to(key_bytes: int) -> None:
    memory = 4 << 20
    offset = 0
    tracemalloc.start()
    try:
        latest = OffsetMap(memory)
        while not latest.full:
            keys: list[bytes | None] = [
                b"%0*d" % (key_bytes, offset + number) for number in range(50)
            ]
            latest.add_dense(offset, keys)
            offset += len(keys)
        latest.complete()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory / 2 < peak < memory
    assert len(latest) > memory / 200


def test_what_does_not_fit_ends_the_pass_within_a_batch() -> None:
    latest = OffsetMap(1)
    latest.begin_at(10)
    latest.add_dense(10, [b"a", b"a", b"b"])
    assert latest.full
    assert latest.latest_offset == 11
    latest.complete()
    # The batch is known in part only, so it has to be looked into.
    assert latest.remaining(10, 12) is None
    assert latest.superseded(10, records(b"a", b"a", b"b")) == [0]


def test_what_remains_of_a_batch_is_known_without_a_look() -> None:
    latest = OffsetMap(1 << 20)
    latest.begin_at(5)
    latest.add_dense(5, [b"a", b"b"])
    latest.reach(6)
    latest.add_dense(7, [b"a"])
    latest.reach(7)
    latest.complete()
    assert list(latest.remaining(5, 6) or ()) == [6]
    assert list(latest.remaining(7, 7) or ()) == [7]


@pytest.mark.parametrize("buffer_bytes", [1 << 20, 2 * ENTRY_BYTES])
def test_batches_with_keyless_records_are_looked_into(buffer_bytes: int) -> None:
    latest = OffsetMap(buffer_bytes)
    latest.begin_at(5)
    latest.add_dense(5, [b"a", None, b"b"])
    latest.reach(7)
    latest.complete()
    assert latest.remaining(5, 7) is None
    assert len(latest) == 2


def test_batches_across_the_first_dirty_offset_are_looked_into() -> None:
    latest = OffsetMap(1 << 20)
    latest.begin_at(6)
    latest.add(5, records(b"a", b"b"))
    latest.reach(6)
    latest.complete()
    assert latest.remaining(5, 6) is None
    assert latest.superseded(5, records(b"b", b"a")) == [0]
    assert len(latest) == 1


def test_records_behind_what_was_read_replace_nothing() -> None:
    latest = OffsetMap(1 << 20)
    latest.add(0, records(b"a", deltas=[3]))
    latest.reach(3)
    latest.complete()
    assert latest.superseded(0, records(b"a", b"a", deltas=[2, 5])) == [0]
    assert latest.remaining(4, 9) is None
