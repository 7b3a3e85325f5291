"""OffsetFetch: v1-10.

Behaviour:
* What was never committed, in a group that may not even exist, is offset -1, metadata "" and no
  error.
* No list of topics asks for all that the group has committed.
* ``require_stable`` waits until every commit that was accepted so far can be read.

Version notes:
* v2: all topics, an error for the whole. v5: leader epoch. v7: require_stable (KIP-447).
* v8: several groups at once (KIP-709). v10: topics by id; an unknown id is UNKNOWN_TOPIC_ID, and
  offsets of topics that are gone are left out when all are asked for.
"""

from collections.abc import Iterable

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups import Groups
from headwater.delivery.broker.groups.committed_offset import CommittedOffset
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 9
VERSIONS = (1, 10)

_FIRST_WITH_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10

_Response = messages.OffsetFetchResponse
# Offset, leader epoch and metadata of what was never committed.
_NOTHING = CommittedOffset(-1, -1, "", -1, -1, b"")


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
        call.broker.groups.when_stable(group_id, one_is_stable)
    one_is_stable()


def _build(call: Call, request: messages.OffsetFetchRequest) -> messages.OffsetFetchResponse:
    if call.version < _FIRST_WITH_GROUPS:
        return _Response(topics=_single(call.broker.groups, request))
    return _Response(
        groups=[
            _Response.OffsetFetchResponseGroup(
                group.group_id,
                _all_topics(call, group.group_id)
                if group.topics is None
                else [_topic(call, group.group_id, topic) for topic in group.topics],
            )
            for group in request.groups
        ]
    )


def _single(
    groups: Groups, request: messages.OffsetFetchRequest
) -> list[messages.OffsetFetchResponse.OffsetFetchResponseTopic]:
    group_id = request.group_id
    if request.topics is None:
        wanted = list(_partitions_by_topic(groups, group_id).items())
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    answers = []
    for name, indexes in wanted:
        topic = _Response.OffsetFetchResponseTopic(name)
        for index in indexes:
            committed = groups.committed(group_id, name, index) or _NOTHING
            topic.partitions.append(
                _Response.OffsetFetchResponsePartition(
                    index, committed.offset, committed.leader_epoch, committed.metadata
                )
            )
        answers.append(topic)
    return answers


def _all_topics(
    call: Call, group_id: str
) -> list[messages.OffsetFetchResponse.OffsetFetchResponseTopics]:
    answers = []
    for name, indexes in _partitions_by_topic(call.broker.groups, group_id).items():
        topic_id = bytes(16)
        if call.version >= _FIRST_WITH_TOPIC_IDS:
            found = call.broker.topics.get(name)
            if found is None:
                continue
            topic_id = found.topic_id
        answers.append(_committed(call, group_id, name, topic_id, indexes))
    return answers


def _topic(
    call: Call, group_id: str, asked: messages.OffsetFetchRequest.OffsetFetchRequestTopics
) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    name = asked.name
    if call.version >= _FIRST_WITH_TOPIC_IDS:
        found = call.broker.topics.by_id(asked.topic_id)
        if found is None:
            return _Response.OffsetFetchResponseTopics(
                topic_id=asked.topic_id,
                partitions=[
                    _Response.OffsetFetchResponsePartitions(
                        index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID
                    )
                    for index in asked.partition_indexes
                ],
            )
        name = found.name
    return _committed(call, group_id, name, asked.topic_id, asked.partition_indexes)


def _committed(
    call: Call, group_id: str, name: str, topic_id: bytes, indexes: Iterable[int]
) -> messages.OffsetFetchResponse.OffsetFetchResponseTopics:
    topic = _Response.OffsetFetchResponseTopics(name, topic_id)
    for index in indexes:
        committed = call.broker.groups.committed(group_id, name, index) or _NOTHING
        topic.partitions.append(
            _Response.OffsetFetchResponsePartitions(
                index, committed.offset, committed.leader_epoch, committed.metadata
            )
        )
    return topic


def _partitions_by_topic(groups: Groups, group_id: str) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(groups.all_committed(group_id)):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
