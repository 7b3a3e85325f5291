"""What a store was heard to promise.

This file alone decides what counts as a promise and when it is broken. Whoever drives a store notes
each step before and after it; ``check`` then holds a freshly opened store to all that was noted.

* A record is acknowledged when a commit that covers it has ended. From then on its offset shows
  this record and no other, until the log start has passed it.
* A record that was appended and not acknowledged may be there or not, but only as a whole, at its
  own offset, and with all that came before it.
* Topics, configs and broker configs are those of the last change that returned, or of the one under
  way. A change that failed on a full disk did not happen.
* The log start is not below any that was reported, and not above any that was asked for.
* Producer ids never repeat. An idempotent batch that was acknowledged is known as a repetition,
  also when its segment is gone, unless there was no room for the snapshot that outlives it.
* What lies below a recorded recovery point is not scanned again; after a clean stop, nothing is.
  A disk that was full costs no more than that.
* An offset is found by its index, not by reading a segment from its start.
* A transaction is open until its marker is there. Those that were aborted are listed, and readers
  of committed data are led to the first record of the oldest open one, no further.
* Kafka's tools find ``meta.properties`` whole, also in the directory of a node that is down.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from headwater.base.record.batch import BatchHeader, parse_header
from headwater.base.record.records import iterate
from headwater.log.checkpoints import META_PROPERTIES, read_properties
from headwater.log.partition import PartitionLog
from headwater.log.segment import Segment
from headwater.log.store import LogStore
from headwater.testing.memory_disk import MemoryDisk

Configs = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class TopicState:
    """A topic as clients see it; a generation tells apart topics that had the same name."""

    name: str
    generation: int
    partitions: int
    configs: Configs


@dataclass(frozen=True)
class Metadata:
    """All metadata that clients see."""

    topics: frozenset[TopicState] = frozenset()
    broker_configs: Configs = frozenset()

    def topic(self, name: str) -> TopicState | None:
        return next((topic for topic in self.topics if topic.name == name), None)


@dataclass
class PartitionPromise:
    """What one partition of one generation of a topic has promised.

    Attributes:
        attempts: By offset, every value that was ever appended there.
        acknowledged: The value of each offset that a commit covered.
        end: Behind the last acknowledged offset.
        start: The log start that was reported.
        start_max: The log start that was asked for.
        recovery_point: Below it a recovery need not look.
        sent: By producer id, every batch as it was sent and the offset it got.
        transactional: By offset, the producer of a transactional batch; of a marker also whether
            it committed.
    """

    attempts: dict[int, set[bytes]] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    start: int = 0
    start_max: int = 0
    recovery_point: int = 0
    sent: dict[int, list[tuple[bytes, int]]] = field(default_factory=dict)
    transactional: dict[int, tuple[int, bool | None]] = field(default_factory=dict)


class Broken(AssertionError):  # noqa: N818 - a verdict
    """A promise was not kept."""


@dataclass
class Ledger:
    """All promises of one data directory.

    Attributes:
        metadata: As last acknowledged.
        under_way: What it becomes when the change under way is through.
        partitions: By topic name, generation and number.
        producer_ids: All that were given out.
        stopped_cleanly: Whether the last thing that happened was a clean stop.
        was_full: Whether something found no room.
        properties: What ``meta.properties`` says once a start is through.
    """

    metadata: Metadata = field(default_factory=Metadata)
    under_way: Metadata | None = None
    generations: dict[bytes, int] = field(default_factory=dict)
    next_generation: int = 1
    partitions: dict[tuple[str, int, int], PartitionPromise] = field(default_factory=dict)
    producer_ids: set[int] = field(default_factory=set)
    stopped_cleanly: bool = False
    was_full: bool = False
    properties: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Ledger":
        return deepcopy(self)

    # Metadata.

    def begin(self, metadata: Metadata) -> None:
        assert self.under_way is None
        self.under_way = metadata

    def done(self) -> None:
        assert self.under_way is not None
        self.metadata, self.under_way = self.under_way, None

    def refused(self, *, known: bool) -> None:
        """The change failed; it may still be on disk unless the store says that it is not."""
        if known:
            self.under_way = None

    # Records.

    def promise(self, log: PartitionLog) -> PartitionPromise:
        generation = self.generations[log.topic_id]
        key = (log.topic, generation, log.partition)
        return self.partitions.setdefault(key, PartitionPromise())

    # Judgement.

    def check(self, store: LogStore) -> None:
        """Raise ``Broken`` with the promise that a store, opened after whatever, does not keep."""
        self._adopt_metadata(store)
        for log in store.logs():
            self._check_log(log)
        names = store._disk.list_directory(store.directory)
        strays = [name for name in names if name.endswith("-stray")]
        _expect(not strays, f"directories belong to nobody: {strays}")

    def check_files(self, disk: MemoryDisk, directory: str) -> None:
        """Hold the files of a node that is down to what other programs read in them."""
        if self.properties:
            found = read_properties(disk, f"{directory}/{META_PROPERTIES}")
            _expect(found == self.properties, f"meta.properties says {found}")

    def check_effort(self, store: LogStore) -> None:
        """Hold a start to how much it may have read."""
        for log in () if self.was_full else store.logs():
            allowed = 0
            if not self.stopped_cleanly:
                allowed = _bytes_to_scan(log, self.promise(log))
            scanned = log.recovery.scanned_bytes
            # Of an empty log nothing is left that would tell how much there was.
            _expect(
                scanned <= allowed or not log.size_bytes(),
                f"{log}: {scanned} bytes were scanned, not {allowed}",
            )

    def _adopt_metadata(self, store: LogStore) -> None:
        """Check the metadata, and take what was found as acknowledged from now on."""
        for state in (self.metadata, self.under_way):
            if state is not None and self._agrees(store, state):
                self.metadata, self.under_way = state, None
                return
        found = {
            name: (len(topic.partitions), topic.configs) for name, topic in store.topics.items()
        }
        raise Broken(
            f"metadata is neither what was acknowledged, {self.metadata}, nor what was under way, "
            f"{self.under_way}: {found} {dict(store.broker_configs)}"
        )

    def _agrees(self, store: LogStore, state: Metadata) -> bool:
        if configs(store.broker_configs) != state.broker_configs:
            return False
        if {topic.name for topic in state.topics} != set(store.topics):
            return False
        for expected in state.topics:
            topic = store.topics[expected.name]
            if len(topic.partitions) != expected.partitions:
                return False
            if configs(topic.configs) != expected.configs:
                return False
            known = self.generations.get(topic.topic_id)
            if known is None and expected.generation not in self.generations.values():
                known = self.generations[topic.topic_id] = expected.generation
            if known != expected.generation:
                return False
        return True

    def _check_log(self, log: PartitionLog) -> None:
        promise = self.promise(log)
        name = f"{log.topic}-{log.partition}"
        _expect(
            log.log_start_offset <= log.high_watermark == log.log_end_offset,
            f"{log} shows what it may not keep",
        )
        _expect(log.log_end_offset >= promise.end, f"{log} has lost offsets below {promise.end}")
        start_max = max(promise.start_max, promise.start)
        if promise.end <= start_max:
            # Nothing behind it was acknowledged: a crash may take the first segment alone.
            start_max = log.log_end_offset
        _expect(
            promise.start <= log.log_start_offset <= start_max,
            f"{log} should start between {promise.start} and {start_max}",
        )
        epochs = log.epochs.items()
        _expect(
            not epochs or epochs[0][1] >= log.log_start_offset,
            f"{log} has epochs from before its start: {epochs}",
        )
        found: dict[int, bytes] = {}
        timestamps: dict[int, int] = {}
        for header, content in batches(log):
            epoch = log.epoch_for_offset(header.base_offset)
            _expect(
                epoch == header.leader_epoch or header.base_offset < log.log_start_offset,
                f"{name}: offset {header.base_offset} is of epoch {header.leader_epoch}, "
                f"the checkpoint says {epoch}: {epochs}",
            )
            for record in iterate(content):
                found[record.offset] = record.value or b""
                timestamps[record.offset] = record.timestamp
        for offset in range(log.log_start_offset, log.log_end_offset):
            value = found.get(offset)
            _expect(value is not None, f"{name}: offset {offset} is missing")
            if offset in promise.acknowledged:
                expected = {promise.acknowledged[offset]}
            else:
                expected = promise.attempts.get(offset, set())
            _expect(value in expected, f"{name}: offset {offset} shows {value!r}, not {expected}")
        self._check_times(log, timestamps)
        self._check_transactions(log, promise)
        for segment in log._segments:
            wanted = [position for position, _ in _index_entries(segment, log)]
            actual = list(segment.offset_index._positions)
            _expect(actual == wanted, f"{segment}: the index has {actual}, not {wanted}")

    def _check_times(self, log: PartitionLog, timestamps: Mapping[int, int]) -> None:
        """The time index answers as a walk over all records does."""
        for wanted in sorted(set(timestamps.values())):
            later = [
                offset
                for offset, timestamp in timestamps.items()
                if timestamp >= wanted and offset >= log.log_start_offset
            ]
            found = log.offset_for_timestamp(wanted, upto_offset=log.high_watermark)
            _expect(
                (found.offset if found else None) == (min(later) if later else None),
                f"{log}: time {wanted} is at {found}, not at {later[:1]}",
            )

    def _check_transactions(self, log: PartitionLog, promise: PartitionPromise) -> None:
        opened: dict[int, int] = {}
        aborted: list[tuple[int, int]] = []
        for offset, (producer_id, committed) in sorted(promise.transactional.items()):
            if offset >= log.log_end_offset:
                continue
            if committed is None:
                opened.setdefault(producer_id, offset)
                continue
            first_offset = opened.pop(producer_id, None)
            if first_offset is not None and not committed and offset >= log.log_start_offset:
                aborted.append((producer_id, first_offset))
        found = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        still_open = [(t.producer_id, t.first_offset) for t in log.open_transactions()]
        if self.was_full and log.log_start_offset > 0:
            # Without room for a snapshot nobody knows what began before the first segment.
            return
        _expect(found == aborted, f"{log}: aborted are {aborted}, not {found}")
        wanted = sorted(opened.items(), key=lambda item: item[1])
        _expect(still_open == wanted, f"{log}: open are {wanted}, not {still_open}")
        stable = max(min([log.high_watermark, *opened.values()]), log.log_start_offset)
        _expect(
            log.last_stable_offset == stable,
            f"{log}: {log.last_stable_offset} is the last stable offset, not {stable}",
        )

    def adopt(self, store: LogStore) -> None:
        """Take what a store shows as acknowledged: whoever reads it now will rely on it."""
        for log in store.logs():
            promise = self.promise(log)
            lost = range(promise.end, log.log_start_offset)
            promise.start = promise.start_max = log.log_start_offset
            promise.end = log.log_end_offset
            promise.attempts = {}
            promise.acknowledged = {
                record.offset: record.value or b""
                for _, content in batches(log)
                for record in iterate(content)
            }
            promise.sent = {
                producer_id: [
                    item for item in sent if item[1] < log.log_end_offset and item[1] not in lost
                ]
                for producer_id, sent in promise.sent.items()
            }
            promise.transactional = {
                offset: found
                for offset, found in promise.transactional.items()
                if offset < log.log_end_offset
            }


def batches(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    """Go through all visible batches, each found by its own offset."""
    offset = log.log_start_offset
    while offset < log.high_watermark:
        extent = log.read(offset, 1, upto_offset=log.high_watermark, at_least_one=True)
        _expect(extent is not None, f"{log} has nothing at {offset}")
        assert extent is not None
        content = extent.read()
        header = parse_header(content)
        _expect(
            header.base_offset <= offset <= header.last_offset,
            f"{log}: a read of {offset} gave {header.base_offset}..{header.last_offset}",
        )
        yield header, content
        offset = header.next_offset


def _index_entries(segment: Segment, log: PartitionLog) -> Iterator[tuple[int, int]]:
    """Go through the positions and last offsets of the batches that Kafka's rule gives an entry."""
    since_entry = 0
    for position, header in segment.headers(0):
        if since_entry > log.config.index_interval_bytes:
            since_entry = 0
            yield position, header.last_offset
        since_entry += header.size_bytes


def _bytes_to_scan(log: PartitionLog, promise: PartitionPromise) -> int:
    """Return how much lies behind the last index entry that the recovery point covers."""
    total = 0
    end = log.log_end_offset
    for segment in reversed(list(log._segments)):
        if segment.base_offset < promise.recovery_point:
            entries = _index_entries(segment, log)
            starts = [position for position, offset in entries if offset < promise.recovery_point]
            # Of a segment that was being deleted the index may be gone.
            start = 0 if end <= promise.start_max else max(starts, default=0)
            return total + segment.size - start
        total += segment.size
        end = segment.base_offset
    return total


def configs(values: Mapping[str, str]) -> Configs:
    return frozenset(values.items())


def _expect(kept: bool, otherwise: str) -> None:
    if not kept:
        raise Broken(otherwise)
