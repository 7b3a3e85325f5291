"""What each answer to a fast producer costs: `make bench-overflow`.

This file alone decides what is measured of `headwater.overflow`. First the price of having a
policy at all, while nobody is slowed: acknowledged MB/s of each policy against buffer. Then each
policy under a producer that is much faster than its one consumer: what the producer feels, what
the disk holds, what the consumer misses. Clients run in processes of their own, so that they and
the broker do not share an interpreter.
"""

import json
import statistics
import subprocess
import sys
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headwater.delivery.broker.overflow import Counters
from headwater.testing.broker import EmbeddedBroker

ROUNDS = 5
RECORDS = 30_000
VALUE_BYTES = 1_000
MEGABYTE = 1_000_000
WIDE_BYTES = 1 << 30
NARROW_BYTES = 8 << 20
SLOW_BYTES_PER_S = 4_000_000
PRESSURE_S = 8.0
POLICIES = ("buffer", "drop", "backpressure")


def produce(bootstrap: str, topic: str, seconds: str) -> None:
    """Run in a process of its own: send as fast as the broker lets us, print what happened.

    Args:
        bootstrap: The broker.
        topic: Where to.
        seconds: For how long; 0 sends a fixed number of records instead.
    """
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            # What waits inside the client is not yet slowed by the broker: keep it small.
            "queue.buffering.max.kbytes": 4_096,
        }
    )
    latencies_ms: list[float] = []

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            latencies_ms.append((message.latency() or 0.0) * 1_000)

    started_s = time.perf_counter()
    end_s = started_s + float(seconds)
    sent = 0
    while time.perf_counter() < end_s or sent < (0 if float(seconds) else RECORDS):
        try:
            producer.produce(topic, b"v" * VALUE_BYTES, callback=delivered)
            sent += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.01)
    producer.flush(120)
    took_s = time.perf_counter() - started_s
    latencies_ms.sort()
    report = {
        "mb_per_s": len(latencies_ms) * VALUE_BYTES / MEGABYTE / took_s,
        "lost": sent - len(latencies_ms),
        "p99_ms": latencies_ms[int(len(latencies_ms) * 0.99) - 1],
    }
    print(json.dumps(report), flush=True)


