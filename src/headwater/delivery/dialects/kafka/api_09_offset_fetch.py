"""OffsetFetch: v1-10.

Behaviour:
* What was never committed, in a group that may not even exist, is offset -1, metadata "" and no
  error.
* No list of topics asks for all that the group has committed.
* ``require_stable`` waits until every commit that was accepted so far can be read. Where a
  transaction has committed an offset and not ended, it is UNSTABLE_OFFSET_COMMIT: the client asks
  again. Without it the last offset that counts is told, whatever comes.

Version notes:
* v2: all topics, an error for the whole. v5: leader epoch. v7: require_stable (KIP-447).
* v8: several groups at once (KIP-709). v10: topics by id; an unknown id is UNKNOWN_TOPIC_ID, and
  offsets of topics that are gone are left out when all are asked for.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.committed_offset import CommittedOffset
from headwater.delivery.broker.groups.offset_store import OffsetStore
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 9
VERSIONS = (1, 10)

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10

_Response = messages.OffsetFetchResponse
# Offset, leader epoch and metadata of what was never committed, or is not to be told.
_NOTHING = CommittedOffset(-1, -1, "", -1, -1, b"")


class _Asked(NamedTuple):
    """The group that is asked about, and whether the end of transactions matters."""

    offsets: OffsetStore
    group_id: str
    stable: bool

    def committed(self, topic: str, partition: int) -> tuple[CommittedOffset, ErrorCode]:
        if self.stable and self.offsets.pending.is_pending(self.group_id, (topic, partition)):
            return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return self.offsets.get(self.group_id, topic, partition) or _NOTHING, ErrorCode.NONE

    def partitions_by_topic(self) -> dict[str, list[int]]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.offsets.of_group(self.group_id)):
            by_topic.setdefault(topic, []).append(partition)
        return by_topic


def handle(call: Call, request: messages.OffsetFetchRequest) -> None:
    """Answer with the offsets of one group or of several."""
    if call.version >= _FIRST_WITH_GROUPS:
        group_ids = [group.group_id for group in request.groups]
    else:
        group_ids = [request.group_id]
    if not request.require_stable:
        call.reply(_build(call, request))
        return
    unstable = len(group_ids) + 1

    def one_is_stable() -> None:
        nonlocal unstable
        unstable -= 1
        if not unstable:
            call.reply(_build(call, request))

    for group_id in group_ids:
        call.broker.groups.committing.when_stable(group_id, one_is_stable)
    one_is_stable()


def _build(call: Call, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
    if call.version < _FIRST_WITH_GROUPS:
        return _Response(topics=_single(call.broker.groups.offsets, request))
    response = _Response()
    for group in request.groups:
        asked = _Asked(call.broker.groups.offsets, group.group_id, stable=request.require_stable)
        answer = _Response.OffsetFetchResponseGroup(group.group_id)
        answer.topics = (
            _all_topics(call, asked)
            if group.topics is None
            else [_topic(call, asked, topic) for topic in group.topics]
        )
        response.groups.append(answer)
    return response


def _single(
    offsets: OffsetStore, request: messages.OffsetFetchRequest
) -> list[messages.OffsetFetchResponse.OffsetFetchResponseTopic]:
    asked = _Asked(offsets, request.group_id, stable=request.require_stable)
    if request.topics is None:
        wanted = list(asked.partitions_by_topic().items())
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    answers = []
    for name, indexes in wanted:
        topic = _Response.OffsetFetchResponseTopic(name)
        for index in indexes:
            committed, error = asked.committed(name, index)
            topic.partitions.append(
                _Response.OffsetFetchResponsePartition(
                    index, committed.offset, committed.leader_epoch, committed.metadata, error
                )
            )
        answers.append(topic)
    return answers


def _all_topics(
    call: Call, asked: _Asked
) -> list[messages.OffsetFetchResponse.OffsetFetchResponseTopics]:
    answers = []
    for name, indexes in asked.partitions_by_topic().items():
        topic_id = bytes(16)
        if call.version >= _FIRST_WITH_TOPIC_IDS:
            found = call.broker.topics.get(name)
            if found is None:
                continue
            topic_id = found.topic_id
        answers.append(_committed(asked, name, topic_id, indexes))
    return answers


def _topic(
    call: Call, asked: _Asked, topic: messages.OffsetFetchRequest.OffsetFetchRequestTopics
) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    name = topic.name
    if call.version >= _FIRST_WITH_TOPIC_IDS:
        found = call.broker.topics.by_id(topic.topic_id)
        if found is None:
            return _Response.OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    _Response.OffsetFetchResponsePartitions(
                        index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID
                    )
                    for index in topic.partition_indexes
                ],
            )
        name = found.name
    return _committed(asked, name, topic.topic_id, topic.partition_indexes)


def _committed(
    asked: _Asked, name: str, topic_id: bytes, indexes: Iterable[int]
) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    topic = _Response.OffsetFetchResponseTopics(name, topic_id)
    for index in indexes:
        committed, error = asked.committed(name, index)
        topic.partitions.append(
            _Response.OffsetFetchResponsePartitions(
                index, committed.offset, committed.leader_epoch, committed.metadata, error
            )
        )
    return topic
