"""Records that a config calls durable are synced before it holds, or it does not hold."""

import errno
import os

import pytest

from headwater.base.errors import StorageError
from headwater.base.settings import TopicConfig
from headwater.log.settling import settle
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import append_value, commit, open_log, read_values
from tests.log.house import House, append, values

CACHED = TopicConfig(flush_messages=1_000_000)
DURABLE = TopicConfig()


def refuse(path: str) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def test_what_was_settled_survives_a_power_cut() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CACHED)
    append_value(log, b"v")
    settle(log, DURABLE)

    assert read_values(open_log(disk.crash(0, keep="nothing"))) == [(0, b"v")]


def test_a_lack_of_descriptors_passes() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CACHED)
    append_value(log, b"v")
    disk.on_open = refuse
    with pytest.raises(StorageError) as raised:
        settle(log, DURABLE)
    assert raised.value.passes
    assert "ulimit" in raised.value.hint
    disk.on_open = lambda _: None

    append_value(log, b"w")
    settle(log, DURABLE)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_after_a_failed_sync_nobody_is_told_to_try_again(code: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CACHED)
    append_value(log, b"v")
    disk.fail_at(disk.operations + 1, OSError(code, os.strerror(code)))
    with pytest.raises(StorageError, match="cannot be synced") as raised:
        settle(log, DURABLE)

    assert not raised.value.passes
    assert not raised.value.hint
    with pytest.raises(StorageError):
        append_value(log, b"w")


@pytest.mark.parametrize("told", [True, False])
def test_a_commit_that_failed_is_not_made_good_by_another_sync(*, told: bool) -> None:
    """The disk reports it once; no second sync may begin before that report was passed on."""
    disk = MemoryDisk()
    log = open_log(disk, config=CACHED)
    append_value(log, b"v")
    commit(log)
    append_value(log, b"w")
    (file,) = log.begin_commit()
    disk.fail_at(disk.operations + 1, OSError(errno.EIO, os.strerror(errno.EIO)))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    if told:
        log.fail("a sync failed")

    with pytest.raises(StorageError if told else AssertionError):
        settle(log, DURABLE)
    assert log.synced_offset == 1


def test_a_settled_partition_is_not_taken_for_one_of_the_deleted_topic() -> None:
    """It says whose it is in a file of its own."""
    house = House()
    store = house.open()
    store.create_topics([("t", 2, {})])
    # Of the old topic only the other partition has a directory.
    append(store.topics["t"].partitions[1])
    commit(store.topics["t"].partitions[1])
    store.delete_topic("t")
    store.create_topics([("t", 2, {"flush.messages": "1000"})])
    append(store.topics["t"].partitions[0], b"v")
    store.set_configs("t", {"flush.messages": "1"})

    assert values(house.crash().topics["t"].partitions[0]) == [b"v"]


def test_what_was_settled_needs_no_commit() -> None:
    disk = MemoryDisk()
    log = open_log(disk, config=CACHED)
    append_value(log, b"v")
    settle(log, DURABLE)

    assert log.synced_offset == 1
    assert not log.dirty()
