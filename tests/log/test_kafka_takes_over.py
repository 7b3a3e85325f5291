"""Apache Kafka goes on with a log that we wrote, and shows its readers what we would show ours."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.base.disk import RealDisk
from headwater.log.names import PARTITION_METADATA, decode_partition_metadata
from headwater.log.partition import PartitionLog
from headwater.log.producers import ProducerState
from headwater.log.txn_index import TxnIndex
from headwater.testing.manual_clock import ManualClock
from tests import peers
from tests.log.helpers import NOW_MS, SMALL, commit, open_log, read_values
from tests.log.test_transactions import end, send
from tests.log.test_transactions_model import read_as_kafkas_consumer
from tests.log.test_transactions_recovery import live
from tests.peers.kafka_server import ApacheKafka

pytestmark = pytest.mark.peer

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
# Small indexes close a segment after a few batches; the records are old.
CONFIG = {
    "index.interval.bytes": "100",
    "segment.index.bytes": "60",
    "retention.ms": "-1",
}


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    peers.require("kafka")
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.folder.mkdir()
    kafka.start()
    try:
        yield kafka
    finally:
        kafka.stop()


def write_in_place_of(directory: Path) -> PartitionLog:
    """Put a log of ours where Kafka has an empty one, with transactions of all fates."""
    topic_id = decode_partition_metadata((directory / PARTITION_METADATA).read_bytes())
    assert topic_id is not None
    shutil.rmtree(directory)
    clock = ManualClock(NOW_MS)
    log = open_log(RealDisk(), str(directory), config=SMALL, topic_id=topic_id, clock=clock)
    live(log, segments=4)
    first_open = send(log, 20, 0, count=2).base_offset
    live(log, segments=6, seed=1, producers=range(30, 35))
    send(log, 21, 0, epoch=3)
    end(log, 22, committed=False, epoch=1)
    commit(log)
    assert log.last_stable_offset == first_open < log.high_watermark - 10
    return log


def consume(kafka: ApacheKafka, isolation: str) -> list[int]:
    """Read to the end, which for readers of committed data is the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "any",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    offsets: list[int] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                offsets.append(message.offset() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:
                return offsets
            else:
                raise AssertionError(error)
    finally:
        consumer.close()


def test_readers_see_the_same_before_and_after(kafka: ApacheKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config=CONFIG)])["t"].result(30)
    kafka.stop()
    directory = kafka.log_dir / "t-0"
    log = write_in_place_of(directory)
    committed = read_as_kafkas_consumer(log, 0, log.last_stable_offset)
    everything = data_offsets(log)
    assert len(everything) < log.log_end_offset - 10
    log.close()
    indexes = {path.name: path.read_bytes() for path in directory.glob("*.txnindex")}
    assert len(indexes) > 3

    for stopped_cleanly in (True, False):
        if not stopped_cleanly:
            (kafka.log_dir / CLEAN_SHUTDOWN).unlink()
        kafka.start()
        assert consume(kafka, "read_committed") == committed
        assert consume(kafka, "read_uncommitted") == everything
        kafka.stop()
        assert {
            path.name: TxnIndex(path.read_bytes()).entries()
            for path in directory.glob("*.txnindex")
            if path.stat().st_size
        } == {name: TxnIndex(content).entries() for name, content in indexes.items()}
        snapshot = ProducerState.decode(max(directory.glob("*.snapshot")).read_bytes())
        assert snapshot is not None
        assert list(snapshot.transactions.open_first_offsets()) == [20, 21]


def data_offsets(log: PartitionLog) -> list[int]:
    """Return the offsets of all records but markers, which have another key."""
    return [offset for offset, value in read_values(log) if value == b"v"]
