"""How large the records and batches of a topic may be, and how many partitions it has.

This file alone decides what a task asks a broker before it encodes. A record that the broker would
refuse is found before it is sent: afterwards Spark could only try again, for ever.

A broker that is away may come back: it is asked again until the client's patience ends. A topic
that is not there gets less of it, for it is nearly always a name that was misspelt; but a broker
that has just started may not know its topics yet.
"""

import time
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, is_retriable_or_broken
from headwater.delivery.client.errors import UnsupportedByBrokerError
from headwater.streams.errors import UnknownTopicError

# Apache Kafka's brokers know all topics less than a second after they have opened their port.
_UNKNOWN_WITHIN_S: Final = 2.0
_PAUSE_S: Final = 0.1
# Who may write to a topic need not be allowed to read its configs.
_NOT_TOLD: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
}
_MAX_MESSAGE_BYTES: Final = "max.message.bytes"


class TopicLimits(NamedTuple):
    """What a topic takes.

    Attributes:
        partitions: How many it has.
        batch_bytes_max: The largest batch, with its header; None where the broker does not say.
    """

    partitions: int
    batch_bytes_max: int | None


def topic_limits(cluster: Cluster, topic: str) -> TopicLimits:
    """Ask for a topic's limits.

    Raises:
        UnknownTopicError: There is no such topic.
        HeadwaterError: No broker answers.
    """
    partitions = _partition_count(cluster, topic)

    def ask() -> int | None:
        for config in admin.describe_configs(cluster, admin.TOPIC_RESOURCE, topic):
            if config.name == _MAX_MESSAGE_BYTES and config.value is not None:
                return int(config.value)
        return None

    try:
        batch_bytes_max = cluster.retrying(ask, passes=is_retriable_or_broken)
    except UnsupportedByBrokerError:
        batch_bytes_max = None
    except KafkaError as error:
        if error.code not in _NOT_TOLD:
            raise
        batch_bytes_max = None
    return TopicLimits(partitions, batch_bytes_max)


def _partition_count(cluster: Cluster, topic: str) -> int:
    unknown_since_s: float | None = None
    # The client may be an old one, and the topic have more partitions by now, or be another.
    cluster.forget_topic(topic)
    while True:
        try:
            return len(cluster.retrying(lambda: cluster.topic(topic), passes=_is_away).partitions)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            now_s = time.monotonic()
            unknown_since_s = unknown_since_s or now_s
            if now_s - unknown_since_s >= min(_UNKNOWN_WITHIN_S, cluster.timeout_s):
                raise UnknownTopicError(
                    f"there is no topic {topic!r} at {cluster.bootstrap} to write to",
                    hint=f"create it with: headwater topic create {topic}",
                ) from error
        time.sleep(_PAUSE_S)


def _is_away(error: HeadwaterError) -> bool:
    is_unknown = (
        isinstance(error, KafkaError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return not is_unknown and is_retriable_or_broken(error)
