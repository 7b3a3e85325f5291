"""What of the disk is used on the event loop's own thread, where every client waits for it.

The table below states how it is, not how it should be: whoever moves something to another thread,
or onto the loop, changes a line here and knows that they did. Opening and closing are not counted:
whether a file is still open from the last use is chance. Of computing, only the encoding of
producer snapshots is counted: it grows with the number of producers.
"""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

from headwater.base.disk import Buffer, RealDirectory, RealDisk, RealFile
from headwater.base.errors import ErrorCode
from headwater.base.handles import Handles
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.consumer import Consumer
from headwater.delivery.wire.kafka import messages
from headwater.log.producers import ProducerState
from headwater.testing.broker import EmbeddedBroker

LOOP = "headwater-broker"
"""The name of the thread that the broker's event loop runs on."""

SITUATIONS = {
    ("manifest.py", "record"): "journal entry",
    ("partition.py", "_write"): "append",
    ("partition.py", "_create"): "first append",
    ("partition.py", "_begin_epoch"): "leader epoch",
    ("partition.py", "_roll"): "roll",
    ("snapshots.py", "save"): "producer snapshot",
    ("unsynced.py", "sync"): "commit of names",
    ("syncers.py", "_sync"): "commit of files",
    ("partition.py", "checkpoint"): "checkpoint of indexes",
    ("checkpoints.py", "write_offsets"): "checkpoint of offsets",
    ("partition.py", "remove_expired"): "retention",
    ("segments.py", "purge_deleted"): "removal",
    ("swap.py", "swap_in"): "compaction swap",
    ("segment.py", "load_indexes"): "index load",
    ("segment.py", "rebuild_indexes"): "index rebuild",
    ("segments.py", "read"): "fetch",
    ("outbox.py", "send"): "sending",
    ("search.py", "find_timestamp"): "offset by time",
    ("repetition.py", "find_repeated"): "duplicate search",
    ("recovery.py", "find_log"): "start of a partition",
    ("partition.py", "close"): "clean stop",
}
"""What the broker is doing, by the innermost of these functions on the stack."""

ON_THE_LOOP = {
    # Read after a start: the first batch tells how old the segment is.
    "append": {"append", "read"},
    "checkpoint of indexes": {"append", "sync", "sync names"},
    "checkpoint of offsets": {"append", "rename", "sync", "sync names"},
    "clean stop": {"append", "sync"},
    # At a clean stop, when no client is left that could wait.
    "commit of names": {"sync names"},
    "compaction swap": {"rename", "sync names"},
    "duplicate search": {"read"},
    "fetch": {"read"},
    "first append": {"append", "make directory"},
    "index load": {"read"},
    "index rebuild": {"read"},
    "journal entry": {"append", "sync"},
    "leader epoch": {"append"},
    "offset by time": {"read"},
    "producer snapshot": {"append", "encode", "remove"},
    "removal": {"remove"},
    "retention": {"rename", "sync names"},
    "roll": {"append"},
    "sending": {"read"},
    "start of a partition": {"read"},
}
ELSEWHERE = {
    "commit of files": {"sync"},
    "commit of names": {"rename", "sync", "sync names"},
}
SOMETIMES = {("start of a partition", "remove")}
"""Left out: it depends on whether the stop comes before the removal of replaced segments."""


class Census:
    """Which operations happened in which situation, on the loop and elsewhere."""

    def __init__(self) -> None:
        self.on_the_loop: dict[str, set[str]] = defaultdict(set)
        self.elsewhere: dict[str, set[str]] = defaultdict(set)
        self._changed = threading.Condition()

    def count(self, operation: str) -> None:
        situation = situation_of(sys._getframe(2))
        if situation is None or (situation, operation) in SOMETIMES:
            return
        here = threading.current_thread().name == LOOP
        with self._changed:
            (self.on_the_loop if here else self.elsewhere)[situation].add(operation)
            self._changed.notify_all()

    def wait_for(self, *situations: str) -> None:
        """Return when each has been seen, with all that the table says of it."""
        wanted = {name: ON_THE_LOOP[name] for name in situations}
        with self._changed:
            assert self._changed.wait_for(
                lambda: all(self.on_the_loop[name] >= wanted[name] for name in wanted), timeout=60
            ), f"{dict(self.on_the_loop)} does not have all of {wanted}"


def situation_of(frame: FrameType | None) -> str | None:
    while frame is not None:
        code = frame.f_code
        found = SITUATIONS.get((os.path.basename(code.co_filename), code.co_name))  # noqa: PTH119
        if found is not None:
            return found
        frame = frame.f_back
    return None


