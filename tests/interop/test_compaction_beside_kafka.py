"""The same records, compacted by Apache Kafka and by us: the same remains.

Both brokers get the same batches and transactions. Compaction is let loose by the dirty ratio, so
that both make one pass a round, and rounds are compared one by one: records at their offsets,
markers, delete horizons, producers and sequence numbers.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.base.errors import ErrorCode
from headwater.base.record.batch import DELETE_HORIZON_MASK, BatchHeader, scan
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch, iterate
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.log.checkpoints import read_offsets
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    code,
    create_topic,
    fetch,
    list_offset,
    new_producer_id,
    produce,
    produce_request,
)
from tests.contracts.producers import OK, Client, until_settled
from tests.peers.kafka_server import running_kafka

pytestmark = pytest.mark.peer

NEVER, AT_ONCE = "1.0", "0.01"
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": NEVER,
}
SETTINGS = {"log.cleaner.backoff.ms": "100"}
FILLER = bytes(600_000)
WAIT_S = 60.0
TOPIC_RESOURCE = 2

Pairs = list[tuple[bytes, bytes | None]]


@dataclass
class Node:
    """A broker with a topic that is compacted when it is told to."""

    address: str
    data: Path
    talk: Talk
    topic: Topic
    client: Client
    started_ms: int
    producer_id: int = -1
    sequence: int = 0
    end_offset: int = 0

    def append(self, pairs: Pairs, codec: int = 0, *, idempotent: bool = False) -> None:
        if idempotent and self.producer_id < 0:
            self.producer_id = new_producer_id(self.talk)
        batch = build_batch(
            self.records(pairs),
            codec=codec,
            producer_id=self.producer_id if idempotent else -1,
            producer_epoch=0 if idempotent else -1,
            base_sequence=self.sequence if idempotent else -1,
        )
        self.sequence += len(pairs) * idempotent
        answer = produce(self.talk, self.topic, batch)
        assert answer.error_code == 0
        self.end_offset = answer.base_offset + len(pairs)

    def transact(self, pairs: Pairs, *, commit: bool) -> None:
        client = self.client
        batch = build_batch(
            self.records(pairs),
            producer_id=client.me.producer_id,
            producer_epoch=client.me.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = produce_request(self.topic, {0: batch})
        request.transactional_id = client.transactional_id

        def ask() -> tuple[ErrorCode, None]:
            (answer,) = self.talk.ask(request, 12).responses
            return code(answer.partition_responses[0]), None

        assert until_settled(ask)[0] is OK
        assert self.client.end(commit=commit)[0] is OK
        # Apache Kafka answers before the marker is written.
        wait_for(lambda: self.latest(isolation_level=1) == self.latest())
        self.end_offset = self.latest()

    def latest(self, isolation_level: int = 0) -> int:
        name = self.topic.name
        return list_offset(self.talk, name, -1, isolation_level=isolation_level).offset

    def records(self, pairs: Pairs) -> list[Record]:
        return [
            Record(0, self.started_ms + number, key, value)
            for number, (key, value) in enumerate(pairs)
        ]

    def roll(self) -> None:
        """Let a new segment begin: two of these do not fit into one."""
        self.append([(b"filler", FILLER)])
        self.append([(b"filler", FILLER)])

    def clean(self) -> None:
        """Let one pass happen, up to the segment that the last filler began."""
        self.set_ratio(AT_ONCE)
        path = str(self.data / "cleaner-offset-checkpoint")
        wanted = self.end_offset - 1
        wait_for(lambda: read_offsets(RealDisk(), path).get((self.topic.name, 0), 0) >= wanted)
        self.set_ratio(NEVER)

    def set_ratio(self, ratio: str) -> None:
        with Cluster(self.address) as cluster:
            changes = {"min.cleanable.dirty.ratio": ratio}
            admin.alter_configs(cluster, TOPIC_RESOURCE, self.topic.name, changes)

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        offset = 0
        while offset < self.end_offset:
            data = bytes(fetch(self.talk, self.topic, offset, max_bytes=4 << 20).records or b"")
            assert data
            for position, header in scan(data):
                yield header, iterate(data, position)
                offset = header.next_offset

    def remains(self) -> list[tuple[object, ...]]:
        """Describe everything but what must differ: ids, and the time of day of markers."""
        found: list[tuple[object, ...]] = []
        for header, records in self.batches():
            if not records:
                # Which empty batches mark the end of a segment is each broker's own affair.
                continue
            horizon_ms = header.delete_horizon_ms
            found.append(
                (
                    header.base_offset,
                    header.last_offset,
                    header.attributes & ~DELETE_HORIZON_MASK,
                    horizon_ms is not None,
                    self.producer_name(header.producer_id),
                    header.producer_epoch,
                    header.base_sequence,
                    [
                        (
                            record.offset,
                            0 if header.is_control else record.timestamp - self.started_ms,
                            record.key,
                            record.value,
                        )
                        for record in records
                    ],
                    0 if header.is_control else header.max_timestamp - self.started_ms,
                )
            )
        return found

    def last_sequences(self) -> dict[str, int]:
        """Return the last sequence number of each producer that the log still knows."""
        return {
            self.producer_name(header.producer_id): header.last_sequence
            for header, _ in self.batches()
            if header.producer_id >= 0 and not header.is_control
        }

    def producer_name(self, producer_id: int) -> str:
        if producer_id < 0:
            return ""
        return "idempotent" if producer_id == self.producer_id else "transactional"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it is not compacted"
        time.sleep(0.02)


@contextmanager
def node(address: str, data: Path, started_ms: int, delete_retention_ms: int) -> Iterator[Node]:
    with Subject("either", address).connect() as talk:
        configs = {**CONFIGS, "delete.retention.ms": str(delete_retention_ms)}
        topic = create_topic(talk, configs=configs)
        client = Client(talk)
        assert client.find() is OK
        assert client.init()[0] is OK
        yield Node(address, data, talk, topic, client, started_ms)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, Path]]]:
    """Give address and log directory of both."""
    peers.require("kafka")
    data = tmp_path_factory.mktemp("ours")
    with (
        running_kafka(SETTINGS) as kafka,
        EmbeddedBroker(data_directory=str(data), settings=SETTINGS) as ours,
    ):
        yield [(ours.bootstrap_servers, data / "log"), (kafka.bootstrap, kafka.log_dir)]


def first_round(node: Node) -> None:
    """Write a bit of everything, over several segments."""
    for number in range(12):
        codec = Codec(number % 5)
        node.append([(b"k%d" % (number * part % 7), b"%d" % number) for part in (1, 2, 3)], codec)
        if number % 3 == 0:
            gone = b"gone%d" % (number % 2)
            node.append([(b"k%d" % (number % 7), None), (gone, None), (b"kept", b"1")], codec)
        if number % 4 == 1:
            node.append([(b"i", b"%d" % number), (b"k1", b"i")], idempotent=True)
        if number % 4 == 2:
            node.transact([(b"t", b"%d" % number), (b"k2", b"t")], commit=number % 8 == 2)
        if number % 5 == 4:
            node.roll()
    node.append([(b"i", b"last")])
    node.roll()


@pytest.mark.parametrize("delete_retention_ms", [0, 3_600_000], ids=["at once", "later"])
def test_the_same_remains(brokers: list[tuple[str, Path]], delete_retention_ms: int) -> None:
    started_ms = time.time_ns() // 1_000_000
    with (
        node(*brokers[0], started_ms, delete_retention_ms) as ours,
        node(*brokers[1], started_ms, delete_retention_ms) as kafkas,
    ):
        both = (ours, kafkas)
        for each in both:
            first_round(each)
        written = ours.remains()
        assert written == kafkas.remains()
        seen = []
        for number in range(4):
            for each in both:
                each.clean()
            remains = ours.remains()
            assert remains == kafkas.remains(), f"pass {number + 1}"
            assert ours.last_sequences() == kafkas.last_sequences()
            seen.append(len(remains))
            for each in both:
                each.append([(b"k%d" % number, b"more")], Codec.ZSTD)
                each.transact([(b"t", b"more")], commit=number == 1)
                each.roll()
        assert seen[0] < len(written) / 2
        keys = {record.key for _, records in ours.batches() for record in records}
        assert (b"gone0" in keys) is (delete_retention_ms > 0)
