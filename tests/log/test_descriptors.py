"""Logs that have more files than may be open: idle ones are closed, unsynced ones never."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.disk import RealDisk
from headwater.base.errors import StorageError
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.testing.memory_disk import MemoryDisk, MemoryFile
from tests.log.helpers import (
    append,
    append_value,
    commit,
    make_batch,
    open_log,
    read_values,
)

CACHED = TopicConfig(flush_messages=1_000_000)


class Outage:
    """Refuses to open what a test says."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.paths: set[str] = set()
        disk.on_open = self

    def __call__(self, path: str) -> None:
        if path in self.paths:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def open_logs(
    disk: MemoryDisk, count: int, config: TopicConfig | None = None
) -> list[PartitionLog]:
    return [open_log(disk, f"/t-{n}", config=config or TopicConfig()) for n in range(count)]


def values(log: PartitionLog) -> list[bytes | None]:
    return [value for _, value in read_values(log)]


def test_logs_take_turns_with_few_handles() -> None:
    disk = MemoryDisk()
    disk.handles.most = 4
    logs = open_logs(disk, 20)
    for number in range(3):
        for log in logs:
            append_value(log, b"%d" % number)
            commit(log)
            assert len(disk.handles) <= 4
    for log in logs:
        assert values(log) == [b"0", b"1", b"2"]
        assert len(disk.handles) <= 4
    assert disk.handles.refused == 0


def test_a_log_in_use_is_not_opened_anew() -> None:
    disk = MemoryDisk()
    disk.handles.most = 8
    hot, *cold = open_logs(disk, 40)
    opened: list[str] = []
    append_value(hot, b"v")
    commit(hot)
    for log in cold:
        append_value(log, b"v")
        commit(log)
        disk.on_open = opened.append
        append_value(hot, b"v")
        commit(hot)
        disk.on_open = lambda _: None
    assert len(opened) <= len(cold) * 3 / 8, "once in a turn of all handles at most"


def test_a_file_is_not_closed_before_it_is_synced() -> None:
    """Its bytes may be lost in the page cache, and only those who have it open are told."""
    disk = MemoryDisk()
    # A log takes three for its first record: the segment, and two small files until a commit.
    disk.handles.most = 6
    first, second, third = open_logs(disk, 3)
    append_value(first, b"v")
    append_value(second, b"v")
    handles = [log._segments[0].appender for log in (first, second)]
    for _ in range(3):
        with pytest.raises(StorageError, match=r"headwater\.max\.open\.files") as refused:
            append_value(third, b"v")
    assert refused.value.passes
    assert "ulimit" in refused.value.hint
    assert not third.failed
    assert [log._segments[0].appender for log in (first, second)] == handles
    handles.clear()

    commit(first)
    append_value(third, b"w")
    assert first._segments[0].appender is None
    commit(second)
    commit(third)
    found = disk.after_power_cut(0, keep="nothing")
    assert values(open_log(found, "/t-0")) == values(open_log(found, "/t-1")) == [b"v"]
    assert values(open_log(found, "/t-2")) == [b"w"]


def test_what_is_never_synced_by_itself_is_when_handles_run_out() -> None:
    disk = MemoryDisk()
    disk.handles.most = 8
    first, second, third = open_logs(disk, 3, CACHED)
    append_value(first, b"v")
    append_value(second, b"v")
    assert not first.commit_due()
    with pytest.raises(StorageError):
        append_value(third, b"v")

    assert first.commit_due()
    assert second.commit_due()
    commit(first)
    append_value(third, b"v")
    append_value(first, b"w")
    assert not first.commit_due()


