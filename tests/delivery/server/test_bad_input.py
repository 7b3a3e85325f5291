"""What hostile, broken or merely slow clients can do to a broker: nothing to the others."""

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import CRC_POS, write_crc
from headwater.base.record.records import Record, build_batch
from headwater.base.schema import Message
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.consumer import Consumer
from headwater.delivery.client.producer import Producer
from headwater.delivery.wire.kafka import apis, framing, messages
from headwater.testing.broker import EmbeddedBroker

TOPIC = "steady"
SENTINEL = b"still here"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"socket.request.max.bytes": "1000000", "queued.max.request.bytes": "4000000"}
    with EmbeddedBroker(settings=settings) as running:
        with Cluster(running.bootstrap_servers) as cluster:
            admin.create_topic(cluster, TOPIC, partitions=1)
            with Producer(cluster) as producer:
                producer.send(TOPIC, SENTINEL)
        yield running


@pytest.fixture
def others_are_unharmed(broker: EmbeddedBroker) -> Iterator[None]:
    """After the test a healthy client still reads the old record and writes a new one."""
    yield
    with Cluster(broker.bootstrap_servers, timeout_s=10) as cluster:
        consumer = Consumer(cluster)
        consumer.assign({(TOPIC, 0): 0})
        assert consumer.poll(5)[0].value == SENTINEL
        with Producer(cluster) as producer:
            producer.send(TOPIC, b"more")
            assert producer.flush()[0].record_count == 1


pytestmark = pytest.mark.usefixtures("others_are_unharmed")


def connect(broker: EmbeddedBroker) -> socket.socket:
    host, port = broker.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def drain(sock: socket.socket) -> bytes:
    """Return all that comes until the broker closes the connection."""
    received = b""
    while True:
        try:
            chunk = sock.recv(65536)
        except ConnectionResetError:
            return received
        if not chunk:
            return received
        received += chunk


def frame_of(request: Message, version: int) -> bytes:
    key = next(
        api.key for api in apis.APIS.values() if type(request).__name__ == f"{api.name}Request"
    )
    return b"".join(framing.encode_request(key, version, 7, "tester", request))


def produce_request(batch: bytes | bytearray, topic: str = TOPIC) -> messages.ProduceRequest:
    data = messages.ProduceRequest.PartitionProduceData(0, batch)
    return messages.ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            messages.ProduceRequest.TopicProduceData(name=topic, partition_data=[data]),
        ],
    )


@pytest.mark.parametrize(
    "size", [-1, 0, 7, 1_000_001, 2**31 - 1, -(2**31)], ids=lambda size: f"size {size}"
)
def test_an_impossible_size_closes_the_connection(broker: EmbeddedBroker, size: int) -> None:
    with connect(broker) as sock:
        sock.sendall(struct.pack(">i", size) + b"rubbish!")

        assert drain(sock) == b""


@pytest.mark.parametrize("key, version", [(999, 0), (-1, 0), (0, 99), (1, 0), (3, 14), (22, 6)])
def test_an_unknown_api_or_version_closes_the_connection(
    broker: EmbeddedBroker, key: int, version: int
) -> None:
    with connect(broker) as sock:
        frame = struct.pack(">hhih", key, version, 7, -1) + bytes(20)
        sock.sendall(struct.pack(">i", len(frame)) + frame)

        assert drain(sock) == b""


def test_api_versions_in_an_unknown_version_says_what_is_known(broker: EmbeddedBroker) -> None:
    with connect(broker) as sock:
        frame = struct.pack(">hhih", apis.API_VERSIONS, 99, 7, -1)
        sock.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        answer = sock.recv(size, socket.MSG_WAITALL)

    _, response = framing.decode_response(apis.API_VERSIONS, 0, answer)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(a.api_key, a.min_version, a.max_version) for a in response.api_keys] == [(18, 0, 4)]


def _valid_frames() -> list[bytes]:
    return [
        frame_of(produce_request(build_batch([Record(0, 1, b"k", b"v" * 50)]), "fuzzed"), 9),
        frame_of(messages.MetadataRequest(topics=None), 12),
        frame_of(
            messages.JoinGroupRequest(
                group_id="fuzz",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[messages.JoinGroupRequest.JoinGroupRequestProtocol("range", b"x")],
            ),
            5,
        ),
        frame_of(
            messages.CreateTopicsRequest(
                topics=[messages.CreateTopicsRequest.CreatableTopic("fuzzed", 1, 1)]
            ),
            7,
        ),
        frame_of(messages.FindCoordinatorRequest(key="g"), 3),
    ]


