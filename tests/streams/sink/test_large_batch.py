"""A batch may be larger than memory: a task and the driver hold a part of it at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.testing.broker import EmbeddedBroker

_ROOT = Path(__file__).resolve().parents[3]
_MEGABYTES = 300
# Parts of 16 MiB, requests on their way, open batches; and what malloc keeps of them.
_MORE_KB_MAX = 64 << 10


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="/proc/self/clear_refs is Linux's"
)
def test_memory_does_not_grow_with_the_batch(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, bootstrap = f"large-{tmp_path.name}", embedded_broker.bootstrap_servers
    with Cluster(bootstrap) as cluster:
        admin.create_topic(cluster, topic, partitions=4, configs={"flush.messages": "1000000"})
        try:
            command = [sys.executable, "-m", "tests.streams.sink.large_batch"]
            ran = subprocess.run(
                [*command, bootstrap, topic, str(tmp_path), str(_MEGABYTES)],
                cwd=_ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert ran.returncode == 0, ran.stderr
            places = [(topic, number) for number in range(4)]
            ends = admin.list_offsets(cluster, dict.fromkeys(places, admin.LATEST))
        finally:
            admin.delete_topic(cluster, topic)
    told = json.loads(ran.stdout)
    assert told["sent"] > _MEGABYTES * 1_000_000
    assert told["task_kb"] < _MORE_KB_MAX, told
    assert told["driver_kb"] < _MORE_KB_MAX, told
    # The rows of both batches, and what ends two transactions in each partition.
    assert sum(ends.values()) == (20 + _MEGABYTES) * 1_000 + 2 * len(places)
