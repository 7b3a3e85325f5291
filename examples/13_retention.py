"""Disk space: the log is a large circular buffer, and a slow reader can fall off its end.

A topic keeps 2 MiB in segments of 1 MiB. While producers go on, the oldest segments are removed.
`headwater group describe` tells a group's lag in records and bytes, and how long it has until what
it has not read yet is removed. Here the group does not hurry, and finds its place gone.

This example runs a broker of its own, which looks for old segments more often than usual.

    pip install .
    python examples/13_retention.py
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import headwater
from headwater.delivery.client import admin
from headwater.testing.broker import EmbeddedBroker

TOPIC = "readings"
GROUP = "archive"
MIB = 1 << 20
VALUE = b"r" * 1_000


def lag(bootstrap: str) -> Any:  # noqa: ANN401 - a document
    """Return what `headwater group describe` says of the only partition."""
    command = str(Path(sys.executable).with_name("headwater"))
    arguments = ["group", "describe", GROUP, "--json", "--bootstrap", bootstrap]
    done = subprocess.run([command, *arguments], capture_output=True, check=True)
    (partition,) = json.loads(done.stdout)["partitions"]
    return partition


def write(cluster: headwater.Cluster, records: int) -> None:
    """Write so many records of a kilobyte."""
    with headwater.Producer(cluster) as producer:
        for _ in range(records):
            producer.send(TOPIC, VALUE)


with (
    EmbeddedBroker(settings={"log.retention.check.interval.ms": "100"}) as broker,
    headwater.Cluster(broker.bootstrap_servers) as brokers,
):
    configs = {"retention.bytes": str(2 * MIB), "segment.bytes": str(MIB)}
    admin.create_topic(brokers, TOPIC, partitions=1, configs=configs)
    write(brokers, 1_000)
    admin.commit_offsets(brokers, GROUP, {(TOPIC, 0): 100})

    behind = lag(broker.bootstrap_servers)
    print(f"behind by {behind['lag_records']} records, {behind['lag_bytes'] / MIB:.1f} MiB;")
    print(f"at this rate removed by {behind['removed_by']} in {behind['hours_left'] * 3600:.1f} s")
    assert behind["lag_records"] == 900
    assert behind["lost_records"] == 0
    assert behind["removed_by"] == "retention.bytes"

    # Producers go on. The buffer goes round, and what was not read is gone.
    write(brokers, 6_000)
    deadline_s = time.monotonic() + 30
    while (first := admin.list_offsets(brokers, {(TOPIC, 0): admin.EARLIEST})[TOPIC, 0]) <= 100:
        assert time.monotonic() < deadline_s, "nothing was removed"
        time.sleep(0.05)
    fallen = lag(broker.bootstrap_servers)
    print(f"the log begins at {fallen['first']}: {fallen['lost_records']} records were never read")
    assert fallen["lost_records"] == fallen["first"] - 100 > 0

    consumer = headwater.Consumer(brokers)
    consumer.assign({(TOPIC, 0): 100})
    answer = headwater.ErrorCode.NONE
    try:
        consumer.poll()
    except headwater.KafkaError as error:
        answer = error.code
    print(f"and reading there says so: {answer.name}")
    assert answer == headwater.ErrorCode.OFFSET_OUT_OF_RANGE
    consumer.assign({(TOPIC, 0): fallen["first"]})
    assert consumer.poll()[0].offset == fallen["first"]
