"""The index of aborted transactions: when its file exists, and what becomes of a wrong one."""

import random
from collections.abc import Sequence

import pytest

from headwater.base.disk import read_file
from headwater.base.errors import KafkaError
from headwater.base.record.batch import stamp, write_crc
from headwater.log.names import DELETED, TXN_INDEX, offset_name
from headwater.log.partition import PartitionLog
from headwater.log.txn_index import TXN_ENTRY_BYTES, TxnIndex, TxnIndexEntry
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import append_value, base_offsets, commit, make_batch, open_log
from tests.log.test_transactions import end, send

HOUR_MS = 3_600_000


def live(
    log: PartitionLog, *, segments: int, seed: int = 0, producers: Sequence[int] = range(5)
) -> list[TxnIndexEntry]:
    """Let producers begin and end transactions; return what the indexes have to hold."""
    chance = random.Random(seed)
    sequences = dict.fromkeys(producers, 0)
    opened: dict[int, int] = {}
    expected: list[TxnIndexEntry] = []
    while len(base_offsets(log)) < segments or opened:
        producer = chance.choice(list(opened)) if len(base_offsets(log)) >= segments else -1
        if producer < 0:
            producer = chance.choice(producers)
            opened.setdefault(producer, send(log, producer, sequences[producer]).base_offset)
            sequences[producer] += 1
        if chance.random() < 0.4:
            committed = chance.random() < 0.3
            marker = end(log, producer, committed=committed).base_offset
            first = opened.pop(producer)
            stable = min(opened.values(), default=marker + 1)
            if not committed:
                expected.append(TxnIndexEntry(producer, first, marker, stable))
    return expected


def entries(log: PartitionLog) -> list[TxnIndexEntry]:
    return [entry for segment in log._segments for entry in segment.txn_index.entries()]


def txn_files(disk: MemoryDisk) -> dict[int, list[TxnIndexEntry]]:
    return {
        int(name[:20]): TxnIndex(read_file(disk, f"/t-0/{name}")).entries()
        for name in disk.list_directory("/t-0")
        if name.endswith(TXN_INDEX)
    }


def test_only_segments_with_aborted_transactions_have_the_file() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 1, 0)
    end(log, 1, committed=True)
    while len(base_offsets(log)) < 3:
        append_value(log, b"v" * 20)
    send(log, 1, 1)
    marker = end(log, 1, committed=False)
    while len(base_offsets(log)) < 5:
        append_value(log, b"v" * 20)
    commit(log)
    log.close()

    base = max(base for base in base_offsets(open_log(disk)) if base <= marker.base_offset)
    first = marker.base_offset - 1
    assert txn_files(disk) == {
        base: [TxnIndexEntry(1, first, marker.base_offset, marker.base_offset + 1)]
    }


@pytest.mark.parametrize("ended", ["cleanly", "killed", "without power"])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_the_index_is_the_same_after_a_restart(ended: str, is_checkpointed: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    expected = live(log, segments=4)
    commit(log)
    recovery_point = log.checkpoint() if is_checkpointed else 0
    expected += live_on(log)
    commit(log)
    assert entries(log) == expected
    if ended == "cleanly":
        log.close()
        recovery_point = log.log_end_offset
    elif ended == "without power":
        disk = disk.after_power_cut(0, keep="nothing")
    log = open_log(disk, recovery_point=recovery_point, clean=ended == "cleanly")

    assert entries(log) == expected
    commit(log)
    log.close()
    on_disk = [entry for _, found in sorted(txn_files(disk).items()) for entry in found]
    assert on_disk == expected


def live_on(log: PartitionLog) -> list[TxnIndexEntry]:
    """Abort some more, each in a transaction of one record."""
    expected = []
    for producer in range(10, 16):
        first = send(log, producer, 0).base_offset
        marker = end(log, producer, committed=False).base_offset
        expected.append(TxnIndexEntry(producer, first, marker, marker + 1))
    return expected


def test_a_lost_marker_opens_its_transaction_again() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 1, 0)
    send(log, 2, 0)
    end(log, 1, committed=False)
    commit(log)
    recovery_point = log.checkpoint()
    marker = end(log, 2, committed=False).base_offset
    # The index reaches the disk, the marker does not.
    for segment in log._segments:
        for file in segment.save_indexes()[0]:
            file.sync()
    assert len(txn_files(disk)[0]) == 2
    disk = disk.after_power_cut(0, keep="nothing")
    assert len(txn_files(disk)[0]) == 2
    log = open_log(disk, recovery_point=recovery_point)

    assert log.log_end_offset == marker
    assert [found.producer_id for found in log.open_transactions()] == [2]
    assert txn_files(disk) == {0: entries(log)} == {0: [TxnIndexEntry(1, 0, 2, 1)]}