def _mutate(frame: bytes, dice: random.Random) -> bytes:
    mutated = bytearray(frame)
    for _ in range(dice.randint(1, 6)):
        mutated[dice.randrange(4, len(mutated))] = dice.randrange(256)
    if dice.random() < 0.3:
        body = mutated[4 : dice.randrange(5, len(mutated) + 1)]
        return struct.pack(">i", len(body)) + body
    return bytes(mutated)


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_frames_get_an_answer_or_a_closed_connection(
    broker: EmbeddedBroker, seed: int
) -> None:
    dice = random.Random(seed)
    frames = _valid_frames()
    for _ in range(150):
        with connect(broker) as sock:
            frame = _mutate(dice.choice(frames), dice)
            sock.sendall(frame)
            # Nothing may hang: either bytes come, or the end; a group may rightly wait for us, so
            # we end our side, and the broker must end its own.
            sock.shutdown(socket.SHUT_WR)
            drain(sock)


def test_noise_instead_of_frames_is_survived(broker: EmbeddedBroker) -> None:
    dice = random.Random(11)
    for _ in range(50):
        with connect(broker) as sock:
            sock.sendall(dice.randbytes(dice.randint(1, 300)))
            sock.shutdown(socket.SHUT_WR)
            drain(sock)


def _refusal(broker: EmbeddedBroker, batch: bytes | bytearray) -> tuple[ErrorCode, str]:
    host, port = broker.bootstrap_servers.split(":")
    with Connection(host, int(port)) as connection:
        response = connection.call(produce_request(batch), version_max=12)
        answer = response.responses[0].partition_responses[0]
        assert answer.base_offset == -1
        return ErrorCode(answer.error_code), answer.error_message


def _good() -> bytearray:
    return build_batch([Record(0, 1, b"k", b"v"), Record(0, 1, b"k", b"w")])


def _bad_crc() -> bytearray:
    batch = _good()
    batch[CRC_POS] ^= 1
    return batch


def _bad_count() -> bytearray:
    batch = _good()
    struct.pack_into(">i", batch, 57, 1)
    return batch


def _recrc(batch: bytearray) -> bytearray:
    write_crc(batch, 0, len(batch))
    return batch


@pytest.mark.parametrize(
    "make, expected",
    [
        (_bad_crc, ErrorCode.CORRUPT_MESSAGE),
        (lambda: _recrc(_bad_count()), ErrorCode.INVALID_RECORD),
        (lambda: _good() + _good(), ErrorCode.INVALID_RECORD),
        (lambda: _good()[:-1], ErrorCode.INVALID_RECORD),
        (lambda: b"", ErrorCode.INVALID_RECORD),
        (lambda: b"x" * 30, ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "count", "two batches", "cut", "nothing", "noise"],
)
def test_a_bad_batch_is_refused_with_its_reason_and_leaves_no_trace(
    broker: EmbeddedBroker, make: Callable[[], bytes], expected: ErrorCode
) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        before = admin.list_offsets(cluster, {(TOPIC, 0): admin.LATEST})

        code, message = _refusal(broker, make())

        assert (code, admin.list_offsets(cluster, {(TOPIC, 0): admin.LATEST})) == (expected, before)
        assert message


@pytest.mark.parametrize("name", ["..", ".", "../../etc/passwd", "a/b", "", "x" * 250, "sp ace"])
def test_a_topic_name_that_is_no_name_is_refused(broker: EmbeddedBroker, name: str) -> None:
    with (
        Cluster(broker.bootstrap_servers) as cluster,
        pytest.raises(KafkaError) as refused,
    ):
        admin.create_topic(cluster, name, partitions=1)

    assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_requests_that_stop_halfway_hold_no_more_memory_than_the_budget(
    broker: EmbeddedBroker,
) -> None:
    sockets = []
    try:
        for _ in range(30):
            sock = connect(broker)
            sockets.append(sock)
            sock.sendall(struct.pack(">i", 1_000_000) + bytes(200_000))
        memory = broker.node.request_memory
        deadline = time.monotonic() + 5
        while not memory.spent and time.monotonic() < deadline:
            time.sleep(0.01)

        # One buffer may be handed out when the budget is almost spent: that is the overshoot.
        assert memory.used_bytes <= 4_000_000 + 2 * 1_048_576
        # Small requests need none of it: others are served while the budget is spent.
        with Cluster(broker.bootstrap_servers, timeout_s=5) as cluster:
            assert TOPIC in cluster.topics()
    finally:
        for sock in sockets:
            sock.close()
    deadline = time.monotonic() + 5
    while memory.used_bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert memory.used_bytes == 0


def test_a_reader_that_does_not_read_costs_no_memory_and_delays_nobody(
    broker: EmbeddedBroker,
) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        admin.create_topic(cluster, "large", partitions=1)
        with Producer(cluster) as producer:
            for _ in range(64):
                producer.send("large", bytes(500_000))
    partition = messages.FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=50_000_000
    )
    topic = messages.FetchRequest.FetchTopic(topic="large", partitions=[partition])
    request = messages.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, topics=[topic]
    )
    with connect(broker) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(20):
            sock.sendall(frame_of(request, 12))

        with Cluster(broker.bootstrap_servers, timeout_s=5) as cluster:
            consumer = Consumer(cluster)
            consumer.assign({("large", 0): 0})
            read = 0
            while read < 64:
                read += len(consumer.poll(5))
        assert read == 64
