"""Replay: read old messages again, into a new output, and risk nothing.

The orders of an hour were added up by a program with a bug. The range is read again, by time, into
a topic of its own, where the repaired program runs. The source is only read: neither its records
nor the place of the group that lives on it change.

    pip install .
    headwater up                      (in another terminal)
    python examples/15_replay.py
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import headwater
from headwater.delivery.client import admin

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"orders-{time.time_ns() // 1_000_000}"
COPY = f"{TOPIC}.again"
GROUP = f"revenue-{TOPIC}"
PARTITIONS = 2
MINUTE_MS = 60_000
START_MS = time.time_ns() // 1_000_000 - 180 * MINUTE_MS


def read(cluster: headwater.Cluster, topic: str) -> list[headwater.Message]:
    """Return all messages of a topic, partition by partition."""
    places = [(topic, number) for number in range(PARTITIONS)]
    ends = admin.list_offsets(cluster, dict.fromkeys(places, admin.LATEST))
    consumer = headwater.Consumer(cluster)
    consumer.assign(dict.fromkeys(places, 0))
    found: list[headwater.Message] = []
    while consumer.positions != ends:
        found += consumer.poll()
    return sorted(found, key=lambda each: (each.partition, each.offset))


with headwater.Cluster(BOOTSTRAP) as brokers:
    admin.create_topic(brokers, TOPIC, partitions=PARTITIONS)
    with headwater.Producer(brokers) as producer:
        for minute in range(180):  # one order a minute, for three hours
            order = json.dumps({"order": minute, "cents": 1_000 + minute}).encode()
            moment_ms = START_MS + minute * MINUTE_MS
            producer.send(TOPIC, order, key=b"shop-%d" % (minute % 5), timestamp_ms=moment_ms)
    admin.commit_offsets(brokers, GROUP, {(TOPIC, 0): 7, (TOPIC, 1): 7})
    source = read(brokers, TOPIC)

    # The second hour, from the command line; `headwater replay --help` has other ranges.
    command = [str(Path(sys.executable).with_name("headwater")), "replay", TOPIC, "--into", COPY]
    command += ["--from", f"@{START_MS + 60 * MINUTE_MS}", "--to", f"@{START_MS + 120 * MINUTE_MS}"]
    subprocess.run([*command, "--bootstrap", BOOTSTRAP], check=True)

    copy = read(brokers, COPY)
    revenue = sum(json.loads(each.value or b"")["cents"] for each in copy)
    print(f"{len(copy)} of {len(source)} orders again, {revenue / 100:.2f} in that hour")
    assert len(copy) == 60
    assert revenue == sum(1_000 + minute for minute in range(60, 120))

    def kept(message: headwater.Message) -> tuple[object, ...]:
        """Return all of a message but its topic and offset."""
        return (message.partition, message.timestamp_ms, *message[5:])

    hour_ms = range(START_MS + 60 * MINUTE_MS, START_MS + 120 * MINUTE_MS)
    assert [kept(each) for each in copy] == [
        kept(each) for each in source if each.timestamp_ms in hour_ms
    ], "key, value, headers, time, partition and order are the same"
    assert read(brokers, TOPIC) == source
    assert set(admin.committed_offsets(brokers, GROUP).values()) == {7}
    print("the source and its groups are untouched")