def consume(bootstrap: str, topic: str, seconds: str) -> None:
    """Run in a process of its own: read slowly and commit, until the producer must be done."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"slow-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.subscribe([topic])
    received = 0
    started_s = time.perf_counter()
    while time.perf_counter() < started_s + float(seconds):
        messages = consumer.consume(100, 0.1)
        if messages:
            received += len(messages)
            consumer.commit(asynchronous=True)
            due_s = started_s + received * VALUE_BYTES / SLOW_BYTES_PER_S
            time.sleep(max(0.0, due_s - time.perf_counter()))
    print(json.dumps({"received": received}), flush=True)
    consumer.close()


def client(role: str, bootstrap: str, topic: str, seconds: float) -> subprocess.Popen[str]:
    """Start one of the two above."""
    arguments = [role, bootstrap, topic, str(seconds)]
    command = [sys.executable, "-m", "benchmarks.overflow", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def create(broker: EmbeddedBroker, topic: str, policy: str, bound_bytes: int) -> None:
    """Make a topic with one policy; segments well below the bound, removed at once."""
    configs = {
        "headwater.overflow": policy,
        "headwater.overflow.bytes": str(bound_bytes),
        "segment.bytes": str(1 << 20),
        "file.delete.delay.ms": "0",
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(30)


def measure_price(broker: EmbeddedBroker) -> dict[str, float]:
    """Return acknowledged MB/s by policy while nobody is slowed; the median of all rounds."""
    rates: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for round_number in range(ROUNDS):
        for policy in POLICIES:
            topic = f"price-{policy}-{round_number}"
            create(broker, topic, policy, NARROW_BYTES if policy == "drop" else WIDE_BYTES)
            process = client("produce", broker.bootstrap_servers, topic, 0)
            report = json.loads(process.communicate()[0])
            assert not report["lost"]
            rates[policy].append(report["mb_per_s"])
    return {policy: statistics.median(found) for policy, found in rates.items()}


def measure_pressure(broker: EmbeddedBroker, policy: str) -> dict[str, float]:
    """Let a fast producer meet a slow consumer."""
    topic = f"pressure-{policy}"
    create(broker, topic, policy, NARROW_BYTES)
    partition = broker.node.broker.topics.partition(topic, 0)
    assert partition is not None
    log = partition.log
    reader = client("consume", broker.bootstrap_servers, topic, PRESSURE_S + 10)
    writer = client("produce", broker.bootstrap_servers, topic, PRESSURE_S)
    peak_bytes = 0
    while writer.poll() is None:
        peak_bytes = max(peak_bytes, log.size_bytes())
        time.sleep(0.05)
    assert writer.stdout is not None
    report = json.loads(writer.stdout.read())
    groups = broker.node.broker.groups.offsets.committed_offsets(topic, 0)
    committed = min((offset for _, offset in groups), default=0)
    behind_bytes = log.bytes_from(max(committed, log.log_start_offset))
    reader.terminate()
    reader.communicate()
    assert not report["lost"]
    counters = broker.node.broker.overflow.counters.get((topic, 0), Counters())
    return {
        "mb_per_s": report["mb_per_s"],
        "p99_ms": report["p99_ms"],
        "disk_mb": peak_bytes / MEGABYTE,
        "behind_mb": behind_bytes / MEGABYTE,
        "dropped": 100 * counters.dropped_records / log.log_end_offset,
        "refused": counters.refused,
    }


def main() -> None:
    """Measure, print the tables and the rows."""
    with EmbeddedBroker() as broker:
        price = measure_price(broker)
        pressure = {policy: measure_pressure(broker, policy) for policy in POLICIES}
    print(f"{RECORDS} records of {VALUE_BYTES} bytes, durable, one partition, one producer")
    print("\nnobody is slowed        acknowledged MB/s")
    for policy, rate in price.items():
        print(f"{policy:24}{rate:17.1f}")
    slow = SLOW_BYTES_PER_S / MEGABYTE
    print(f"\nbound {NARROW_BYTES >> 20} MiB, consumer {slow:.0f} MB/s")
    heads = ("MB/s", "p99 ack ms", "disk MB", "behind MB", "removed %", "refused")
    print(f"{'':14}" + "".join(f"{head:>12}" for head in heads))
    for policy, found in pressure.items():
        print(f"{policy:14}" + "".join(f"{value:12.1f}" for value in found.values()))
    rows: list[dict[str, object]] = [
        {
            "name": f"overflow {policy} beside buffer, nobody slowed",
            "ours": round(price[policy], 1),
            "theirs": round(price["buffer"], 1),
            "unit": "MB/s",
            "ratio": round(price[policy] / price["buffer"], 2),
            "bar": 0.8,
        }
        for policy in ("drop", "backpressure")
    ]
    # Segments are freed once a second, on a loop that is busy with this very producer, so a
    # dropping log holds its bound and what came since the last look.
    since_mb = 3 * pressure["drop"]["mb_per_s"]
    limits = {
        "drop: disk": (pressure["drop"]["disk_mb"], NARROW_BYTES / MEGABYTE + since_mb),
        "backpressure: backlog": (pressure["backpressure"]["behind_mb"], NARROW_BYTES / MEGABYTE),
    }
    rows += [
        {
            "name": f"overflow {name} under a fast producer",
            "ours": round(held, 1),
            "theirs": round(limit, 1),
            "unit": "MB",
            "ratio": round(limit / held, 2),
            "bar": 1.0,
        }
        for name, (held, limit) in limits.items()
    ]
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    if len(sys.argv) == 5:
        {"produce": produce, "consume": consume}[sys.argv[1]](*sys.argv[2:])
    else:
        main()
