"""The topic of markers, on a broker.

This file alone decides how that topic is read to its end, and when what was read need not be read
again. What a marker says and which one counts stands in `marker`; how the topic is made, in the
client's `compacted_topic`.

The last marker of every sink stays for ever, those before it go. A process reads the log from its
start once, and then what has been added since: at the first commit of each run, and at others where
the batch before was empty or committed by another process. It begins anew with a log that is not
the one it knows: another topic of the name, or one that was cut at either end.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from headwater.delivery.client.batch_reader import BatchReader
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.compacted_topic import CompactedTopic
from headwater.delivery.client.producer import Producer
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

_FETCH_BYTES: Final = 4 << 20

# Spark uses the process of a commit again for the next, as a rule. Brokers forget a transactional
# id, and with it who was fenced, after a week without use; an hour is far from that.
_REMEMBERED_S: Final = 3600.0
_remembered: Final[dict[tuple[str, bytes], tuple[Marker, float]]] = {}


class _Log(NamedTuple):
    """Which log was read, and from where."""

    topic_id: bytes
    start: int


# By the address of the brokers. A driver that writes several queries itself does so in threads.
_scans: Final[dict[str, tuple[_Log, MarkerScan]]] = {}
_scanning: Final[defaultdict[str, threading.Lock]] = defaultdict(threading.Lock)


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
        with _scanned(self._cluster, self._topic) as scan:
            return scan.seen(self._key)

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
    with _scanned(cluster, CompactedTopic(cluster, MARKER_TOPIC)) as scan:
        keys = scan.keys(query_id)
    with Producer(cluster) as producer:
        for key in sorted(keys):
            producer.send(MARKER_TOPIC, None, key=key, partition=MARKER_PLACE[1])
    return len(keys)


@contextmanager
def _scanned(cluster: Cluster, topic: CompactedTopic) -> Iterator[MarkerScan]:
    """Lend what the log says up to its end of now."""
    with _scanning[cluster.bootstrap]:
        yield topic.retrying(lambda: _scan_on(cluster, topic))


def _scan_on(cluster: Cluster, topic: CompactedTopic) -> MarkerScan:
    """Go on with what this process has read of the log, if it is still the same log."""
    start, end = topic.bounds()
    log = _Log(cluster.topic(MARKER_TOPIC).topic_id, start)
    known, scan = _scans.pop(cluster.bootstrap, (None, MarkerScan()))
    if known != log or scan.next_offset > end:
        scan = MarkerScan(from_offset=start)
    _read_through(cluster, scan, end)
    _scans[cluster.bootstrap] = (log, scan)
    return scan


def _read_through(cluster: Cluster, scan: MarkerScan, end: int) -> None:
    """Take the log as it lies into a scan, up to an offset."""
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
