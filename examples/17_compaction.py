"""Compaction: a topic as a table, the latest record of each key and no more.

Prices change all the time, and a reader that starts late wants the prices, not their history. With
`cleanup.policy=compact` the broker drops what a later record of the same key has replaced. Offsets
stay as they were, so every position that somebody has written down still means the same. A record
without a value, a tombstone, deletes its key.

This example runs a broker of its own, which looks for something to compact more often than usual.

    pip install .
    python examples/17_compaction.py
"""

import time

import headwater
from headwater.delivery.client import admin
from headwater.testing.broker import EmbeddedBroker

TOPIC = "prices"
PLACE = (TOPIC, 0)
PRODUCTS = 20
ROUNDS = 200
NOTE = b" " * 1_000


def table(cluster: headwater.Cluster) -> tuple[dict[bytes, tuple[int, bytes]], int]:
    """Read the topic from its beginning; return offset and value by key, and how many it took."""
    prices: dict[bytes, tuple[int, bytes]] = {}
    records = 0
    consumer = headwater.Consumer(cluster)
    consumer.assign({PLACE: 0})
    while consumer.positions[PLACE] < consumer.high_watermarks.get(PLACE, 1):
        for message in consumer.poll(0.1):
            records += 1
            assert message.key is not None
            if message.value is None:
                prices.pop(message.key, None)
            else:
                prices[message.key] = message.offset, message.value
    return prices, records


with (
    EmbeddedBroker(settings={"log.cleaner.backoff.ms": "100"}) as broker,
    headwater.Cluster(broker.bootstrap_servers) as brokers,
):
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.1",
    }
    admin.create_topic(brokers, TOPIC, partitions=1, configs=configs)
    with headwater.Producer(brokers) as producer:
        for number in range(ROUNDS):
            for product in range(PRODUCTS):
                producer.send(TOPIC, b"%d.00" % (number + product) + NOTE, key=b"%d" % product)
        producer.send(TOPIC, None, key=b"7")
    before, read_before = table(brokers)
    written = ROUNDS * PRODUCTS + 1
    print(f"{written} records were written; {len(before)} products have a price")
    assert b"7" not in before

    # The broker compacts by itself, beside everything else that it does.
    deadline_s = time.monotonic() + 60
    read = read_before
    while read > written // 2:
        assert time.monotonic() < deadline_s, "nothing was compacted"
        time.sleep(0.05)
        after, read = table(brokers)
    print(f"after compaction a new reader needs {read} of them for the same table")
    assert after == before, "the same prices, at the same offsets"
