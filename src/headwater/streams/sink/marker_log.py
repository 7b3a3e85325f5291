"""The topic of markers, on a broker.

This file alone decides how that topic is read to its end, and when what was read need not be read
again. What a marker says and which one counts stands in `marker`; how the topic is made, in the
client's `compacted_topic`.

The last marker of every sink stays for ever, those before it go. The log is read from its start: by
each run at its first commit, and at others where Spark uses another process than for the last.
Reading takes 0.1 ms a marker.
"""

import time
from typing import Final

from headwater.delivery.client.batch_reader import BatchReader
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.compacted_topic import CompactedTopic
from headwater.delivery.client.producer import Producer
from headwater.streams.sink.commit import Batches
from headwater.streams.sink.errors import MarkerError
from headwater.streams.sink.marker import (
    MARKER_PLACE,
    MARKER_TOPIC,
    KeyScan,
    Marker,
    MarkerScan,
    Seen,
    marker_batch,
    marker_key,
)

_FETCH_BYTES: Final = 4 << 20

# Spark uses the process of a commit again for the next, as a rule. Brokers forget a transactional
# id, and with it who was fenced, after a week without use; an hour is far from that.
_REMEMBERED_S: Final = 3600.0
_remembered: Final[dict[tuple[str, bytes], tuple[Marker, float]]] = {}


class MarkerLog:
    """The markers of one sink."""

    def __init__(self, cluster: Cluster, query_id: str, sink_name: str) -> None:
        self._cluster = cluster
        self._topic = CompactedTopic(cluster, MARKER_TOPIC)
        self._key = marker_key(query_id, sink_name)
        self._memory_key = (cluster.bootstrap, self._key)

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
        if not self._topic.exists():
            return Seen(None, None)
        return self._topic.retrying(lambda: self._scan(*self._topic.bounds()))

    def _scan(self, start: int, end: int) -> Seen:
        scan = MarkerScan(self._key, from_offset=start)
        _read_through(self._cluster, scan, end)
        return scan.seen

    def prepare(self) -> None:
        """Create the topic where it does not exist; refuse one that would forget.

        Raises:
            ForgetfulTopicError: It does not keep the last record of each key.
            KafkaError: It cannot be created.
        """
        self._topic.prepare()

    def batches(self, marker: Marker) -> Batches:
        """Return a marker as it is sent."""
        batch = marker_batch(self._key, marker, now_ms=time.time_ns() // 1_000_000)
        return {MARKER_PLACE: [batch]}


def forget_query(cluster: Cluster, query_id: str) -> int:
    """Let compaction remove the markers of a query that has no checkpoint any more.

    Returns:
        How many sinks of it were remembered.

    Raises:
        HeadwaterError: No broker answers, or it does not allow it.
    """
    cluster.refresh([MARKER_TOPIC])
    if not cluster.knows(MARKER_TOPIC):
        return 0
    start, end = CompactedTopic(cluster, MARKER_TOPIC).bounds()
    scan = KeyScan(query_id, from_offset=start)
    _read_through(cluster, scan, end)
    with Producer(cluster) as producer:
        for key in sorted(scan.keys):
            producer.send(MARKER_TOPIC, None, key=key, partition=MARKER_PLACE[1])
    return len(scan.keys)


def _read_through(cluster: Cluster, scan: MarkerScan | KeyScan, end: int) -> None:
    """Let a scan see the log as it lies, up to an offset."""
    if scan.next_offset >= end:
        return
    wait_ms = int(cluster.timeout_s * 1000)
    with BatchReader(
        cluster, *MARKER_PLACE, read_committed=False, fetch_bytes=_FETCH_BYTES
    ) as reader:
        while scan.next_offset < end:
            before = scan.next_offset
            scan.take(reader.fetch(before, wait_ms=wait_ms).records)
            if scan.next_offset == before:
                raise MarkerError(
                    f"{MARKER_TOPIC} ends at {end}, but has nothing at {before}",
                    hint="see the broker's log; the query can be started again",
                )
