"""The end of a broker, and its upkeep: in order, whatever the disk does meanwhile."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.base.chance import SystemChance
from headwater.base.clock import SystemClock
from headwater.base.disk import Buffer, RealDisk, RealFile
from headwater.base.errors import ErrorCode, HeadwaterError, StorageError
from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker import broker as broker_module
from headwater.delivery.broker.groups import Groups
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.client.connection import Connection
from headwater.delivery.server import lifecycle
from headwater.delivery.server.lifecycle import Node, start_node
from headwater.delivery.wire.kafka import messages
from headwater.log.checkpoints import CLEAN_SHUTDOWN
from headwater.log.store import LogStore


class _File(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, disk: "_Disk") -> None:
        super().__init__(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._disk = disk

    def append(self, buffers: "list[Buffer]") -> None:  # type: ignore[override]
        if self._disk.refuses_writes:
            raise OSError(errno.EIO, "the drive has gone away")
        super().append(buffers)

    def sync(self) -> None:
        self._disk.before_sync()
        super().sync()


class _Disk(RealDisk):
    """A disk whose files do as the test says."""

    refuses_writes = False

    def __init__(self) -> None:
        super().__init__()
        self.before_sync: Callable[[], None] = lambda: None

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if not create and not os.path.exists(path):  # noqa: PTH110
            raise FileNotFoundError(path)
        return _File(path, self)


def fail() -> None:
    raise OSError(errno.EIO, "the drive has gone away")


async def start(disk: RealDisk, directory: Path, *, port: int = 0) -> Node:
    return await start_node(
        disk=disk,
        data_directory=str(directory),
        settings=BrokerSettings.parse({"group.initial.rebalance.delay.ms": "0"}),
        clock=SystemClock(),
        chance=SystemChance(),
        listen=("127.0.0.1", port),
    )


def new_partition(node: Node, **configs: str) -> Partition:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    (topic,) = node.broker.topics.create([NewTopic("t", 1, named)])
    return topic.partitions[0]


def append(partition: Partition, value: bytes) -> None:
    batch = build_batch([Record(0, 1_000, None, value)])
    partition.append(batch, parse_header(batch))


async def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.01)


def marker(directory: Path) -> Path:
    return directory / "log" / CLEAN_SHUTDOWN


def test_a_stop_outlasts_a_sync_that_takes_longer_than_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_LAST_ANSWERS_S", 0.05)
    disk = _Disk()
    loop_thread = threading.get_ident()

    def be_slow() -> None:
        if threading.get_ident() != loop_thread:
            time.sleep(0.3)

    async def scenario() -> None:
        node = await start(disk, tmp_path)
        partition = new_partition(node)
        disk.before_sync = be_slow
        append(partition, b"slow")
        await asyncio.sleep(0.01)
        await node.stop()

    asyncio.run(scenario())

    assert marker(tmp_path).exists()


def test_a_sync_that_fails_during_the_stop_leaves_no_marker(tmp_path: Path) -> None:
    disk = _Disk()

    async def scenario() -> Node:
        node = await start(disk, tmp_path)
        partition = new_partition(node)
        disk.before_sync = fail
        append(partition, b"lost")
        await node.stop()
        return node

    node = asyncio.run(scenario())

    assert node.failed.done()
    assert not marker(tmp_path).exists()
    again = RealDisk().lock(str(tmp_path / "log" / ".lock"))
    again.release()


def test_all_that_waits_is_answered_before_a_failed_broker_ends(tmp_path: Path) -> None:
    disk = _Disk()
    codes: list[int] = []

    def produce_twice(host: str, port: int) -> None:
        with Connection(host, port) as connection:
            for _ in range(2):
                batch = build_batch([Record(0, 1_000, None, b"x")])
                data = messages.ProduceRequest.PartitionProduceData(0, batch)
                topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
                request = messages.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
                connection.send(request, version_max=12)
            for _ in range(2):
                response = connection.receive(timeout_s=10)
                codes.append(response.responses[0].partition_responses[0].error_code)

    async def scenario() -> None:
        node = await start(disk, tmp_path)
        partition = new_partition(node)
        loop = asyncio.get_running_loop()
        both_wait = asyncio.Event()

        def fail_when_both_wait() -> None:
            asyncio.run_coroutine_threadsafe(both_wait.wait(), loop).result(10)
            fail()

        disk.before_sync = fail_when_both_wait
        client = loop.run_in_executor(None, produce_twice, node.host, node.port)
        await until(lambda: partition.log.log_end_offset == 2)
        both_wait.set()
        await node.failed
        await node.stop()
        await client

    asyncio.run(scenario())

    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


def test_a_write_that_fails_ends_the_broker(tmp_path: Path) -> None:
    disk = _Disk()

    async def scenario() -> Node:
        node = await start(disk, tmp_path)
        partition = new_partition(node)
        disk.refuses_writes = True
        with pytest.raises(HeadwaterError):
            append(partition, b"x")
        await until(node.failed.done)
        await node.stop()
        return node

    asyncio.run(scenario())

    assert not marker(tmp_path).exists()


def test_metadata_that_cannot_be_synced_ends_the_broker(tmp_path: Path) -> None:
    disk = _Disk()

    async def scenario() -> None:
        node = await start(disk, tmp_path)
        disk.before_sync = fail
        with pytest.raises(HeadwaterError):
            new_partition(node)
        await until(node.failed.done)
        await node.stop()

    asyncio.run(scenario())

    assert not marker(tmp_path).exists()


def test_flush_ms_holds_for_the_last_record_too(tmp_path: Path) -> None:
    async def scenario() -> int:
        node = await start(RealDisk(), tmp_path)
        partition = new_partition(node, flush_messages="1000", flush_ms="50")
        append(partition, b"the last one")
        await until(lambda: partition.log.synced_offset == 1)
        await node.stop()
        return partition.log.synced_offset

    assert asyncio.run(scenario()) == 1


def test_upkeep_goes_on_after_an_error_that_nobody_thought_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def stumble(now_ms: int) -> bool:
        calls.append(now_ms)
        raise ZeroDivisionError

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        node = await start(RealDisk(), tmp_path)
        monkeypatch.setattr(node.broker.store, "work_due", stumble)
        await until(lambda: len(calls) > 1)
        await node.stop()

    asyncio.run(scenario())


def test_a_broker_that_could_not_listen_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "_UPKEEP_INTERVAL_MS", 10)
    kept_up: list[str] = []
    work_due = LogStore.work_due

    def keep_up(store: LogStore, now_ms: int) -> bool:
        # Brokers of other tests live in this process too; their upkeep goes on unwatched.
        if store.directory.startswith(str(tmp_path)):
            kept_up.append(store.directory)
        return work_due(store, now_ms)

    monkeypatch.setattr(LogStore, "work_due", keep_up)

    async def scenario() -> None:
        node = await start(RealDisk(), tmp_path / "one")
        with pytest.raises(HeadwaterError, match="taken"):
            await start(RealDisk(), tmp_path / "two", port=node.port)
        await until(lambda: len(kept_up) > 3)
        await node.stop()

    asyncio.run(scenario())

    assert set(kept_up) == {str(tmp_path / "one" / "log")}


@pytest.mark.parametrize("crashed", [True, False])
def test_a_start_that_failed_calls_nothing_clean_that_it_has_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, crashed: bool
) -> None:
    """What a crash has left open is found by the coordinators, behind the log."""

    def lack(_: object) -> None:
        raise StorageError("no descriptor is free", passes=True)

    async def scenario() -> bool:
        node = await start(RealDisk(), tmp_path)
        await node.stop()
        if crashed:
            (tmp_path / "log" / CLEAN_SHUTDOWN).unlink()
        with monkeypatch.context() as patch:
            patch.setattr(Groups, "load", lack)
            with pytest.raises(StorageError):
                await start(RealDisk(), tmp_path)
        node = await start(RealDisk(), tmp_path)
        await node.stop()
        return node.broker.store.stopped_cleanly

    assert asyncio.run(scenario()) is not crashed


def test_a_broker_that_could_not_listen_has_looked_into_the_crash_before(tmp_path: Path) -> None:
    async def scenario() -> bool:
        node = await start(RealDisk(), tmp_path / "one")
        other = await start(RealDisk(), tmp_path / "two")
        await other.stop()
        (tmp_path / "two" / "log" / CLEAN_SHUTDOWN).unlink()
        with pytest.raises(HeadwaterError, match="taken"):
            await start(RealDisk(), tmp_path / "two", port=node.port)
        other = await start(RealDisk(), tmp_path / "two")
        await other.stop()
        await node.stop()
        return other.broker.store.stopped_cleanly

    assert asyncio.run(scenario())
