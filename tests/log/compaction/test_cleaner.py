"""One pass over one log: what remains, what is left alone, and what it costs."""

import dataclasses
import hashlib

import pytest

from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    DELETE_HORIZON_MASK,
    MAGIC_POS,
    parse_header,
)
from headwater.base.record.codecs import Codec
from headwater.base.record.records import iterate
from headwater.log.compaction.job import Cleaned
from headwater.log.compaction.offset_map import ENTRY_BYTES
from headwater.log.compaction.scanning import scan_records
from headwater.log.compaction.swap import swap_in
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.compaction.helpers import (
    COMPACT,
    append_pairs,
    compact,
    damage,
    pairs,
    plan,
    records,
    roll,
    run,
)
from tests.log.helpers import NOW_MS, base_offsets, open_log, read_batches


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def log(disk: MemoryDisk) -> PartitionLog:
    return open_log(disk, config=COMPACT, clock=ManualClock(NOW_MS))


def test_the_latest_record_of_each_key_remains_at_its_offset(
    disk: MemoryDisk, log: PartitionLog
) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")])
    append_pairs(log, [(b"a", b"2"), (b"c", b"1")])
    append_pairs(log, [(b"c", b"2")])
    roll(log)

    assert compact(disk, log) == 5

    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (4, b"c", b"2")]
    assert log.log_end_offset == 5


def test_the_active_segment_is_never_touched(disk: MemoryDisk, log: PartitionLog) -> None:
    append_pairs(log, [(b"a", b"1")])
    roll(log)
    append_pairs(log, [(b"a", b"2")])

    assert compact(disk, log) == 1

    assert pairs(log) == [(0, b"a", b"1"), (1, b"a", b"2")]


@pytest.mark.parametrize("codec", list(Codec))
def test_everything_but_the_dropped_records_stays(
    disk: MemoryDisk, log: PartitionLog, codec: Codec
) -> None:
    append_pairs(
        log,
        [(b"a", b"1" * 50), (b"b", b"2" * 50), (b"c", b"3" * 50)],
        codec=codec,
        producer=(7, 3, 40),
    )
    before, _ = read_batches(log)[0]
    append_pairs(log, [(b"b", b"later")], codec=codec)
    roll(log)

    compact(disk, log)

    header, batch = read_batches(log)[0]
    assert [(record.offset, record.timestamp, record.key) for record in iterate(batch)] == [
        (0, NOW_MS, b"a"),
        (2, NOW_MS + 2, b"c"),
    ]
    changed = {"batch_length": header.batch_length, "crc": header.crc, "record_count": 2}
    assert header == before._replace(**changed)


def test_the_largest_timestamp_is_that_of_what_remains(disk: MemoryDisk, log: PartitionLog) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"2")])
    append_pairs(log, [(b"b", b"3")], at_ms=NOW_MS - 50)
    roll(log)

    compact(disk, log)

    assert read_batches(log)[0][0].max_timestamp == NOW_MS
    found = log.max_timestamp(upto_offset=log.log_end_offset)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, NOW_MS)


def count(
    disk: MemoryDisk, log: PartitionLog, *, clean_offset: int = 0, buffer_bytes: int = 1 << 20
) -> Cleaned:
    """Run one pass, put its segments in place, and return what it tells of itself."""
    job = plan(log, clean_offset=clean_offset, buffer_bytes=buffer_bytes)
    assert job is not None
    cleaned = run(disk, job)
    for new in cleaned.segments:
        assert swap_in(disk, log, new, due_ms=NOW_MS)
    return cleaned


def test_keyless_records_go(disk: MemoryDisk, log: PartitionLog) -> None:
    append_pairs(log, [(None, b"1"), (b"a", b"1")])
    append_pairs(log, [(None, b"2")])
    append_pairs(log, [(b"b", b"1"), (b"b", b"2")])
    roll(log)

    cleaned = count(disk, log)

    assert pairs(log) == [(1, b"a", b"1"), (4, b"b", b"2")]
    assert (cleaned.dropped_records, cleaned.keyless_records) == (3, 2)


def test_keyless_records_are_counted_by_the_pass_that_drops_them(
    disk: MemoryDisk, log: PartitionLog
) -> None:
    # One key fits: the pass ends at the second one, and what is behind it stays for now.
    append_pairs(log, [(None, b"1"), (b"a", b"1"), (None, b"2"), (b"b", b"1"), (None, b"3")])
    roll(log)

    first = count(disk, log, buffer_bytes=1)
    second = count(disk, log, clean_offset=first.clean_offset)

    assert (first.keyless_records, second.keyless_records) == (2, 1)
    assert pairs(log) == [(1, b"a", b"1"), (3, b"b", b"1")]


