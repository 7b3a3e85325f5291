"""How large the records and batches of a topic may be, and how many partitions it has.

This file alone decides what a task asks a broker before it encodes. A record that the broker would
refuse is found before it is sent: afterwards Spark could only try again, for ever.
"""

import contextlib
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.streams.errors import UnknownTopicError

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
    try:
        partitions = len(cluster.topic(topic).partitions)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise UnknownTopicError(
            f"there is no topic {topic!r} at {cluster.bootstrap} to write to",
            hint=f"create it with: headwater topic create {topic}",
        ) from error
    batch_bytes_max = None
    # Who may write to a topic need not be allowed to read its configs.
    with contextlib.suppress(HeadwaterError):
        for config in admin.describe_configs(cluster, admin.TOPIC_RESOURCE, topic):
            if config.name == _MAX_MESSAGE_BYTES and config.value is not None:
                batch_bytes_max = int(config.value)
    return TopicLimits(partitions, batch_bytes_max)
