"""Batches and the leaders that fail them: every batch in order, exactly once."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import check_crc, parse_header
from headwater.base.record.records import Record, build_batch
from headwater.base.schema import Message
from headwater.delivery.client import batch_sender
from headwater.delivery.client.batch_sender import BatchSender, Writer
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.wire.kafka import messages
from tests.delivery.client.scripted_broker import ScriptedBroker

METADATA = 3
TOPIC = "t"
WRITER = Writer("writer", 77, 5)
MIB = 1 << 20
# What may happen to a produce request.
FINE, REFUSED, ONE_REFUSED, LOST, ANSWER_LOST = "fine", "refused", "one refused", "lost", "late"
FORGOTTEN = "the answer does not speak of it"


class Leader:
    """A broker that keeps the rules of idempotence, as far as Kafka's do."""

    def __init__(self, node_id: int, world: "World") -> None:
        self.node_id = node_id
        self.broker = ScriptedBroker(self)
        self.faults: list[str] = []
        self.requests: list[list[Place]] = []
        self._world = world
        self._lock = threading.Lock()

    def __call__(self, key: int, version: int, request: messages.ProduceRequest) -> Message | None:
        if key == METADATA:
            return self._world.metadata()
        with self._lock:
            return self._produce(version, request)

    def _produce(self, version: int, request: messages.ProduceRequest) -> Message | None:
        assert (version, request.transactional_id, request.acks) == (11, WRITER[0], -1)
        fault = self.faults.pop(0) if self.faults else FINE
        if fault == LOST:
            return None
        self.requests.append([])
        answer = messages.ProduceResponse
        topics = []
        for topic in request.topic_data:
            answers = []
            for data in topic.partition_data:
                place = (topic.name, data.index)
                self.requests[-1].append(place)
                is_first = len(self.requests[-1]) == 1
                if fault == REFUSED or (fault == ONE_REFUSED and is_first):
                    code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                else:
                    code, offset = self._world.append(place, bytes(data.records))
                answers.append(answer.PartitionProduceResponse(data.index, code, offset))
            if fault == FORGOTTEN:
                answers.pop()
            topics.append(answer.TopicProduceResponse(topic.name, partition_responses=answers))
        return None if fault == ANSWER_LOST else answer(responses=topics)


class World:
    """Leaders, and the logs of partitions: first sequence, record count and value of batches."""

    def __init__(self, leaders: int, partitions: int) -> None:
        self.leaders = [Leader(node_id, self) for node_id in range(leaders)]
        self.logs: dict[Place, list[tuple[int, int, bytes]]] = {
            (TOPIC, number): [] for number in range(partitions)
        }

    def metadata(self) -> Message:
        answer = messages.MetadataResponse
        return answer(
            brokers=[
                answer.MetadataResponseBroker(each.node_id, "127.0.0.1", each.broker.port)
                for each in self.leaders
            ],
            topics=[
                answer.MetadataResponseTopic(
                    name=TOPIC,
                    topic_id=bytes(16),
                    partitions=[
                        answer.MetadataResponsePartition(
                            partition_index=number, leader_id=number % len(self.leaders)
                        )
                        for _, number in self.logs
                    ],
                )
            ],
        )

    def append(self, place: Place, batch: bytes) -> tuple[ErrorCode, int]:
        header = parse_header(batch)
        assert check_crc(batch, 0, len(batch))
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch) == WRITER[1:]
        log = self.logs[place]
        offset = 0
        for index, (sequence, count, _) in enumerate(log):
            if sequence == header.base_sequence:
                assert index >= len(log) - 5, "Kafka would not know it again"
                return ErrorCode.NONE, offset
            offset += count
        if log and header.base_sequence != log[-1][0] + log[-1][1]:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        log.append((header.base_sequence, header.record_count, batch[61:]))
        return ErrorCode.NONE, offset

    @contextmanager
    def sender(self, *, timeout_s: float = 20.0) -> Iterator[BatchSender]:
        with ExitStack() as stack:
            for leader in self.leaders:
                stack.enter_context(leader.broker)
            address = self.leaders[0].broker.address
            cluster = stack.enter_context(Cluster(address, timeout_s=timeout_s))
            yield BatchSender(cluster, WRITER)


