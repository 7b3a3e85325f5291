"""Make the golden segment files anew: `python -m tests.log.make_golden` (needs `make peers`).

All of them, or with `plain` or `transactional` behind it only some.

This file alone decides what Apache Kafka was asked to write into `tests/log/golden`. It is run by
hand when Kafka's format or version changes, never by the tests.

    plain-0          one run, two idempotent producers, all compressions, several segments
    restarted-0      the broker was stopped and started between two halves: two leader epochs
    transactional-0  transactions of several producers at a time, committed, aborted, fenced and
                     still open; both protocols: in one of them every marker raises the epoch
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests import peers
from tests.peers.kafka_server import ApacheKafka

GOLDEN = Path(__file__).parent / "golden"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# Small indexes close a segment after a few batches: segment.bytes has a floor of 1 MiB.
CONFIG = {"index.interval.bytes": "512", "segment.index.bytes": "240"}

# Timestamps lie in the past and jump back now and then; retention must not take them.
FIRST_TIMESTAMP_MS = 1_700_000_000_000
CONFIG |= {"retention.ms": "-1", "segment.ms": str(365 * 86_400_000)}


def produce(bootstrap: str, topic: str, codec: str, start: int, count: int) -> None:
    """Send batches of one to four records, one after the other."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
        }
    )
    for number in range(start, start + count):
        for part in range(number % 4 + 1):
            jitter_ms = -1500 if number % 7 == 3 else 0
            producer.produce(
                topic,
                key=f"key-{number % 5}",
                value=f"{number}.{part} ".encode() * (number % 23),
                headers=[("codec", codec.encode())] if part == 0 else [],
                timestamp=FIRST_TIMESTAMP_MS + 1000 * number + part + jitter_ms,
                partition=0,
            )
        producer.flush(30)


class Transactional:
    """A transactional producer and its transaction, if one is open."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        )
        self._producer.init_transactions(30)
        self.is_open = False

    def send(self, topic: str, value: bytes) -> None:
        """Write one batch, in a transaction that is begun where none is open."""
        if not self.is_open:
            self._producer.begin_transaction()
            self.is_open = True
        self._producer.produce(topic, key=b"key", value=value, partition=0)
        assert self._producer.flush(30) == 0

    def end(self, *, committed: bool) -> None:
        """End the transaction, if one is open."""
        if self.is_open:
            (self._producer.commit_transaction if committed else self._producer.abort_transaction)()
            self.is_open = False


def produce_transactions(kafka: ApacheKafka, topic: str) -> None:
    """Let five producers overlap, some of them fenced, and leave two transactions open."""
    chance = random.Random(4)
    names = [f"producer-{number}" for number in range(5)]
    producers = {name: Transactional(kafka.bootstrap, name) for name in names}
    for number in range(90):
        name = chance.choice(names)
        producers[name].send(topic, b"%d " % number * chance.randrange(20))
        if chance.random() < 0.35:
            producers[name].end(committed=chance.random() < 0.4)
        if number % 20 == 19:
            producers[name].send(topic, b"soon fenced")
            producers[name] = Transactional(kafka.bootstrap, name)
        if number % 30 == 29:
            raise_epochs(kafka, topic)
    for name in names[2:]:
        producers[name].end(committed=False)
    for name in names[:2]:
        producers[name].send(topic, b"never ended")


def raise_epochs(kafka: ApacheKafka, topic: str) -> None:
    """Let Kafka's own producer commit a few transactions: each of them raises the epoch."""
    done = peers.java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", kafka.bootstrap, "--topic", topic),
        *("--num-records", "12", "--record-size", "30", "--throughput", "100"),
        *("--transactional-id", "raising", "--transaction-duration-ms", "20"),
        *("--command-property", "batch.size=1"),
    )
    assert done.returncode == 0, done.stderr


def create(kafka: ApacheKafka, *names: str) -> None:
    """Create topics."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topics = [
        NewTopic(name, num_partitions=1, replication_factor=1, config=CONFIG) for name in names
    ]
    for created in admin.create_topics(topics).values():
        created.result(30)


def keep(kafka: ApacheKafka, topic: str) -> None:
    """Stop, and copy what was written."""
    kafka.stop()
    folder = f"{topic}-0"
    shutil.rmtree(GOLDEN / folder, ignore_errors=True)
    shutil.copytree(kafka.log_dir / folder, GOLDEN / folder)


def make_plain(kafka: ApacheKafka) -> None:
    """Make `plain-0` and `restarted-0`."""
    create(kafka, "plain", "restarted")
    for turn, codec in enumerate(CODECS * 2):
        produce(kafka.bootstrap, "plain", codec, turn * 12, 12)
    produce(kafka.bootstrap, "restarted", "none", 0, 40)
    keep(kafka, "plain")
    kafka.start()
    produce(kafka.bootstrap, "restarted", "none", 40, 40)
    keep(kafka, "restarted")


def make_transactional(kafka: ApacheKafka) -> None:
    """Make `transactional-0`."""
    create(kafka, "transactional")
    produce_transactions(kafka, "transactional")
    keep(kafka, "transactional")


def main() -> None:
    """Run Apache Kafka, let it write, keep what it wrote."""
    makers = {"plain": make_plain, "transactional": make_transactional}
    for name in sys.argv[1:] or makers:
        with tempfile.TemporaryDirectory() as folder:
            kafka = ApacheKafka(Path(folder))
            kafka.start()
            try:
                makers[name](kafka)
            finally:
                kafka.stop()
    sys.stdout.write(f"{GOLDEN}\n")


if __name__ == "__main__":
    main()
