"""How far a group has read a partition, as a value.

This file alone decides what is known of a committed offset.
"""

from typing import NamedTuple

from headwater.delivery.broker.state_replay import Standing

NO_EXPIRY = -1
NOT_WRITTEN = Standing(-1, -1, -1)


class CommittedOffset(NamedTuple):
    """How far a group has read one partition.

    Attributes:
        expire_timestamp_ms: When it ends whatever the group does, or NO_EXPIRY.
        topic_id: The id that the topic had; a topic created again under its name has another.
        record: Where its own record stands in the offsets topic, or NOT_WRITTEN.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: bytes
    record: Standing = NOT_WRITTEN
