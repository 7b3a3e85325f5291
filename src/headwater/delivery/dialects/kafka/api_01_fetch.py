"""Fetch: v4-18.

Behaviour:
* Whole batches from the one that holds the fetch offset; the first batch is sent even when it is
  larger than every limit (KIP-74).
* Answers at once when ``min_bytes`` are there, on any error of a partition that exists, or when
  ``max_wait_ms`` is 0; else waits until enough has become visible or the time is up.
* Only what is durable is visible (the high watermark); under read_committed only what lies below
  the last stable offset.
* Under read_committed the aborted transactions come along; it is the client that skips them.
* Records travel as file ranges: the connection sends them without reading them.
* A client above its consumer_byte_rate gets an empty answer at once, and has to wait (KIP-219).
* In a session (KIP-227) a request names only what changed, and an answer tells only what is new.
  While a request waits, the next one of its session may come by another connection: the older one
  is then answered with INVALID_FETCH_SESSION_EPOCH.
* A client without sessions names a thousand partitions twice a second even when nothing happens:
  such a fetch is answered from pieces that were encoded before.

Version notes:
* v4: isolation level. v5: log start offset. v7: sessions. v9: leader epochs (KIP-320).
* v10: zstd. v12: flexible, diverging epochs for followers only. v13: topics by id (KIP-516).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import starmap
from typing import Any

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.schema import codec
from headwater.delivery.broker.broker import check_leader_epoch
from headwater.delivery.broker.fetch import Found, Limits, LongPoll, Wanted, collect
from headwater.delivery.broker.fetch_sessions import (
    FIRST_EPOCH,
    NO_EPOCH,
    NO_SESSION,
    FetchSession,
    Key,
)
from headwater.delivery.broker.partition import Partition
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 1
VERSIONS = (4, 18)

_FIRST_WITH_TOPIC_IDS = 13
_READ_COMMITTED = 1
# What counts against a quota beside the records: the answer's own fields, those of a partition.
_HEAD_BYTES = 24
_PARTITION_BYTES = 40
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_Topic = messages.FetchResponse.FetchableTopicResponse
_Partition = messages.FetchResponse.PartitionData
_Aborted = messages.FetchResponse.AbortedTransaction


def handle(call: Call, request: messages.FetchRequest) -> None:
    """Answer with what is there, or wait for it."""
    max_bytes = min(request.max_bytes, call.broker.settings.fetch_max_bytes)
    if call.broker.quotas.watching:
        max_bytes = min(max_bytes, call.broker.quotas.fetch_bytes_max(call.client_id))
    limits = Limits(
        # Whoever wants more than fits into an answer would wait in vain.
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_wait_ms,
        request.isolation_level == _READ_COMMITTED,
    )
    sessions = call.broker.fetch_sessions
    session_id, epoch = request.session_id, request.session_epoch
    if epoch in {NO_EPOCH, FIRST_EPOCH} and session_id != NO_SESSION:
        sessions.end(session_id)
    if epoch == NO_EPOCH:
        quiet = _quiet_fetch(call, request, limits)
        if quiet is not None:
            _wait(call, quiet, limits)
            return
        fetch = _Fetch(call, limits, list(_wanted(call, request)))
    elif epoch == FIRST_EPOCH:
        fetch = _Fetch(call, limits, list(_wanted(call, request)), wants_session=True)
    else:
        try:
            fetch = _fetch_of_session(call, request, limits)
        except KafkaError as refused:
            call.reply(messages.FetchResponse(error_code=refused.code))
            return
    if fetch.look() or limits.max_wait_ms <= 0 or not fetch.partitions:
        fetch.answer()
    else:
        _wait(call, fetch, limits)


def _wait(call: Call, fetch: "_Fetch | _QuietFetch", limits: Limits) -> None:
    poll = LongPoll(fetch, fetch.partitions, limits.max_wait_ms, call.broker.timers)
    call.on_cancel(poll.cancel)


class _Fetch:
    """A fetch on its way: what it wants, what it has found, and whom to tell."""

    __slots__ = ("_call", "_epoch", "_found", "_limits", "_session", "_wanted", "_wants_session")

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

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that are worth waiting for."""
        return [each.partition for each in self._wanted if each.partition is not None]

    def look(self) -> bool:
        self._found, enough = collect(self._wanted, self._limits)
        return enough

    def answer(self) -> None:
        session = self._session
        if session is not None and session.epoch != self._epoch:
            # Another connection went on with the session: what it said meanwhile holds.
            stale = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            response = messages.FetchResponse(error_code=stale, session_id=session.session_id)
            self._call.reply(response)
            return
        if self._call.broker.quotas.watching:
            told = [each.records for each in self._found if each.records or session is None]
            size_bytes = sum(len(records or b"") + _PARTITION_BYTES for records in told)
            if _has_to_wait(self._call, size_bytes, session.session_id if session else NO_SESSION):
                return
        if self._wants_session:
            wanted = {_key(each): each for each in self._wanted}
            by_id = self._call.version >= _FIRST_WITH_TOPIC_IDS
            session = self._call.broker.fetch_sessions.begin(wanted, by_id=by_id)
        if session is None:
            response = self._response(zip(self._wanted, self._found, strict=True))
        else:
            response = self._response(session.news(self._wanted, self._found))
            response.session_id = session.session_id
        self._call.reply(response)

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
        return [] if finding.error in _UNKNOWN else None
    return list(starmap(_Aborted, finding.aborted)) if limits.read_committed else None