class CountedFile(RealFile):
    __slots__ = ("_census",)

    def __init__(self, path: str, flags: int, handles: Handles, census: Census) -> None:
        self._census = census
        super().__init__(path, flags, handles)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._census.count("append")
        super().append(buffers)

    def read(self, size: int, position: int) -> bytes:
        self._census.count("read")
        return super().read(size, position)

    def sync(self) -> None:
        self._census.count("sync")
        super().sync()


class CountedDirectory(RealDirectory):
    __slots__ = ("_census",)

    def __init__(self, path: str, handles: Handles, census: Census) -> None:
        self._census = census
        super().__init__(path, os.O_RDONLY | os.O_DIRECTORY, handles)

    def sync(self) -> None:
        self._census.count("sync names")
        super().sync()


class CountedDisk(RealDisk):
    """The machine's disk; its commits of files go to a thread, not to the kernel's own workers."""

    def __init__(self, census: Census) -> None:
        super().__init__()
        self._census = census

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        return self.handles.open(lambda: CountedFile(path, flags, self.handles, self._census))

    def open_for_reading(self, path: str) -> RealFile:
        return self.handles.open(lambda: CountedFile(path, os.O_RDONLY, self.handles, self._census))

    def open_directory(self, path: str) -> RealDirectory:
        return CountedDirectory(path, self.handles, self._census)

    def make_directory(self, path: str) -> None:
        self._census.count("make directory")
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._census.count("rename")
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._census.count("remove")
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._census.count("sync names")
        super().sync_directory(path)


SETTINGS = {
    "log.retention.check.interval.ms": "1",
    "log.flush.offset.checkpoint.interval.ms": "1",
    "log.cleaner.backoff.ms": "20",
}
SMALL = {"index.interval.bytes": "0", "segment.index.bytes": "40", "file.delete.delay.ms": "0"}
TOPICS = {
    "kept": SMALL,
    "trimmed": {**SMALL, "retention.bytes": "1"},
    "compacted": {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}
BATCHES = 8
PRODUCER_ID = 4711


def produce(connection: Connection, topic: str, sequence: int) -> None:
    records = [Record(0, int(time.time() * 1000), b"key", bytes(100))]
    batch = build_batch(records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    named = messages.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = messages.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[named])
    response = connection.call(request, version_max=12)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def write_and_keep_up(census: Census, directory: Path) -> None:
    """Write to all kinds of topics, and wait until upkeep has done its work on each."""
    broker = EmbeddedBroker(
        data_directory=str(directory), settings=SETTINGS, disk=CountedDisk(census)
    )
    with broker, Cluster(broker.bootstrap_servers) as cluster:
        host, port = broker.bootstrap_servers.split(":")
        with Connection(host, int(port)) as connection:
            for name, configs in TOPICS.items():
                admin.create_topic(cluster, name, partitions=1, configs=configs)
            for sequence in range(BATCHES):
                for name in TOPICS:
                    produce(connection, name, sequence)
        census.wait_for(
            "retention",
            "removal",
            "compaction swap",
            "checkpoint of indexes",
            "checkpoint of offsets",
        )


def read_and_repeat(census: Census, directory: Path) -> None:
    """Start on closed segments, one without its index; read by time and offset, send again."""
    segments = sorted((directory / "log" / "kept-0").glob("*.log"))
    assert len(segments) > 2
    segments[1].with_suffix(".index").unlink()
    broker = EmbeddedBroker(data_directory=str(directory), disk=CountedDisk(census))
    with broker, Cluster(broker.bootstrap_servers) as cluster:
        now_ms = int(time.time() * 1000)
        for age_ms in (60_000, 0):
            admin.list_offsets(cluster, {("kept", 0): now_ms - age_ms})
        consumer = Consumer(cluster)
        consumer.assign({("kept", 0): 0})
        while consumer.positions["kept", 0] < BATCHES:
            consumer.poll(1)
        host, port = broker.bootstrap_servers.split(":")
        with Connection(host, int(port)) as connection:
            # The snapshot of the clean stop has only the last batch of a producer.
            produce(connection, "kept", BATCHES - 2)
            produce(connection, "kept", BATCHES)


@pytest.mark.timeout(180)
def test_what_runs_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    census = Census()
    encode = ProducerState.encode

    def counted(producers: ProducerState) -> bytes:
        census.count("encode")
        return encode(producers)

    monkeypatch.setattr(ProducerState, "encode", counted)
    write_and_keep_up(census, tmp_path)
    read_and_repeat(census, tmp_path)

    assert dict(census.on_the_loop) == ON_THE_LOOP
    assert dict(census.elsewhere) == ELSEWHERE
