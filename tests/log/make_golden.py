"""Make the golden segment files anew: `python -m tests.log.make_golden` (needs `make peers`).

This file alone decides what Apache Kafka was asked to write into `tests/log/golden`. It is run by
hand when Kafka's format or version changes, never by the tests.

    plain-0      one run, two idempotent producers, all compressions, several segments
    restarted-0  the broker was stopped and started between two halves: two leader epochs
"""

import shutil
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

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


def main() -> None:
    """Run Apache Kafka, let it write, keep what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        kafka = ApacheKafka(Path(folder))
        kafka.start()
        try:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
            topics = [
                NewTopic(name, num_partitions=1, replication_factor=1, config=CONFIG)
                for name in ("plain", "restarted")
            ]
            for created in admin.create_topics(topics).values():
                created.result(30)
            for turn, codec in enumerate(CODECS * 2):
                produce(kafka.bootstrap, "plain", codec, turn * 12, 12)
            produce(kafka.bootstrap, "restarted", "none", 0, 40)
            kafka.stop()
            plain = kafka.log_dir / "plain-0"
            shutil.copytree(plain, GOLDEN / "plain-0", dirs_exist_ok=True)
            kafka.start()
            produce(kafka.bootstrap, "restarted", "none", 40, 40)
        finally:
            kafka.stop()
        restarted = kafka.log_dir / "restarted-0"
        shutil.copytree(restarted, GOLDEN / "restarted-0", dirs_exist_ok=True)
    sys.stdout.write(f"{GOLDEN}\n")


if __name__ == "__main__":
    main()
