"""Events: small, immutable, timestamped; many producers, many consumers, one topic.

Three programs that know nothing of each other write to one topic, each through another client, and
two readers get every event, byte for byte, in the same order.

    pip install . confluent-kafka kafka-python
    headwater up                      (in another terminal)
    python examples/01_events.py
"""

import json
import os
import struct
import time

from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer

import headwater
from headwater.delivery.client import admin

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"events-{time.time_ns() // 1_000_000}"
# When it happened, which is not when it arrives: the event carries its own time.
HOUR_AGO_MS = time.time_ns() // 1_000_000 - 3_600_000


def write() -> None:
    """Write three events: JSON from a shop, text from a web server, binary from a sensor."""
    with headwater.Cluster(BOOTSTRAP) as cluster, headwater.Producer(cluster) as shop:
        order = json.dumps({"order": 17, "qty": 2}).encode()
        shop.send(TOPIC, order, key=b"customer-4", timestamp_ms=HOUR_AGO_MS)

    web = ConfluentProducer({"bootstrap.servers": BOOTSTRAP})
    web.produce(TOPIC, b"GET /cart", headers={"host": b"web-1"}, timestamp=HOUR_AGO_MS + 1_000)
    web.flush()

    sensor = KafkaProducer(bootstrap_servers=BOOTSTRAP)
    reading = struct.pack(">If", 4711, 21.5)
    sensor.send(TOPIC, reading, key=b"sensor-4711", timestamp_ms=HOUR_AGO_MS + 2_000)
    sensor.close()


def read_with_headwater() -> list[tuple[int, bytes | None, int]]:
    """Return offset, value and time of every event."""
    with headwater.Cluster(BOOTSTRAP) as cluster:
        consumer = headwater.Consumer(cluster)
        consumer.assign({(TOPIC, 0): 0})
        found: list[headwater.Message] = []
        while len(found) < 3:
            found += consumer.poll()
        return [(each.offset, each.value, each.timestamp_ms) for each in found]


def read_with_kafka_python() -> list[tuple[int, bytes | None, int]]:
    """Return the same, through a client that is not ours."""
    consumer = KafkaConsumer(TOPIC, bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
    found = [next(consumer) for _ in range(3)]
    consumer.close()
    return [(each.offset, each.value, each.timestamp) for each in found]


with headwater.Cluster(BOOTSTRAP) as brokers:
    admin.create_topic(brokers, TOPIC, partitions=1)
write()
events = read_with_headwater()
for offset, value, timestamp_ms in events:
    print(f"offset {offset}  happened at {timestamp_ms}  {value!r}")
assert [offset for offset, _, _ in events] == [0, 1, 2]
assert [timestamp_ms - HOUR_AGO_MS for _, _, timestamp_ms in events] == [0, 1_000, 2_000]
assert read_with_kafka_python() == events
assert read_with_headwater() == events
print("reading takes nothing away: every reader gets every event, as often as it likes")
