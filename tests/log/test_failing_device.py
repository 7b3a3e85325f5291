"""After a failed sync on a real device, a start believes the device and not the page cache."""

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from headwater.base.clock import SystemClock
from headwater.base.disk import RealDisk
from headwater.base.errors import StorageError
from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.log.appended import Appended
from headwater.log.partition import PartitionLog
from headwater.log.store import LogStore
from headwater.log.unsynced import sync_now
from headwater.testing.seeded_chance import SeededChance
from tests.log.failing_volume import CannotBeMadeError, FailingVolume, failing_volume
from tests.log.house import values


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def enter(
    stack: ExitStack, making: Callable[[], AbstractContextManager[FailingVolume]]
) -> FailingVolume:
    try:
        return stack.enter_context(making())
    except CannotBeMadeError as error:
        pytest.skip(str(error))


@pytest.fixture
def volume(tmp_path: Path, stack: ExitStack) -> FailingVolume:
    return enter(stack, lambda: failing_volume(tmp_path))


def open_store(volume: FailingVolume, seed: int) -> LogStore:
    return LogStore.open(
        RealDisk(),
        f"{volume.root}/data",
        settings=BrokerSettings(),
        topic_defaults=TopicConfig(),
        clock=SystemClock(),
        chance=SeededChance(seed),
    )


def send(log: PartitionLog, value: bytes, sequence: int) -> Appended:
    """Append what an idempotent producer sends, and sync it before it is acknowledged."""
    batch = build_batch(
        [Record(0, 1, None, value)], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    appended = log.append(batch, parse_header(batch))
    for item in log.begin_commit():
        sync_now(item)
    log.end_commit()
    return appended


FIRST, SECOND = b"first" * 3000, b"second" * 3000


def fail_to_write_a_record(volume: FailingVolume) -> None:
    store = open_store(volume, 1)
    (topic,) = store.create_topics([("orders", 1, {})])
    send(topic.partitions[0], FIRST, 0)
    store.checkpoint()
    volume.break_device()
    with pytest.raises(OSError, match="cannot be synced"):
        send(topic.partitions[0], SECOND, 1)
    store.abandon()
    volume.mend_device()


def write_it_again(volume: FailingVolume) -> None:
    store = open_store(volume, 2)
    log = store.topics["orders"].partitions[0]
    send(log, SECOND, 1)
    assert send(log, SECOND, 1).duplicate
    assert values(log) == [FIRST, SECOND]
    store.abandon()


def test_a_record_whose_sync_failed_is_not_acknowledged_from_the_page_cache(
    volume: FailingVolume,
) -> None:
    fail_to_write_a_record(volume)
    write_it_again(volume)
    volume.mount_anew()
    store = open_store(volume, 3)

    assert values(store.topics["orders"].partitions[0]) == [FIRST, SECOND]
    store.close()


def fail_to_create_topics(volume: FailingVolume) -> None:
    store = open_store(volume, 1)
    store.create_topics([("orders", 1, {})])
    volume.break_device()
    with pytest.raises(StorageError, match="cannot sync"):
        store.create_topics([(f"topic-{number}", 1, {}) for number in range(100)])
    store.abandon()
    volume.mend_device()


def test_a_topic_whose_sync_failed_is_not_shown_from_the_page_cache(volume: FailingVolume) -> None:
    fail_to_create_topics(volume)
    store = open_store(volume, 2)
    shown = set(store.topics)
    store.create_topics([("later", 1, {})])
    store.abandon()
    volume.mount_anew()
    store = open_store(volume, 3)

    assert set(store.topics) == {*shown, "later"}
    assert shown == {"orders"}
    store.close()


def test_after_a_failed_sync_of_names_the_file_system_takes_no_more_changes(
    tmp_path: Path, stack: ExitStack
) -> None:
    """Recovery relies on it: names, unlike bytes, need not be read past the page cache."""
    volume = enter(stack, lambda: failing_volume(tmp_path, journal_fails=True))
    disk, root = RealDisk(), str(volume.root)
    disk.open(f"{root}/before", create=True)
    disk.sync_directory(root)
    volume.break_device()
    disk.open(f"{root}/lost", create=True)
    with pytest.raises(OSError, match=r".+") as failed:
        disk.sync_directory(root)
    volume.mend_device()

    assert failed.value.errno in {errno.EIO, errno.EROFS}
    with pytest.raises(OSError, match="Read-only file system"):
        disk.open(f"{root}/later", create=True)
    with pytest.raises(StorageError, match="Read-only file system"):
        open_store(volume, 1)
    volume.mount_anew()

    assert not disk.exists(f"{root}/lost")
    open_store(volume, 2).close()
