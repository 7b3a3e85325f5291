"""The internal topics in which the broker keeps its own state: one class for all of them.

This file alone decides which partition an owner's records belong to, when such a topic comes into
being, and how records get in and out of it. Of the records it reads the owner's name alone: what
they mean, the owners know.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from headwater.base.clock import Clock
from headwater.base.errors import CorruptRecordError, KafkaError
from headwater.base.record.batch import BatchHeader, parse_header, scan
from headwater.base.record.records import Record, build_batch, iterate
from headwater.delivery.broker.formats.envelope import key_owner
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.state_homes import Homecoming, astray, decide
from headwater.delivery.broker.state_replay import Standing, StateReplay, Stored
from headwater.delivery.broker.topics import BrokerTopic, NewTopic, Topics

_log = logging.getLogger(__name__)

_READ_BYTES: Final = 4 * 1024 * 1024


class Entry(NamedTuple):
    """One record of an owner's state; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


class Replayed(NamedTuple):
    """All that a state topic says.

    Attributes:
        newest: What counts, by key.
        pending: What transactions without a marker have written, by partition and producer id.
    """

    newest: dict[bytes, Stored]
    pending: dict[tuple[int, int], dict[bytes, Stored]]


class ProducerKey(NamedTuple):
    """Whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


class StateTopic:
    """Writes records of owners, such as groups; reads the newest of each key back."""

    def __init__(self, wanted: NewTopic, topics: Topics, clock: Clock) -> None:
        """Serve the topic that looks as ``wanted``; it is created when it is first needed."""
        self.name = wanted.name
        self._wanted = wanted
        self._topics = topics
        self._clock = clock

    def append(
        self,
        owner: str,
        entries: Sequence[Entry],
        when_durable: Callable[[], None] | None = None,
        failed: Callable[[], None] | None = None,
        *,
        transaction: ProducerKey | None = None,
    ) -> Standing:
        """Write records of one owner as one batch; run the action when they are durable.

        When the disk fails meanwhile, ``failed`` runs instead. With a ``transaction`` the records
        are part of it: they count when its marker says so.

        Returns:
            Where the first record stands.

        Raises:
            KafkaError: Nothing was written, and no action will run.
        """
        now_ms = self._clock.now_ms()
        records = [Record(0, now_ms, key, value) for key, value in entries]
        return self._append(self.partition_of(owner), records, when_durable, failed, transaction)

    def _append(
        self,
        index: int,
        records: Sequence[Record],
        when_durable: Callable[[], None] | None = None,
        failed: Callable[[], None] | None = None,
        transaction: ProducerKey | None = None,
    ) -> Standing:
        partition = self._topic().partitions[index]
        if transaction is None:
            batch = build_batch(records)
        else:
            # Without a sequence number, as Kafka's coordinator: nobody sends these batches twice.
            batch = build_batch(
                records,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                is_transactional=True,
            )
        appended = partition.append(batch, parse_header(batch))
        if when_durable is not None:
            partition.when_durable(appended.last_offset, when_durable, failed)
        return Standing(index, appended.base_offset, records[0].timestamp)

    def partition_of(self, owner: str) -> int:
        """Return the number of the partition that an owner's records go to."""
        return partition_for(owner, len(self._topic().partitions))

    def when_settled(self, owner: str, action: Callable[[], None]) -> None:
        """Run the action when all that was appended for the owner so far is durable."""
        unsettled = self.maybe_unsettled(owner)
        if unsettled is None:
            action()
        else:
            partition, last_offset = unsettled
            partition.when_durable(last_offset, action)

    def maybe_unsettled(self, owner: str) -> tuple[Partition, int] | None:
        """Return the partition of an owner and its last offset, if that is not durable yet."""
        topic = self._topics.get(self.name)
        if topic is None:
            return None
        partition = topic.partitions[partition_for(owner, len(topic.partitions))]
        last_offset = partition.log.log_end_offset - 1
        return (partition, last_offset) if partition.log.high_watermark <= last_offset else None

    def newest(self) -> dict[bytes, bytes]:
        """Return the value of every key that has one.

        The topic may hold a thousand records for each that counts, so keys are compared as bytes
        and only what is left is worth decoding.
        """
        return {key: stored.value for key, stored in self.replay().newest.items()}

    def replay(self) -> Replayed:
        """Read all that was ever written and not compacted away.

        What lies in another partition than its owner's is brought home; see `state_homes`.
        """
        topic = self._topics.get(self.name)
        partitions = topic.partitions if topic is not None else []
        replays = [self._read_all(partition) for partition in partitions]
        keys = astray(replays, self._home_of)
        newest = {
            key: stored
            for replay in replays
            for key, stored in replay.newest.items()
            if key not in keys
        }
        pending = {
            (index, producer_id): written
            for index, replay in enumerate(replays)
            for producer_id, written in replay.pending.items()
        }
        if keys:
            replays = [self._read_all(partition, keys) for partition in partitions]
            homecomings = decide(keys, replays, self._home_of)
            for homecoming in homecomings:
                for transaction in homecoming.undone:
                    del pending[transaction][homecoming.key]
            newest |= {each.key: each.winner for each in homecomings if each.winner is not None}
            newest |= self._bring_home([each for each in homecomings if not each.is_open])
        return Replayed(newest, pending)

    def _home_of(self, key: bytes) -> int | None:
        owner = key_owner(key)
        return None if owner is None else self.partition_of(owner)

    def _bring_home(self, homecomings: Sequence[Homecoming]) -> dict[bytes, Stored]:
        """Write what counts to its home, then tombstones to where it lay; return what was moved.

        Where there is no room to write, the next start decides the same once more.
        """
        if homecomings:
            _log.warning(
                "%s: %d keys lay in other partitions than their owners', because the topic was "
                "given more partitions; the newest value of each is moved to its owner's partition",
                self.name,
                len(homecomings),
            )
        moved = {}
        by_owner: defaultdict[str, list[Homecoming]] = defaultdict(list)
        for homecoming in homecomings:
            by_owner[key_owner(homecoming.key) or ""].append(homecoming)
        for owner, its in by_owner.items():
            moving = {
                each.key: each.winner
                for each in its
                if each.winner is not None and not each.at_home
            }
            bury = partial(self._bury, its)
            if not moving:
                bury()
                continue
            home = self.partition_of(owner)
            records = [Record(0, each.timestamp, key, each.value) for key, each in moving.items()]
            try:
                first = self._append(home, records, bury)
            except KafkaError as error:
                _log.warning(
                    "%s: the records of %s are not moved to their own partition yet: %s; the next "
                    "start tries again",
                    self.name,
                    owner,
                    error.message,
                )
                continue
            for offset, (key, each) in enumerate(moving.items(), first.offset):
                moved[key] = each._replace(partition=home, offset=offset)
        return moved

    def _bury(self, homecomings: Sequence[Homecoming]) -> None:
        by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        for homecoming in homecomings:
            for index, timestamp in homecoming.astray:
                by_partition[index].append(Record(0, timestamp - 1, homecoming.key, None))
        try:
            for index, tombstones in by_partition.items():
                self._append(index, tombstones)
        except KafkaError as error:
            _log.warning(
                "%s: records were copied to their owner's partition, but their old copies could "
                "not be ended: %s; the next start tries again",
                self.name,
                error.message,
            )

    def _topic(self) -> BrokerTopic:
        return self._topics.get(self.name) or self._topics.create([self._wanted])[0]

    def _read_all(
        self, partition: Partition, ask_about: Collection[bytes] = frozenset()
    ) -> StateReplay:
        replay = StateReplay(partition.log.partition, ask_about)
        log = partition.log
        offset, end = log.log_start_offset, log.log_end_offset
        while offset < end:
            reached = offset
            try:
                extent = log.read(offset, _READ_BYTES, upto_offset=end, at_least_one=True)
                data = b"" if extent is None else extent.read()
                for position, header in scan(data):
                    reached = header.next_offset
                    self._replay_batch(replay, header, data, position)
                if reached == offset:
                    raise CorruptRecordError(f"there is no batch with offset {offset}")  # noqa: TRY301
            except CorruptRecordError as error:
                # Where the next batch begins is not known; where the next file does is.
                offset, reached = reached, log.segment_end(reached)
                _log.error(
                    "%s lost what it has from offset %d to %d, and what was kept there is "
                    "forgotten: %s (look into it with: headwater log dump --batches FILE)",
                    log.directory,
                    offset,
                    reached - 1,
                    error.message,
                )
            offset = reached
        replay.end()
        return replay

    def _replay_batch(
        self, replay: StateReplay, header: BatchHeader, data: bytes, position: int
    ) -> None:
        try:
            replay.batch(header, iterate(data, position))
        except CorruptRecordError as error:
            _log.warning(
                "%s: batch at offset %d is unreadable and was skipped: %s",
                self.name,
                header.base_offset,
                error.message,
            )


@lru_cache(maxsize=4096)
def partition_for(owner: str, partition_count: int) -> int:
    """Return the partition of an owner, the same that Kafka would choose."""
    value = java_string_hash(owner)
    # Kafka's own absolute value: the smallest number has none, and counts as 0.
    return 0 if value == -(1 << 31) else abs(value) % partition_count


def java_string_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` says: 31-adic over UTF-16 units, 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value
