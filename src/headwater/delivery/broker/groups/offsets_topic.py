"""``__consumer_offsets``: the topic that groups and offsets are written to.

This file alone decides its name and its shape. How records get in and out of it is
`state_topic`'s.
"""

from typing import Final

from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.topics import NewTopic

OFFSETS_TOPIC: Final = "__consumer_offsets"


def new_offsets_topic(settings: BrokerSettings) -> NewTopic:
    """Return the offsets topic as it is created, by whomever it is needed first."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        # Whatever other topics default to: an answered commit is never taken back.
        "flush.messages": "1",
        "segment.bytes": str(settings.offsets_topic_segment_bytes),
    }
    return NewTopic(OFFSETS_TOPIC, settings.offsets_topic_num_partitions, configs)
