"""A fetch on its way: what it wants, what it has found, and what its client is told.

This file alone decides how partitions are found by name or id, and how findings become an answer.
When there is enough to answer is decided by `headwater.delivery.broker.fetch`, what is new to a
session by `fetch_sessions`.
"""

from collections.abc import Iterable, Sequence
from itertools import starmap

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import check_leader_epoch
from headwater.delivery.broker.fetch import NOT_THERE, Found, Limits, Wanted, collect
from headwater.delivery.broker.fetch_sessions import NO_EPOCH, NO_SESSION, FetchSession, Key
from headwater.delivery.broker.partition import Partition
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

FIRST_WITH_TOPIC_IDS = 13

PARTITION_BYTES = 40
"""What a partition counts against a quota beside its records."""

# The same for the answer's own fields.
_HEAD_BYTES = 24

_Topic = messages.FetchResponse.FetchableTopicResponse
_Partition = messages.FetchResponse.PartitionData
_Aborted = messages.FetchResponse.AbortedTransaction


class Fetch:
    """One request, until it is answered.

    While it waits it holds no records: they keep files open, and a client may wait for days.

    Attributes:
        has_records: Whether the last look found a record.
    """

    __slots__ = (
        "_call",
        "_epoch",
        "_found",
        "_limits",
        "_session",
        "_wanted",
        "_wants_session",
        "has_records",
    )

    def __init__(
        self,
        call: Call,
        limits: Limits,
        wanted: Sequence[Wanted],
        session: FetchSession | None = None,
        *,
        wants_session: bool = False,
    ) -> None:
        self._call = call
        self._limits = limits
        self._wanted = wanted
        self._session = session
        self._epoch = session.epoch if session is not None else NO_EPOCH
        self._wants_session = wants_session
        self._found: list[Found] = []
        self.has_records = False

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are worth waiting for."""
        return [each.partition for each in self._wanted if each.partition is not None]

    def look(self) -> bool:
        """Look at every partition; tell whether that is enough for an answer."""
        self._found, enough = collect(self._wanted, self._limits)
        self.has_records = any(found.records is not None for found in self._found)
        if self.has_records and not enough:
            self._found = []
        return enough

    def answer(self) -> None:
        """Answer with what was seen last, or with what is new of it to the session.

        Records that were let go while it waited are looked up again.
        """
        if not self._found:
            self._found, _ = collect(self._wanted, self._limits)
        session = self._session
        if session is not None and session.epoch != self._epoch:
            # Another connection went on with the session: what it said meanwhile holds.
            stale = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            response = messages.FetchResponse(error_code=stale, session_id=session.session_id)
            self._call.reply(response)
            return
        if self._call.broker.quotas.watching:
            told = [each.records for each in self._found if each.records or session is None]
            size_bytes = sum(len(records or b"") + PARTITION_BYTES for records in told)
            if has_to_wait(self._call, size_bytes, session.session_id if session else NO_SESSION):
                return
        if self._wants_session:
            wanted = {session_key(each): each for each in self._wanted}
            by_id = self._call.version >= FIRST_WITH_TOPIC_IDS
            session = self._call.broker.fetch_sessions.begin(wanted, by_id=by_id)
        if session is None:
            response = self._response(zip(self._wanted, self._found, strict=True))
        else:
            response = self._response(session.news(self._wanted, self._found))
            response.session_id = session.session_id
        self._call.reply(response)

    def answer_without_promised(self) -> None:
        """Answer although records that a producer was told of cannot be seen yet.

        A reader that stands behind them is told of no record. OFFSET_OUT_OF_RANGE would send it to
        where its client's settings say, perhaps to the start of the log.
        """
        found, _ = collect(self._wanted, self._limits)
        self._found = [
            self._unless_promised(*each) for each in zip(self._wanted, found, strict=True)
        ]
        self.answer()

    def _unless_promised(self, wanted: Wanted, found: Found) -> Found:
        partition = wanted.partition
        if partition is None or found.error != ErrorCode.OFFSET_OUT_OF_RANGE:
            return found
        log = partition.log
        if wanted.offset < log.high_watermark:
            return found
        if not self._call.broker.promises.cover(partition, wanted.offset):
            return found
        told = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
        return Found(ErrorCode.NONE, *told, None)

    def _response(self, findings: Iterable[tuple[Wanted, Found]]) -> messages.FetchResponse:
        response = messages.FetchResponse()
        topic: _Topic | None = None
        for wanted, finding in findings:
            if topic is None or topic.topic != wanted.topic or topic.topic_id != wanted.topic_id:
                topic = _Topic(wanted.topic, wanted.topic_id, [])
                response.responses.append(topic)
            told = _Partition(
                wanted.index,
                finding.error,
                finding.high_watermark,
                finding.last_stable_offset,
                finding.log_start_offset,
            )
            told.aborted_transactions = _aborted(self._limits, finding)
            told.records = finding.records if finding.records is not None else b""
            topic.partitions.append(told)
        return response


def _aborted(limits: Limits, finding: Found) -> list[_Aborted] | None:
    """Return the aborted transactions; Kafka tells no list from an empty one."""
    if finding.error:
        return [] if finding.error in NOT_THERE else None
    return list(starmap(_Aborted, finding.aborted)) if limits.read_committed else None


def has_to_wait(call: Call, size_bytes: int, session_id: int) -> bool:
    """Answer with nothing if the client reads faster than its quota allows; tell whether it did."""
    wait_ms = call.broker.quotas.fetched(call.client_id, size_bytes + _HEAD_BYTES)
    if wait_ms:
        response = messages.FetchResponse(session_id=session_id)
        call.throttle(response, wait_ms)
        call.reply(response)
    return wait_ms > 0


def wanted_by(call: Call, request: messages.FetchRequest) -> Iterable[Wanted]:
    """Go through the partitions that a request names, each found or with the reason why not."""
    for asked_topic in request.topics:
        for asked in asked_topic.partitions:
            wanted = Wanted(asked_topic.topic, asked_topic.topic_id, asked.partition)
            wanted.offset = asked.fetch_offset
            wanted.max_bytes = asked.partition_max_bytes
            wanted.leader_epoch = asked.current_leader_epoch
            resolve(call, wanted)
            yield wanted


def resolve(call: Call, wanted: Wanted) -> None:
    """Find the partition, or the reason why there is none."""
    topics = call.broker.topics
    wanted.partition, wanted.error = None, ErrorCode.NONE
    if call.version >= FIRST_WITH_TOPIC_IDS:
        topic = topics.by_id(wanted.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic = topics.get(wanted.topic)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = topic.partition(wanted.index) if topic is not None else None
    if partition is None:
        wanted.error = missing if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    if wanted.leader_epoch >= 0:
        try:
            check_leader_epoch(call.broker, wanted.leader_epoch)
        except KafkaError as refused:
            wanted.error = refused.code
            return
    wanted.partition = partition


def session_key(wanted: Wanted) -> Key:
    """Return what a session knows the partition by."""
    return wanted.topic, wanted.topic_id, wanted.index
