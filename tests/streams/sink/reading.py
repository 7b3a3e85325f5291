"""What is in a topic, as kafka-python tells it.

This file alone decides how the tests of the sink look at what was written: by a client that is not
ours, reading committed records only, to the end that the topic has when it is asked.
"""

import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster

# What ends a transaction moves a reader on, but wakes nobody who waits for records.
_POLL_MS = 20
_WITHIN_S = 30


def committed(bootstrap: str, topic: str) -> list[Any]:
    """Read all committed records of a topic, in the order of partition and offset."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        group_id=None,
    )
    try:
        ends = _ends(bootstrap, topic)
        found: list[Any] = []
        consumer.assign(list(ends))
        for place in ends:
            consumer.seek(place, 0)
        deadline_s = time.monotonic() + _WITHIN_S
        while any(consumer.position(place) < end for place, end in ends.items()):
            assert time.monotonic() < deadline_s, "kafka-python does not come to the end"
            for records in consumer.poll(timeout_ms=_POLL_MS).values():
                found += records
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


def _ends(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Return where partitions end, whether that is committed yet or not.

    A broker acknowledges a commit a moment before all partitions have it.
    """
    with Cluster(bootstrap) as cluster:
        numbers = [each.number for each in cluster.topic(topic).partitions]
        ends = admin.list_offsets(cluster, {(topic, number): admin.LATEST for number in numbers})
    return {TopicPartition(*place): end for place, end in ends.items() if end}


def values(bootstrap: str, topic: str) -> list[bytes]:
    """Read all committed values of a topic, sorted."""
    return sorted(record.value for record in committed(bootstrap, topic))
