"""What members of a group tell each other, through a coordinator that does not read it.

This file alone decides how a subscription and an assignment stand in bytes: Kafka's consumer
protocol, in version 0, which every later version begins with.
"""

import struct
from collections.abc import Mapping, Sequence

from headwater.base.schema import codec
from headwater.delivery.client.cluster import Place
from headwater.delivery.wire.kafka import messages

_VERSION_0 = 0
_VERSION = struct.Struct(">h")


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Write which topics a member wants to read."""
    subscription = messages.ConsumerProtocolSubscription(topics=list(topics))
    encode = codec(messages.ConsumerProtocolSubscription, _VERSION_0).encode
    return _VERSION.pack(_VERSION_0) + encode(subscription)


def decode_subscription(data: bytes) -> set[str]:
    """Read which topics a member wants to read, whatever else it says."""
    decode = codec(messages.ConsumerProtocolSubscription, _VERSION_0).decode
    return set(decode(data, _VERSION.size)[0].topics)


def encode_assignment(share: Mapping[str, Sequence[int]]) -> bytes:
    """Write which partitions a leader gives to a member."""
    assignment = messages.ConsumerProtocolAssignment(
        assigned_partitions=[
            messages.ConsumerProtocolAssignment.TopicPartition(topic, list(numbers))
            for topic, numbers in share.items()
        ]
    )
    encode = codec(messages.ConsumerProtocolAssignment, _VERSION_0).encode
    return _VERSION.pack(_VERSION_0) + encode(assignment)


def decode_assignment(data: bytes) -> list[Place]:
    """Read which partitions a leader gave to a member; nothing means none."""
    if not data:
        return []
    decode = codec(messages.ConsumerProtocolAssignment, _VERSION_0).decode
    return [
        (topic.topic, number)
        for topic in decode(data, _VERSION.size)[0].assigned_partitions
        for number in topic.partitions
    ]