def test_a_reader_keeps_the_file_that_its_log_lets_go(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.handles.most = 6
    logs = [open_log(disk, str(tmp_path / f"t-{n}"), config=TopicConfig()) for n in range(8)]
    for log in logs:
        append_value(log, b"v")
        commit(log)
    extents = [log.read(0, 1_000, upto_offset=1, at_least_one=True) for log in logs[:3]]
    with pytest.raises(StorageError, match="cannot be read"):
        logs[-1].read(0, 1_000, upto_offset=1, at_least_one=True)
    for extent in extents:
        assert extent is not None
        assert len(extent.read()) == len(extent)
        assert os.pread(extent.fileno(), 1, 0) == b"\0"
    assert len(disk.handles) == 6
    extents.clear()
    del extent
    assert logs[-1].read(0, 1_000, upto_offset=1, at_least_one=True) is not None


def test_what_is_being_sent_leaves_half_of_the_files_to_all_else() -> None:
    disk = MemoryDisk()
    disk.handles.most = 8
    logs = open_logs(disk, 12)
    for log in logs:
        append_value(log, b"v")
        commit(log)
    sent = []
    for log in logs:
        # Files that were opened to look something up are not handed out without being counted.
        log.segment_start(0)
        assert log.bytes_from(0) > 0
        with contextlib.suppress(StorageError):
            sent.append(log.read(0, 1_000, upto_offset=1, at_least_one=True))
    assert len(sent) == 4
    refused = disk.handles.refused
    with pytest.raises(StorageError, match="half of those that the log may have open") as told:
        logs[-1].read(0, 1_000, upto_offset=1, at_least_one=True)
    assert told.value.passes
    assert disk.handles.refused == refused, "a commit would not help"

    for log in logs:
        append_value(log, b"w")
        commit(log)
        assert log.high_watermark == 2
    assert [extent.read()[-2:-1] for extent in sent if extent is not None] == [b"v"] * 4
    sent.clear()
    for log in logs:
        assert values(log) == [b"v", b"w"]
        assert len(disk.handles) <= 8


def test_removed_and_abandoned_logs_hold_nothing() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    while len(log._segments) < 3:
        append_value(log, b"v")
    commit(log)
    assert len(values(log)) > 0
    log.trim(log.high_watermark)
    log.remove_expired(0)
    assert len(log._segments) == 1
    assert len(disk.handles) <= 2
    log.abandon()
    assert len(disk.handles) == 0


@pytest.mark.parametrize("path", ["/t-0", "/"])
def test_names_that_cannot_be_synced_wait_for_the_next_commit(path: str) -> None:
    disk = MemoryDisk()
    outage = Outage(disk)
    log = open_log(disk)
    append_value(log, b"v")
    outage.paths.add(path)
    for _ in range(2):
        commit(log)
        assert (log.high_watermark, log.synced_offset, log.failed) == (0, 0, False)
        assert log.commit_due()
        assert log.checkpoint() == 0
        append_value(log, b"w")

    outage.paths.clear()
    commit(log)
    assert log.high_watermark == 3
    assert not log.dirty()
    found = open_log(disk.after_power_cut(0, keep="nothing"))
    assert values(found) == [b"v", b"w", b"w"]


def test_a_commit_that_somebody_waits_for_stays_due_without_its_names() -> None:
    """Also where appends ask for none."""
    disk = MemoryDisk()
    log = open_log(disk, "/t-0", config=CACHED)
    outage = Outage(disk)
    append_value(log, b"v")
    assert not log.commit_due()
    outage.paths = {"/t-0"}
    commit(log)
    assert log.synced_offset == 0
    assert log.commit_due()
    outage.paths = set()
    commit(log)

    assert log.synced_offset == 1
    assert not log.commit_due()


def test_a_log_whose_names_cannot_be_synced_is_not_closed() -> None:
    disk = MemoryDisk()
    outage = Outage(disk)
    log = open_log(disk)
    append_value(log, b"v")
    outage.paths.add("/t-0")
    with pytest.raises(StorageError, match="no descriptor is free"):
        log.close()
    assert not log.failed
    outage.paths.clear()
    log.close()


def test_a_checkpoint_believes_no_index_whose_name_is_not_durable() -> None:
    """A lost index of aborted transactions cannot be made anew from its segment alone."""
    disk = MemoryDisk()
    outage = Outage(disk)
    log = open_log(disk, config=TopicConfig())
    batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, batch)
    log.append_marker(7, 0, committed=False, coordinator_epoch=0)
    commit(log)
    outage.paths.add("/t-0")
    with pytest.raises(StorageError, match="indexes cannot be written"):
        log.checkpoint()
    # The next one finds all entries in their files.
    assert log.checkpoint() == 0
    outage.paths.clear()
    commit(log)
    point = log.checkpoint()
    assert point == 2

    found = open_log(disk.after_power_cut(0, keep="nothing"), recovery_point=point)
    assert len(found.aborted_transactions(0, 2)) == 1


@given(
    st.integers(6, 12),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["append", "commit", "read", "roll"]))),
)
def test_whatever_is_done_nothing_committed_is_lost(
    most: int, steps: list[tuple[int, str]]
) -> None:
    disk = MemoryDisk()
    disk.handles.most = most
    logs = open_logs(disk, 6)
    taken: list[list[bytes]] = [[] for _ in logs]
    for number, (which, step) in enumerate(steps):
        log = logs[which]
        try:
            if step == "append":
                append_value(log, b"%d" % number)
                taken[which].append(b"%d" % number)
            elif step == "commit":
                commit(log)
                assert log.high_watermark == len(taken[which])
            elif step == "roll" and log.log_end_offset:
                log.trim(log.high_watermark)
                log.remove_expired(0)
                log.checkpoint()
            else:
                assert values(log) == taken[which][log.log_start_offset :]
        except StorageError:
            pass
        assert not log.failed
        assert len(disk.handles) <= most
    found = disk.after_power_cut(0, keep="nothing")
    for which, log in enumerate(logs):
        again = open_log(found, f"/t-{which}", log_start_offset=log.log_start_offset)
        assert again.log_end_offset >= log.high_watermark
        assert values(again) == taken[which][again.log_start_offset : again.log_end_offset]


def test_files_of_a_real_disk_are_closed_and_not_only_forgotten(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.handles.most = 6
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number
    logs = [open_log(disk, str(tmp_path / f"t-{n}"), config=TopicConfig()) for n in range(30)]
    for log in logs:
        append_value(log, b"v")
        commit(log)
        assert values(log) == [b"v"]
    assert len(os.listdir("/proc/self/fd")) <= before + 6  # noqa: PTH208


def test_the_open_appender_is_the_one_that_is_synced() -> None:
    """A commit syncs through the handle that has written, also when others have been closed."""
    disk = MemoryDisk()
    disk.handles.most = 6
    logs = open_logs(disk, 4)
    for log in logs:
        append_value(log, b"v")
        commit(log)
    append_value(logs[0], b"w")
    writer = logs[0]._segments[0].appender
    for log in logs[1:]:
        assert values(log) == [b"v"]
    (item,) = [item for item in logs[0].begin_commit() if isinstance(item, MemoryFile)]
    assert item is writer
