"""Notify instead of poll: a consumer waits inside one request until there is something.

A reader that asks "anything new?" again and again is either late or busy. A fetch of the Kafka
protocol stays at the broker until data has come, so it is neither.

    pip install .
    headwater up                      (in another terminal)
    python examples/02_notify.py
"""

import os
import statistics
import threading
import time

import headwater
from headwater.delivery.client import admin

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"notify-{time.time_ns() // 1_000_000}"
EVENTS = 20
QUIET_S = 2.0


def ring() -> None:
    """Write an event now and then; its value is the moment at which it was written."""
    with headwater.Cluster(BOOTSTRAP) as cluster:
        producer = headwater.Producer(cluster)
        for _ in range(EVENTS):
            time.sleep(0.05)
            producer.send(TOPIC, str(time.monotonic_ns()).encode())
            producer.flush()


with headwater.Cluster(BOOTSTRAP) as brokers:
    admin.create_topic(brokers, TOPIC, partitions=1)
    consumer = headwater.Consumer(brokers)
    consumer.assign({(TOPIC, 0): 0})

    # Nothing comes: one request waits for two seconds and costs nothing.
    began_s, cpu_s = time.monotonic(), time.process_time()
    assert consumer.poll(QUIET_S) == []
    waited_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    print(f"waited {waited_s:.1f} s in one request, with {cpu_s * 1000:.0f} ms of CPU")
    assert waited_s >= QUIET_S * 0.9
    assert cpu_s < QUIET_S / 10

    # Something comes: the same request is answered at once, long before its time is up.
    bell = threading.Thread(target=ring)
    bell.start()
    delays_ms: list[float] = []
    while len(delays_ms) < EVENTS:
        for message in consumer.poll(30.0):
            assert message.value is not None
            delays_ms.append((time.monotonic_ns() - int(message.value)) / 1e6)
    bell.join()

median_ms = statistics.median(delays_ms)
print(f"{EVENTS} events, each synced to disk, reached the reader {median_ms:.1f} ms after writing")
assert median_ms < 1_000, "the reader was told late"
