"""Asks and changes what is about topics, configs, groups and offsets, not about records.

This file alone decides how such questions are put, one function each, to whoever can answer; all
work on Headwater and on Apache Kafka. Errors of a broker are raised as `KafkaError`.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from headwater.base.errors import RETRIABLE, ErrorCode, KafkaError, MalformedMessageError
from headwater.delivery.client.assignment import decode_assignment
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.connection import Connection
from headwater.delivery.wire.kafka import messages

Result = TypeVar("Result")

EARLIEST = -2
LATEST = -1

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

SET = 0
DELETE = 1

_LIST_OFFSETS_VERSION_MAX = 7
_NO_OFFSET = -1
_CONSUMER_GROUP_DESCRIBE = 69
_RETRY_PAUSE_S = 0.1


class Config(NamedTuple):
    """One config value and where it comes from."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    documentation: str | None


class _Answer(NamedTuple):
    """What a leader says of one of its partitions."""

    place: Place
    error_code: int
    number: int


class GroupMember(NamedTuple):
    """Somebody in a consumer group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: list[Place]


class GroupInfo(NamedTuple):
    """A consumer group as its coordinator describes it."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[GroupMember]


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Create a topic; -1 leaves the number to the broker."""
    topic = messages.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[
            messages.CreateTopicsRequest.CreatableTopicConfig(key, value)
            for key, value in (configs or {}).items()
        ],
    )
    request = messages.CreateTopicsRequest(
        topics=[topic], timeout_ms=_timeout_ms(cluster), validate_only=validate_only
    )
    for answer in cluster.controller().call(request).topics:
        _check(answer.error_code, answer.error_message or f"topic {name!r}")
    if not validate_only:
        cluster.await_topic(name)


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic with all its records."""
    cluster.refresh([name])
    topic_id = cluster.topic(name).topic_id if cluster.knows(name) else None
    request = messages.DeleteTopicsRequest(topic_names=[name], timeout_ms=_timeout_ms(cluster))
    # Version 5 takes plain names; 6 takes names or ids in another shape.
    for answer in cluster.controller().call(request, version_max=5).responses:
        _check(answer.error_code, f"topic {name!r} cannot be deleted")
    cluster.await_deletion(name, topic_id)


def add_partitions(cluster: Cluster, name: str, total: int) -> None:
    """Grow a topic to ``total`` partitions."""
    request = messages.CreatePartitionsRequest(
        topics=[messages.CreatePartitionsRequest.CreatePartitionsTopic(name, total, None)],
        timeout_ms=_timeout_ms(cluster),
    )
    for answer in cluster.controller().call(request).results:
        _check(answer.error_code, answer.error_message or f"topic {name!r}")
    cluster.await_topic(name, partitions=total)


