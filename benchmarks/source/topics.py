"""Topics full of records, the same for whoever reads them.

This file alone decides what the records of the benchmark look like: keys of 8 bytes, values of
JSON that a codec shrinks to about a third, in batches of 16 KiB as Kafka's Java producer makes them
where nobody has told it otherwise.
"""

import json
import random
import time
from collections import deque
from typing import NamedTuple

from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.requests import produce_answers, produce_request

_BATCH_BYTES = 16 << 10
_RECORD_OVERHEAD_BYTES = 16
_DISTINCT_BATCHES = 32
_IN_FLIGHT = 5
_TIMEOUT_S = 60.0
_PRODUCE_BY_NAME_VERSION_MAX = 12


class Topic(NamedTuple):
    """What to fill a topic with."""

    name: str
    value_bytes: int
    codec: Codec
    partitions: int
    rows: int


def fill(bootstrap: str, topic: Topic, *, exists: bool = False) -> int:
    """Create the topic, unless it exists, and write its records; gives how many."""
    batches = _batches(topic)
    with Cluster(bootstrap, timeout_s=_TIMEOUT_S) as cluster:
        if not exists:
            admin.create_topic(
                cluster,
                topic.name,
                partitions=topic.partitions,
                configs={"flush.messages": str(2**63 - 1)},
            )
            cluster.await_topic(topic.name, partitions=topic.partitions)
        connection = cluster.broker(cluster.leader(topic.name, 0), purpose="fill")
        written, sent = 0, 0
        under_way: deque[int] = deque()
        while written < topic.rows or under_way:
            if written < topic.rows and len(under_way) < _IN_FLIGHT:
                records, batch = batches[sent % len(batches)]
                place = (topic.name, sent % topic.partitions)
                request = produce_request({place: batch}, acks=-1, timeout_s=_TIMEOUT_S)
                connection.send(request, version_max=_PRODUCE_BY_NAME_VERSION_MAX)
                under_way.append(records)
                written, sent = written + records, sent + 1
                continue
            under_way.popleft()
            for place, answer in produce_answers(connection.receive()):
                assert answer.error_code == 0, f"{place}: {answer.error_code}"
    return written


def _batches(topic: Topic) -> list[tuple[int, bytearray]]:
    dice = random.Random(topic.value_bytes)
    count = max(1, _BATCH_BYTES // (topic.value_bytes + _RECORD_OVERHEAD_BYTES))
    now_ms = int(time.time() * 1000)
    return [
        (
            count,
            build_batch(
                [
                    Record(0, now_ms + index, b"%08d" % dice.randrange(10**8), _value(topic, dice))
                    for index in range(count)
                ],
                codec=topic.codec,
            ),
        )
        for _ in range(_DISTINCT_BATCHES)
    ]


def _value(topic: Topic, dice: random.Random) -> bytes:
    text = ""
    while len(text) < topic.value_bytes:
        fields = {"id": dice.randrange(10**6), "city": dice.choice(_CITIES), "x": dice.random()}
        text += json.dumps(fields)
    return text[: topic.value_bytes].encode()


_CITIES = ("Ulm", "Lyon", "Porto", "Ghent", "Turin", "Graz", "Bergen", "Gdansk")