def test_a_garbled_entry_that_looks_like_one_from_before_is_not_believed() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 1, 0)
    end(log, 1, committed=False)
    for _ in range(4):
        append_value(log, b"v" * 20)
    commit(log)
    recovery_point = log.checkpoint()
    file = disk.open(f"/t-0/{offset_name(0, TXN_INDEX)}")
    garbled = TxnIndex()
    garbled.append(TxnIndexEntry(1, 2, 3, 4))
    file.append((garbled.encode(),))
    log = open_log(disk, recovery_point=recovery_point)

    assert entries(log) == [TxnIndexEntry(1, 0, 1, 2)]
    assert txn_files(disk)[0] == entries(log)


def damages() -> list[tuple[str, bytes]]:
    good = TxnIndex()
    good.append(TxnIndexEntry(1, 0, 1, 2))
    wrong_order = TxnIndex()
    wrong_order.append(TxnIndexEntry(1, 5, 1, 2))
    return [
        ("torn", good.encode()[:-3]),
        ("zeroed", bytes(TXN_ENTRY_BYTES)),
        ("of another version", b"\0\1" + good.encode()[2:]),
        ("ends before it begins", wrong_order.encode()),
        ("of another segment", good.encode()),
    ]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", damages(), ids=lambda damage: damage[0])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_damaged_index_is_made_anew(damage: tuple[str, bytes], clean: bool, place: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    expected = live(log, segments=5, seed=3)
    commit(log)
    log.close()
    files = txn_files(disk)
    assert len(files) >= 4
    base = sorted(files)[place]
    file = disk.open(f"/t-0/{offset_name(base, TXN_INDEX)}")
    content = read_file(disk, file.path)
    file.truncate(0)
    if base == 0 and damage[0] == "of another segment":
        file.append((content + content,))
    else:
        file.append((damage[1],))
    log = open_log(disk, recovery_point=log.log_end_offset, clean=clean)

    assert entries(log) == expected
    assert txn_files(disk) == files


def test_the_file_goes_with_its_segment() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    expected = live(log, segments=4)
    commit(log)
    bases = base_offsets(log)
    log.checkpoint()
    assert len(txn_files(disk)) >= 3
    log.trim(bases[2])
    log.remove_expired(log._clock.now_ms())
    kept = [entry for entry in expected if entry.marker_offset >= bases[2]]
    assert 0 < len(kept) < len(expected)
    assert entries(log) == kept
    assert min(txn_files(disk)) >= bases[2]
    deleted = [name for name in disk.list_directory("/t-0") if name.endswith(".txnindex.deleted")]
    assert deleted
    log.purge_deleted(log._clock.now_ms() + HOUR_MS)
    assert not [name for name in disk.list_directory("/t-0") if name.endswith(".deleted")]