def delete_records(cluster: Cluster, before: Mapping[Place, int]) -> dict[Place, int]:
    """Remove records below an offset per partition (-1: all); return the new log starts."""

    def ask(leader: int, places: Mapping[str, Sequence[int]]) -> Iterator[_Answer]:
        request = messages.DeleteRecordsRequest(
            topics=[
                messages.DeleteRecordsRequest.DeleteRecordsTopic(
                    topic,
                    [
                        messages.DeleteRecordsRequest.DeleteRecordsPartition(
                            number, before[topic, number]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in places.items()
            ],
            timeout_ms=_timeout_ms(cluster),
        )
        for topic in cluster.broker(leader).call(request).topics:
            for each in topic.partitions:
                place = (topic.name, each.partition_index)
                yield _Answer(place, each.error_code, each.low_watermark)

    return _ask_leaders(cluster, before, ask)


def list_offsets(
    cluster: Cluster, timestamps: Mapping[Place, int], *, read_committed: bool = False
) -> dict[Place, int]:
    """Return per partition the first offset at or after a timestamp, EARLIEST or LATEST.

    A timestamp behind the last record gives the end of the partition.
    """

    def ask(leader: int, places: Mapping[str, Sequence[int]]) -> Iterator[_Answer]:
        request = messages.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[
                messages.ListOffsetsRequest.ListOffsetsTopic(
                    topic,
                    [
                        messages.ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=number, timestamp=timestamps[topic, number]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in places.items()
            ],
        )
        response = cluster.broker(leader).call(request, version_max=_LIST_OFFSETS_VERSION_MAX)
        for topic in response.topics:
            for each in topic.partitions:
                yield _Answer((topic.name, each.partition_index), each.error_code, each.offset)

    offsets = _ask_leaders(cluster, timestamps, ask)
    behind = {place: LATEST for place, offset in offsets.items() if offset == _NO_OFFSET}
    if behind:
        offsets |= list_offsets(cluster, behind, read_committed=read_committed)
    return offsets


def describe_configs(cluster: Cluster, resource_type: int, name: str) -> list[Config]:
    """Return all configs of a topic (TOPIC_RESOURCE) or broker (BROKER_RESOURCE)."""
    request = messages.DescribeConfigsRequest(
        resources=[
            messages.DescribeConfigsRequest.DescribeConfigsResource(resource_type, name, None)
        ],
        include_documentation=True,
    )
    connection = (
        cluster.broker(int(name)) if resource_type == BROKER_RESOURCE and name else cluster.any()
    )
    found = []
    for result in connection.call(request).results:
        _check(result.error_code, result.error_message or name)
        found += [
            Config(
                config.name,
                config.value,
                config.config_source,
                config.read_only,
                config.is_sensitive,
                config.documentation,
            )
            for config in result.configs
        ]
    return found


def alter_configs(
    cluster: Cluster, resource_type: int, name: str, changes: Mapping[str, str | None]
) -> None:
    """Set configs one by one; None takes a config back to its default."""
    request = messages.IncrementalAlterConfigsRequest(
        resources=[
            messages.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type,
                name,
                [
                    messages.IncrementalAlterConfigsRequest.AlterableConfig(
                        key, DELETE if value is None else SET, value
                    )
                    for key, value in changes.items()
                ],
            )
        ]
    )
    for answer in cluster.controller().call(request).responses:
        _check(answer.error_code, answer.error_message or name)


def log_sizes(cluster: Cluster) -> dict[Place, int]:
    """Return how many bytes each partition takes, summed over its replicas."""
    cluster.refresh()
    sizes: dict[Place, int] = {}
    for node_id in cluster.brokers:
        response = cluster.broker(node_id).call(messages.DescribeLogDirsRequest(topics=None))
        for directory in response.results:
            _check(directory.error_code, directory.log_dir)
            for topic in directory.topics:
                for each in topic.partitions:
                    place = (topic.name, each.partition_index)
                    sizes[place] = sizes.get(place, 0) + each.partition_size
    return sizes


def list_groups(cluster: Cluster) -> dict[str, str]:
    """Return all groups with their state."""
    cluster.refresh([])
    groups = {}
    for node_id in cluster.brokers:
        response = cluster.broker(node_id).call(messages.ListGroupsRequest())
        _check(response.error_code, "groups cannot be listed")
        for group in response.groups:
            groups[group.group_id] = group.group_state
    return groups


def describe_group(cluster: Cluster, group: str) -> GroupInfo:
    """Return a group's state and members, whichever protocol they speak.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND when nobody knows it.
    """

    def ask(coordinator: Connection) -> GroupInfo | None:
        (answer,) = coordinator.call(messages.DescribeGroupsRequest(groups=[group])).groups
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND or answer.group_state == "Dead":
            return _describe_modern_group(coordinator, group)
        _check(answer.error_code, f"group {group!r}")
        return _classic_group(answer)

    info = cluster.ask_coordinator(group, ask)
    if info is None:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {group!r} does not exist",
            hint="see all groups with: headwater group ls",
        )
    return info


def _classic_group(answer: Any) -> GroupInfo:  # noqa: ANN401 - a struct of DescribeGroupsResponse
    # Connect and others keep their own words in an assignment.
    is_consumers = answer.protocol_type == "consumer"
    members = [
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(member.member_assignment) if is_consumers else [],
        )
        for member in answer.members
    ]
    state, protocol = answer.group_state, answer.protocol_data
    return GroupInfo(answer.group_id, state, answer.protocol_type, protocol, members)


def _assigned(assignment: bytes) -> list[Place]:
    """Read a member's partitions; what a foreign assignor writes in its own way counts as none."""
    try:
        return decode_assignment(assignment)
    except MalformedMessageError:
        return []


def _describe_modern_group(coordinator: Connection, group: str) -> GroupInfo | None:
    """Describe a group of the consumer protocol (KIP-848), which the older request does not know.

    Returns:
        None when there is none of that name.
    """
    if not coordinator.speaks(_CONSUMER_GROUP_DESCRIBE):
        return None
    request = messages.ConsumerGroupDescribeRequest(group_ids=[group])
    (answer,) = coordinator.call(request).groups
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    _check(answer.error_code, answer.error_message or f"group {group!r}")
    members = [
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            [
                (topic.topic_name, number)
                for topic in member.assignment.topic_partitions
                for number in topic.partitions
            ],
        )
        for member in answer.members
    ]
    return GroupInfo(group, answer.group_state, "consumer", answer.assignor_name, members)


