"""Fetch: v4-18.

Behaviour:
* Whole batches from the one that holds the fetch offset; the first batch is sent even when it is
  larger than every limit (KIP-74).
* Answers at once when ``min_bytes`` are there, on any error of a partition that exists, or when
  ``max_wait_ms`` is 0; else waits until enough has become visible or the time is up.
* Only what is durable is visible (the high watermark); under read_committed only what lies below
  the last stable offset.
* Records travel as file ranges: the connection sends them without reading them.
* No fetch sessions yet: every answer says session 0, and every request is a full one (KIP-227
  allows that).

Version notes:
* v4: isolation level. v5: log start offset. v7: sessions. v9: leader epochs (KIP-320).
* v10: zstd. v12: flexible, diverging epochs for followers only. v13: topics by id (KIP-516).
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import check_leader_epoch
from headwater.delivery.broker.fetch import Found, Limits, LongPoll, Wanted, collect
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 1
VERSIONS = (4, 18)

_FIRST_WITH_TOPIC_IDS = 13
_READ_COMMITTED = 1
# Epochs of a request that names all its partitions: 0 asks for a new session, -1 for none.
_FULL_FETCH_EPOCHS = (-1, 0)
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_Topic = messages.FetchResponse.FetchableTopicResponse
_Partition = messages.FetchResponse.PartitionData


def handle(call: Call, request: messages.FetchRequest) -> None:
    """Answer with what is there, or wait for it."""
    if request.session_epoch not in _FULL_FETCH_EPOCHS:
        # We never hand out a session, so this one is from another broker or another life.
        call.reply(messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    wanted = _wanted(call, request)
    max_bytes = min(request.max_bytes, call.broker.settings.fetch_max_bytes)
    limits = Limits(
        # Whoever wants more than fits into an answer would wait in vain.
        min(request.min_bytes, max_bytes),
        max_bytes,
        request.max_wait_ms,
        request.isolation_level == _READ_COMMITTED,
    )
    found, enough = collect(wanted, limits)
    if enough or limits.max_wait_ms <= 0 or all(each.partition is None for each in wanted):
        _answer(call, request, limits, found)
        return
    poll = LongPoll(
        wanted,
        found,
        limits,
        call.broker.timers,
        lambda later: _answer(call, request, limits, later),
    )
    call.on_cancel(poll.cancel)


def _wanted(call: Call, request: messages.FetchRequest) -> list[Wanted]:
    topics = call.broker.topics
    leader_epoch = call.broker.leader_epoch
    by_id = call.version >= _FIRST_WITH_TOPIC_IDS
    wanted = []
    for asked_topic in request.topics:
        if by_id:
            topic = topics.by_id(asked_topic.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = topics.get(asked_topic.topic)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for asked in asked_topic.partitions:
            partition = topic.partition(asked.partition) if topic is not None else None
            error = ErrorCode.NONE
            if partition is None:
                error = missing if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif 0 <= asked.current_leader_epoch != leader_epoch:
                try:
                    check_leader_epoch(call.broker, asked.current_leader_epoch)
                except KafkaError as refused:
                    partition, error = None, refused.code
            wanted.append(Wanted(partition, asked.fetch_offset, asked.partition_max_bytes, error))
    return wanted


def _answer(call: Call, request: messages.FetchRequest, limits: Limits, found: list[Found]) -> None:
    response = messages.FetchResponse()
    findings = iter(found)
    for asked_topic in request.topics:
        partitions = []
        for asked in asked_topic.partitions:
            finding = next(findings)
            answer = _Partition(
                asked.partition,
                finding.error,
                finding.high_watermark,
                finding.last_stable_offset,
                finding.log_start_offset,
            )
            answer.aborted_transactions = _aborted(limits, finding)
            answer.records = finding.records if finding.records is not None else b""
            partitions.append(answer)
        response.responses.append(_Topic(asked_topic.topic, asked_topic.topic_id, partitions))
    call.reply(response)


def _aborted(
    limits: Limits, finding: Found
) -> list[messages.FetchResponse.AbortedTransaction] | None:
    """Return the aborted transactions: none yet, but Kafka tells no list from an empty one."""
    if finding.error:
        return [] if finding.error in _UNKNOWN else None
    return [] if limits.read_committed else None
