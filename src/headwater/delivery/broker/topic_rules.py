"""How a topic may be made.

This file alone decides whether a topic can be created or grown as asked: its number of partitions,
its replicas, and what the topics that hold the broker's state must not lose. It judges and plans;
it creates nothing. The sentences are Kafka's where Kafka has one, so that a user finds them by
searching.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.base.topic_names import maybe_name_problem
from headwater.delivery.broker.groups.offsets_topic import OFFSETS_TOPIC
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.broker.transactions.records import TRANSACTIONS_TOPIC

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""As in Kafka's controller: what one request creates is one journal entry."""

STATE_CONFIGS: Final = {"cleanup.policy": "compact", "flush.messages": "1"}
"""What a topic that holds state of the broker must say, whatever other topics default to."""

_METADATA_TOPIC = "__cluster_metadata"
_HELD_IN: Final = {
    OFFSETS_TOPIC: "all groups and their offsets",
    TRANSACTIONS_TOPIC: "all transactional ids and the outcomes of their transactions",
}
_ENDED_BY: Final = {
    OFFSETS_TOPIC: "DeleteGroups deletes one group with its offsets.",
    TRANSACTIONS_TOPIC: "An id that nobody uses expires by transactional.id.expiration.ms.",
}


class WantedTopic(NamedTuple):
    """A topic as a client asks for it.

    Attributes:
        name: Not yet checked.
        partitions: How many; -1 for the broker's default or with assignments.
        replication_factor: How many copies; -1 for the broker's default or with assignments.
        assignments: Partition and brokers, pair by pair; empty where the broker may choose.
        configs: Names and values, not yet checked.
    """

    name: str
    partitions: int
    replication_factor: int
    assignments: Sequence[tuple[int, Sequence[int]]]
    configs: Mapping[str, str | None]


class Room(NamedTuple):
    """What the broker can still take.

    Attributes:
        names: The topics that exist.
        partitions: How many partitions they have together.
    """

    names: Collection[str]
    partitions: int


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless the name is legal."""
    problem = maybe_name_problem(name)
    if problem:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_deletable(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION where a topic holds state of the broker."""
    held = _HELD_IN.get(name)
    if held is not None:
        message = f"{name} holds {held}: it cannot be deleted. {_ENDED_BY[name]}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def check_keeps_state(name: str, config: TopicConfig) -> None:
    """Raise INVALID_CONFIG where a topic with state of the broker would lose some of it.

    Retention has no effect beside ``compact`` alone, so it may say what it likes.
    """
    held = _HELD_IN.get(name)
    if held is None:
        return
    problem = ""
    if not config.is_compacted or config.is_deleted:
        problem = (
            f"cleanup.policy={config.cleanup_policy} would delete what is old but still in force; "
            "it must be compact"
        )
    elif not config.is_durable:
        problem = (
            f"flush.messages={config.flush_messages} would lose what was answered when the machine "
            "dies; it must be 1"
        )
    if problem:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} holds {held}: {problem}.")


def plan_creation(
    wanted: Sequence[WantedTopic], room: Room, settings: BrokerSettings, defaults: TopicConfig
) -> list[NewTopic | KafkaError]:
    """Judge the topics of one request, in Kafka's order of checks.

    Args:
        wanted: The topics, no name twice.
        room: What exists already.
        settings: For the default number of partitions and the limit.
        defaults: The configs a topic has where it says nothing.

    Returns:
        For each topic what to create, or why not.
    """
    total = sum(max(0, _partitions_of(topic, settings)) for topic in wanted)
    if total > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        return [KafkaError(ErrorCode.POLICY_VIOLATION, message) for _ in wanted]
    shapes = {_shape(name): name for name in room.names}
    left = settings.headwater_max_partitions - room.partitions
    plans: list[NewTopic | KafkaError] = []
    for topic in wanted:
        try:
            plan = _plan(topic, room.names, shapes, settings, defaults)
            left = _take(left, plan.partitions, settings)
            plans.append(plan)
        except KafkaError as error:
            plans.append(error)
    return plans


