"""How far a group is behind, and how long it may stay so.

This file alone decides how lag is measured, from what any Kafka broker tells: in records (exact,
up to compaction), in bytes and in time until the oldest unread record is removed.

* Bytes are an estimate: the partition's size, shared out evenly over its offsets.
* By ``retention.ms`` a record goes no sooner than its own timestamp plus the retention. Whole
  segments go, so it often stays longer: the estimate is on the safe side.
* By ``retention.bytes``, or ``headwater.overflow.bytes`` of a topic that drops, it goes when that
  much has been written behind it; writers are taken to go on as they did since that record.
"""

import math
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.delivery.client import admin
from headwater.delivery.client.admin import EARLIEST, LATEST, TOPIC_RESOURCE
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.consumer import Consumer

_HOUR_MS = 3_600_000
# A consumer is warned of when less than this share of its records' life is left.
_RISK = 0.1
_ONE_BATCH_WAIT_S = 2.0


class Retention(NamedTuple):
    """When a topic removes records; infinite where it does not."""

    time_ms: float
    size_bytes: float


class PartitionLag(NamedTuple):
    """Where a group is in one partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        committed: The offset that is read next; None where nothing was ever committed.
        first: The oldest offset there is.
        end: The offset behind the newest.
        lag_records: How many records are still to be read.
        lag_bytes: How many bytes they have, about.
        lost_records: How many offsets were removed before they were read.
        hours_left: Hours until the oldest unread record is removed; None where it never is.
        removed_by: The config that will remove it.
        at_risk: Whether nine tenths of the time that the record is kept have passed.
    """

    topic: str
    partition: int
    committed: int | None
    first: int
    end: int
    lag_records: int
    lag_bytes: int
    lost_records: int
    hours_left: float | None
    removed_by: str | None
    at_risk: bool


class Time(NamedTuple):
    """How long a record will still be there; see `PartitionLag`."""

    hours_left: float | None
    removed_by: str | None
    at_risk: bool


_FOR_EVER = Time(None, None, at_risk=False)


def measure(
    cluster: Cluster, committed: Mapping[Place, int], assigned: Iterable[Place] = ()
) -> list[PartitionLag]:
    """Return the lag in every partition that a group has committed in or holds.

    Partitions of topics that do not exist any more are left out.
    """
    topics = cluster.topics()
    places = sorted(
        (topic, number)
        for topic, number in {*committed, *assigned}
        if topic in topics and number < len(topics[topic].partitions)
    )
    first = admin.list_offsets(cluster, dict.fromkeys(places, EARLIEST))
    end = admin.list_offsets(cluster, dict.fromkeys(places, LATEST))
    sizes = admin.log_sizes(cluster)
    retentions = {topic: _retention(cluster, topic) for topic in {place[0] for place in places}}
    now_ms = time.time_ns() // 1_000_000
    found = []
    for place in places:
        position = committed.get(place)
        at = first[place] if position is None else max(first[place], position)
        records = max(0, end[place] - at)
        held = end[place] - first[place]
        size_bytes = sizes.get(place, 0) / _copies(topics[place[0]].partitions[place[1]].replicas)
        lag_bytes = round(size_bytes * records / held) if held else 0
        left = _FOR_EVER
        if records and retentions[place[0]] != Retention(math.inf, math.inf):
            oldest_ms = _timestamp_at(cluster, place, at)
            if oldest_ms is not None:
                left = time_left(retentions[place[0]], oldest_ms, lag_bytes, now_ms)
        lost = 0 if position is None else max(0, first[place] - position)
        found.append(
            PartitionLag(
                *place,
                position,
                first[place],
                end[place],
                records,
                lag_bytes,
                lost,
                left.hours_left,
                left.removed_by,
                left.at_risk,
            )
        )
    return found


def time_left(retention: Retention, oldest_ms: int, lag_bytes: int, now_ms: int) -> Time:
    """Return how long the oldest unread record will still be there, and what removes it."""
    age_ms = max(1, now_ms - oldest_ms)
    by_time_ms = retention.time_ms - age_ms
    by_size_ms = math.inf
    if math.isfinite(retention.size_bytes):
        room_bytes = max(0.0, retention.size_bytes - lag_bytes)
        by_size_ms = room_bytes * age_ms / max(1, lag_bytes)
    left_ms = min(by_time_ms, by_size_ms)
    if not math.isfinite(left_ms):
        return _FOR_EVER
    left_ms = max(0.0, left_ms)
    cause = "retention.ms" if by_time_ms <= by_size_ms else "retention.bytes"
    return Time(left_ms / _HOUR_MS, cause, at_risk=left_ms < _RISK * (left_ms + age_ms))


def _copies(replicas: list[int]) -> int:
    # Sizes are summed over the replicas; each holds the same records.
    return max(1, len(replicas))


def _retention(cluster: Cluster, topic: str) -> Retention:
    configs = {
        config.name: config.value or ""
        for config in admin.describe_configs(cluster, TOPIC_RESOURCE, topic)
    }
    time_ms = size_bytes = math.inf
    if "delete" in configs.get("cleanup.policy", "delete"):
        time_ms = _bound(configs.get("retention.ms", "-1"))
        size_bytes = _bound(configs.get("retention.bytes", "-1"))
    if configs.get("headwater.overflow") == "drop":
        size_bytes = min(size_bytes, _bound(configs.get("headwater.overflow.bytes", "-1")))
    return Retention(time_ms, size_bytes)


def _bound(text: str) -> float:
    number = int(text or "-1")
    return math.inf if number < 0 else number


def _timestamp_at(cluster: Cluster, place: Place, offset: int) -> int | None:
    """Return when the first record at or behind an offset was written; fetches one batch."""
    consumer = Consumer(cluster, fetch_bytes=1)
    consumer.assign({place: offset})
    messages = consumer.poll(_ONE_BATCH_WAIT_S)
    return messages[0].timestamp_ms if messages else None
