"""Members of groups, one request at a time.

This file alone decides how the suite spells the requests of a classic group. Like `kit` it judges
nothing.
"""

import itertools
import struct
import time
from typing import Any

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.state_topic import partition_for
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk, Topic, code, unique

SESSION_MS = 10_000
# As many as `tests.peers.kafka_server` sets; ours has one in tests, where all names are alike.
_KAFKA_OFFSETS_PARTITIONS = 4
REBALANCE_MS = 20_000
CONSUMER = "consumer"
_PATIENCE_S = 30.0


def subscription(*topics: str) -> bytes:
    """Encode what a consumer says about itself: version 0, its topics, no user data."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE = (("range", subscription("t1")),)


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[tuple[str, bytes], ...] = RANGE,
    protocol_type: str = CONSUMER,
    session_timeout_ms: int = SESSION_MS,
    rebalance_timeout_ms: int = REBALANCE_MS,
) -> messages.JoinGroupRequest:
    """Build a join."""
    return messages.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[
            messages.JoinGroupRequest.JoinGroupRequestProtocol(name, metadata)
            for name, metadata in protocols
        ],
    )


def join(talk: Talk, group: str, version: int = 9, **asked: Any) -> Any:  # noqa: ANN401 - as above
    """Join as a new member, in two steps where the version wants them; gives the last answer."""
    answer = talk.ask(join_request(group, **asked), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = talk.ask(join_request(group, answer.member_id, **asked), version)
    return answer


def sync_request(
    group: str,
    member_id: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol: tuple[str | None, str | None] = (CONSUMER, "range"),
) -> messages.SyncGroupRequest:
    """Build a sync; the leader's carries everybody's assignment."""
    return messages.SyncGroupRequest(
        group,
        generation,
        member_id,
        instance,
        *protocol,
        [
            messages.SyncGroupRequest.SyncGroupRequestAssignment(member, assignment)
            for member, assignment in (assignments or {}).items()
        ],
    )


def sync(talk: Talk, *asked: Any, version: int = 5, **more: Any) -> tuple[ErrorCode, bytes]:  # noqa: ANN401 - as above
    """Ask for an assignment."""
    answer = talk.ask(sync_request(*asked, **more), version)
    return code(answer), bytes(answer.assignment)


def heartbeat(
    talk: Talk,
    group: str,
    member_id: str,
    generation: int,
    *,
    instance: str | None = None,
    version: int = 4,
) -> ErrorCode:
    """Tell that a member is alive."""
    request = messages.HeartbeatRequest(group, generation, member_id, instance)
    return code(talk.ask(request, version))


def wait_for_rebalance(talk: Talk, group: str, member_id: str, generation: int) -> None:
    """Send heartbeats until the member is told to join again."""
    end_s = time.monotonic() + _PATIENCE_S
    while heartbeat(talk, group, member_id, generation) is not ErrorCode.REBALANCE_IN_PROGRESS:
        assert time.monotonic() < end_s, "no rebalance"


def leave(
    talk: Talk, group: str, *members: tuple[str, str | None], version: int = 5
) -> tuple[ErrorCode, list[tuple[str, str | None, ErrorCode]]]:
    """Let members leave, v3+; gives the error of the whole and one line per member."""
    identity = messages.LeaveGroupRequest.MemberIdentity
    request = messages.LeaveGroupRequest(
        group_id=group, members=[identity(*member) for member in members]
    )
    answer = talk.ask(request, version)
    return code(answer), [
        (member.member_id, member.group_instance_id, code(member)) for member in answer.members
    ]


def stable(talk: Talk, group: str, **asked: Any) -> str:  # noqa: ANN401 - as join_request
    """Make a group with one member that has an assignment; gives the member's id."""
    answer = join(talk, group, **asked)
    assert code(answer) is ErrorCode.NONE
    protocol = (answer.protocol_type, answer.protocol_name)
    error, _ = sync(
        talk,
        group,
        answer.member_id,
        answer.generation_id,
        {answer.member_id: b"mine"},
        protocol=protocol,
        instance=asked.get("instance"),
    )
    assert error is ErrorCode.NONE
    assert isinstance(answer.member_id, str)
    return answer.member_id