def committed_offsets(
    cluster: Cluster,
    group: str,
    places: Iterable[Place] | None = None,
    *,
    require_stable: bool = False,
) -> dict[Place, int]:
    """Return the offsets that a group has committed.

    Args:
        cluster: Where from.
        group: Whose.
        places: Of which partitions; None for all that it has committed.
        require_stable: Whether to wait for transactions that are committing others; only those
            who name their partitions wait for the first offset there, too.
    """
    topics = None
    if places is not None:
        topics = [
            messages.OffsetFetchRequest.OffsetFetchRequestTopic(topic, list(numbers))
            for topic, numbers in _by_topic(places).items()
        ]

    def ask(coordinator: Connection) -> Any:  # noqa: ANN401 - an OffsetFetchResponse
        # Version 7 asks for one group at a time.
        request = messages.OffsetFetchRequest(
            group_id=group, topics=topics, require_stable=require_stable
        )
        response = coordinator.call(request, version_max=7)
        _check(response.error_code, f"group {group!r}")
        for topic in response.topics:
            for each in topic.partitions:
                _check(each.error_code, f"{topic.name}-{each.partition_index}")
        return response

    offsets = {}
    for topic in cluster.ask_coordinator(group, ask).topics:
        for each in topic.partitions:
            if each.committed_offset != _NO_OFFSET:
                offsets[topic.name, each.partition_index] = each.committed_offset
    return offsets


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[Place, int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> None:
    """Commit offsets for a group; without a member only a group that nobody is in accepts them."""
    request = messages.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            messages.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    messages.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[topic, number],
                        committed_metadata="",
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
    )

    def commit(coordinator: Connection) -> None:
        # Version 9 names topics; 10 wants their ids.
        for topic in coordinator.call(request, version_max=9).topics:
            for answer in topic.partitions:
                _check(answer.error_code, f"{topic.name}-{answer.partition_index}")

    cluster.ask_coordinator(group, commit)


def delete_group(cluster: Cluster, group: str) -> None:
    """Remove a group that nobody is in, with its offsets."""

    def delete(coordinator: Connection) -> None:
        request = messages.DeleteGroupsRequest(groups_names=[group])
        for answer in coordinator.call(request).results:
            _check(answer.error_code, f"group {group!r}")

    cluster.ask_coordinator(group, delete)


def _check(error_code: int, message: str) -> None:
    if error_code:
        raise _error(error_code, message)


def _error(error_code: int, message: str) -> KafkaError:
    code = ErrorCode(error_code)
    return KafkaError(code, f"{message}: {code.name}" if code.name not in message else message)


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.timeout_s * 1000)


def _ask_leaders(
    cluster: Cluster,
    places: Iterable[Place],
    ask: Callable[[int, Mapping[str, Sequence[int]]], Iterable[_Answer]],
) -> dict[Place, int]:
    """Ask each partition's leader for a number; ask again those who are not, or not yet, leader.

    Raises:
        KafkaError: An error that does not pass, or not in time.
    """
    numbers: dict[Place, int] = {}
    open_places = set(places)
    deadline_s = time.monotonic() + cluster.timeout_s
    while open_places:
        failure: KafkaError | None = None
        leaders: dict[int, list[Place]] = {}
        for place in sorted(open_places):
            try:
                leaders.setdefault(cluster.leader(*place), []).append(place)
            except KafkaError as error:
                if error.code != ErrorCode.LEADER_NOT_AVAILABLE:
                    raise
                failure = error
        for leader, share in leaders.items():
            for place, code, number in ask(leader, _by_topic(share)):
                if code == ErrorCode.NONE:
                    numbers[place] = number
                    open_places.discard(place)
                    continue
                failure = _error(code, f"{place[0]}-{place[1]}")
                if failure.code not in RETRIABLE:
                    raise failure
                cluster.forget_topic(place[0])
        if failure is not None:
            if time.monotonic() > deadline_s:
                raise failure
            time.sleep(_RETRY_PAUSE_S)
    return numbers


def _by_topic(places: Iterable[Place]) -> Mapping[str, Sequence[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append(number)
    return topics
