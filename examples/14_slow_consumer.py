"""One slow consumer hurts only itself.

A reader asks for everything and then does not take it off its socket. Another one reads the same
topic beside it. The broker keeps nothing for the first but a place in a file, so the second is as
fast as it was alone. The figures to believe are those of `make bench-broker`.

    pip install .
    headwater up                      (in another terminal)
    python examples/14_slow_consumer.py
"""

import os
import statistics
import time

import headwater
from headwater.delivery.client import admin
from headwater.delivery.wire.kafka import messages

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"clicks-{time.time_ns() // 1_000_000}"
RECORDS = 20_000
VALUE = b"c" * 1_000
ROUNDS = 5


def read_all(cluster: headwater.Cluster) -> float:
    """Read the whole topic; return megabytes a second."""
    consumer = headwater.Consumer(cluster)
    consumer.assign({(TOPIC, 0): 0})
    began_s = time.monotonic()
    seen = 0
    while seen < RECORDS:
        seen += len(consumer.poll())
    return RECORDS * len(VALUE) / 1e6 / (time.monotonic() - began_s)


def stall(cluster: headwater.Cluster) -> None:
    """Ask for all of the topic, again and again, and never look at an answer."""
    wanted = messages.FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=50 << 20
    )
    request = messages.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[messages.FetchRequest.FetchTopic(topic=TOPIC, partitions=[wanted])],
    )
    connection = cluster.broker(cluster.leader(TOPIC, 0), purpose="stalled")
    for _ in range(10):
        connection.send(request, version_max=12)


with headwater.Cluster(BOOTSTRAP) as brokers, headwater.Cluster(BOOTSTRAP) as others:
    admin.create_topic(brokers, TOPIC, partitions=1)
    with headwater.Producer(brokers) as producer:
        for _ in range(RECORDS):
            producer.send(TOPIC, VALUE, partition=0)
    read_all(brokers)
    alone = statistics.median(read_all(brokers) for _ in range(ROUNDS))
    stall(others)
    beside = statistics.median(read_all(brokers) for _ in range(ROUNDS))

print(f"alone {alone:.0f} MB/s, beside a stalled reader {beside:.0f} MB/s")
# Other programs share this machine: the bound is wide, a reader that waits would be far below it.
assert beside > alone / 3
