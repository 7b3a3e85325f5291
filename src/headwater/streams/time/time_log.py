"""The topic of reports, on a broker.

This file alone decides how that topic is read to its end, written to and cleared up. What its
records say stands in `records`; how the topic is made, in the client's `compacted_topic`.

Somebody may delete the topic while a query runs. Then what was known stays known, and the topic
that tasks make in its place is read from its start. A client waits for a topic that it knew, as
long as its patience lasts; so the one used here has little, is asked again for as long as that of
the options says, and looks whether the topic is there in between.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.base.record.records import Record
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader
from headwater.delivery.client.cluster import Cluster, is_retriable_or_broken
from headwater.delivery.client.compacted_topic import CompactedTopic
from headwater.delivery.client.producer import Producer
from headwater.streams.client_options import ClientOptions
from headwater.streams.connecting import connect
from headwater.streams.time.records import TIME_PLACE, TIME_TOPIC, QueryScan, TimeScan

Result = TypeVar("Result")

_TRY_S: Final = 4.0
_PAUSE_S: Final = 0.1
_FETCH_BYTES: Final = 4 << 20
# So many that a request is worth it, so few that a start is not held up by reading them.
_REMOVED_AT_ONCE: Final = 256
_GONE: Final = {
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
_LOG = logging.getLogger(__name__)


class _Patience:
    """A client with little patience, and more patience around it."""

    def __init__(self, bootstrap: str, client: ClientOptions) -> None:
        self.cluster = connect(bootstrap, client, timeout_s=min(_TRY_S, client.timeout_s))
        self._patience_s = client.timeout_s

    def retrying(self, action: Callable[[], Result]) -> Result:
        """Do what may be done twice until it succeeds, or the options' patience ends."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            try:
                return action()
            except HeadwaterError as error:
                if not is_retriable_or_broken(error) or time.monotonic() >= deadline_s:
                    raise
            time.sleep(_PAUSE_S)


class TimeLog:
    """Reads what concerns one clock, again and again."""

    def __init__(self, bootstrap: str, client: ClientOptions) -> None:
        """Prepare to read; nobody is asked yet."""
        self._patience = _Patience(bootstrap, client)
        self._cluster = self._patience.cluster
        self._reader: BatchReader | None = None
        self._writer = TimeWriter(bootstrap, client)

    def read(self, scan: TimeScan) -> None:
        """Let a scan see all that is there now.

        Raises:
            TimeLogError: It holds what is none of ours.
            HeadwaterError: No broker answers, or it does not allow it.
        """
        self._patience.retrying(lambda: self._read_once(scan))

    def _read_once(self, scan: TimeScan) -> None:
        try:
            if self._reader is not None or self._begin(scan):
                assert self._reader is not None
                _read_to_end(self._reader, scan)
        except KafkaError as error:
            if error.code not in _GONE:
                raise
            _LOG.warning("%s: %s; it is read from its start", TIME_TOPIC, error.message)
            self._stop_reading()
            scan.start_again()

    def clear_up(self, scan: TimeScan) -> None:
        """Remove what a scan has found to be surpassed, if it is much."""
        if len(scan.surpassed) < _REMOVED_AT_ONCE:
            return
        try:
            self._writer.remove(scan.surpassed)
        except HeadwaterError as error:
            # The records stay, and are found again by whoever reads the topic next.
            _LOG.warning("%s cannot be cleared up: %s", TIME_TOPIC, error.message)
        scan.surpassed.clear()

    def close(self) -> None:
        """Let go of the brokers."""
        self._stop_reading()
        self._cluster.close()
        self._writer.close()

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _begin(self, scan: TimeScan) -> bool:
        if not _is_there(self._cluster):
            return False
        scan.next_offset = max(scan.next_offset, _first_offset(self._cluster))
        self._reader = _reader(self._cluster)
        return True


class TimeWriter:
    """Writes records, and makes the topic where it is not there."""

    def __init__(self, bootstrap: str, client: ClientOptions) -> None:
        """Prepare to write; nobody is asked yet."""
        self._patience = _Patience(bootstrap, client)
        self._producer = Producer(self._patience.cluster)
        self._is_prepared = False

    def write(self, records: Iterable[Record]) -> None:
        """Write records and wait until they are safe; a broker that is away may come back.

        Raises:
            HeadwaterError: They are not safe.
        """
        wanted = list(records)
        self._patience.retrying(lambda: self._write(wanted))

    def remove(self, keys: Iterable[bytes]) -> None:
        """Let compaction remove these.

        Raises:
            HeadwaterError: It cannot be written.
        """
        now_ms = time.time_ns() // 1_000_000
        self.write(Record(0, now_ms, key, None) for key in sorted(keys))

    def close(self) -> None:
        """Let go of the brokers."""
        self._patience.cluster.close()

    def _write(self, records: list[Record]) -> None:
        if not self._is_prepared:
            CompactedTopic(self._patience.cluster, TIME_TOPIC).prepare()
            self._is_prepared = True
        try:
            for record in records:
                self._producer.send(
                    TIME_TOPIC,
                    record.value,
                    key=record.key,
                    partition=TIME_PLACE[1],
                    timestamp_ms=record.timestamp,
                )
            self._producer.flush()
        except HeadwaterError:
            # It may have been deleted: then it has to be made anew, with its configs.
            self._is_prepared = False
            raise


def forget_query(cluster: Cluster, query_id: str) -> int:
    """Let compaction remove all that is remembered of a query that has no checkpoint any more.

    Returns:
        How many records there were.

    Raises:
        HeadwaterError: No broker answers, or it does not allow it.
    """
    if not _is_there(cluster):
        return 0
    scan = QueryScan(query_id)
    scan.next_offset = _first_offset(cluster)
    with _reader(cluster) as reader:
        _read_to_end(reader, scan)
    with Producer(cluster) as producer:
        for key in sorted(scan.keys):
            producer.send(TIME_TOPIC, None, key=key, partition=TIME_PLACE[1])
    return len(scan.keys)


def _read_to_end(reader: BatchReader, scan: TimeScan | QueryScan) -> None:
    while True:
        # What tasks have written before they ended is below the high watermark.
        fetched = reader.fetch(scan.next_offset, wait_ms=0)
        before = scan.next_offset
        scan.take(fetched.records)
        scan.next_offset = max(scan.next_offset, fetched.log_start_offset)
        if scan.next_offset >= fetched.high_watermark or scan.next_offset == before:
            return


def _first_offset(cluster: Cluster) -> int:
    """Return where the topic begins: at another place than 0 where records were deleted."""
    return admin.list_offsets(cluster, {TIME_PLACE: admin.EARLIEST})[TIME_PLACE]


def _reader(cluster: Cluster) -> BatchReader:
    topic_id = cluster.topic(TIME_TOPIC).topic_id
    return BatchReader(
        cluster,
        *TIME_PLACE,
        topic_id=topic_id if any(topic_id) else None,
        read_committed=False,
        fetch_bytes=_FETCH_BYTES,
    )


def _is_there(cluster: Cluster) -> bool:
    def look() -> bool:
        cluster.refresh([TIME_TOPIC])
        return cluster.knows(TIME_TOPIC)

    return cluster.retrying(look, passes=is_retriable_or_broken)