def _has_to_wait(call: Call, size_bytes: int, session_id: int) -> bool:
    """Answer with nothing if the client reads faster than its quota allows; tell whether it did."""
    wait_ms = call.broker.quotas.fetched(call.client_id, size_bytes + _HEAD_BYTES)
    if wait_ms:
        response = messages.FetchResponse(session_id=session_id)
        call.throttle(response, wait_ms)
        call.reply(response)
    return wait_ms > 0


# What is wanted.


def _wanted(call: Call, request: messages.FetchRequest) -> Iterable[Wanted]:
    for asked_topic in request.topics:
        for asked in asked_topic.partitions:
            wanted = Wanted(asked_topic.topic, asked_topic.topic_id, asked.partition)
            wanted.offset = asked.fetch_offset
            wanted.max_bytes = asked.partition_max_bytes
            wanted.leader_epoch = asked.current_leader_epoch
            _resolve(call, wanted)
            yield wanted


def _resolve(call: Call, wanted: Wanted) -> None:
    """Find the partition, or the reason why there is none."""
    topics = call.broker.topics
    wanted.partition, wanted.error = None, ErrorCode.NONE
    if call.version >= _FIRST_WITH_TOPIC_IDS:
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


def _fetch_of_session(call: Call, request: messages.FetchRequest, limits: Limits) -> _Fetch:
    sessions = call.broker.fetch_sessions
    by_id = call.version >= _FIRST_WITH_TOPIC_IDS
    session = sessions.go_on(request.session_id, request.session_epoch, by_id=by_id)
    added = {_key(each): each for each in _wanted(call, request)}
    forgotten = [
        (topic.topic, topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    sessions.change(session, added, forgotten)
    wanted = list(session.wanted.values())
    for each in wanted:
        if each.partition is None or each.partition.ended:
            # The topic may have come into being, or be another one of the same name.
            _resolve(call, each)
    return _Fetch(call, limits, wanted, session if wanted else None)


def _key(wanted: Wanted) -> Key:
    return wanted.topic, wanted.topic_id, wanted.index


# When nothing is new.


class _QuietFetch:
    """A fetch that found every partition at its end; its answer is ready from the beginning."""

    __slots__ = ("_awake", "_call", "_limits", "_request", "partitions", "response")

    def __init__(self, call: Call, request: messages.FetchRequest, limits: Limits) -> None:
        self._call = call
        self._request = request
        self._limits = limits
        self._awake: _Fetch | None = None
        self.response = messages.FetchResponse()
        self.partitions: list[Partition] = []

    def look(self) -> bool:
        """Something happened: from now on it is a fetch like any other."""
        if self._awake is None:
            wanted = list(_wanted(self._call, self._request))
            # A topic that was deleted meanwhile is one that ended, not one that never was.
            for each, partition in zip(wanted, self.partitions, strict=True):
                each.partition = partition
            self._awake = _Fetch(self._call, self._limits, wanted)
        return self._awake.look()

    def answer(self) -> None:
        if self._awake is not None:
            self._awake.answer()
        elif not (
            self._call.broker.quotas.watching
            and _has_to_wait(self._call, _PARTITION_BYTES * len(self.partitions), NO_SESSION)
        ):
            self._call.reply(self.response)


def _quiet_fetch(call: Call, request: messages.FetchRequest, limits: Limits) -> _QuietFetch | None:
    """Return the fetch if it has to wait, and for nothing but records; else None.

    One pass over the partitions, because there may be a thousand of them, twice a second.
    """
    if limits.min_bytes <= 0 or limits.max_wait_ms <= 0:
        return None
    topics = call.broker.topics
    by_id = call.version >= _FIRST_WITH_TOPIC_IDS
    read_committed = limits.read_committed
    leader_epoch = call.broker.leader_epoch
    kind = (call.version, read_committed)
    fetch = _QuietFetch(call, request, limits)
    for asked_topic in request.topics:
        topic = topics.by_id(asked_topic.topic_id) if by_id else topics.get(asked_topic.topic)
        if topic is None:
            return None
        partitions = topic.partitions
        count = len(partitions)
        pieces: list[Any] = []
        for asked in asked_topic.partitions:
            if not 0 <= asked.partition < count:
                return None
            partition = partitions[asked.partition]
            log = partition.log
            high_watermark = log.high_watermark
            last_stable_offset = log.last_stable_offset
            end = last_stable_offset if read_committed else high_watermark
            if asked.fetch_offset != end or 0 <= asked.current_leader_epoch != leader_epoch:
                return None
            state = (kind, high_watermark, last_stable_offset, log.log_start_offset)
            told = partition.quiet_answer
            if told is None or told[0] != state:
                told = partition.quiet_answer = (state, _encode_quiet(asked.partition, *state))
            pieces.append(told[1])
            fetch.partitions.append(partition)
        fetch.response.responses.append(_Topic(asked_topic.topic, asked_topic.topic_id, pieces))
    return fetch if fetch.partitions else None


def _encode_quiet(
    index: int,
    kind: tuple[int, bool],
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
) -> bytes:
    version, read_committed = kind
    told = _Partition(
        index, ErrorCode.NONE, high_watermark, last_stable_offset, log_start_offset, records=b""
    )
    told.aborted_transactions = [] if read_committed else None
    return _element_encoder(version)(told)


@cache
def _element_encoder(version: int) -> Callable[[_Partition], bytes]:
    return codec(messages.FetchResponse, version).element_encoder(_Partition)
