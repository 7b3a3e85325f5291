"""``__consumer_offsets``: the topic that groups and offsets are written to.

This file alone decides which partition a group belongs to, when the topic comes into being, and
how records get in and out of it. It does not look into the records.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import parse_header, scan
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.groups.needs import Entry
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.topics import BrokerTopic, NewTopic, Topics

_log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"

_READ_BYTES: Final = 4 * 1024 * 1024


class OffsetsTopic:
    """Writes records of groups; reads the newest of each key back."""

    def __init__(self, topics: Topics, settings: BrokerSettings, clock: Clock) -> None:
        self._topics = topics
        self._settings = settings
        self._clock = clock

    def append(
        self, group_id: str, entries: Sequence[Entry], when_durable: Callable[[], None]
    ) -> None:
        """Write records of one group as one batch; run the action when they are durable."""
        partition = self._partition_of(group_id)
        now_ms = self._clock.now_ms()
        batch = build_batch([Record(0, now_ms, key, value) for key, value in entries])
        appended = partition.append(batch, parse_header(batch))
        partition.when_durable(appended.last_offset, when_durable)

    def when_settled(self, group_id: str, action: Callable[[], None]) -> None:
        """Run the action when all that was appended for the group so far is durable."""
        topic = self._topics.get(OFFSETS_TOPIC)
        if topic is None:
            action()
            return
        partition = topic.partitions[partition_for(group_id, len(topic.partitions))]
        partition.when_durable(partition.log.log_end_offset - 1, action)

    def newest(self) -> dict[bytes, bytes]:
        """Return the last value of every key that has not been deleted since.

        The topic may hold a thousand commits for each offset that counts, so keys are compared
        as bytes and only what is left is worth decoding.
        """
        newest: dict[bytes, bytes] = {}
        topic = self._topics.get(OFFSETS_TOPIC)
        if topic is not None:
            for partition in topic.partitions:
                _read_all(partition, newest)
        return newest

    def _partition_of(self, group_id: str) -> Partition:
        topic = self._topics.get(OFFSETS_TOPIC) or self._create()
        return topic.partitions[partition_for(group_id, len(topic.partitions))]

    def _create(self) -> BrokerTopic:
        return self._topics.create([new_offsets_topic(self._settings)])[0]


def new_offsets_topic(settings: BrokerSettings) -> NewTopic:
    """Return the offsets topic as it is created, by whomever it is needed first."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        # Whatever other topics default to: an answered commit is never taken back.
        "flush.messages": "1",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    return NewTopic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions, configs)


@lru_cache(maxsize=4096)
def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of a group, the same that Kafka would choose."""
    value = java_string_hash(group_id)
    # Kafka's own absolute value: the smallest number has none, and counts as 0.
    return 0 if value == -(1 << 31) else abs(value) % partition_count


def java_string_hash(text: str) -> int:
    """Return what Java's ``String.hashCode`` says: 31-adic over UTF-16 units, 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def _read_all(partition: Partition, newest: dict[bytes, bytes]) -> None:
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        extent = log.read(offset, _READ_BYTES, upto_offset=end, at_least_one=True)
        if extent is None:
            break
        data = extent.read()
        reached = offset
        for position, header in scan(data):
            reached = header.next_offset
            if header.is_control:
                continue
            try:
                records = iterate(data, position)
            except CorruptRecordError as error:
                _log.warning(
                    "%s-%d: batch at offset %d is unreadable and was skipped: %s",
                    OFFSETS_TOPIC,
                    log.partition,
                    header.base_offset,
                    error.message,
                )
                continue
            for _, _, key, value, _ in records:
                if key is None:
                    continue
                if value is None:
                    newest.pop(key, None)
                else:
                    newest[key] = value
        assert reached > offset, "a read always brings at least one batch"
        offset = reached
