"""A broker that runs out of file descriptors: it refuses what needs one, and goes on after."""

import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
PARTITIONS = 600
FILE_LIMIT = 256
RETRIABLE = {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT}


def produce(connection: Connection, number: int, name: str = "t") -> ErrorCode:
    value = b"%06d" % number + bytes(VALUE_BYTES)
    batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    topic = messages.ProduceRequest.TopicProduceData(name=name, partition_data=[data])
    request = messages.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    response = connection.call(request, version_max=12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def open_descriptors(up: Up) -> set[int]:
    return {int(path.name) for path in Path(f"/proc/{up.process.pid}/fd").iterdir()}


@contextmanager
def no_descriptor_left(up: Up, address: tuple[str, int]) -> Iterator[None]:
    """Let the running broker open nothing more, unless it closes something."""
    with ExitStack() as gaps:
        # The limit is on the number of a descriptor: there must be none free below the highest.
        while len(used := open_descriptors(up)) <= max(used):
            gaps.enter_context(Connection(*address)).call(messages.ApiVersionsRequest())
        before = resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, (len(used), before[1]))
        try:
            yield
        finally:
            resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, before)


def processor_seconds(up: Up) -> float:
    fields = Path(f"/proc/{up.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
        codes: dict[int, ErrorCode] = {}
        with Cluster(address) as cluster, Connection(host, int(port)) as connection:
            configs = {"segment.bytes": str(SEGMENT_BYTES)}
            admin.create_topic(cluster, "t", partitions=1, configs=configs)
            admin.create_topic(cluster, "no-file-yet", partitions=1)
            codes[0] = produce(connection, 0)

            with no_descriptor_left(up, (host, int(port))):
                refusal = produce(connection, 0, "no-file-yet")
                assert refusal == ErrorCode.KAFKA_STORAGE_ERROR
                # Every third does not fit into its segment, and a new one needs descriptors.
                for number in range(1, 9):
                    codes[number] = produce(connection, number)
                assert up.process.poll() is None

            for number in range(9, 12):
                codes[number] = produce(connection, number)
                assert codes[number] == ErrorCode.NONE
            assert produce(connection, 0, "no-file-yet") == ErrorCode.NONE
        assert set(codes.values()) <= RETRIABLE
        promised = [number for number, code in codes.items() if code == ErrorCode.NONE]
        # What timed out may be there as well: it was written, and its names were synced later.
        found = read_all(address)
        assert [number for number in found if number in promised] == promised
        assert all(codes[number] != ErrorCode.KAFKA_STORAGE_ERROR for number in found)
        up.send(signal.SIGKILL)
        up.process.wait()

    with running(tmp_path) as up:
        assert read_all(up.ready()["address"]) == found
        up.send(signal.SIGTERM)
        assert up.end() == 0


def test_clients_wait_for_a_descriptor_and_cost_nothing_meanwhile(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        host, port = up.ready()["address"].split(":")
        with no_descriptor_left(up, (host, int(port))):
            before_s = processor_seconds(up)
            with socket.create_connection((host, int(port)), timeout=30) as waiting:
                # It is in the kernel's queue, and the broker looks for it now and then.
                readable, _, _ = select.select([waiting], [], [], 2.0)
                assert not readable
            assert processor_seconds(up) - before_s < 0.5
        with Connection(host, int(port)) as connection:
            connection.call(messages.ApiVersionsRequest())


def produce_to_all(connection: Connection, value: bytes) -> int:
    """Write a record to every partition, repeating what is refused; return how often it was."""
    left = list(range(PARTITIONS))
    refused = 0
    deadline_s = time.monotonic() + 120
    while left:
        assert time.monotonic() < deadline_s, f"{len(left)} partitions still refuse"
        batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, value)]))
        data = [
            messages.ProduceRequest.PartitionProduceData(index, bytearray(batch)) for index in left
        ]
        topic = messages.ProduceRequest.TopicProduceData(name="t", partition_data=data)
        request = messages.ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic])
        response = connection.call(request, version_max=12, timeout_s=60)
        answers = response.responses[0].partition_responses
        codes = {each.index: ErrorCode(each.error_code) for each in answers}
        assert set(codes.values()) <= RETRIABLE
        left = [index for index in left if codes[index] != ErrorCode.NONE]
        refused += len(left)
    return refused


def read_partitions(address: str) -> dict[int, list[bytes]]:
    with Cluster(address) as cluster:
        ends = admin.list_offsets(cluster, {("t", n): admin.LATEST for n in range(PARTITIONS)})
        consumer = Consumer(cluster)
        consumer.assign(dict.fromkeys(ends, 0))
        found: dict[int, list[bytes]] = {n: [] for n in range(PARTITIONS)}
        deadline_s = time.monotonic() + 120
        while any(consumer.positions[key] < end for key, end in ends.items()):
            assert time.monotonic() < deadline_s
            for message in consumer.poll(1):
                assert message.value is not None
                found[message.partition].append(message.value)
        return found


@pytest.mark.timeout(300)
def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    """Partitions are opened and closed as they are used; none is lost and none is refused twice."""
    with running(tmp_path, file_limit=FILE_LIMIT) as up:
        address = up.ready()["address"]
        host, port = address.split(":")
        with Cluster(address) as cluster, Connection(host, int(port)) as connection:
            admin.create_topic(cluster, "t", partitions=PARTITIONS)
            produce_to_all(connection, b"first")
            assert read_partitions(address) == {n: [b"first"] for n in range(PARTITIONS)}
            produce_to_all(connection, b"second")
        used = len(list(Path(f"/proc/{up.process.pid}/fd").iterdir()))
        assert used < FILE_LIMIT
        up.send(signal.SIGKILL)
        up.process.wait()

    with running(tmp_path, file_limit=FILE_LIMIT) as up:
        address = up.ready()["address"]
        host, port = address.split(":")
        assert read_partitions(address) == {n: [b"first", b"second"] for n in range(PARTITIONS)}
        with Connection(host, int(port)) as connection:
            produce_to_all(connection, b"third")
        up.send(signal.SIGTERM)
        assert up.end() == 0
        assert not any("failed" in line for line in up.lines)

    with running(tmp_path, file_limit=FILE_LIMIT) as up:
        ready = up.ready()
        assert not ready["recovered"]
        everything = [b"first", b"second", b"third"]
        assert read_partitions(ready["address"]) == dict.fromkeys(range(PARTITIONS), everything)
