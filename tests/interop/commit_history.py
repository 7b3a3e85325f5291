"""What a group had committed at a certain point of its life, read from ``__consumer_offsets``.

This file alone decides how a test knows what a member had committed before it was gone: not by
asking at the right moment, but by the order in which the broker's log has it.
"""

from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.records import decode_entry
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Consumer, Message

OFFSETS_TOPIC = "__consumer_offsets"


def committed_before_takeover(bootstrap: str, group: str, member_id: str) -> dict[int, int]:
    """Give what was committed when a member was last part of the group, by partition.

    What the log has between the last generation with the member and the next one was committed
    while the member's partitions were nobody else's.
    """
    committed: dict[int, int] = {}
    found: dict[int, int] = {}
    with_member = False
    for message in _records(bootstrap):
        if message.key is None or message.value is None:
            continue
        entry = decode_entry(message.key, message.value)
        if isinstance(entry, Group) and entry.group_id == group:
            if with_member and member_id not in entry.members:
                found = dict(committed)
            with_member = member_id in entry.members
        elif isinstance(entry, tuple) and entry[0] == group:
            _, (_, partition), offset = entry
            committed[partition] = offset.offset
    assert found, "no generation came after the last one with the member"
    return found


def _records(bootstrap: str) -> list[Message]:
    """Give all records in the order of the log; those of one group are in one partition."""
    with Cluster(bootstrap) as cluster:
        places = [
            (OFFSETS_TOPIC, each.number) for each in cluster.topics()[OFFSETS_TOPIC].partitions
        ]
        ends = admin.list_offsets(cluster, dict.fromkeys(places, admin.LATEST))
        consumer = Consumer(cluster)
        consumer.assign(dict.fromkeys(places, 0))
        found: list[Message] = []
        while any(consumer.positions[place] < end for place, end in ends.items()):
            found += consumer.poll()
        return found
