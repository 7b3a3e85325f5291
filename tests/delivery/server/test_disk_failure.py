"""A disk that fails under a running broker: nothing is promised, nothing acknowledged is lost."""

import errno
import os
import time
from pathlib import Path

from headwater.base.disk import RealDisk, RealFile
from headwater.base.errors import ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.consumer import Consumer
from headwater.delivery.client.producer import Producer
from headwater.delivery.wire.kafka import messages
from headwater.testing.broker import EmbeddedBroker


class _File(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, disk: "_BreakableDisk") -> None:
        super().__init__(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._disk = disk

    def sync(self) -> None:
        if self._disk.broken:
            raise OSError(errno.EIO, "the drive has gone away")
        super().sync()


class _BreakableDisk(RealDisk):
    """Every sync fails once it is broken."""

    broken = False

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if not create and not os.path.exists(path):  # noqa: PTH110
            raise FileNotFoundError(path)
        return _File(path, self)


def produce(connection: Connection, value: bytes) -> ErrorCode:
    batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    request = messages.ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[messages.ProduceRequest.TopicProduceData(name="t", partition_data=[data])],
    )
    response = connection.call(request, version_max=12, timeout_s=10)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def test_a_failed_sync_is_answered_with_an_error_and_ends_the_broker(tmp_path: Path) -> None:
    disk = _BreakableDisk()
    broker = EmbeddedBroker(data_directory=str(tmp_path), disk=disk)
    broker.start()
    host, port = broker.bootstrap_servers.split(":")
    with Cluster(broker.bootstrap_servers) as cluster:
        admin.create_topic(cluster, "t", partitions=1)
        with Producer(cluster) as producer:
            producer.send("t", b"safe")
    with Connection(host, int(port)) as connection:
        disk.broken = True

        first = produce(connection, b"never promised")
        second = produce(connection, b"refused at once")

        assert (first, second) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR)
    assert broker.node.failed.done()
    broker.stop()

    with (
        EmbeddedBroker(data_directory=str(tmp_path)) as again,
        Cluster(again.bootstrap_servers) as cluster,
    ):
        consumer = Consumer(cluster)
        consumer.assign({("t", 0): 0})
        assert consumer.poll(5)[0].value == b"safe"