def check_growth(
    name: str,
    current: int,
    wanted: int,
    assignments: Sequence[Sequence[int]] | None,
    settings: BrokerSettings,
    partitions_held: int,
) -> None:
    """Raise unless a topic may grow from ``current`` to ``wanted`` partitions.

    Args:
        name: The topic.
        current: Its partitions now.
        wanted: Its partitions afterwards.
        assignments: Brokers per new partition; None where the broker may choose.
        settings: For the node id and the limit.
        partitions_held: The partitions of all topics.
    """
    if wanted == current:
        message = f"Topic already has {current} partition(s)."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if wanted < current:
        message = (
            f"The topic {name} currently has {current} partition(s); "
            f"{wanted} would not be an increase."
        )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if (held := _HELD_IN.get(name)) is not None:
        message = (
            f"{name} holds {held}, each in the partition that follows from its name and from the "
            "number of partitions: that number is fixed once the topic exists."
        )
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    added = wanted - current
    if assignments is not None:
        if len(assignments) != added:
            message = (
                f"Attempted to add {added} additional partition(s), "
                f"but only {len(assignments)} assignment(s) were specified."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        for brokers in assignments:
            check_brokers(brokers, settings.node_id)
    if added > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    _take(settings.headwater_max_partitions - partitions_held, added, settings)


def _plan(
    topic: WantedTopic,
    names: Collection[str],
    shapes: Mapping[str, str],
    settings: BrokerSettings,
    defaults: TopicConfig,
) -> NewTopic:
    if topic.name == _METADATA_TOPIC:
        message = f"Creation of internal topic {_METADATA_TOPIC} is prohibited."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    check_topic_name(topic.name)
    if topic.name in names:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if (other := shapes.get(_shape(topic.name))) is not None:
        message = f"Topic '{topic.name}' collides with existing topic: {other}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    parsed = TopicConfig.parse(topic.configs, defaults)
    parsed.check_bounded()
    check_keeps_state(topic.name, parsed)
    if topic.assignments:
        _check_assignments(topic, settings.node_id)
    else:
        _check_numbers(topic)
    configs = {name: parsed.render(name) for name in topic.configs}
    return NewTopic(topic.name, _partitions_of(topic, settings), configs)


def _partitions_of(topic: WantedTopic, settings: BrokerSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.num_partitions if topic.partitions == -1 else topic.partitions


def _check_numbers(topic: WantedTopic) -> None:
    factor = topic.replication_factor
    if factor < -1 or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.partitions < -1 or topic.partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    if factor > 1:
        message = (
            f"Unable to replicate the partition {factor} time(s): "
            f"The target replication factor of {factor} cannot be reached "
            "because only 1 broker(s) are registered."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _check_assignments(topic: WantedTopic, node_id: int) -> None:
    for given, what in (
        (topic.replication_factor, "replication factor"),
        (topic.partitions, "numPartitions"),
    ):
        if given != -1:
            message = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    seen: set[int] = set()
    for index, brokers in topic.assignments:
        if index in seen:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        seen.add(index)
        check_brokers(brokers, node_id)
    if seen != set(range(len(seen))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def check_brokers(brokers: Iterable[int], node_id: int) -> None:
    """One node can hold one replica, so the only right answer is ``[node_id]``."""
    ordered = sorted(brokers)
    problem = "" if ordered else "an empty replica list"
    for broker, following in pairwise(ordered):
        if broker == following:
            problem = f"the broker {broker} more than once"
    if problem:
        message = f"The manual partition assignment includes {problem}."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for broker in ordered:
        if broker != node_id:
            message = (
                f"The manual partition assignment includes broker {broker}, "
                "but no such broker is registered."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _take(left: int, count: int, settings: BrokerSettings) -> int:
    if count > left:
        limit = settings.headwater_max_partitions
        message = f"This broker holds at most {limit} partitions (headwater.max.partitions)."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    return left - count


def _shape(name: str) -> str:
    """Names that differ only in dots and underscores are one metric, and so collide."""
    return name.replace(".", "_")
