"""A partitioned log: append-only, numbered by offset, in order within each partition.

The records of one key are in one partition, so they are read in the order in which they were
written. Between partitions there is no order, and that is what lets them be read in parallel.

    pip install .
    headwater up                      (in another terminal)
    python examples/10_partitioned_log.py
"""

import os
import time
from collections import defaultdict

import headwater
from headwater.delivery.client import admin

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"accounts-{time.time_ns() // 1_000_000}"
PARTITIONS = 3
ACCOUNTS = [f"account-{number}" for number in range(6)]
CHANGES = 50

with headwater.Cluster(BOOTSTRAP) as cluster:
    admin.create_topic(cluster, TOPIC, partitions=PARTITIONS)

    # Changes of all accounts, interleaved, as they happen.
    with headwater.Producer(cluster) as producer:
        for change in range(CHANGES):
            for account in ACCOUNTS:
                producer.send(TOPIC, b"%d" % change, key=account.encode())

    consumer = headwater.Consumer(cluster)
    consumer.assign({(TOPIC, partition): 0 for partition in range(PARTITIONS)})
    log: dict[int, list[headwater.Message]] = defaultdict(list)
    while sum(map(len, log.values())) < CHANGES * len(ACCOUNTS):
        for message in consumer.poll():
            log[message.partition].append(message)

    homes: dict[bytes, set[int]] = defaultdict(set)
    for partition, messages in sorted(log.items()):
        # Offsets count from 0 without a gap, and never change.
        assert [each.offset for each in messages] == list(range(len(messages)))
        by_key: dict[bytes, list[int]] = defaultdict(list)
        for each in messages:
            assert each.key is not None
            assert each.value is not None
            homes[each.key].add(partition)
            by_key[each.key].append(int(each.value))
        names = ", ".join(sorted(key.decode() for key in by_key))
        print(f"partition {partition}: offsets 0 to {len(messages) - 1}, {names}")
        for changes in by_key.values():
            assert changes == list(range(CHANGES)), "each account's changes are in order"
    assert all(len(partitions) == 1 for partitions in homes.values()), "a key has one partition"
    assert len(homes) == len(ACCOUNTS)

    # The log is there to be read again: any partition, from any offset.
    consumer.assign({(TOPIC, 0): 10})
    assert consumer.poll()[0].offset == 10
    print("every account's changes are in order, in one partition; offset 10 is still offset 10")
