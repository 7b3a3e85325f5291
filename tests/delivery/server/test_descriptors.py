"""A broker that runs out of file descriptors: it refuses what needs one, and goes on after."""

import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.consumer import Consumer
from headwater.delivery.wire.kafka import messages
from tests.cli.processes import Up, running

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux lets another process change limits"
)
VALUE_BYTES = 400_000
SEGMENT_BYTES = 1 << 20


def produce(connection: Connection, number: int, name: str = "t") -> ErrorCode:
    value = b"%06d" % number + bytes(VALUE_BYTES)
    batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    topic = messages.ProduceRequest.TopicProduceData(name=name, partition_data=[data])
    request = messages.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    response = connection.call(request, version_max=12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


@contextmanager
def no_descriptor_left(up: Up) -> Iterator[None]:
    """Let the running broker open nothing more."""
    process_id = up.process.pid
    before = resource.prlimit(process_id, resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path(f"/proc/{process_id}/fd").iterdir()}
    lowest_free = min(set(range(len(used) + 1)) - used)
    resource.prlimit(process_id, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_NOFILE, before)


def read_all(address: str) -> list[int]:
    with Cluster(address) as cluster:
        end = admin.list_offsets(cluster, {("t", 0): admin.LATEST})["t", 0]
        consumer = Consumer(cluster)
        consumer.assign({("t", 0): 0})
        found: list[int] = []
        while consumer.positions["t", 0] < end:
            found += [int(message.value[:6]) for message in consumer.poll(10) if message.value]
        return found


def test_a_lack_of_descriptors_passes(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        address = up.ready()["address"]
        host, port = address.split(":")
        acknowledged: list[int] = []
        # Nobody hangs up in between: that would give a descriptor back.
        with Cluster(address) as cluster, Connection(host, int(port)) as connection:
            configs = {"segment.bytes": str(SEGMENT_BYTES)}
            admin.create_topic(cluster, "t", partitions=1, configs=configs)
            admin.create_topic(cluster, "no-file-yet", partitions=1)
            assert produce(connection, 0) == ErrorCode.NONE
            acknowledged.append(0)

            with no_descriptor_left(up):
                refusal = produce(connection, 0, "no-file-yet")
                assert refusal == ErrorCode.KAFKA_STORAGE_ERROR
                refused = 0
                # The third does not fit into the segment, and a new one would need descriptors.
                for number in range(1, 6):
                    code = produce(connection, number)
                    assert code in {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
                    if code == ErrorCode.NONE:
                        acknowledged.append(number)
                    else:
                        refused += 1
                assert acknowledged == [0, 1]
                assert refused == 4
                with socket.create_connection((host, int(port)), timeout=30) as waiting:
                    # It is in the kernel's queue; nobody can take it out.
                    readable, _, _ = select.select([waiting], [], [], 0.5)
                    assert not readable
                assert up.process.poll() is None

            for number in range(6, 9):
                assert produce(connection, number) == ErrorCode.NONE
                acknowledged.append(number)
            assert produce(connection, 0, "no-file-yet") == ErrorCode.NONE
        assert read_all(address) == acknowledged
        up.send(signal.SIGKILL)
        up.process.wait()

    with running(tmp_path) as up:
        assert read_all(up.ready()["address"]) == acknowledged
        up.send(signal.SIGTERM)
        assert up.end() == 0
