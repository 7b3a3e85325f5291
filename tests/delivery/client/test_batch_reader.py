"""Raw batches of one partition: in order, ahead of the caller, and never another topic's."""

from collections.abc import Iterator

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import TruncatedBatchError, scan
from headwater.base.record.records import iterate
from headwater.base.schema import Message
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader, Fetched
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.producer import Producer
from headwater.delivery.wire.kafka import messages
from tests.delivery.client.scripted_broker import ScriptedBroker, one_node
from tests.delivery.client.transactional import (
    EVERYTHING,
    HIGH_WATERMARK,
    LAST_STABLE_OFFSET,
    write_everything,
)

FETCH = 1
METADATA = 3
MIB = 1 << 20


def offsets(fetched: Fetched, start: int) -> list[int]:
    """Return the offsets of whole batches' records from one on."""
    found = []
    try:
        for at, _ in scan(fetched.records):
            found += [each.offset for each in iterate(fetched.records, at) if each.offset >= start]
    except TruncatedBatchError:
        pass
    return found


def read_all(reader: BatchReader, start: int, end: int) -> list[int]:
    found: list[int] = []
    while start < end:
        found += offsets(reader.fetch(start), start)
        start = found[-1] + 1
    return found


def fill(cluster: Cluster, topic: str, batches: int, size_bytes: int = 100) -> None:
    producer = Producer(cluster)
    for _ in range(batches):
        producer.send(topic, b"x" * size_bytes, partition=0)
        producer.flush()


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    admin.create_topic(cluster, name, configs={"max.message.bytes": str(4 * MIB)})
    return name


@pytest.fixture(params=["by name", "by id"])
def topic_id(request: pytest.FixtureRequest, cluster: Cluster, topic: str) -> bytes | None:
    return cluster.topic(topic).topic_id if request.param == "by id" else None


@pytest.mark.parametrize("fetch_bytes", [1, 1000, 50 * MIB])
def test_everything_once_and_in_order(
    cluster: Cluster, topic: str, topic_id: bytes | None, fetch_bytes: int
) -> None:
    fill(cluster, topic, 30)
    with BatchReader(
        cluster, topic, 0, topic_id=topic_id, read_committed=True, fetch_bytes=fetch_bytes
    ) as reader:
        assert read_all(reader, 0, 30) == list(range(30))
        assert read_all(reader, 7, 30) == list(range(7, 30))
        end = reader.fetch(30, wait_ms=0)
        assert (len(end.records), end.high_watermark, end.log_start_offset) == (0, 30, 0)
        fill(cluster, topic, 1)
        assert offsets(reader.fetch(30, wait_ms=5000), 30) == [30]


def test_going_on_elsewhere_than_expected(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 20)
    with BatchReader(cluster, topic, 0, read_committed=False, fetch_bytes=1) as reader:
        for start in (0, 5, 4, 4, 19, 0, 1):
            assert offsets(reader.fetch(start), start) == [start]


def test_a_batch_larger_than_a_fetch(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 1)
    fill(cluster, topic, 1, size_bytes=2 * MIB)
    fill(cluster, topic, 1)
    with BatchReader(cluster, topic, 0, read_committed=True, fetch_bytes=MIB) as reader:
        assert read_all(reader, 0, 3) == [0, 1, 2]


@pytest.mark.parametrize("read_committed", [True, False])
def test_what_is_told_of_transactions(
    cluster: Cluster, bootstrap: str, name: str, read_committed: bool
) -> None:
    write_everything(cluster, bootstrap, name)
    with BatchReader(
        cluster, name, 0, read_committed=read_committed, fetch_bytes=50 * MIB
    ) as reader:
        fetched = reader.fetch(0)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (
        HIGH_WATERMARK,
        LAST_STABLE_OFFSET,
    )
    end = LAST_STABLE_OFFSET if read_committed else HIGH_WATERMARK
    batches = [header for _, header in scan(fetched.records)]
    shown = [each.base_offset for each in batches if not each.is_control]
    assert shown == [offset for offset in EVERYTHING if offset < end]
    first_of_the_aborted = [(batches[0].producer_id, 0)]
    assert fetched.aborted == (first_of_the_aborted if read_committed else [])


def test_an_offset_that_is_not_there(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 3)
    with BatchReader(cluster, topic, 0, read_committed=True, fetch_bytes=MIB) as reader:
        with pytest.raises(KafkaError, match=f"{topic}-0 at offset 9") as outside:
            reader.fetch(9)
        assert outside.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert outside.value.hint
        assert read_all(reader, 0, 3) == [0, 1, 2]


@pytest.fixture
def impatient(bootstrap: str) -> Iterator[Cluster]:
    """Give a client that soon believes that a topic is gone."""
    with Cluster(bootstrap, timeout_s=0.5) as cluster:
        yield cluster