def batch(number: int, records: int = 1, size_bytes: int = 10) -> bytes:
    value = f"{number}".encode().ljust(size_bytes)
    return bytes(build_batch([Record(0, 0, None, value, ())] * records))


def contents(batches: list[bytes]) -> list[bytes]:
    return [each[61:] for each in batches]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "_RETRY_PAUSE_S", 0)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_fails(seed: int) -> None:
    chance = random.Random(seed)
    world = World(leaders=chance.choice([1, 2]), partitions=3)
    sent: dict[Place, list[bytes]] = {place: [] for place in world.logs}
    with world.sender() as sender:
        for _ in range(2):
            for leader in world.leaders:
                faults = [FINE, FINE, FINE, REFUSED, ONE_REFUSED, LOST, ANSWER_LOST, FORGOTTEN]
                leader.faults = chance.choices(faults, k=chance.randrange(12))
            given = {
                place: [
                    batch(chance.randrange(1 << 30), records=chance.randrange(1, 4))
                    for _ in range(chance.randrange(15))
                ]
                for place in world.logs
            }
            sender.send(given)
            for place, batches in given.items():
                sent[place] += batches
        for place, batches in sent.items():
            log = world.logs[place]
            assert [content for _, _, content in log] == contents(batches)
            end = sum(count for _, count, _ in log)
            assert sender.end_offsets.get(place, 0) == end


def test_the_first_batch_of_a_partition_travels_alone() -> None:
    """Else a broker that refuses it would take the second for the first, as Kafka does."""
    world = World(leaders=1, partitions=1)
    world.leaders[0].faults = [REFUSED]
    batches = [batch(number) for number in range(8)]
    with world.sender() as sender:
        sender.send({(TOPIC, 0): batches})
    assert [content for _, _, content in world.logs[TOPIC, 0]] == contents(batches)
    assert len(world.leaders[0].requests) == 9, "one more than there are batches"


def test_requests_are_filled_and_not_overfilled() -> None:
    world = World(leaders=1, partitions=10)
    given = {place: [batch(n, size_bytes=300_000) for n in range(3)] for place in world.logs}
    with world.sender() as sender:
        sender.send(given)
    sizes = [len(places) for places in world.leaders[0].requests]
    # Ten would do, if the first batches did not have to arrive before others.
    assert max(sizes) == 3
    assert len(sizes) <= 13
    assert all(len(log) == 3 for log in world.logs.values())


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    world = World(leaders=1, partitions=3)
    with world.sender() as sender:
        sender.send({place: [batch(0, size_bytes=2 * MIB)] for place in world.logs})
    assert [len(places) for places in world.leaders[0].requests] == [1, 1, 1]


def test_patience_ends_but_not_while_batches_get_through() -> None:
    world = World(leaders=1, partitions=1)
    world.leaders[0].faults = [REFUSED] * 100_000
    with world.sender(timeout_s=0.2) as sender, pytest.raises(KafkaError) as refused:
        sender.send({(TOPIC, 0): [batch(0)]})
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world = World(leaders=1, partitions=1)
    world.leaders[0].faults = [LOST] * 100_000
    with world.sender(timeout_s=0.2) as sender, pytest.raises(BrokerUnreachableError):
        sender.send({(TOPIC, 0): [batch(0)]})


def test_a_leader_that_is_away() -> None:
    world = World(leaders=2, partitions=2)
    world.leaders[1].broker.__exit__()
    with world.sender(timeout_s=0.3) as sender, pytest.raises(BrokerUnreachableError):
        sender.send({place: [batch(0)] for place in world.logs})
    assert len(world.logs[TOPIC, 0]) == 1, "the other leader has its share"


def test_the_sequence_goes_round() -> None:
    world = World(leaders=1, partitions=1)
    place = (TOPIC, 0)
    with world.sender() as sender:
        sender._sequences[place] = 2**31 - 2
        sender.send({place: [batch(0, records=3)]})
        assert sender._sequences[place] == 1
    assert world.logs[place][0][0] == 2**31 - 2
