"""What a transaction has written and a crash could still take back.

This file alone decides what must be on disk before a commit is decided. As a rule that is nothing:
a client commits when all its batches were acknowledged, and what was acknowledged is on disk. Not
so where a topic's ``flush.messages`` is larger than 1, or where a client commits too early. There
the commit waits, so that none is ever half there.
"""

from collections.abc import Callable, Iterable

from headwater.delivery.broker.countdown import Countdown
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.topics import PartitionKey, Topics


def unsynced(
    topics: Topics, producer_id: int, partitions: Iterable[PartitionKey]
) -> list[tuple[Partition, int]]:
    """Return where the producer's last batch is not on disk yet, and its last offset there."""
    found: list[tuple[Partition, int]] = []
    for key in partitions:
        partition = topics.partition(*key)
        if partition is None:
            continue
        producer = partition.log.producers.get(producer_id)
        if producer is None or not producer.batches:
            continue
        last_offset = producer.batches[-1].last_offset
        if last_offset >= partition.log.synced_offset:
            found.append((partition, last_offset))
    return found


def when_all_synced(waiting: Iterable[tuple[Partition, int]], action: Callable[[], None]) -> None:
    """Sync these partitions, then run the action."""
    countdown = Countdown(1, action)
    for partition, last_offset in waiting:
        countdown.one_more()
        partition.request_commit()
        partition.when_synced(last_offset, countdown.one_less)
    countdown.one_less()
