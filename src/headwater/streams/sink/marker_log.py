"""The topic of markers, on a broker.

This file alone decides how that topic is made, and how it is read to its end. What a marker says
and which one counts stands in `marker`.

One partition, compacted: the last marker of every sink stays for ever, those before it go. The
settings keep the log short, because it is read from its start: by each run at its first commit, and
at others where Spark uses another process than for the last. Reading takes 0.1 ms a marker.
"""

import time
from typing import Final

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader
from headwater.delivery.client.cluster import Cluster
from headwater.streams.sink.commit import Batches
from headwater.streams.sink.errors import MarkerError
from headwater.streams.sink.marker import (
    MARKER_PLACE,
    MARKER_TOPIC,
    Marker,
    MarkerScan,
    Seen,
    marker_batch,
    marker_key,
)

_CLEANUP_POLICY: Final = "cleanup.policy"
_CONFIGS: Final = {
    _CLEANUP_POLICY: "compact",
    # A segment is compacted once it is full: the smallest that Apache Kafka takes, of which a
    # thousand batches fill one.
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_REPLICAS_MAX: Final = 3
_FETCH_BYTES: Final = 4 << 20

# Spark uses the process of a commit again for the next, as a rule. Brokers forget a transactional
# id, and with it who was fenced, after a week without use; an hour is far from that.
_REMEMBERED_S: Final = 3600.0
_remembered: Final[dict[tuple[str, bytes], tuple[Marker, float]]] = {}


class MarkerLog:
    """The markers of one sink."""

    def __init__(self, cluster: Cluster, query_id: str, sink_name: str) -> None:
        self._cluster = cluster
        self._key = marker_key(query_id, sink_name)
        self._memory_key = (cluster.bootstrap, self._key)
        self._wait_ms = int(cluster.timeout_s * 1000)

    def recall(self, run_id: str) -> Marker | None:
        """Return the marker that this process was the last to write for the run, and forget it."""
        marker, written_s = _remembered.pop(self._memory_key, (None, 0.0))
        if marker is None or marker.run_id != run_id:
            return None
        return marker if time.monotonic() - written_s < _REMEMBERED_S else None

    def remember(self, marker: Marker) -> None:
        """Keep in mind what was just committed."""
        _remembered[self._memory_key] = (marker, time.monotonic())

    def read(self) -> Seen:
        """Return what the topic says of the sink.

        Raises:
            MarkerError: What is there is no marker, or the topic cannot be read to its end.
        """
        self._cluster.refresh([MARKER_TOPIC])
        if not self._cluster.knows(MARKER_TOPIC):
            return Seen(None, None)
        start = admin.list_offsets(self._cluster, {MARKER_PLACE: admin.EARLIEST})[MARKER_PLACE]
        end = admin.list_offsets(self._cluster, {MARKER_PLACE: admin.LATEST})[MARKER_PLACE]
        scan = MarkerScan(self._key, from_offset=start)
        if start < end:
            with BatchReader(
                self._cluster, *MARKER_PLACE, read_committed=False, fetch_bytes=_FETCH_BYTES
            ) as reader:
                while scan.next_offset < end:
                    before = scan.next_offset
                    scan.take(reader.fetch(before, wait_ms=self._wait_ms).records)
                    if scan.next_offset == before:
                        raise MarkerError(
                            f"{MARKER_TOPIC} ends at {end}, but has nothing at {before}",
                            hint="see the broker's log; the query can be started again",
                        )
        return scan.seen

    def prepare(self) -> None:
        """Create the topic where it does not exist; refuse one that would forget.

        Raises:
            MarkerError: It does not keep the last record of each key.
            KafkaError: It cannot be created.
        """
        if not self._cluster.knows(MARKER_TOPIC):
            self._create()
        for config in admin.describe_configs(self._cluster, admin.TOPIC_RESOURCE, MARKER_TOPIC):
            if config.name == _CLEANUP_POLICY and config.value != "compact":
                raise MarkerError(
                    f"{MARKER_TOPIC} has cleanup.policy = {config.value}, so it would forget what "
                    "was written, and batches would be written twice",
                    hint=f"headwater topic alter {MARKER_TOPIC} --config cleanup.policy=compact",
                )

    def _create(self) -> None:
        replicas = min(_REPLICAS_MAX, len(self._cluster.brokers))
        configs = dict(_CONFIGS)
        if replicas == _REPLICAS_MAX:
            configs["min.insync.replicas"] = str(_REPLICAS_MAX - 1)
        try:
            admin.create_topic(
                self._cluster,
                MARKER_TOPIC,
                partitions=1,
                replication_factor=replicas,
                configs=configs,
            )
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            self._cluster.await_topic(MARKER_TOPIC)

    def batches(self, marker: Marker) -> Batches:
        """Return a marker as it is sent."""
        batch = marker_batch(self._key, marker, now_ms=time.time_ns() // 1_000_000)
        return {MARKER_PLACE: [batch]}
