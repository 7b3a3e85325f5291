"""What the tests of the log share: small batches, a log on any disk, a commit in one call."""

from collections.abc import Sequence

from headwater.base.disk import Disk
from headwater.base.record.batch import BatchHeader, parse_header, scan
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.settings import TopicConfig
from headwater.log.appended import Appended
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000

# Segments close after a few batches because their indexes are full; segment.bytes has a floor.
SMALL = TopicConfig(index_interval_bytes=100, segment_index_bytes=60)


def open_log(
    disk: Disk,
    directory: str = "/t-0",
    *,
    config: TopicConfig = SMALL,
    clock: ManualClock | None = None,
    leader_epoch: int = 0,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    clean: bool = False,
    topic_id: bytes = TOPIC_ID,
) -> PartitionLog:
    """Open a partition log with the usual things in place."""
    return PartitionLog.open(
        disk,
        directory,
        topic="t",
        partition=0,
        topic_id=topic_id,
        config=config,
        clock=clock or ManualClock(NOW_MS),
        leader_epoch=leader_epoch,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
    )


def make_batch(
    values: Sequence[bytes] = (b"v",),
    *,
    timestamps: Sequence[int] = (NOW_MS,),
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Build a batch as a client sends it; the last timestamp repeats for further values."""
    padded = [*timestamps, *[timestamps[-1]] * (len(values) - len(timestamps))]
    records = [
        Record(offset, timestamp, b"k", value)
        for offset, (value, timestamp) in enumerate(zip(values, padded, strict=False))
    ]
    return build_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def append(log: PartitionLog, batch: bytearray) -> Appended:
    """Append a batch as the broker does: with the header it came with."""
    return log.append(batch, parse_header(batch))


def append_value(log: PartitionLog, value: bytes, timestamp: int = NOW_MS) -> Appended:
    """Append one record."""
    return append(log, make_batch([value], timestamps=[timestamp]))


def commit(log: PartitionLog) -> None:
    """Run a whole commit round."""
    for item in log.begin_commit():
        item.sync()
    log.end_commit()


def read_batches(
    log: PartitionLog, start: int | None = None, upto_offset: int | None = None
) -> list[tuple[BatchHeader, bytes]]:
    """Read everything from an offset on, fetch by fetch."""
    offset = log.log_start_offset if start is None else start
    upto = log.log_end_offset if upto_offset is None else upto_offset
    found: list[tuple[BatchHeader, bytes]] = []
    while (extent := log.read(offset, 300, upto_offset=upto, at_least_one=True)) is not None:
        content = extent.read()
        assert len(content) == len(extent) > 0
        for position, header in scan(content):
            found.append((header, content[position : position + header.size_bytes]))
            offset = header.next_offset
    return found


def read_values(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """Read (offset, value) of all records from an offset on."""
    first = log.log_start_offset if start is None else start
    return [
        (record.offset, record.value)
        for _, batch in read_batches(log, first)
        for record in iterate(batch)
        if record.offset >= first
    ]


def base_offsets(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments]
