"""Real clients read a topic that we have compacted: the right content at unchanged offsets."""

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.structs import TopicPartition

from headwater.base.disk import RealDisk
from headwater.log.checkpoints import read_offsets
from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import ALL, Clients
from tests.interop.scenarios import read

WAIT_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": "50"}
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}
VALUE = bytes(5_000)

# As the clients type them; a record that was read has all three.
Written = dict[bytes | None, tuple[int | None, bytes | None]]
Found = list[tuple[int | None, bytes | None, bytes | None]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_directory=str(tmp_path), settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1, config=CONFIGS)])["t"].result(WAIT_S)
        yield broker


def write(broker: EmbeddedBroker, codec: str) -> tuple[Written, int]:
    """Write thirty keys many times over, some of it in transactions of which every third fails.

    Returns:
        By key: where its latest committed value is, and the value; and how many were committed.
    """
    latest: Written = {}
    count = 0
    plain = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec}
    )
    transactional = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"}
    )
    transactional.init_transactions(WAIT_S)
    # The last round is plain: some clients know the end by the record that is there.
    for number in range(31):
        delivered: Written = {}

        def note(error: object, message: confluent_kafka.Message, to: Written = delivered) -> None:
            assert error is None
            to[message.key()] = message.offset(), message.value()

        producer = transactional if number % 2 else plain
        if number % 2:
            producer.begin_transaction()
        for key in range(30):
            value = b"%d.%d " % (number, key) + VALUE
            producer.produce("t", value, b"%d" % key, on_delivery=note)
        producer.flush(WAIT_S)
        if number % 6 == 5:
            producer.abort_transaction(WAIT_S)
            continue
        if number % 2:
            producer.commit_transaction(WAIT_S)
        latest.update(delivered)
        count += len(delivered)
    return latest, count


def wait_until_clean(data: Path, offset: int) -> None:
    path = str(data / "log" / "cleaner-offset-checkpoint")
    deadline = time.monotonic() + WAIT_S
    while read_offsets(RealDisk(), path).get(("t", 0), 0) < offset:
        assert time.monotonic() < deadline, "it is not compacted"
        time.sleep(0.02)


def read_with_confluent(bootstrap: str) -> Found:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: Found = []
    try:
        while (message := consumer.poll(WAIT_S)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    raise AssertionError("the end was never told")


def read_with_kafka_python(bootstrap: str) -> Found:
    place = TopicPartition("t", 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    found: Found = []
    try:
        consumer.assign([place])
        consumer.seek(place, 0)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for records in consumer.poll(1_000).values():
                found += [(record.offset, record.key, record.value) for record in records]
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_clients_find_the_latest_of_each_key(
    broker: EmbeddedBroker, tmp_path: Path, codec: str
) -> None:
    latest, count = write(broker, codec)
    wait_until_clean(tmp_path, 500)
    bootstrap = broker.bootstrap_servers

    for read_all in (read_with_confluent, read_with_kafka_python):
        found = read_all(bootstrap)

        offsets = [offset for offset, _, _ in found if offset is not None]
        assert offsets == sorted(set(offsets))
        assert len(offsets) == len(found)
        assert {key: (offset, value) for offset, key, value in found} == latest
        assert len(found) < count / 2


def test_clients_of_every_language_read_it(
    broker: EmbeddedBroker, clients: Clients, tmp_path: Path
) -> None:
    """Batches without records, gaps and vanished transactions trouble none of them."""
    latest, _ = write(broker, "lz4")
    wait_until_clean(tmp_path, 500)
    table = {key: value for key, (_, value) in latest.items()}
    for name in ALL:
        found = read(clients[name], broker.bootstrap_servers, "t", isolation="read_committed")
        assert {record.key: record.value for record in found} == table, name
