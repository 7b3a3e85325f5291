"""What the tests of compaction share: logs with keys and transactions, and a pass in one call."""

from collections.abc import Sequence

from headwater.base.disk import Disk
from headwater.base.record.batch import parse_header
from headwater.base.record.control import CONTROL_ABORT, control_type
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.settings import TopicConfig
from headwater.log.appended import Appended
from headwater.log.compaction.cleaner import clean
from headwater.log.compaction.job import Cleaned, Job
from headwater.log.compaction.planning import plan_job
from headwater.log.compaction.selection import find_cleanable
from headwater.log.compaction.swap import swap_in
from headwater.log.partition import PartitionLog
from tests.log.helpers import NOW_MS, read_batches

Pair = tuple[bytes | None, bytes | None]

COMPACT = TopicConfig(
    cleanup_policy="compact",
    index_interval_bytes=100,
    segment_index_bytes=60,
    delete_retention_ms=1_000,
    file_delete_delay_ms=0,
)


def append_pairs(
    log: PartitionLog,
    pairs: Sequence[Pair],
    *,
    at_ms: int = NOW_MS,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> Appended:
    """Append one batch of keys and values; `producer` is id, epoch and sequence number."""
    batch = build_batch(
        [Record(0, at_ms + number, key, value) for number, (key, value) in enumerate(pairs)],
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=transactional,
    )
    return log.append(batch, parse_header(batch))


def roll(log: PartitionLog) -> None:
    """Close the active segment if there is anything in it, and make all of it durable."""
    if log.segments.active is not None and log.segments.active.size:
        log._roll(log._clock.now_ms())
    for item in log.begin_commit():
        item.sync()
    log.end_commit()


def plan(
    log: PartitionLog,
    *,
    clean_offset: int = 0,
    now_ms: int = NOW_MS,
    buffer_bytes: int = 1 << 20,
) -> Job | None:
    """Plan a pass over all that can be cleaned."""
    cleanable = find_cleanable(
        log.segments,
        log.config,
        clean_offset=clean_offset,
        log_start_offset=log.log_start_offset,
        stable_offset=log.last_stable_offset,
        now_ms=now_ms,
    )
    if cleanable is None:
        return None
    return plan_job(log, cleanable, dedupe_buffer_bytes=buffer_bytes, now_ms=now_ms)


def run(disk: Disk, job: Job) -> Cleaned:
    """Run a pass to its end; what crosses between processes does so here too."""
    steps = clean(disk, Job.decode(job.encode()))
    try:
        while True:
            next(steps)
    except StopIteration as done:
        cleaned: Cleaned = done.value
        return Cleaned.decode(cleaned.encode())


def compact(
    disk: Disk,
    log: PartitionLog,
    *,
    clean_offset: int = 0,
    now_ms: int = NOW_MS,
    buffer_bytes: int = 1 << 20,
) -> int:
    """Run one pass and put its segments in place; return how far compaction has come."""
    job = plan(log, clean_offset=clean_offset, now_ms=now_ms, buffer_bytes=buffer_bytes)
    if job is None:
        return clean_offset
    cleaned = run(disk, job)
    for new in cleaned.segments:
        assert swap_in(disk, log, new, due_ms=now_ms)
    return cleaned.clean_offset


def records(log: PartitionLog) -> list[Record]:
    """Read every record of applications, whatever became of its transaction."""
    return [
        record
        for header, batch in read_batches(log)
        if not header.is_control
        for record in iterate(batch)
        if record.offset >= log.log_start_offset
    ]


def hidden_offsets(log: PartitionLog) -> list[int]:
    """Return which records a reader of committed data skips, by the rule of Kafka's clients.

    From the first offset of a listed transaction on a producer's transactional records are skipped,
    until its next abort marker.
    """
    listed = sorted(log.aborted_transactions(0, log.log_end_offset), key=lambda one: one[1])
    aborted: set[int] = set()
    hidden: list[int] = []
    for header, batch in read_batches(log):
        while listed and listed[0].first_offset <= header.last_offset:
            aborted.add(listed.pop(0).producer_id)
        if header.is_control:
            if any(control_type(record) == CONTROL_ABORT for record in iterate(batch)):
                aborted.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborted:
            hidden += [record.offset for record in iterate(batch)]
    return hidden


def damage(disk: Disk, path: str, at: int, flip: int) -> None:
    """Change one byte of a file."""
    file = disk.open(path)
    content = bytearray(file.read(file.size(), 0))
    content[at] ^= flip
    file.truncate(0)
    file.append([content])
    file.close()


def pairs(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Read offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in records(log)]
