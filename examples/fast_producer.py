"""A producer that is faster than its consumer, and a topic's three answers to it.

Needs confluent-kafka and a running broker: headwater up, then run this file.
"""

import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "127.0.0.1:9092")
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
for policy in ("buffer", "drop", "backpressure"):
    name = f"fast-{policy}"
    configs = {"headwater.overflow": policy, "headwater.overflow.bytes": str(BOUND_BYTES)}
    admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(10)
    seconds = produce(name)
    print(f"{policy:12} {RECORDS} records in {seconds:4.1f} s, {readable(name)} can be read")
