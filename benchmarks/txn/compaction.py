"""How fast a broker cleans a log.

This file alone decides what is cleaned: a partition of known size, filled while its policy is
`delete`, and cleaned when it becomes `compact`. The clock runs from that change until the broker
has written down that everything below the active segment is clean, and what is left is compared.
Before it starts, all that was written is on the disk: ours cleans nothing that is not.
"""

import os
import random
import struct
import time
from pathlib import Path

from benchmarks.broker import load
from benchmarks.broker.brokers import Contender, end_offsets
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster

MEGABYTES = 512
_KEYS = 100_000
_VALUE_BYTES = 1_000
_RECORDS_PER_BATCH = 250
_SEGMENT_BYTES = 32 << 20
_WITHIN_S = 180.0
# The broker hears of its own syncs a moment after the kernel is done with them.
_SETTLE_S = 1.0
_CHECKPOINT = "cleaner-offset-checkpoint"


def clean(contender: Contender, codec: Codec, round_no: int) -> float:
    """Fill a partition, have it cleaned, and return the megabytes that were read a second."""
    topic = f"clean-{codec.name.lower()}-{round_no}"
    with Cluster(f"127.0.0.1:{contender.port}") as cluster:
        configs = {
            "cleanup.policy": "delete",
            "segment.bytes": str(_SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.01",
            "flush.messages": str(2**63 - 1),
        }
        admin.create_topic(cluster, topic, partitions=1, replication_factor=1, configs=configs)
        newest = _fill(contender, topic, codec)
        folder = contender.log_directory / f"{topic}-0"
        active = max(int(path.stem) for path in folder.glob("*.log"))
        assert active > 0, f"{topic} has one segment only: there is nothing to clean"
        os.sync()
        time.sleep(_SETTLE_S)
        before = sum(path.stat().st_size for path in folder.glob("*.log"))
        start = time.perf_counter()
        admin.alter_configs(cluster, admin.TOPIC_RESOURCE, topic, {"cleanup.policy": "compact"})
        _wait_until_clean(contender.log_directory / _CHECKPOINT, topic, active)
        took_s = time.perf_counter() - start
    _compare(contender, topic, newest)
    return before / 1e6 / took_s


def _fill(contender: Contender, topic: str, codec: Codec) -> dict[bytes, bytes]:
    """Write every key several times; return the newest value of each, by its first bytes."""
    newest = {}
    count = (MEGABYTES << 20) // (_VALUE_BYTES + 30)
    # Half of a value can be compressed: a log that shrinks to one segment would not be cleaned.
    chance = random.Random(1)
    half = (_VALUE_BYTES - 8) // 2
    now_ms = int(time.time() * 1000)
    with load.connect(("127.0.0.1", contender.port)) as sock:
        for first in range(0, count, _RECORDS_PER_BATCH):
            records = []
            for number in range(first, first + _RECORDS_PER_BATCH):
                key = struct.pack(">q", number * 7_919 % _KEYS)
                newest[key] = struct.pack(">q", number)
                value = newest[key] + chance.randbytes(half) + bytes(_VALUE_BYTES - 8 - half)
                records.append(Record(0, now_ms, key, value))
            sock.sendall(load.produce_frame(topic, 0, build_batch(records, codec=codec)))
            load.receive_frame(sock)
    return newest


def _wait_until_clean(checkpoint: Path, topic: str, active: int) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline:
        if checkpoint.is_file():
            for line in checkpoint.read_text().splitlines()[2:]:
                name, _, offset = line.split(" ")
                if name == topic and int(offset) >= active:
                    return
        time.sleep(0.01)
    raise TimeoutError(f"{topic} was not cleaned within {_WITHIN_S:.0f} s")


def _compare(contender: Contender, topic: str, newest: dict[bytes, bytes]) -> None:
    """Read what is left: the newest value of every key, and at most the active segment twice."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    (end,) = end_offsets(contender.port, topic, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{contender.port}",
            "group.id": "compare",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, seen, offset = {}, 0, -1
    while offset < end - 1:
        messages = consumer.consume(10_000, 1)
        assert messages, f"{contender.name} stopped before the end"
        for message in messages:
            found[message.key()] = (message.value() or b"")[:8]
            seen, offset = seen + 1, message.offset() or 0
    consumer.close()
    assert found == newest, f"{contender.name} lost or changed a record"
    spare = 2 * _SEGMENT_BYTES // _VALUE_BYTES
    assert seen <= len(newest) + spare, f"{contender.name} kept {seen} of {len(newest)} keys"