def test_long_keys_are_told_apart(disk: MemoryDisk, log: PartitionLog) -> None:
    long = [b"k" * 200 + bytes([number]) for number in range(5)]
    for key in [*long, *long[1:3]]:
        append_pairs(log, [(key, b"v")])
    roll(log)

    compact(disk, log)

    assert [key for _, key, _ in pairs(log)] == [long[0], *long[3:], *long[1:3]]


def test_a_key_that_looks_like_a_digest_is_told_apart(disk: MemoryDisk, log: PartitionLog) -> None:
    """Whoever knows a long key could otherwise delete it by a short one."""
    long = b"k" * 100
    append_pairs(log, [(long, b"long")])
    [_, batch] = next(iter(read_batches(log)))
    [digest] = scan_records(parse_header(batch), batch[BATCH_HEADER_BYTES:]).keys
    assert digest is not None
    for key in (digest, digest[1:], hashlib.md5(long, usedforsecurity=False).digest()):
        append_pairs(log, [(key, b"short"), (b"\xff" + key, b"short")])
    roll(log)
    compact(disk, log)

    assert len(pairs(log)) == 7


class TestTombstones:
    def test_stay_until_the_delete_horizon(self, disk: MemoryDisk, log: PartitionLog) -> None:
        append_pairs(log, [(b"a", b"1"), (b"b", b"1")])
        append_pairs(log, [(b"a", None)])
        roll(log)
        clean_offset = compact(disk, log)
        assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None)]
        header, _ = read_batches(log)[-1]
        assert header.delete_horizon_ms == NOW_MS + COMPACT.delete_retention_ms

        for now_ms, remains in ((NOW_MS + 999, True), (NOW_MS + 1_000, False)):
            append_pairs(log, [(b"x", b"1")])
            roll(log)
            clean_offset = compact(disk, log, clean_offset=clean_offset, now_ms=now_ms)
            assert ((2, b"a", None) in pairs(log)) is remains

    def test_keep_their_timestamps(self, disk: MemoryDisk, log: PartitionLog) -> None:
        append_pairs(log, [(b"a", None), (b"b", b"1"), (b"c", None)])
        roll(log)
        before = records(log)

        compact(disk, log)

        assert records(log) == before
        header, batch = read_batches(log)[0]
        assert header.attributes & DELETE_HORIZON_MASK
        assert header.max_timestamp == NOW_MS + 2
        assert parse_header(batch).base_timestamp == NOW_MS + COMPACT.delete_retention_ms

    def test_the_horizon_never_moves(self, disk: MemoryDisk, log: PartitionLog) -> None:
        append_pairs(log, [(b"a", None), (b"b", b"1")])
        roll(log)
        clean_offset = compact(disk, log)
        append_pairs(log, [(b"b", b"2")])
        roll(log)

        compact(disk, log, clean_offset=clean_offset, now_ms=NOW_MS + 500)

        header, batch = read_batches(log)[0]
        assert header.delete_horizon_ms == NOW_MS + COMPACT.delete_retention_ms
        assert [(record.key, record.timestamp) for record in iterate(batch)] == [(b"a", NOW_MS)]


