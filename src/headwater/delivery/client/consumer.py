"""Reads records from partitions.

This file alone decides how fetches are made and what of their answers a reader sees: whole
records from the wanted offset on, without control records and, on request, without what was
aborted. It belongs to no group; `group` adds that.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headwater.base.errors import (
    RETRIABLE,
    CorruptRecordError,
    ErrorCode,
    HeadwaterError,
    KafkaError,
)
from headwater.base.record.batch import BatchHeader, TruncatedBatchError, scan
from headwater.base.record.control import CONTROL_ABORT, control_type
from headwater.base.record.records import iterate
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.requests import FETCH_BY_NAME_VERSION_MAX, fetch_request

_PARTITION_BYTES = 1 << 20
_FETCH_BYTES = 50 << 20


class Message(NamedTuple):
    """One record with all that is known of it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Consumer:
    """Reads assigned partitions, each from its own position on."""

    def __init__(
        self, cluster: Cluster, *, read_committed: bool = False, fetch_bytes: int = _FETCH_BYTES
    ) -> None:
        """Prepare to read; `assign` says what.

        Args:
            cluster: Where from.
            read_committed: Whether records of open and aborted transactions are left out.
            fetch_bytes: How much one answer may carry, unless a single batch is larger.
        """
        self._cluster = cluster
        self._read_committed = read_committed
        self._fetch_bytes = fetch_bytes
        self._positions: dict[Place, int] = {}
        # Errors of partitions that came beside records of others: those are handed out first.
        self._errors: dict[Place, tuple[int, KafkaError]] = {}
        self.high_watermarks: dict[Place, int] = {}

    @property
    def positions(self) -> dict[Place, int]:
        """The offset that is read next in each assigned partition."""
        return dict(self._positions)

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        self._positions = dict(positions)

    def seek(self, place: Place, offset: int) -> None:
        """Go on from another offset."""
        assert place in self._positions, f"{place} is not assigned"
        self._positions[place] = offset

    def poll(self, timeout_s: float = 1.0) -> list[Message]:
        """Return what is there, or wait until something is or the time is up.

        Nothing is lost by an error: records that came beside it are returned first, and the
        partition that it concerns stays where it is.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE when a position has fallen off the log, others as sent.
            BrokerUnreachableError: A leader does not answer.
        """
        self._raise_kept_error()
        found: list[Message] = []
        leaders = self._by_leader()
        for index, (leader, places) in enumerate(leaders.items()):
            # With several leaders only the last is waited for, so that none holds up another.
            wait_s = timeout_s if index == len(leaders) - 1 and not found else 0.0
            try:
                self._fetch(leader, places, wait_s, found)
            except HeadwaterError:
                # What others have sent is not lost for it; this leader is asked again next time.
                if not found:
                    raise
        if not found:
            self._raise_kept_error()
        return found

    def _raise_kept_error(self) -> None:
        """Raise what went wrong in a partition, unless its reader has moved since."""
        errors, self._errors = self._errors, {}
        for place, (position, error) in errors.items():
            if self._positions.get(place) == position:
                raise error

    def _by_leader(self) -> dict[int, list[Place]]:
        leaders: dict[int, list[Place]] = {}
        for place in self._positions:
            leader = self._cluster.retrying(lambda place=place: self._cluster.leader(*place))  # type: ignore[misc]
            leaders.setdefault(leader, []).append(place)
        return leaders

    def _fetch(self, leader: int, places: list[Place], wait_s: float, found: list[Message]) -> None:
        request = fetch_request(
            {place: self._positions[place] for place in places},
            read_committed=self._read_committed,
            wait_ms=int(wait_s * 1000),
            fetch_bytes=self._fetch_bytes,
            partition_bytes=_PARTITION_BYTES,
        )
        connection = self._cluster.broker(leader, purpose="fetch")
        try:
            response = connection.call(
                request,
                version_max=FETCH_BY_NAME_VERSION_MAX,
                timeout_s=wait_s + self._cluster.timeout_s,
            )
        except BrokerUnreachableError:
            for topic, _ in places:
                self._cluster.forget_topic(topic)
            raise
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        for answered in response.responses:
            for data in answered.partitions:
                self._take((answered.topic, data.partition_index), data, found)

    def _take(self, place: Place, data: Any, found: list[Message]) -> None:  # noqa: ANN401
        code = ErrorCode(data.error_code)
        if code in RETRIABLE:
            self._cluster.forget_topic(place[0])
            return
        if code:
            position = self._positions[place]
            where = f"{place[0]}-{place[1]} at offset {position}"
            self._errors[place] = (position, KafkaError(code, f"{where}: {code.name}"))
            return
        self.high_watermarks[place] = data.high_watermark
        if not data.records:
            return
        position = self._positions[place]
        aborted = _Aborted(data.aborted_transactions or [])
        try:
            for at, header in scan(data.records):
                if header.last_offset >= position:
                    self._take_batch(place, data.records, at, header, aborted, found)
                    position = header.last_offset + 1
                    self._positions[place] = position
        except TruncatedBatchError:
            return  # brokers cut the last batch at the byte limit; it comes whole the next time
        except CorruptRecordError as error:
            self._errors[place] = (position, error)

    def _take_batch(
        self,
        place: Place,
        records: memoryview,
        at: int,
        header: BatchHeader,
        aborted: "_Aborted",
        found: list[Message],
    ) -> None:
        if aborted.hides(header, records, at) or header.is_control:
            return
        position = self._positions[place]
        found.extend(
            Message(
                *place,
                record.offset,
                record.timestamp,
                header.timestamp_type,
                record.key,
                record.value,
                list(record.headers),
            )
            for record in iterate(records, at)
            if record.offset >= position
        )


class _Aborted:
    """Which batches of a fetch belong to transactions that were given up."""

    def __init__(self, transactions: Iterable[Any]) -> None:
        self._starts = sorted((each.first_offset, each.producer_id) for each in transactions)
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, records: memoryview, at: int) -> bool:
        while self._starts and self._starts[0][0] <= header.last_offset:
            self._open.add(self._starts.pop(0)[1])
        if header.is_control:
            if control_type(iterate(records, at)[0]) == CONTROL_ABORT:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
