"""Every sync counts: whatever was promised durable is on the platter, with its name and content.

Each scenario ends at a promise: a commit has ended, a checkpoint or a stop has returned, a log is
open. A power cut that keeps nothing un-synced must then leave the directory exactly as it was.
The last test takes the syncs away, one place in the code after the other, and sees them missed.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater.log
from headwater.testing.memory_disk import MemoryDisk, Operation
from tests.log.helpers import NOW_MS, SMALL, append_value, commit, open_log

LOG_ROOM = str(Path(headwater.log.__file__).parent)
Scenario = Callable[[MemoryDisk], None]


def first_commit(disk: MemoryDisk) -> None:
    log = open_log(disk)
    append_value(log, b"first")
    commit(log)


def commit_after_a_roll(disk: MemoryDisk) -> None:
    log = open_log(disk)
    segments = 1
    for number in range(40):
        append_value(log, b"value %d" % number, NOW_MS + number)
        if len(log._segments) > segments:
            segments += 1
            commit(log)
    assert segments > 2
    commit(log)


def commit_in_a_new_epoch(disk: MemoryDisk) -> None:
    first_commit(disk)
    log = open_log(disk, leader_epoch=1, recovery_point=1)
    append_value(log, b"second")
    commit(log)
    assert log.epochs.items() == [(0, 0), (1, 1)]


def checkpoint(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(8):
        append_value(log, b"value %d" % number, NOW_MS + number)
    commit(log)
    assert log.checkpoint() == 8
    assert any(name.endswith(".index") for name in disk.list_directory("/t-0"))


def second_checkpoint(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(8):
        append_value(log, b"value %d" % number, NOW_MS + number)
        if number in {3, 7}:
            commit(log)
            assert log.checkpoint() == number + 1


def stop(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(20):
        append_value(log, b"value %d" % number, NOW_MS + number)
    log.close()


def recovery_of_un_synced_batches(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(20):
        append_value(log, b"value %d" % number, NOW_MS + number)
    open_log(disk)


def recovery_of_a_torn_batch(disk: MemoryDisk) -> None:
    stop(disk)
    path = max(name for name in disk.list_directory("/t-0") if name.endswith(".log"))
    file = disk.open(f"/t-0/{path}")
    file.append([b"torn"])
    open_log(disk, recovery_point=19)
    assert file.size() > 0


def recovery_without_metadata(disk: MemoryDisk) -> None:
    stop(disk)
    disk.remove("/t-0/partition.metadata")
    disk.remove("/t-0/leader-epoch-checkpoint")
    open_log(disk, recovery_point=19)


def recovery_without_the_indexes_of_a_closed_segment(disk: MemoryDisk) -> None:
    stop(disk)
    disk.remove("/t-0/00000000000000000000.index")
    open_log(disk, recovery_point=19)
    assert disk.exists("/t-0/00000000000000000000.index")


def retention(disk: MemoryDisk) -> None:
    log = open_log(disk)
    for number in range(20):
        append_value(log, b"value %d" % number, NOW_MS + number)
        commit(log)

    def newest_name_is_durable(operation: Operation) -> None:
        # Before the first segment goes: what tells where offsets and producers go on is safe.
        if operation.kind == "rename":
            found = content_of(disk.after_power_cut(0, keep="nothing"))
            assert {"00000000000000000020.log", "00000000000000000020.snapshot"} <= set(found)

    disk.after_operation = newest_name_is_durable
    log.remove_expired(NOW_MS + SMALL.retention_ms + 100)
    assert log.size_bytes() == 0


SCENARIOS: list[Scenario] = [
    first_commit,
    commit_after_a_roll,
    commit_in_a_new_epoch,
    checkpoint,
    second_checkpoint,
    stop,
    recovery_of_un_synced_batches,
    recovery_of_a_torn_batch,
    recovery_without_metadata,
    recovery_without_the_indexes_of_a_closed_segment,
    retention,
]


def content_of(disk: MemoryDisk) -> dict[str, bytes]:
    found = {}
    for name in disk.list_directory("/t-0") if disk.exists("/t-0") else []:
        file = disk.open_for_reading(f"/t-0/{name}")
        found[name] = file.read(file.size(), 0)
    return found


def is_durable(scenario: Scenario, disk: MemoryDisk) -> bool:
    scenario(disk)
    return content_of(disk.after_power_cut(0, keep="nothing")) == content_of(disk)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_was_promised_is_durable(scenario: Scenario) -> None:
    assert is_durable(scenario, MemoryDisk())


def place_of(operation: Operation) -> tuple[str, ...]:
    """Say which line of the log asked for a sync; those of a commit are told apart by the file."""
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        name = frame.f_code.co_filename
        if name.startswith(LOG_ROOM) and frame.f_code.co_name not in {"sync_now", "sync_files"}:
            return operation.kind, Path(name).name, frame.f_code.co_name, str(frame.f_lineno)
    return operation.kind, "commit", Path(operation.path).suffix


def places() -> set[tuple[str, ...]]:
    """Run everything once and note who syncs."""
    seen: set[tuple[str, ...]] = set()

    def note(operation: Operation) -> bool:
        seen.add(place_of(operation))
        return False

    for scenario in SCENARIOS:
        disk = MemoryDisk()
        disk.lie = note
        scenario(disk)
    return seen


def test_no_sync_can_be_left_out() -> None:
    found = places()
    assert len(found) > 10

    assert {place for place in found if not is_missed(place)} == set()


def is_missed(place: tuple[str, ...]) -> bool:
    """Tell whether some scenario fails when one place only pretends to sync."""
    for scenario in SCENARIOS:
        disk = MemoryDisk()
        disk.lie = lambda operation: place_of(operation) == place
        try:
            if not is_durable(scenario, disk):
                return True
        except AssertionError:
            return True
    return False
