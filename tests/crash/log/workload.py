"""A fixed life of a data directory, in at most 600 operations of its disk.

This file alone decides what is done to the store in the crash tests: topics created, grown,
configured, deleted and created again; durable and page-cache partitions; plain and idempotent
producers; transactions that are aborted, left open and ended by a later process; commits of one and
of several partitions, rolls, trims, retention, checkpoints; a killed process and clean stops. Every
step is noted in the ledger. A disk that fails ends the life, as it ends a broker; one that is full
does not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import ClassVar

from headwater.base.disk import Syncable
from headwater.base.errors import StorageError
from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.log.checkpoints import META_PROPERTIES, read_properties
from headwater.log.names import LOG
from headwater.log.partition import PartitionLog
from headwater.log.store import LogStore
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk, MemoryFile
from headwater.testing.seeded_chance import SeededChance
from tests.crash.log.ledger import Ledger, TopicState, configs

DATA = "/srv/data"
OPERATIONS_MAX = 600

# Small enough that each of these happens within a few records.
SEGMENT_MS = 1_000
DURABLE = {
    "segment.ms": str(SEGMENT_MS),
    "index.interval.bytes": "100",
    "file.delete.delay.ms": "1000",
}
CACHED = {**DURABLE, "flush.messages": "1000000"}

MARKER_VALUE = bytes(6)
"""What every marker here says: version 0, the coordinator's epoch 0."""


class StoppedError(Exception):
    """The disk failed, and with it the life of this process."""


def new_disk() -> MemoryDisk:
    """Return a disk with the directory in which an administrator wants the data directory."""
    disk = MemoryDisk()
    disk.make_directory("/srv")
    disk.sync_directory("/")
    return disk


def open_store(disk: MemoryDisk, clock: ManualClock, seed: int) -> LogStore:
    """Open the data directory as a start of the broker does."""
    return LogStore.open(
        disk,
        DATA,
        settings=BrokerSettings(),
        topic_defaults=TopicConfig(),
        clock=clock,
        chance=SeededChance(seed),
    )


def kind_of(log: PartitionLog, item: Syncable) -> str:
    """Say what a commit is syncing; nothing for names, which have places of their own."""
    if not isinstance(item, MemoryFile):
        return ""
    suffix = item.path[item.path.rindex(".") :]
    if suffix != ".log":
        return suffix
    base_offset = int(item.path[-24:-4])
    return "closed .log" if base_offset < log._segments[-1].base_offset else "active .log"


