"""A broker is killed in the middle of its work: what it had acknowledged is still there.

This example runs a broker of its own, writes to it as fast as one producer can, ends it with
SIGKILL (it gets no chance to clean up), starts it again and counts.

A killed process leaves the operating system alive, and with it the page cache. What a power cut
would leave is tested elsewhere, on a disk that forgets what was not synced: docs/internals/testing.

    pip install . confluent-kafka
    python examples/04_durability.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TOPIC = "ledger"
KILL_AFTER = 2_000
MORE = 20_000
ON_THEIR_WAY_MAX = 10_000


def start(data: str, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """Run a broker; return it and its port when it is ready."""
    headwater = str(Path(sys.executable).with_name("headwater"))
    command = [headwater, "up", "--data", data, "--listen", f"127.0.0.1:{port}"]
    broker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert broker.stderr is not None
    ready = broker.stderr.readline()
    assert ready.startswith("ready on "), ready
    print(ready, end="")
    return broker, int(ready.split()[2].rstrip(":").rpartition(":")[2])


def write_until_killed(broker: subprocess.Popen[str], port: int) -> dict[int, bytes]:
    """Write, kill the broker under way; return what was acknowledged, by offset."""
    acknowledged: dict[int, bytes] = {}

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            acknowledged[offset] = bytes(value)

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": 1_000,
            "log_level": 0,  # it will find the broker gone, as planned
        }
    )
    sent = 0
    while len(acknowledged) < KILL_AFTER:
        producer.produce(TOPIC, f"entry {sent}", partition=0, on_delivery=told)
        producer.poll(0)
        while len(producer) > ON_THEIR_WAY_MAX:  # the broker is slower than this loop
            producer.poll(0.1)
        sent += 1
    for number in range(MORE):
        producer.produce(TOPIC, f"entry {sent + number}", partition=0, on_delivery=told)
    broker.kill()  # with most of these on their way
    broker.wait()
    producer.flush(5)
    print(f"killed with {sent + MORE} records sent and {len(acknowledged)} acknowledged")
    return acknowledged


def read(port: int) -> dict[int, bytes]:
    """Return everything that is there, by offset."""
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "auditor"})
    _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[int, bytes] = {}
    while len(found) < end:
        for message in consumer.consume(1_000, 1.0):
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            found[offset] = bytes(value)
    consumer.close()
    return found


with tempfile.TemporaryDirectory(prefix="headwater-example-") as folder:
    process, at = start(folder)
    promised = write_until_killed(process, at)
    began_s = time.monotonic()
    process, at = start(folder, at)
    print(f"back after {time.monotonic() - began_s:.1f} s")
    try:
        kept = read(at)
    finally:
        process.terminate()
        process.wait()

lost = [offset for offset, value in promised.items() if kept.get(offset) != value]
print(f"{len(kept)} records are there; of the {len(promised)} acknowledged, {len(lost)} are lost")
assert not lost
assert sorted(kept) == list(range(len(kept))), "no gap, no double"