def wait_for_coordinator(talk: Talk) -> None:
    """Wait until groups are served, in every partition of the offsets topic."""
    end_s = time.monotonic() + _PATIENCE_S
    # Four names, one for each partition; a heartbeat of nobody changes nothing.
    for group in ("a", "b", "c", "d"):
        while heartbeat(talk, group, "nobody", 1) is not ErrorCode.UNKNOWN_MEMBER_ID:
            assert time.monotonic() < end_s, "no coordinator"
            # Apache Kafka creates the topic when it is first asked for a coordinator.
            talk.ask(messages.FindCoordinatorRequest(key=group), 1)


# Offsets


def move_the_log_on(talk: Talk, group: str, topic: Topic) -> None:
    """Have something written behind what a group has caused.

    Apache Kafka tells of a group that it only has in memory when its log has moved past the moment
    at which the group came to be; until then the group is shown, or not, as it happens.
    """
    place = partition_for(group, _KAFKA_OFFSETS_PARTITIONS)
    others = (unique("other") for _ in itertools.count())
    other = next(name for name in others if partition_for(name, _KAFKA_OFFSETS_PARTITIONS) == place)
    commit(talk, other, topic, {0: (1, -1, "")})


def commit(
    talk: Talk,
    group: str,
    topic: Topic,
    offsets: dict[int, tuple[int, int, str | None]],
    *,
    version: int = 9,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
) -> dict[int, ErrorCode]:
    """Commit offset, leader epoch and metadata of partitions; gives their errors."""
    partition = messages.OffsetCommitRequest.OffsetCommitRequestPartition
    wanted = messages.OffsetCommitRequest.OffsetCommitRequestTopic(
        topic.name,
        topic.topic_id,
        [partition(index, *committed) for index, committed in offsets.items()],
    )
    request = messages.OffsetCommitRequest(group, generation, member_id, instance, -1, [wanted])
    (answer,) = talk.ask(request, version).topics
    named = (answer.name, answer.topic_id)
    assert named == ((topic.name, bytes(16)) if version < 10 else ("", topic.topic_id))
    return {each.partition_index: code(each) for each in answer.partitions}


def committed(
    talk: Talk, group: str, topic: Topic, *partitions: int, version: int = 7
) -> dict[int, tuple[int, int, str, ErrorCode]]:
    """Return offset, leader epoch, metadata and error of some partitions of one topic."""
    found = committed_by_topic(talk, group, [(topic, list(partitions))], version=version)
    return found[topic.name if version < 10 else topic.topic_id]


def committed_by_topic(
    talk: Talk, group: str, wanted: list[tuple[Topic, list[int]]] | None, *, version: int = 7
) -> dict[str | bytes, dict[int, tuple[int, int, str, ErrorCode]]]:
    """Return what is committed, by the topic's name or since v10 its id; None asks for all."""
    fetch = messages.OffsetFetchRequest
    if version >= 8:
        asked = fetch.OffsetFetchRequestGroup(group, None, -1, None)
        if wanted is not None:
            asked.topics = [fetch.OffsetFetchRequestTopics(*each, at) for each, at in wanted]
        (answer,) = talk.ask(fetch(groups=[asked]), version).groups
        assert answer.group_id == group
    else:
        request = fetch(group_id=group, topics=None)
        if wanted is not None:
            request.topics = [fetch.OffsetFetchRequestTopic(each.name, at) for each, at in wanted]
        answer = talk.ask(request, version)
    assert code(answer) is ErrorCode.NONE
    return {
        (each.topic_id if version >= 10 else each.name): {
            partition.partition_index: (
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
                code(partition),
            )
            for partition in each.partitions
        }
        for each in answer.topics
    }
