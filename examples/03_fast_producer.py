"""A producer that is faster than its consumer, and a topic's three answers to it.

It buffers, drops the oldest, or pushes back; docs/guides/fast-producers says what each costs.

    pip install . confluent-kafka
    headwater up                      (in another terminal)
    python examples/03_fast_producer.py
"""

import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
RUN = time.time_ns() // 1_000_000
RECORDS = 500
VALUE = b"v" * 1_000
BOUND_BYTES = 200_000


def produce(topic: str) -> float:
    """Send everything as fast as the broker lets us; return how long that took."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "batch.size": 20_000})
    started_s = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(topic, VALUE)
    # While producers are pushed back, somebody has to read: a slow consumer, 50 records at a time.
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"slow-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while producer.flush(0.1):
        if consumer.consume(50, 0.5):
            consumer.commit(asynchronous=False)
    took_s = time.monotonic() - started_s
    consumer.close()
    return took_s


def readable(topic: str) -> int:
    """Return how many records a newcomer would find."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "newcomer"})
    first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return int(end - first)


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
seconds, found = {}, {}
for policy in ("buffer", "drop", "backpressure"):
    name = f"fast-{policy}-{RUN}"
    configs = {"headwater.overflow": policy, "headwater.overflow.bytes": str(BOUND_BYTES)}
    admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(10)
    seconds[policy], found[policy] = produce(name), readable(name)
    print(f"{policy:12} {RECORDS} in {seconds[policy]:4.1f} s, {found[policy]} can be read")
assert found["buffer"] == found["backpressure"] == RECORDS
assert found["drop"] * len(VALUE) <= BOUND_BYTES, "the oldest had to go"
assert seconds["backpressure"] > seconds["buffer"], "the producer had to wait"
