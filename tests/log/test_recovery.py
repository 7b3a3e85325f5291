"""Recovery: what is kept of damaged files, what is cut, and how little is read."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from headwater.base.disk import RealDisk
from headwater.base.errors import StorageError
from headwater.base.record.batch import parse_header, write_crc
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.testing.memory_disk import MemoryDisk, MemoryFile, PowerCut
from headwater.testing.memory_nodes import FileNode
from tests.log.helpers import (
    NOW_MS,
    SMALL,
    append,
    append_value,
    commit,
    make_batch,
    open_log,
    read_batches,
    read_values,
)

ONE_SEGMENT = TopicConfig(index_interval_bytes=100)
FIRST = "/t-0/00000000000000000000"
COUNT = 30


def filled(disk: MemoryDisk, *, config: TopicConfig, count: int = COUNT) -> PartitionLog:
    log = open_log(disk, config=config)
    for number in range(count):
        append_value(log, b"value %02d" % number, NOW_MS + number)
    commit(log)
    return log


def content(disk: MemoryDisk, path: str) -> bytearray:
    file = disk.open_for_reading(path)
    return bytearray(file.read(file.size(), 0))


def rewrite(disk: MemoryDisk, path: str, new_content: bytes | bytearray) -> None:
    file = disk.open(path)
    file.truncate(0)
    file.append([new_content])


BATCH = len(make_batch([b"value 00"]))


def flip(at: int) -> Callable[[bytearray], bytearray]:
    def damage(whole: bytearray) -> bytearray:
        whole[at] ^= 0x5A
        return whole

    return damage


def put(at: int, new: bytes) -> Callable[[bytearray], bytearray]:
    def damage(whole: bytearray) -> bytearray:
        whole[at : at + len(new)] = new
        return whole

    return damage


TWENTY = 20 * BATCH


DAMAGES: dict[str, Callable[[bytearray], bytearray]] = {
    "a record": flip(TWENTY + 70),
    "the checksum": flip(TWENTY + 18),
    "the magic": flip(TWENTY + 16),
    "no length": put(TWENTY + 8, b"\0\0\0\0"),
    "a negative length": put(TWENTY + 8, b"\xff\xff\xff\xf0"),
    "a length beyond the file": put(TWENTY + 8, b"\x7f\xff\xff\xff"),
    "an offset that was there": put(TWENTY, (19).to_bytes(8, "big")),
    "an offset that leaves a gap": put(TWENTY, (21).to_bytes(8, "big")),
    "an offset beyond any index": put(TWENTY, (1 << 40).to_bytes(8, "big")),
    "an epoch that never was": put(TWENTY + 12, (77).to_bytes(4, "big")),
    "a block of zeros": put(TWENTY, bytes(BATCH)),
    "torn in the offset": lambda whole: whole[: TWENTY + 1],
    "torn in the header": lambda whole: whole[: TWENTY + 60],
    "torn in a record": lambda whole: whole[: TWENTY + BATCH - 1],
    "zeros to the end": lambda whole: whole[:TWENTY] + bytes(4096),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_the_log_ends_before_the_first_bad_batch(
    damage: Callable[[bytearray], bytearray],
) -> None:
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT)
    rewrite(disk, FIRST + ".log", damage(content(disk, FIRST + ".log")))
    log = open_log(disk, config=ONE_SEGMENT)

    assert log.log_end_offset == log.high_watermark == 20
    assert read_values(log) == [(n, b"value %02d" % n) for n in range(20)]
    assert len(content(disk, FIRST + ".log")) == TWENTY
    assert log.recovery.scanned_bytes == TWENTY
    assert log.recovery.truncated_bytes > 0
    assert append_value(log, b"next").base_offset == 20


class ShortDisk(MemoryDisk):
    """Gives so many bytes of a file when it is read from the device, and no error."""

    limit = 0

    def open_on_device(self, path: str) -> MemoryFile:
        return ShortFile(self, path, cast("FileNode", self._find(path)), on_device=True)


class ShortFile(MemoryFile):
    def read(self, size: int, position: int) -> bytes:
        return super().read(size, position)[: max(ShortDisk.limit - position, 0)]


@pytest.mark.parametrize("limit", [0, 30, TWENTY, TWENTY + 70])
def test_what_cannot_be_read_is_not_cut_off(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = ShortDisk()
    filled(disk, config=ONE_SEGMENT)
    whole = content(disk, FIRST + ".log")
    monkeypatch.setattr(ShortDisk, "limit", limit)
    with pytest.raises(StorageError, match=f"only {limit} of {len(whole)} bytes"):
        open_log(disk, config=ONE_SEGMENT)
    assert content(disk, FIRST + ".log") == whole


def test_a_batch_with_malformed_records_and_a_right_checksum_is_kept() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=ONE_SEGMENT)
    append_value(log, b"before")
    batch = make_batch([b"value"])
    batch[61:] = b"\xff" * (len(batch) - 61)
    write_crc(batch, 0, len(batch))
    append(log, batch)
    append_value(log, b"after")
    log = open_log(disk, config=ONE_SEGMENT)

    assert log.log_end_offset == 3
    assert read_batches(log)[1][1] == bytes(batch)


def test_damage_in_one_segment_removes_all_behind_it() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(60):
        append_value(log, b"value %02d" % number, NOW_MS + number)
    commit(log)
    bases = [segment.base_offset for segment in log._segments]
    assert len(bases) > 3
    path = f"/t-0/{bases[2]:020d}.log"
    rewrite(disk, path, flip(BATCH + 70)(content(disk, path)))
    log = open_log(disk)

    assert log.log_end_offset == bases[2] + 1
    assert log.recovery.removed_segments == len(bases) - 3
    names = disk.list_directory("/t-0")
    offsets = {int(name[:20]) for name in names if name[0] == "0"}
    assert max(offsets) <= bases[2] + 1
    assert {name for name in names if name.endswith(".log")} == {
        f"{base:020d}.log" for base in bases[:3]
    }


def test_a_missing_segment_ends_the_log_unless_it_was_durable_or_compacted() -> None:
    for config, recovery_point, survives in (
        (TopicConfig(index_interval_bytes=100, segment_index_bytes=60), 0, False),
        (TopicConfig(index_interval_bytes=100, segment_index_bytes=60), 60, True),
        (
            TopicConfig(index_interval_bytes=100, segment_index_bytes=60, cleanup_policy="compact"),
            0,
            True,
        ),
        (
            TopicConfig(index_interval_bytes=100, segment_index_bytes=60, cleanup_policy="compact"),
            1,
            False,
        ),
    ):
        disk = MemoryDisk()
        log = filled(disk, config=config, count=60)
        bases = [segment.base_offset for segment in log._segments]
        disk.remove(f"/t-0/{bases[1]:020d}.log")
        log = open_log(disk, config=config, recovery_point=recovery_point)

        assert log.log_end_offset == (60 if survives else bases[1])
        expected = [n for n in range(log.log_end_offset) if not bases[1] <= n < bases[2]]
        assert [offset for offset, _ in read_values(log)] == expected
        if survives:
            # Offsets in the gap lead to what follows it.
            assert read_values(log, bases[1] + 1)[0][0] == bases[2]


def test_only_what_lies_behind_the_recovery_point_is_scanned() -> None:
    disk = MemoryDisk()
    log = filled(disk, config=ONE_SEGMENT, count=200)
    recovery_point = log.checkpoint()
    assert recovery_point == 200
    for number in range(5):
        append_value(log, b"more %d" % number)
    disk = disk.after_power_cut(0, keep="nothing")
    log = open_log(disk, config=ONE_SEGMENT, recovery_point=recovery_point)

    assert log.log_end_offset == 200
    assert 0 < log.recovery.scanned_bytes <= 3 * BATCH


def test_damage_below_the_recovery_point_is_left_to_readers() -> None:
    disk = MemoryDisk()
    log = filled(disk, config=ONE_SEGMENT)
    log.checkpoint()
    rewrite(disk, FIRST + ".log", flip(2 * BATCH + 70)(content(disk, FIRST + ".log")))
    log = open_log(disk, config=ONE_SEGMENT, recovery_point=COUNT)

    assert log.log_end_offset == COUNT


INDEX_DAMAGES: dict[str, Callable[[bytes], bytes] | None] = {
    "empty": lambda whole: whole[:0],
    "torn": lambda whole: whole[:-1],
    "zeros": lambda whole: bytes(len(whole)),
    "longer": lambda whole: whole + b"\xff" * 24,
    "another": lambda whole: b"\x7f" * len(whole),
    "gone": None,
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", INDEX_DAMAGES.values(), ids=INDEX_DAMAGES)
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_of_the_active_segment_is_made_anew(
    suffix: str, damage: Callable[[bytes], bytes] | None, clean: bool
) -> None:
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT).close()
    good = content(disk, FIRST + suffix)
    if damage is None:
        disk.remove(FIRST + suffix)
    else:
        rewrite(disk, FIRST + suffix, damage(bytes(good)))
    log = open_log(disk, config=ONE_SEGMENT, clean=clean)

    assert read_values(log) == [(n, b"value %02d" % n) for n in range(COUNT)]
    for number in range(COUNT):
        found = log.offset_for_timestamp(NOW_MS + number, upto_offset=COUNT)
        assert found is not None
        assert found.offset == number
    log.close()
    assert content(disk, FIRST + suffix) == good


def test_a_wrong_index_does_not_cut_the_log() -> None:
    """The index points into the middle of batches, and yet looks like one."""
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT).close()
    shifted = content(disk, FIRST + ".index")
    shifted[7::8] = bytes((byte + 1) & 0xFF for byte in shifted[7::8])
    rewrite(disk, FIRST + ".index", shifted)
    log = open_log(disk, config=ONE_SEGMENT, recovery_point=COUNT)

    assert log.log_end_offset == COUNT
    assert read_values(log) == [(n, b"value %02d" % n) for n in range(COUNT)]


@pytest.mark.parametrize("recovery_point", [0, 20, 60])
@pytest.mark.parametrize("config", [SMALL, TopicConfig(index_interval_bytes=100, segment_ms=5)])
def test_the_indexes_of_closed_segments_are_made_anew_when_they_are_gone(
    recovery_point: int, config: TopicConfig
) -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=config)
    for number in range(60):
        append_value(log, b"value %02d" % number, NOW_MS + number)
    log.close()
    goods = {name: content(disk, f"/t-0/{name}") for name in disk.list_directory("/t-0")}
    for name in goods:
        if name.endswith("index"):
            disk.remove(f"/t-0/{name}")
    log = open_log(disk, config=config, recovery_point=recovery_point)
    assert len(log._segments) > 5
    assert len(read_values(log)) == 60
    log.close()

    assert {n: content(disk, f"/t-0/{n}") for n in disk.list_directory("/t-0")} == goods


def test_producers_come_back_from_a_snapshot_and_what_follows_it() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    sent = []
    for number in range(60):
        batch = make_batch(
            [b"v"], producer_id=number % 3, producer_epoch=0, base_sequence=number // 3
        )
        sent.append(bytearray(batch))
        append(log, batch)
    commit(log)
    for damaged in (False, True):
        if damaged:
            snapshots = [n for n in disk.list_directory("/t-0") if n.endswith(".snapshot")]
            assert len(snapshots) == 3
            for name in snapshots:
                rewrite(disk, f"/t-0/{name}", b"torn")
        log = open_log(disk)
        assert len(log.producers) == 3
        for number in range(45, 60):
            again = append(log, bytearray(sent[number]))
            assert (again.duplicate, again.base_offset) == (True, number)


def test_producers_of_a_lost_tail_are_forgotten_although_a_snapshot_knows_them() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    sent = []
    for number in range(30):
        batch = make_batch([b"v"], producer_id=1, producer_epoch=0, base_sequence=number)
        sent.append(bytearray(batch))
        append(log, batch)
    commit(log)
    snapshots = [n for n in disk.list_directory("/t-0") if n.endswith(".snapshot")]
    assert int(snapshots[-1][:20]) > 5
    rewrite(disk, FIRST + ".log", flip(65)(content(disk, FIRST + ".log")))
    log = open_log(disk)
    assert log.log_end_offset == 0

    assert not append(log, sent[0]).duplicate
    assert not append(log, sent[1]).duplicate


def test_a_snapshot_older_than_all_segments_is_of_no_use() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(30):
        append(log, make_batch([b"v"], producer_id=1, producer_epoch=0, base_sequence=number))
    append_value(log, b"other")
    log.close()
    *_, older, last = [n for n in disk.list_directory("/t-0") if n.endswith(".snapshot")]
    for name in disk.list_directory("/t-0"):
        if name[0] == "0" and name != older:
            disk.remove(f"/t-0/{name}")
    disk.open(f"/t-0/{last[:20]}.log", create=True)
    for clean in (True, False):
        log = open_log(disk, clean=clean)
        assert log.log_end_offset == 31
        # It knows an old sequence number, and would refuse the producer's next one.
        assert len(log.producers) == 0


def test_a_stop_that_was_not_clean_after_all_is_recovered() -> None:
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT).close()
    file = disk.open(FIRST + ".log")
    file.append([b"something else"])
    log = open_log(disk, config=ONE_SEGMENT, clean=True)

    assert log.log_end_offset == COUNT
    assert log.recovery.truncated_bytes == len(b"something else")


def test_a_clean_stop_is_believed_also_where_no_record_has_a_timestamp() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=ONE_SEGMENT)
    for number in range(COUNT):
        append_value(log, b"%d" % number, -1)
    log.close()
    log = open_log(disk, config=ONE_SEGMENT, clean=True)

    assert log.recovery.scanned_bytes == 0
    assert log.log_end_offset == COUNT
    assert log.max_timestamp(upto_offset=COUNT) is None


def test_the_files_of_another_topic_are_refused() -> None:
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT)

    with pytest.raises(StorageError, match="another topic"):
        open_log(disk, topic_id=b"another topic id")


def test_epochs_that_are_lost_are_read_from_the_batches() -> None:
    disk = MemoryDisk()
    for epoch in (0, 2, 3):
        log = open_log(disk, leader_epoch=epoch)
        append_value(log, b"v")
        append_value(log, b"v")
        commit(log)
    recovery_point = log.checkpoint()
    for damage in (b"", b"0\n1\n"):
        rewrite(disk, "/t-0/leader-epoch-checkpoint", damage)
        log = open_log(disk, leader_epoch=9, recovery_point=recovery_point)
        assert log.epochs.items() == [(0, 0), (2, 2), (3, 4)]
    assert content(disk, "/t-0/leader-epoch-checkpoint") == b"0\n3\n0 0\n2 2\n3 4\n"


def test_epochs_of_a_lost_tail_are_forgotten() -> None:
    disk = MemoryDisk()
    log = open_log(disk, leader_epoch=0)
    append_value(log, b"v")
    commit(log)
    log = open_log(disk, leader_epoch=1)
    append_value(log, b"v")
    commit(log)
    path = "/t-0/00000000000000000000.log"
    rewrite(disk, path, content(disk, path)[:-1])
    log = open_log(disk, leader_epoch=2)

    assert log.log_end_offset == 1
    assert log.epochs.items() == [(0, 0)]
    # Whoever has read offset 1 in epoch 1 learns that epoch 0 ended before it.
    append_value(log, b"other")
    assert log.epoch_end_offset(1) == (0, 1)


def test_files_from_a_later_epoch_keep_their_epoch() -> None:
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT)
    log = open_log(disk, leader_epoch=8)
    append_value(log, b"v")
    log.close()
    log = open_log(disk, leader_epoch=1)
    batch = make_batch([b"w"])
    append(log, batch)

    assert log.log_end_offset == COUNT + 2
    assert parse_header(batch).leader_epoch == 8


def test_the_log_start_is_what_was_written_down_or_what_is_there() -> None:
    disk = MemoryDisk()
    filled(disk, config=ONE_SEGMENT)

    assert open_log(disk, config=ONE_SEGMENT, log_start_offset=12).log_start_offset == 12
    last = open_log(disk, config=ONE_SEGMENT, log_start_offset=COUNT)
    assert last.log_start_offset == last.log_end_offset == COUNT


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_its_start_goes_on_at_its_start(*, clean: bool) -> None:
    """Offsets that were given out are not given out again, where the log start would hide them."""
    disk = MemoryDisk()
    sent = make_batch(producer_id=7, producer_epoch=0, base_sequence=0)
    log = filled(disk, config=ONE_SEGMENT)
    append(log, bytearray(sent))
    log.close()
    disk = disk.after_power_cut(0, keep="nothing")
    log = open_log(disk, config=ONE_SEGMENT, log_start_offset=99, clean=clean)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (99, 99, 99)
    assert not read_values(log)
    for found in (disk.after_kill(), disk.after_power_cut(0, keep="nothing")):
        log = open_log(found, config=ONE_SEGMENT, log_start_offset=99)
        assert append(log, bytearray(sent)).duplicate, "what came before is known all the same"
        append_value(log, b"next")
        commit(log)
        for again in (found.after_kill(), found.after_power_cut(0, keep="nothing")):
            log = open_log(again, config=ONE_SEGMENT, log_start_offset=99)
            assert read_values(log) == [(99, b"next")]


def test_the_start_of_such_a_log_may_be_cut_off_anywhere() -> None:
    disk = MemoryDisk()
    sent = make_batch(producer_id=7, producer_epoch=0, base_sequence=0)
    log = filled(disk, config=SMALL)
    append(log, bytearray(sent))
    log.close()
    disk = disk.after_power_cut(0, keep="nothing")
    for number in range(1, 1_000):
        interrupted = disk.after_kill()
        interrupted.cut_power_at(number)
        try:
            open_log(interrupted, log_start_offset=99)
        except PowerCut:
            pass
        else:
            assert number > 10
            break
        for seed in range(5):
            found = interrupted.after_power_cut(seed)
            log = open_log(found, log_start_offset=99)
            assert (log.log_start_offset, log.log_end_offset) == (99, 99)
            assert append(log, bytearray(sent)).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_from_before_the_log_start_are_forgotten(*, clean: bool) -> None:
    disk = MemoryDisk()
    for epoch in (1, 2, 3):
        log = open_log(disk, config=ONE_SEGMENT, leader_epoch=epoch, clean=True)
        append_value(log, b"v")
        append_value(log, b"v")
        log.close()

    log = open_log(disk, config=ONE_SEGMENT, log_start_offset=3, clean=clean)
    assert log.epochs.items() == [(2, 3), (3, 4)]


def test_an_empty_directory_is_an_empty_log() -> None:
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    log = open_log(disk)

    assert log.log_end_offset == 0
    append_value(log, b"v")
    commit(log)
    assert read_values(log) == [(0, b"v")]


def test_an_empty_segment_tells_where_offsets_go_on() -> None:
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    disk.open("/t-0/00000000000000000042.log", create=True)
    for clean in (True, False):
        log = open_log(disk, clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (42, 42)
    assert append_value(log, b"v").base_offset == 42


def test_a_scan_is_fast(tmp_path: Path) -> None:
    """The bar is 500 MB/s; a tenth of it allows for a busy machine, and tells a copy per batch."""
    log = open_log(RealDisk(), str(tmp_path / "t-0"), config=TopicConfig())
    batch = make_batch([bytes(16_300)])
    header = parse_header(batch)
    for _ in range(4_000):
        log.append(batch, header)
    commit(log)
    started_s = time.perf_counter()
    log = open_log(RealDisk(), str(tmp_path / "t-0"), config=TopicConfig())
    passed_s = time.perf_counter() - started_s

    assert log.recovery.scanned_bytes == 4_000 * len(batch)
    assert log.recovery.scanned_bytes / passed_s > 50e6