@pytest.mark.parametrize("has_read", [True, False])
def test_a_topic_that_was_created_again(
    cluster: Cluster, impatient: Cluster, topic: str, has_read: bool
) -> None:
    fill(cluster, topic, 3)
    topic_id = cluster.topic(topic).topic_id
    with BatchReader(
        impatient, topic, 0, topic_id=topic_id, read_committed=True, fetch_bytes=1
    ) as reader:
        if has_read:
            assert offsets(reader.fetch(0), 0) == [0]
            assert offsets(reader.fetch(1), 1) == [1]
        admin.delete_topic(cluster, topic)
        admin.create_topic(cluster, topic)
        fill(cluster, topic, 5)
        if has_read:
            # It was asked for ahead, and is the old topic's.
            assert offsets(reader.fetch(2), 2) == [2]
        with pytest.raises(KafkaError, match="created again") as replaced:
            reader.fetch(3)
        assert replaced.value.code == ErrorCode.UNKNOWN_TOPIC_ID
        assert replaced.value.hint
    with BatchReader(cluster, topic, 0, read_committed=True, fetch_bytes=1) as by_name:
        assert read_all(by_name, 0, 5) == [0, 1, 2, 3, 4]


def test_a_topic_that_was_deleted(cluster: Cluster, impatient: Cluster, topic: str) -> None:
    fill(cluster, topic, 1)
    topic_id = cluster.topic(topic).topic_id
    with BatchReader(
        impatient, topic, 0, topic_id=topic_id, read_committed=True, fetch_bytes=1
    ) as reader:
        assert offsets(reader.fetch(0), 0) == [0]
        admin.delete_topic(cluster, topic)
        with pytest.raises(KafkaError, match="deleted") as gone:
            reader.fetch(1, wait_ms=100)
        assert gone.value.code == ErrorCode.UNKNOWN_TOPIC_ID


class _Partition:
    """The script of a leader: one small batch per fetch, and what is to go wrong."""

    def __init__(self, batch: bytes) -> None:
        self.batch = batch
        self.asked: list[int] = []
        self.errors: list[ErrorCode | None] = []
        self.broker = ScriptedBroker(self)

    def __call__(self, key: int, version: int, request: messages.FetchRequest) -> Message | None:
        if key == METADATA:
            return one_node(self.broker.port, "scripted")
        assert key == FETCH
        offset = request.topics[0].partitions[0].fetch_offset
        self.asked.append(offset)
        error = self.errors.pop(0) if self.errors else ErrorCode.NONE
        if error is None:
            return None
        answer = messages.FetchResponse
        data = answer.PartitionData(
            error_code=error,
            high_watermark=2,
            last_stable_offset=2,
            records=b"" if error or offset >= 2 else offset.to_bytes(8, "big") + self.batch[8:],
        )
        return answer(responses=[answer.FetchableTopicResponse("scripted", partitions=[data])])


@pytest.fixture
def scripted(cluster: Cluster, topic: str) -> Iterator[_Partition]:
    fill(cluster, topic, 1)
    with BatchReader(cluster, topic, 0, read_committed=True, fetch_bytes=MIB) as reader:
        batch = bytes(reader.fetch(0).records)
    partition = _Partition(batch)
    with partition.broker:
        yield partition


def test_the_next_fetch_is_under_way_while_the_caller_works(scripted: _Partition) -> None:
    with Cluster(scripted.broker.address) as cluster:
        reader = BatchReader(cluster, "scripted", 0, read_committed=True, fetch_bytes=MIB)
        assert offsets(reader.fetch(0), 0) == [0]
        assert offsets(reader.fetch(1), 1) == [1]
        assert scripted.asked == [0, 1], "at the end nothing is asked for in vain"
        assert offsets(reader.fetch(2), 2) == []
        assert scripted.asked == [0, 1, 2]


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        None,
    ],
)
def test_what_passes_is_waited_for(scripted: _Partition, trouble: ErrorCode | None) -> None:
    """None: the connection breaks."""
    scripted.errors = [trouble, ErrorCode.NONE, trouble, ErrorCode.NONE]
    with Cluster(scripted.broker.address) as cluster:
        reader = BatchReader(cluster, "scripted", 0, read_committed=True, fetch_bytes=MIB)
        assert offsets(reader.fetch(0), 0) == [0]
        assert offsets(reader.fetch(1), 1) == [1]
    assert scripted.asked == [0, 0, 1, 1]


def test_patience_ends(scripted: _Partition) -> None:
    with Cluster(scripted.broker.address, timeout_s=0.3) as cluster:
        reader = BatchReader(cluster, "scripted", 0, read_committed=True, fetch_bytes=MIB)
        scripted.errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
        with pytest.raises(KafkaError) as moved:
            reader.fetch(0)
        assert moved.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        scripted.errors = [None] * 100
        with pytest.raises(BrokerUnreachableError):
            reader.fetch(0)
