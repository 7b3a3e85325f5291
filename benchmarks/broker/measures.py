"""What is measured on one broker, each in a few seconds.

This file alone decides what a figure means. Every function takes a running broker and gives
figures by name; it does not know which broker it has.
"""

import socket
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.broker import load
from benchmarks.broker.brokers import (
    Contender,
    cpu_seconds,
    create_topic,
    delete_topic,
    end_offsets,
)
from headwater.base.record.batch import ATTRIBUTES_POS, scan
from headwater.delivery.wire.kafka import framing

LOADS = [(1, 1), (16, 1), (16, 5)]
PARTITION_COUNTS = [1, 10, 100, 1_000]
# Batches of about 256 KiB: what a producer with a large batch.size sends when it is busy.
_BATCH_BYTES = 256 * 1024
_THROUGHPUT_PARTITIONS = 4
_SMALL_RECORD_BYTES = 100
_READINGS = 9
_MODES = {"durable": True, "page cache": False}

Figures = dict[str, float]
Step = Callable[[Contender], Figures]


def address(contender: Contender) -> tuple[str, int]:
    """Where the broker listens."""
    return "127.0.0.1", contender.port


def prepare(contender: Contender) -> None:
    """Create the topics that live through all rounds."""
    for mode, durable in _MODES.items():
        create_topic(contender.port, _requests_topic(mode), 4, durable=durable)
    batch = load.batch_of(1, _SMALL_RECORD_BYTES)
    for count in PARTITION_COUNTS:
        topic = f"partitions-{count}"
        create_topic(contender.port, topic, count, durable=True)
        # Every partition has its files before the clock starts.
        for partition in range(count):
            load.check_produce(address(contender), load.produce_frame(topic, partition, batch))


def _requests_topic(mode: str) -> str:
    return f"requests-{mode.replace(' ', '-')}"


def steps(seconds: float, round_no: int) -> list[Step]:
    """List what one round measures, in steps of a second or two.

    Two brokers take each step in turn, because a machine changes more in a minute than in a second.
    """
    listed: list[Step] = [
        partial(one_record_requests, mode=mode, load_of=load_of, seconds=seconds)
        for mode in _MODES
        for load_of in LOADS
    ]
    listed += [partial(over_partitions, count=count, seconds=seconds) for count in PARTITION_COUNTS]
    for value_bytes in (100, 1_000):
        listed += [
            partial(
                throughput, value_bytes=value_bytes, mode=mode, seconds=seconds, round_no=round_no
            )
            for mode in _MODES
        ]
        listed.append(partial(through_confluent_kafka, value_bytes=value_bytes, round_no=round_no))
    return listed


def one_record_requests(
    contender: Contender, *, mode: str, load_of: tuple[int, int], seconds: float
) -> Figures:
    """Requests of one record each: how many connections, and how many in flight on each."""
    connections, in_flight = load_of
    batch = load.batch_of(1, _SMALL_RECORD_BYTES)
    frames = [
        [load.produce_frame(_requests_topic(mode), index % 4, batch)]
        for index in range(connections)
    ]
    result = load.run_produce(address(contender), frames, in_flight=in_flight, seconds=seconds)
    name = f"1-record requests, {mode}, {connections}x{in_flight}"
    return {
        f"{name}: requests/s": result.requests_per_s,
        f"{name}: p50 ms": result.p50_ms,
        f"{name}: p99 ms": result.p99_ms,
        "generator busy, requests": result.generator_busy,
    }


def over_partitions(contender: Contender, *, count: int, seconds: float) -> Figures:
    """The same requests, 16x5, spread over some number of partitions."""
    batch = load.batch_of(1, _SMALL_RECORD_BYTES)
    frames: list[list[bytes]] = [[] for _ in range(16)]
    for partition in range(max(count, 16)):
        frame = load.produce_frame(f"partitions-{count}", partition % count, batch)
        frames[partition % 16].append(frame)
    result = load.run_produce(address(contender), frames, in_flight=5, seconds=seconds)
    name = f"1-record requests, durable, 16x5, {count} partitions: requests/s"
    return {name: result.requests_per_s}


def throughput(
    contender: Contender, *, value_bytes: int, mode: str, seconds: float, round_no: int
) -> Figures:
    """Large batches in, then all of it out; CPU of the broker per GB moved."""
    records = _BATCH_BYTES // (value_bytes + 10)
    batches = [load.batch_of(records, value_bytes, seed) for seed in range(2)]
    topic = f"throughput-{value_bytes}-{mode.replace(' ', '-')}-{round_no}"
    create_topic(contender.port, topic, _THROUGHPUT_PARTITIONS, durable=_MODES[mode])
    frames = [
        [load.produce_frame(topic, partition, batch) for batch in batches]
        for partition in range(_THROUGHPUT_PARTITIONS)
    ]
    what = f"{value_bytes} B records, {mode}"
    cpu = cpu_seconds(contender.pid)
    result = load.run_produce(address(contender), frames, in_flight=2, seconds=seconds)
    produce_cpu = cpu_seconds(contender.pid) - cpu
    ends = end_offsets(contender.port, topic, _THROUGHPUT_PARTITIONS)
    moved_gb = sum(ends) / records * len(batches[0]) / 1e9
    cpu = cpu_seconds(contender.pid)
    # One reading takes a tenth of a second, and two in a row differ by half.
    readings = [load.run_fetch(address(contender), topic, ends) for _ in range(_READINGS)]
    fetch_cpu = cpu_seconds(contender.pid) - cpu
    _compare_contents(contender, topic, batches)
    delete_topic(contender.port, topic)
    return {
        f"produce {what}: MB/s": result.bytes_per_s / 1e6,
        f"fetch {what}: MB/s": statistics.median(rate for rate, _ in readings) / 1e6,
        f"produce {what}: CPU s/GB": produce_cpu / moved_gb,
        f"fetch {what}: CPU s/GB": max(fetch_cpu, 0.01) / moved_gb / _READINGS,
        "generator busy, produce": result.generator_busy,
        "generator busy, fetch": max(busy for _, busy in readings),
    }


