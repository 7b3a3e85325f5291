"""How records are asked for and handed over: the requests that several of us send.

This file alone decides how partitions are laid out in a fetch and in a produce request. It sends
nothing, and does not know what its callers do with the answers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.delivery.client.cluster import Place
from headwater.delivery.wire.kafka import messages

FETCH_BY_NAME_VERSION_MAX = 12
"""The last version of Fetch that names topics; later ones have their ids alone."""

_NO_TOPIC_ID = bytes(16)
_NO_SESSION_EPOCH = -1


def fetch_request(
    positions: Mapping[Place, int],
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    read_committed: bool,
    wait_ms: int,
    fetch_bytes: int,
    partition_bytes: int,
) -> messages.FetchRequest:
    """Ask for records of partitions from an offset each; the first batch comes whole.

    Args:
        positions: The offset from which each partition is read.
        topic_ids: For versions of the request that have ids in place of names.
        read_committed: Whether to stop at the oldest open transaction.
        wait_ms: How long the broker waits for a first record.
        fetch_bytes: How much the answer may carry.
        partition_bytes: How much of that may come from one partition.
    """
    request = messages.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=fetch_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=_NO_SESSION_EPOCH,
    )
    topics: dict[str, messages.FetchRequest.FetchTopic] = {}
    for (topic, partition), offset in positions.items():
        asked = topics.get(topic)
        if asked is None:
            topic_id = (topic_ids or {}).get(topic, _NO_TOPIC_ID)
            asked = topics[topic] = messages.FetchRequest.FetchTopic(topic, topic_id)
            request.topics.append(asked)
        asked.partitions.append(
            messages.FetchRequest.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes
            )
        )
    return request


def produce_request(
    batches: Mapping[Place, bytes | bytearray | memoryview],
    *,
    acks: int,
    timeout_s: float,
    transactional_id: str | None = None,
) -> messages.ProduceRequest:
    """Hand over one batch for each partition; brokers take no more than one at a time."""
    request = messages.ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=int(timeout_s * 1000)
    )
    topics: dict[str, messages.ProduceRequest.TopicProduceData] = {}
    for (topic, partition), batch in batches.items():
        data = topics.get(topic)
        if data is None:
            data = topics[topic] = messages.ProduceRequest.TopicProduceData(name=topic)
            request.topic_data.append(data)
        data.partition_data.append(messages.ProduceRequest.PartitionProduceData(partition, batch))
    return request


def produce_answers(response: messages.ProduceResponse) -> Iterator[tuple[Place, Any]]:
    """Return what the broker says of each partition."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            yield (topic.name, answer.index), answer
