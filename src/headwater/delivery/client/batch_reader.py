"""Reads one partition as the record batches that lie in its log.

This file alone decides when the next batches are asked for: while the caller still works on the
last ones, on a connection of its own. It looks at no record; what control batches and aborted
transactions mean is for whoever decodes.

At most one request is under way. It is sent before `fetch` returns, for the offset behind what is
returned, and only if records are known to be there: so its answer comes at once, a caller who goes
on elsewhere waits for no time-out, and at the end of the log nothing is asked in vain.

A broker that has just started may not know a topic yet, and one that lags may know an older one of
its name. So a topic is called gone only when it still is at the end of the client's patience.
"""

import contextlib
import itertools
import struct
from typing import Any, NamedTuple, Self

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MIN,
    LENGTH_POS,
    SIZE_OVERHEAD_BYTES,
    parse_header,
)
from headwater.delivery.client.cluster import Cluster, is_retriable_or_broken
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError, TopicReplacedError
from headwater.delivery.client.requests import FETCH_BY_NAME_VERSION_MAX, fetch_request

_NUMBERS = itertools.count()
_LENGTH = struct.Struct(">i")
_NOTHING = memoryview(b"")


class Fetched(NamedTuple):
    """What one fetch brought.

    Attributes:
        records: Whole record batches, then perhaps the beginning of one. The first may start
            before the offset that was asked for.
        aborted: Producer id and first offset of each transaction in there that was given up.
        high_watermark: Behind the last record that is safe.
        last_stable_offset: Where the oldest open transaction begins; else the high watermark.
        log_start_offset: The first record that is still there.
    """

    records: memoryview
    aborted: list[tuple[int, int]]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class BatchReader:
    """Fetches from one partition, and the next batches ahead of being asked for them."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        *,
        topic_id: bytes | None = None,
        read_committed: bool,
        fetch_bytes: int,
        upto_offset: int | None = None,
    ) -> None:
        """Prepare to read; the first `fetch` connects.

        Args:
            cluster: Where from.
            topic: The topic's name.
            partition: Its partition.
            topic_id: The topic's id, if no other topic of that name will do.
            read_committed: Whether to read up to the last stable offset only.
            fetch_bytes: How much one answer may carry, unless a single batch is larger.
            upto_offset: From where on nothing is asked for ahead, because nobody will want it.
        """
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._topic_id = topic_id
        self._read_committed = read_committed
        self._fetch_bytes = fetch_bytes
        self._upto_offset = upto_offset
        self._purpose = f"batches {next(_NUMBERS)}"
        self._connection: Connection | None = None
        self._offset_under_way: int | None = None

    def fetch(self, offset: int, *, wait_ms: int = 500) -> Fetched:
        """Return the batches from an offset on; none if none came within the time.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE; UNKNOWN_TOPIC_ID (as `TopicReplacedError`) when the
                topic with that id is gone; others as sent, after those that pass have not passed.
            BrokerUnreachableError: No leader answers.
        """
        try:
            return self._cluster.retrying(
                lambda: self._fetch_once(offset, wait_ms), passes=is_retriable_or_broken
            )
        except KafkaError as error:
            replaced = self._maybe_replaced() if error.code in _OTHER_TOPIC else None
            if replaced is None:
                raise
            raise replaced from error

    def close(self) -> None:
        """Give up the connection; the next `fetch` would make another."""
        self._connection = None
        self._offset_under_way = None
        self._cluster.close_connections(self._purpose)

    def __enter__(self) -> Self:
        """Use the reader in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _fetch_once(self, offset: int, wait_ms: int) -> Fetched:
        try:
            if self._offset_under_way not in {None, offset}:
                self._receive(wait_ms)
            if self._offset_under_way is None:
                self._ask(offset, wait_ms)
            fetched = self._take(self._receive(wait_ms), offset)
        except BaseException:
            # The leader may be another one now, and an answer that is late must not be taken for
            # the next.
            self.close()
            self._cluster.forget_topic(self._topic)
            raise
        self._ask_ahead(fetched, wait_ms)
        return fetched

    def _ask_ahead(self, fetched: Fetched, wait_ms: int) -> None:
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        if self._upto_offset is not None:
            end = min(end, self._upto_offset)
        ahead = _offset_behind(fetched.records)
        if ahead is not None and ahead < end:
            # If it cannot be asked now, the next fetch finds out why.
            with contextlib.suppress(HeadwaterError):
                self._ask(ahead, wait_ms)

    def _ask(self, offset: int, wait_ms: int) -> None:
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = self._connect()
        request = fetch_request(
            {(self._topic, self._partition): offset},
            topic_ids=None if self._topic_id is None else {self._topic: self._topic_id},
            read_committed=self._read_committed,
            wait_ms=wait_ms,
            fetch_bytes=self._fetch_bytes,
            partition_bytes=self._fetch_bytes,
        )
        version_max = FETCH_BY_NAME_VERSION_MAX if self._topic_id is None else None
        connection.send(request, version_max=version_max)
        self._offset_under_way = offset

    def _connect(self) -> Connection:
        found_id = self._cluster.topic(self._topic).topic_id
        if self._topic_id not in {None, found_id}:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"topic {self._topic!r} has another id than before"
            )
        leader = self._cluster.leader(self._topic, self._partition)
        return self._cluster.broker(leader, purpose=self._purpose)

    def _receive(self, wait_ms: int) -> Any:  # noqa: ANN401 - a FetchResponse
        assert self._connection is not None
        self._offset_under_way = None
        if self._connection.closed:
            raise BrokerUnreachableError(f"the connection to {self._connection.address} broke")
        return self._connection.receive(timeout_s=wait_ms / 1000 + self._cluster.timeout_s)

    def _take(self, response: Any, offset: int) -> Fetched:  # noqa: ANN401 - a FetchResponse
        self._check(response.error_code, offset)
        ((data,),) = [topic.partitions for topic in response.responses]
        self._check(data.error_code, offset)
        return Fetched(
            _NOTHING if data.records is None else memoryview(data.records),
            [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()],
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
        )

    def _check(self, error_code: int, offset: int) -> None:
        if not error_code:
            return
        code = ErrorCode(error_code)
        hint = ""
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            hint = "retention has removed it, or the log was cut: read from another offset"
        where = f"{self._topic}-{self._partition} at offset {offset}"
        raise KafkaError(code, f"{where}: {code.name}", hint=hint)

    def _maybe_replaced(self) -> TopicReplacedError | None:
        """Tell what has become of the topic with the id that is read; None if it is there."""
        if self._topic_id is None:
            return None
        self._cluster.refresh([self._topic])
        what_happened = "has been deleted"
        if self._cluster.knows(self._topic):
            if self._cluster.topic(self._topic).topic_id == self._topic_id:
                return None
            what_happened += " and created again"
        return TopicReplacedError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"the topic {self._topic!r} that was read {what_happened}",
            hint="its records are gone: read the new topic from its start, in a new reader",
        )


_OTHER_TOPIC = {
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def _offset_behind(records: memoryview) -> int | None:
    """Return the offset behind the last whole batch; None where there is none.

    Lengths alone are read: a fetch can carry tens of thousands of small batches.
    """
    pos, last, end = 0, -1, len(records) - BATCH_HEADER_BYTES
    length_at = _LENGTH.unpack_from
    while pos <= end:
        (length,) = length_at(records, pos + LENGTH_POS)
        following = pos + length + SIZE_OVERHEAD_BYTES
        if length < BATCH_LENGTH_MIN or following > len(records):
            break
        last, pos = pos, following
    return None if last < 0 else parse_header(records, last).next_offset