def _compare_contents(contender: Contender, topic: str, sent: Sequence[bytearray]) -> None:
    """Read the first megabytes back and hold every batch against what was sent."""
    bodies = {bytes(batch[ATTRIBUTES_POS:]) for batch in sent}
    with load.connect(address(contender)) as sock:
        sock.sendall(load.fetch_frame(topic, 0, 0, 4 << 20, 500))
        _, response = framing.decode_response(1, 12, load.receive_frame(sock))
    records = response.responses[0].partitions[0].records
    compared = 0
    for at, header in scan(records[: len(records) // len(sent[0]) * len(sent[0])]):
        body = bytes(records[at + ATTRIBUTES_POS : at + header.size_bytes])
        assert body in bodies, f"{contender.name} returned something else than was sent"
        compared += 1
    assert compared > 0, f"{contender.name} returned nothing"


def beside_stalled_reader(contender: Contender, seconds: float, round_no: int) -> Figures:
    """One-record produce and a large fetch, with and without a reader that has stopped reading."""
    topic = f"stalled-{round_no}"
    create_topic(contender.port, topic, 2, durable=True)
    large = load.batch_of(_BATCH_BYTES // 1_010, 1_000)
    load.run_produce(
        address(contender), [[load.produce_frame(topic, 0, large)]], in_flight=4, seconds=seconds
    )
    end = end_offsets(contender.port, topic, 1)
    small = [[load.produce_frame(topic, 1, load.batch_of(1, _SMALL_RECORD_BYTES))]] * 16
    figures: Figures = {}
    # Who goes first changes: the second finds warmer caches.
    both = [("without", False), ("with", True)]
    for name, stalled in both if round_no % 2 else reversed(both):
        readers = [_stop_reading(contender, topic) for _ in range(4)] if stalled else []
        result = load.run_produce(address(contender), small, in_flight=5, seconds=seconds)
        rates = [load.run_fetch(address(contender), topic, end)[0] for _ in range(3)]
        figures[f"stalled readers, {name}: requests/s"] = result.requests_per_s
        figures[f"stalled readers, {name}: fetch MB/s"] = statistics.median(rates) / 1e6
        for reader in readers:
            reader.close()
    delete_topic(contender.port, topic)
    return figures


def _stop_reading(contender: Contender, topic: str) -> socket.socket:
    sock = load.connect(address(contender))
    frame = load.fetch_frame(topic, 0, 0, 50 << 20, 0)
    for _ in range(10):
        sock.sendall(frame)
    time.sleep(0.05)
    return sock


def through_confluent_kafka(contender: Contender, *, value_bytes: int, round_no: int) -> Figures:
    """The same with an ordinary client, whose own cost is part of the figure."""
    from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: PLC0415

    topic = f"client-{value_bytes}-{round_no}"
    create_topic(contender.port, topic, 4, durable=True)
    count = 200_000_000 // (value_bytes + 400)
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{contender.port}",
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = bytes(value_bytes)
    producer.list_topics(topic, 10)
    start = time.perf_counter()
    for index in range(count):
        producer.produce(topic, value, partition=index & 3)
        if not index & 4095:
            producer.poll(0)
    left = producer.flush(60)
    produced_s = time.perf_counter() - start
    assert not left, f"{left} records were not delivered"
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{contender.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 10_000_000,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
    seen = 0
    start = time.perf_counter()
    while seen < count:
        found = consumer.consume(10_000, 5)
        assert found, "the consumer got nothing for 5 s"
        seen += len(found)
    consumed_s = time.perf_counter() - start
    consumer.close()
    delete_topic(contender.port, topic)
    total = count * value_bytes / 1e6
    return {
        f"produce {value_bytes} B through confluent-kafka: MB/s": total / produced_s,
        f"fetch {value_bytes} B through confluent-kafka: MB/s": total / consumed_s,
    }


def idle_consumer_cpu(contender: Contender, seconds: float) -> float:
    """Percent of a core that 1,000 partitions and one idle consumer cost the broker."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{contender.port}", "group.id": "idle-bench"}
    )
    ends = end_offsets(contender.port, "partitions-1000", 1_000)
    consumer.assign(
        [TopicPartition("partitions-1000", number, end) for number, end in enumerate(ends)]
    )
    consumer.poll(3)
    before = cpu_seconds(contender.pid)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        assert consumer.poll(1) is None
    used = cpu_seconds(contender.pid) - before
    consumer.close()
    return 100 * used / (time.perf_counter() - start)