class TestProducers:
    def test_the_last_batch_of_an_active_producer_stays_as_a_header(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        append_pairs(log, [(b"a", b"1")], producer=(7, 0, 0))
        append_pairs(log, [(b"a", b"2"), (b"b", b"2")], producer=(7, 0, 1))
        append_pairs(log, [(b"a", b"3"), (b"b", b"3")])
        roll(log)

        compact(disk, log)

        headers = [header for header, _ in read_batches(log)]
        assert [(header.base_offset, header.record_count) for header in headers] == [
            (1, 0),
            (3, 2),
        ]
        found = open_log(disk, config=COMPACT).producers.get(7)
        assert found is not None
        assert found.last_sequence == 2

    def test_a_forgotten_producer_leaves_nothing(self, disk: MemoryDisk, log: PartitionLog) -> None:
        append_pairs(log, [(b"a", b"1")], producer=(7, 0, 0))
        append_pairs(log, [(b"a", b"2")])
        roll(log)
        log.producers.expire(NOW_MS + log.producer_id_expiration_ms, log.producer_id_expiration_ms)

        compact(disk, log)

        assert [header.base_offset for header, _ in read_batches(log)] == [1]


class TestBatchesWithoutRecords:
    """A reader gets one alone only where nothing else is left to be read."""

    @staticmethod
    def read(log: PartitionLog, offset: int, *, upto: int) -> list[tuple[int, int]]:
        found = log.read(offset, 3 * BATCH_HEADER_BYTES, upto_offset=upto, at_least_one=True)
        assert found is not None
        content, headers = found.read(), []
        while content:
            header = parse_header(content)
            headers.append((header.base_offset, header.record_count))
            content = content[header.size_bytes :]
        return headers

    def test_the_next_record_is_far_behind(self, disk: MemoryDisk, log: PartitionLog) -> None:
        for producer_id in range(7):
            append_pairs(log, [(b"a", b"1")], producer=(producer_id, 0, 0))
        append_pairs(log, [(b"a", b"2")])
        roll(log)
        compact(disk, log)

        assert self.read(log, 0, upto=8) == [(7, 1)]
        assert self.read(log, 6, upto=8) == [(6, 0), (7, 1)]
        assert self.read(log, 0, upto=7) == [(0, 0), (1, 0), (2, 0)]
        assert self.read(log, 5, upto=7) == [(5, 0), (6, 0)]

    def test_the_next_record_is_in_another_segment(self, disk: MemoryDisk) -> None:
        too_large_to_be_put_together = dataclasses.replace(COMPACT, segment_bytes=300)
        log = open_log(disk, config=too_large_to_be_put_together, clock=ManualClock(NOW_MS))
        append_pairs(log, [(b"a", bytes(200))], producer=(7, 0, 0))
        roll(log)
        append_pairs(log, [(b"a", bytes(200))])
        roll(log)
        compact(disk, log)
        assert log.segments[0].size == BATCH_HEADER_BYTES

        assert self.read(log, 0, upto=2) == [(1, 1)]


class TestTransactions:
    def write(self, log: PartitionLog, *, committed: bool, key: bytes, sequence: int = 0) -> None:
        append_pairs(log, [(key, b"t")], producer=(9, 0, sequence), transactional=True)
        log.append_marker(9, 0, committed=committed, coordinator_epoch=0)

    def test_aborted_records_go_and_replace_nothing(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        append_pairs(log, [(b"a", b"1")])
        self.write(log, committed=False, key=b"a")
        append_pairs(log, [(b"b", b"1")])
        roll(log)

        compact(disk, log)

        assert pairs(log) == [(0, b"a", b"1"), (3, b"b", b"1")]

    def test_committed_records_count_like_others(self, disk: MemoryDisk, log: PartitionLog) -> None:
        append_pairs(log, [(b"a", b"1")])
        self.write(log, committed=True, key=b"a")
        roll(log)

        compact(disk, log)

        assert pairs(log) == [(1, b"a", b"t")]

    @pytest.mark.parametrize("committed", [True, False])
    def test_a_marker_goes_when_its_records_are_gone_and_its_horizon_is_past(
        self, disk: MemoryDisk, log: PartitionLog, committed: bool
    ) -> None:
        self.write(log, committed=committed, key=b"a")
        append_pairs(log, [(b"a", b"2")], producer=(9, 0, 1))
        retention_ms = COMPACT.delete_retention_ms
        clean_offset = 0
        seen = []
        for later_ms in (0, retention_ms, 2 * retention_ms - 1, 2 * retention_ms):
            append_pairs(log, [(b"x", b"1")])
            roll(log)
            clean_offset = compact(disk, log, clean_offset=clean_offset, now_ms=NOW_MS + later_ms)
            markers = [header for header, _ in read_batches(log) if header.is_control]
            seen.append([header.delete_horizon_ms for header in markers])

        horizon_ms = NOW_MS + 2 * retention_ms
        assert seen == [[None], [horizon_ms], [horizon_ms], []]
        assert log.aborted_transactions(0, log.log_end_offset) == []

    def test_a_marker_stays_for_the_epoch_of_its_producer(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        append_pairs(log, [(b"a", b"t")], producer=(9, 0, 0), transactional=True)
        log.append_marker(9, 1, committed=True, coordinator_epoch=0)
        append_pairs(log, [(b"a", b"2")])
        clean_offset, now_ms = 0, NOW_MS
        for _ in range(4):
            append_pairs(log, [(b"x", b"1")])
            roll(log)
            clean_offset = compact(disk, log, clean_offset=clean_offset, now_ms=now_ms)
            now_ms += COMPACT.delete_retention_ms

        (marker,) = [header for header, _ in read_batches(log) if header.is_control]
        assert marker.record_count == 1
        again = open_log(disk, config=COMPACT)
        found = again.producers.get(9)
        assert found is not None
        assert found.epoch == 1
        assert again.open_transactions() == []

    def test_an_aborted_transaction_is_listed_while_its_marker_has_records(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        self.write(log, committed=False, key=b"a")
        roll(log)
        listed = log.aborted_transactions(0, 2)
        assert listed
        # The header of its last batch stays, as the producer is active.
        compact(disk, log)
        assert log.aborted_transactions(0, 2) == listed
        assert open_log(disk, config=COMPACT).aborted_transactions(0, 2) == listed

    def test_nothing_behind_an_open_transaction_is_touched(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        append_pairs(log, [(b"a", b"1")])
        roll(log)
        append_pairs(log, [(b"b", b"t")], producer=(9, 0, 0), transactional=True)
        append_pairs(log, [(b"a", b"2")])
        roll(log)

        assert compact(disk, log) == 1
        assert len(pairs(log)) == 3


class TestDamage:
    def test_a_batch_with_a_wrong_checksum_stays_and_replaces_nothing(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        append_pairs(log, [(b"a", b"1")])
        append_pairs(log, [(b"a", b"2")])
        append_pairs(log, [(b"b", b"1")])
        append_pairs(log, [(b"b", b"2")])
        roll(log)
        first, second = (len(batch) for _, batch in read_batches(log)[:2])
        damage(disk, log.segments[0].path(".log"), first + second - 2, 1)

        job = plan(log)
        assert job is not None
        cleaned = run(disk, job)

        assert "offset 1 is left" in cleaned.complaints[0]
        compact(disk, log)
        assert [(h.base_offset, h.record_count) for h, _ in read_batches(log)] == [
            (0, 1),
            (1, 1),
            (3, 1),
        ]

    def test_a_segment_that_cannot_be_walked_is_left_alone(
        self, disk: MemoryDisk, log: PartitionLog
    ) -> None:
        for number in range(3):
            append_pairs(log, [(b"a", b"%d" % number), (b"k%d" % number, b"1")])
            append_pairs(log, [(b"a", b"%d" % number)])
            roll(log)
        damage(disk, log.segments[1].path(".log"), MAGIC_POS, 8)

        job = plan(log)
        assert job is not None
        cleaned = run(disk, job)

        assert [list(new.replaces) for new in cleaned.segments] == [[0], [6]]
        assert "no batch" in cleaned.complaints[0]
        assert cleaned.clean_offset == 9


def test_small_segments_are_put_together(disk: MemoryDisk, log: PartitionLog) -> None:
    for number in range(9):
        append_pairs(log, [(b"a", b"%d" % number)])
        roll(log)
    assert len(base_offsets(log)) == 10

    compact(disk, log)

    # A time index has room for five entries of twelve bytes.
    assert base_offsets(log) == [0, 5, 9]
    assert pairs(log) == [(8, b"a", b"8")]


def test_keys_that_do_not_fit_are_left_to_the_next_pass(
    disk: MemoryDisk, log: PartitionLog
) -> None:
    for _ in range(3):
        append_pairs(log, [(b"%d" % number, b"v") for number in range(20)])
    roll(log)
    clean_offset, passes = 0, 0
    while clean_offset < log.log_end_offset:
        reached = compact(disk, log, clean_offset=clean_offset, buffer_bytes=6 * (ENTRY_BYTES + 2))
        assert reached > clean_offset
        clean_offset, passes = reached, passes + 1

    assert passes > 3
    assert [offset for offset, _, _ in pairs(log)] == list(range(40, 60))


def test_a_segment_without_a_change_is_not_written(disk: MemoryDisk, log: PartitionLog) -> None:
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")])
    roll(log)
    job = plan(log)
    assert job is not None

    cleaned = run(disk, job)

    assert cleaned.segments == []
    assert cleaned.clean_offset == 2
    assert not [name for name in disk.list_directory(log.directory) if "cleaned" in name]