def test_recovery_removes_it_with_the_segments_behind_damage() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    live(log, segments=4)
    commit(log)
    log.checkpoint()
    bases = base_offsets(log)
    file = disk.open(f"/t-0/{offset_name(bases[1], '.log')}")
    file.truncate(file.size() - 1)
    log = open_log(disk)

    assert base_offsets(log) == bases[:2]
    assert max(txn_files(disk)) <= bases[1]
    assert all(entry.marker_offset < log.log_end_offset for entry in entries(log))


def test_an_idle_index_is_read_again() -> None:
    log = open_log(MemoryDisk())
    expected = live(log, segments=3)
    commit(log)
    for _ in range(3):
        log.checkpoint()
    assert log._segments[0]._txn_index is None
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [tuple(entry) for entry in found] == [entry[:2] for entry in expected]


def test_a_full_disk_keeps_the_entries_in_memory() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    expected = live(log, segments=2)
    commit(log)
    log.checkpoint()
    expected += live_on(log)
    commit(log)
    disk.capacity_bytes = disk.used_bytes()
    for _ in range(3):
        assert log.checkpoint() < log.log_end_offset
    assert entries(log) == expected
    disk.capacity_bytes = None
    assert log.checkpoint() == log.log_end_offset
    found = open_log(disk.after_power_cut(0, keep="nothing"), recovery_point=log.log_end_offset)
    assert entries(found) == expected


def test_a_batch_that_is_sent_again_after_a_restart_opens_no_transaction() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7, 0)
    end(log, 7, committed=True)
    for sequence in range(1, 4):
        send(log, 7, sequence)
    commit(log)
    log.close()
    log = open_log(disk, recovery_point=5, clean=True)
    # The snapshot has the last batch only; the others are looked for in the log.
    for sequence in range(1, 4):
        assert send(log, 7, sequence).duplicate
    with pytest.raises(KafkaError, match="sequence number 0"):
        send(log, 7, 0)
    assert [one.first_offset for one in log.open_transactions()] == [2]
    end(log, 7, committed=True)
    commit(log)
    assert (log.open_transactions(), log.last_stable_offset) == ([], 6)


def test_a_control_batch_that_cannot_be_read_stops_no_start() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7, 0)
    batch = make_batch([b""], producer_id=7, producer_epoch=0, base_sequence=1)
    batch[22] |= 0x30
    rewritten = bytes(batch)
    commit(log)
    file = disk.open("/t-0/00000000000000000000.log")
    file.append((stamped(rewritten, 1),))
    log = open_log(disk)

    assert log.log_end_offset == 2
    assert len(log.open_transactions()) == 1


def stamped(batch: bytes, offset: int) -> bytes:
    """Return a batch at an offset, of the first epoch, its checksum right."""
    content = bytearray(batch)
    stamp(content, 0, offset, 0)
    write_crc(content, 0, len(content))
    return bytes(content)


@pytest.mark.parametrize("clean", [False, True])
def test_an_index_whose_segment_was_not_removed_comes_back(*, clean: bool) -> None:
    """Retention changes both names before it syncs them, and a crash may keep either change."""
    disk = MemoryDisk()
    log = open_log(disk)
    expected = live(log, segments=4)
    commit(log)
    log.close()
    bases = list(txn_files(disk))
    for base in bases:
        path = f"/t-0/{offset_name(base, TXN_INDEX)}"
        disk.rename(path, path + DELETED)
    found = open_log(disk, recovery_point=log.log_end_offset, clean=clean)
    assert entries(found) == expected
    assert set(txn_files(disk)) == set(bases)


def test_an_index_that_was_replaced_does_not_come_back() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    expected = live(log, segments=3)
    commit(log)
    log.close()
    for base in txn_files(disk):
        path = f"/t-0/{offset_name(base, TXN_INDEX)}"
        disk.open(path + DELETED, create=True).append([bytes(2 * TXN_ENTRY_BYTES)])
    found = open_log(disk, recovery_point=log.log_end_offset)
    assert entries(found) == expected
    assert not [name for name in disk.list_directory("/t-0") if name.endswith(DELETED)]