class Life:
    """One run of the workload.

    Attributes:
        syncing: What the commit under way, if any, is syncing at this moment, in any life.
    """

    syncing: ClassVar[str] = ""

    def __init__(self, disk: MemoryDisk, ledger: Ledger, seed: int) -> None:
        self.disk = disk
        self.ledger = ledger
        self.clock = ManualClock()
        self.store: LogStore
        self._seed = seed
        self._values = 0
        self._sequences: dict[tuple[bytes, int, int], int] = {}

    # The life itself.

    def run(self) -> None:
        """Live it; raises ``StoppedError`` where the disk does not allow more."""
        self.open()
        self._first_run()
        self.kill()
        self.open()
        self._second_run()
        self.close()
        self.open()
        self._third_run()
        self.close()

    def _first_run(self) -> None:
        self.create(("durable", 2, DURABLE), ("cached", 1, CACHED))
        producer_id = self.producer_id()
        transactional_id = self.producer_id()
        self.append("durable", 0)
        self.append("durable", 0, count=3)
        self.commit("durable", 0)
        self.append("durable", 0, producer_id=producer_id)
        self.append("cached", 0, producer_id=producer_id, is_transactional=True)
        self.append("cached", 0, count=2)
        self.end("cached", 0, producer_id, committed=False)
        self.append("durable", 0, producer_id=transactional_id, is_transactional=True)
        self.commit_together(("durable", 0), ("cached", 0))
        self.end("durable", 0, transactional_id, committed=False)
        self.append("durable", 0, producer_id=transactional_id, is_transactional=True)
        self.clock.advance(2 * SEGMENT_MS)
        self.append("durable", 0, count=2, producer_id=producer_id)
        self.end("durable", 0, transactional_id, committed=False)
        self.append("durable", 0, producer_id=transactional_id, is_transactional=True)
        self.commit("durable", 0)
        self.create(("gone", 2, DURABLE))
        self.append("gone", 0)
        self.commit("gone", 0)
        self.checkpoint()
        self.delete("gone")
        self.create(("gone", 1, DURABLE))
        self.append("gone", 0)
        # The next batch begins a segment; the producer is known only by the segments before it.
        self.clock.advance(2 * SEGMENT_MS)
        self.append("durable", 0)

    def _second_run(self) -> None:
        self.end_all("durable", 0)
        self.append("durable", 0)
        self.commit("durable", 0)
        self.trim("durable", 0, before_end=1)
        self.upkeep(after_ms=400_000)
        producer_id = self.producer_id()
        self.append("durable", 0, producer_id=producer_id)
        self.append("cached", 0)
        self.commit_together(("durable", 0), ("cached", 0))
        self.grow("durable", 3)
        self.append("durable", 2, producer_id=producer_id)
        self.commit("durable", 2)
        self.configure_broker({"log.retention.ms": "123456"})
        self.trim("durable", 0, before_end=0)
        self.append("cached", 0)
        self.trim("cached", 0, before_end=0)

    def _third_run(self) -> None:
        self.configure("durable", {**DURABLE, "retention.ms": "60000"})
        self.create(("late", 1, CACHED))
        self.append("late", 0)
        self.configure("late", DURABLE)
        self.create(("brief", 1, {**DURABLE, "retention.ms": "600000"}))
        self.append("brief", 0, producer_id=self.producer_id())
        self.clock.advance(500_000)
        self.append("brief", 0)
        self.commit("brief", 0)
        # The first segment goes; its producer is known by the snapshot of this commit alone.
        self.upkeep(after_ms=400_000, expires=("durable", "brief"))
        self.upkeep(after_ms=700_000, expires=("brief",))
        self.delete("gone")
        self.upkeep(after_ms=10_000)

    # Starting and stopping.

    def open(self) -> None:
        """Start; when the disk was full or failed during the start, try once more."""
        try:
            self.store = self._start()
        except StorageError as error:
            self.ledger.stopped_cleanly = False
            self.disk = self.disk.restart()
            try:
                self.store = self._start()
            except StorageError:
                raise StoppedError(str(error)) from error
        self.take_stock()

    def take_stock(self) -> None:
        """Hold a store that was just opened to its promises; what it shows is one from now on."""
        self.ledger.check(self.store)
        self.ledger.check_effort(self.store)
        self.ledger.stopped_cleanly = False
        self.ledger.adopt(self.store)
        self.ledger.properties = read_properties(self.disk, f"{DATA}/log/{META_PROPERTIES}")

    def _start(self) -> LogStore:
        # Other dice at every start: two topics never have one id.
        dice = self._seed * OPERATIONS_MAX + self.disk.operations
        return open_store(self.disk, self.clock, dice)

    def kill(self) -> None:
        """End the process in the middle of an append; the page cache stays."""
        log = self._log("durable", 0)
        if log is not None and log.segments.active is not None:
            with suppress(OSError):
                self.disk.open(log.segments.active.path(LOG)).append([b"half a batch"])
        self.disk = self.disk.restart()

    def close(self) -> None:
        """Stop cleanly."""
        try:
            self.store.close()
        except StorageError as error:
            self._survive(error)
            self.disk = self.disk.restart()
        else:
            self.ledger.stopped_cleanly = True
            for log in self.store.logs():
                self._acknowledge(log, log.log_end_offset)
            self._note_recovery_points()

    # Metadata.

    def create(self, *topics: tuple[str, int, Mapping[str, str]]) -> None:
        """Create topics with one call, unless an earlier failure left one in the way."""
        if any(self.ledger.metadata.topic(name) for name, _, _ in topics):
            return
        before = self.ledger.metadata
        states = []
        for name, partitions, overrides in topics:
            generation = self.ledger.next_generation
            self.ledger.next_generation += 1
            states.append(TopicState(name, generation, partitions, configs(overrides)))
        self.ledger.begin(replace(before, topics=before.topics | set(states)))
        with self._change():
            created = self.store.create_topics(topics)
            for state, topic in zip(states, created, strict=True):
                self.ledger.generations[topic.topic_id] = state.generation

    def delete(self, name: str) -> None:
        """Delete a topic, if it exists."""
        topic = self.ledger.metadata.topic(name)
        if topic is not None:
            before = self.ledger.metadata
            self.ledger.begin(replace(before, topics=before.topics - {topic}))
            with self._change():
                self.store.delete_topic(name)

    def grow(self, name: str, total: int) -> None:
        """Add partitions."""
        self._replace_topic(
            name,
            lambda topic: replace(topic, partitions=total),
            lambda: self.store.add_partitions(name, total),
        )

    def configure(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace a topic's configs; what was not durable before is when they say so."""
        topic = self.store.topics.get(name)
        cached = [log for log in topic.partitions if not log.is_durable] if topic else []
        self._replace_topic(
            name,
            lambda topic: replace(topic, configs=configs(overrides)),
            lambda: self.store.set_configs(name, overrides),
        )
        for log in cached:
            if log.is_durable:
                self._acknowledge(log, log.log_end_offset)

    def configure_broker(self, overrides: Mapping[str, str]) -> None:
        """Replace the broker's configs."""
        self.ledger.begin(replace(self.ledger.metadata, broker_configs=configs(overrides)))
        with self._change():
            self.store.set_broker_configs(overrides, self.store.topic_defaults)

    def _replace_topic(
        self, name: str, change: Callable[[TopicState], TopicState], action: Callable[[], None]
    ) -> None:
        before = self.ledger.metadata
        topic = before.topic(name)
        if topic is not None:
            others = before.topics - {topic}
            self.ledger.begin(replace(before, topics=others | {change(topic)}))
            with self._change():
                action()

    @contextmanager
    def _change(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            self.ledger.refused(known=not self._broken())
            self._survive(error)
        else:
            self.ledger.done()

    def producer_id(self) -> int:
        """Take a producer id; -1 where there is none to be had."""
        try:
            producer_id = self.store.next_producer_id()
        except StorageError as error:
            self._survive(error)
            return -1
        assert producer_id not in self.ledger.producer_ids, f"{producer_id} was given twice"
        self.ledger.producer_ids.add(producer_id)
        return producer_id

    # Records.

    def append(
        self,
        name: str,
        partition: int,
        *,
        count: int = 1,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> None:
        """Append one batch of values that occur nowhere else."""
        log = self._log(name, partition)
        if log is None:
            return
        self._values += count
        values = [b"%s-%d-%d" % (name.encode(), partition, self._values - i) for i in range(count)]
        records = [Record(0, self.clock.now_ms(), None, value * 5) for value in values]
        key = (log.topic_id, log.partition, producer_id)
        sequence = self._sequences.get(key, 0)
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            is_transactional=is_transactional and producer_id >= 0,
        )
        promise = self.ledger.promise(log)
        offset = log.log_end_offset
        for index, record in enumerate(records):
            promise.attempts.setdefault(offset + index, set()).add(record.value or b"")
        if is_transactional and producer_id >= 0:
            promise.transactional[offset] = producer_id, None
        try:
            sent = bytes(batch)
            appended = log.append(batch, parse_header(batch))
        except StorageError as error:
            for index, record in enumerate(records):
                promise.attempts[offset + index].discard(record.value or b"")
            promise.transactional.pop(offset, None)
            self._survive(error)
            return
        assert appended.base_offset == offset
        if producer_id >= 0:
            self._sequences[key] = sequence + count
            promise.sent.setdefault(producer_id, []).append((sent, offset))

    def end(self, name: str, partition: int, producer_id: int, *, committed: bool) -> None:
        """Append the marker that ends a producer's transaction."""
        log = self._log(name, partition)
        if log is None or producer_id < 0:
            return
        promise = self.ledger.promise(log)
        offset = log.log_end_offset
        promise.attempts.setdefault(offset, set()).add(MARKER_VALUE)
        promise.transactional[offset] = producer_id, committed
        try:
            log.append_marker(producer_id, 0, committed=committed, coordinator_epoch=0)
        except StorageError as error:
            promise.attempts[offset].discard(MARKER_VALUE)
            promise.transactional.pop(offset, None)
            self._survive(error)

    def end_all(self, name: str, partition: int) -> None:
        """Abort whatever is open, as a coordinator does that knows nothing of it."""
        log = self._log(name, partition)
        for transaction in log.open_transactions() if log is not None else ():
            self.end(name, partition, transaction.producer_id, committed=False)

    def commit(self, name: str, partition: int) -> None:
        """Run a commit round for one partition."""
        self.commit_together((name, partition))

    def commit_together(self, *partitions: tuple[str, int]) -> None:
        """Run one commit round for several partitions, as the broker does."""
        logs = [log for name in partitions if (log := self._log(*name)) is not None]
        rounds: list[tuple[PartitionLog, int, Sequence[Syncable]]] = [
            (log, log.log_end_offset, log.begin_commit()) for log in logs
        ]
        for log, _, items in rounds:
            for item in items:
                self.sync(log, item)
        for log, end, _ in rounds:
            log.end_commit()
            # Not always all of it: names wait where no descriptor was free to sync them.
            self._acknowledge(log, min(end, log.synced_offset))

    def sync(self, log: PartitionLog, item: Syncable) -> None:
        """Sync one of the things that a commit consists of."""
        Life.syncing = kind_of(log, item)
        try:
            item.sync()
        except OSError as error:
            log.fail(str(error))
            raise StoppedError(str(error)) from error
        finally:
            Life.syncing = ""

    def _acknowledge(self, log: PartitionLog, end: int) -> None:
        promise = self.ledger.promise(log)
        for offset in range(promise.end, end):
            (promise.acknowledged[offset],) = promise.attempts[offset]
        promise.end = max(promise.end, end)

    def trim(self, name: str, partition: int, *, before_end: int) -> None:
        """Move the log start near the end, and report it when it is durable."""
        log = self._log(name, partition)
        if log is None:
            return
        offset = max(0, log.high_watermark - before_end)
        promise = self.ledger.promise(log)
        promise.start_max = max(promise.start_max, offset)
        try:
            start = log.trim(offset)
            self.store.persist_log_starts()
        except StorageError as error:
            self._survive(error)
        else:
            promise.start = start

    # Upkeep.

    def checkpoint(self) -> None:
        """Record recovery points."""
        try:
            self.store.checkpoint()
        except StorageError as error:
            self._survive(error)
        else:
            self._note_recovery_points()

    def _note_recovery_points(self) -> None:
        for log in self.store.logs():
            point = self.store._upkeep.recovery_points[log.topic, log.partition]
            self.ledger.promise(log).recovery_point = point

    def upkeep(self, *, after_ms: int, expires: Sequence[str] = ()) -> None:
        """Let time pass and the store do what is due."""
        self.clock.advance(after_ms)
        for log in self.store.logs():
            if log.topic in expires:
                promise = self.ledger.promise(log)
                promise.start_max = max(promise.start_max, log.high_watermark)
        try:
            while self.store.work_due(self.clock.now_ms()):
                pass
        except StorageError as error:
            self._survive(error)
        else:
            for log in self.store.logs():
                self.ledger.promise(log).start = log.log_start_offset

    def _log(self, name: str, partition: int) -> PartitionLog | None:
        topic = self.store.topics.get(name)
        if topic is None or partition >= len(topic.partitions):
            return None
        return topic.partitions[partition]

    def _broken(self) -> bool:
        return self.store.failed or any(log.failed for log in self.store.logs())

    def _survive(self, error: Exception) -> None:
        """Go on after a full disk; stop after a broken one, as the broker does."""
        if self._broken():
            raise StoppedError(str(error)) from error
