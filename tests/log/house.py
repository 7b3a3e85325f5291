"""A data directory in memory that is opened and left in many ways."""

from collections.abc import Callable

from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.log.partition import PartitionLog
from headwater.log.store import LogStore, Recovery
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from headwater.testing.seeded_chance import SeededChance

DATA = "/data"
LOG = "/data/log"


class House:
    """A data directory that is opened and left in many ways."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = ManualClock()
        self.chance = SeededChance(5)
        self.settings = BrokerSettings()
        self.defaults = TopicConfig()

    def open(self, progress: Callable[[Recovery], None] | None = None) -> LogStore:
        return LogStore.open(
            self.disk,
            DATA,
            settings=self.settings,
            topic_defaults=self.defaults,
            clock=self.clock,
            chance=self.chance,
            progress=progress,
        )

    def restart(self) -> LogStore:
        """Open again after the process was killed: the page cache is still there."""
        self.disk = self.disk.restart()
        return self.open()

    def crash(self, seed: int | None = None) -> LogStore:
        """Open again after a power cut that took all, or what the seed says."""
        self.disk = self.disk.crash(seed or 0, keep="nothing" if seed is None else "some")
        return self.open()


def append(log: PartitionLog, value: bytes = b"value", count: int = 1, at_ms: int = 0) -> None:
    timestamp = at_ms or log._clock.now_ms()
    batch = build_batch([Record(0, timestamp, None, value) for _ in range(count)])
    log.append(batch, parse_header(batch))


def commit(log: PartitionLog) -> None:
    for item in log.begin_commit():
        item.sync()
    log.end_commit()


def values(log: PartitionLog) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        extent = log.read(offset, 1 << 20, upto_offset=log.high_watermark, at_least_one=True)
        assert extent is not None
        content = extent.read()
        position = 0
        while position < len(content):
            header = parse_header(content, position)
            records = iterate(content, position)
            found += [record.value for record in records if record.offset >= offset]
            position += header.size_bytes
            offset = header.next_offset
    return found
