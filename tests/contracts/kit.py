"""How the suite speaks to a broker: exact versions, one helper per thing that every test needs.

This file alone decides how a request of a chosen version is sent, when a new topic counts as
ready, and how batches are made. It judges nothing: expectations stand in the tests.
"""

import struct
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import scan
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.schema import Message
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.wire.kafka import apis, messages
from tests.contracts.differences import DIFFERENCES

HEADWATER = "headwater"
APACHE_KAFKA = "apache-kafka"

_KEYS = {api.name: api.key for api in apis.APIS.values()}
# Apache Kafka tells of a new topic a few milliseconds before all of it can be written to.
_READY_WITHIN_S = 20.0
_READY_POLL_S = 0.005


def code(answer: Any) -> ErrorCode:  # noqa: ANN401 - any answer that carries a code
    """Return an answer's error by name, so that a failure is readable."""
    return ErrorCode(answer.error_code)


class Topic(NamedTuple):
    """A topic that was created for a test."""

    name: str
    topic_id: bytes


def unique(prefix: str) -> str:
    """Make a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


class Talk(Connection):
    """A connection that speaks exactly the version it is told."""

    def ask(self, request: Message, version: int, *, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - the response class that belongs to the request
        """Send a request in this version and wait for its answer."""
        self.tell(request, version)
        return self.receive(timeout_s=timeout_s)

    def tell(self, request: Message, version: int) -> None:
        """Send a request in this version."""
        key = _KEYS[type(request).__name__.removesuffix("Request")]
        low, high = self.versions[key]
        assert low <= version <= high, f"version {version} is not offered"
        assert self.version(key, version) == version, f"version {version} is not known"
        self.send(request, version_max=version)

    def tell_raw(self, body: bytes) -> None:
        """Send a frame as it is, header included, its size before it."""
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def receive_raw(self) -> bytes:
        """Wait for a frame and return it without its size."""
        return bytes(self._receive_frame())

    def assert_closed(self) -> None:
        """Wait until the broker closes the connection; an answer is a failure."""
        with pytest.raises((BrokerUnreachableError, OSError)):
            self.receive_raw()


class Subject:
    """One of the two brokers.

    Attributes:
        name: Which one.
        host: Where it listens.
        port: Where it listens.
    """

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.host, _, port = bootstrap.rpartition(":")
        self.port = int(port)

    def connect(self, *, client_id: str = "contract", timeout_s: float = 30.0) -> Talk:
        """Open a connection; the caller closes it."""
        return Talk(self.host, self.port, client_id=client_id, timeout_s=timeout_s)

    def expected(self, difference: str) -> Any:  # noqa: ANN401 - whatever differs
        """Return what this broker answers where the two differ on purpose."""
        kept = DIFFERENCES[difference]
        return kept.ours if self.name == HEADWATER else kept.kafkas


# Topics


def create_topic(
    talk: Talk,
    *,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Topic:
    """Create a topic and wait until every partition of it can be used."""
    name = name or unique("contract")
    wanted = messages.CreateTopicsRequest.CreatableTopic(
        name,
        partitions,
        1,
        [],
        [
            messages.CreateTopicsRequest.CreatableTopicConfig(key, value)
            for key, value in (configs or {}).items()
        ],
    )
    request = messages.CreateTopicsRequest([wanted], 10_000, validate_only=False)
    (result,) = talk.ask(request, 7).topics
    assert result.error_code == 0, (ErrorCode(result.error_code), result.error_message)
    wait_until_ready(talk, name, partitions)
    return Topic(name, result.topic_id)


def wait_until_ready(talk: Talk, name: str, partitions: int) -> None:
    """Wait until every partition answers where it ends."""
    end_s = time.monotonic() + _READY_WITHIN_S
    while any(_latest(talk, name, index).error_code for index in range(partitions)):
        assert time.monotonic() < end_s, f"{name} is not ready"
        time.sleep(_READY_POLL_S)


def _latest(talk: Talk, name: str, index: int) -> Any:  # noqa: ANN401 - see list_offset
    return list_offset(talk, name, -1, partition=index)


def list_offset(
    talk: Talk,
    name: str,
    timestamp: int,
    *,
    version: int = 7,
    partition: int = 0,
    isolation_level: int = 0,
    leader_epoch: int = -1,
) -> messages.ListOffsetsResponse.ListOffsetsPartitionResponse:
    """Ask for one offset."""
    request = messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            messages.ListOffsetsRequest.ListOffsetsTopic(
                name,
                [
                    messages.ListOffsetsRequest.ListOffsetsPartition(
                        partition, leader_epoch, timestamp
                    )
                ],
            )
        ],
    )
    (topic,) = talk.ask(request, version).topics
    assert topic.name == name
    (answer,) = topic.partitions
    assert answer.partition_index == partition
    found: messages.ListOffsetsResponse.ListOffsetsPartitionResponse = answer
    return found


def missing_topic() -> Topic:
    """Name a topic that does not exist."""
    return Topic(unique("missing"), uuid.uuid4().bytes)


def new_producer_id(talk: Talk) -> int:
    """Get a producer id; Apache Kafka has none in the first moments after its start."""
    end_s = time.monotonic() + _READY_WITHIN_S
    while True:
        answer = talk.ask(messages.InitProducerIdRequest(transactional_id=None), 4)
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert code(answer) is ErrorCode.NONE
            assert isinstance(answer.producer_id, int)
            return answer.producer_id
        assert time.monotonic() < end_s, "no producer ids"
        time.sleep(_READY_POLL_S)


def topic_configs(talk: Talk, name: str, *keys: str) -> dict[str, str | None]:
    """Return the values of some configs of a topic, or of all."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource(2, name, list(keys) or None)
    (result,) = talk.ask(messages.DescribeConfigsRequest([resource]), 4).results
    assert code(result) is ErrorCode.NONE
    return {config.name: config.value for config in result.configs}


# Records


def now_ms() -> int:
    """Return the time as producers stamp it."""
    return time.time_ns() // 1_000_000


def batch_of(
    *values: bytes,
    timestamp: int | None = None,
    step_ms: int = 0,
    **header: Any,  # noqa: ANN401 - as build_batch has them
) -> bytearray:
    """Build one batch of records with keys; `step_ms` lies between their timestamps."""
    first = now_ms() if timestamp is None else timestamp
    return build_batch(
        [
            Record(0, first + index * step_ms, b"k%d" % index, value)
            for index, value in enumerate(values)
        ],
        **header,
    )


def produce(
    talk: Talk,
    topic: Topic,
    records: bytes | bytearray | None,
    *,
    version: int = 9,
    acks: int = -1,
    partition: int = 0,
) -> messages.ProduceResponse.PartitionProduceResponse:
    """Send one partition's bytes and return what is said of them."""
    (answer,) = talk.ask(produce_request(topic, {partition: records}, acks=acks), version).responses
    assert answer.name == (topic.name if version < 13 else "")
    (answered,) = answer.partition_responses
    assert answered.index == partition
    found: messages.ProduceResponse.PartitionProduceResponse = answered
    return found


def produce_request(
    topic: Topic, records: Mapping[int, bytes | bytearray | None], *, acks: int = -1
) -> messages.ProduceRequest:
    """Build a request for several partitions of a topic."""
    return messages.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            messages.ProduceRequest.TopicProduceData(
                topic.name,
                topic.topic_id,
                [
                    messages.ProduceRequest.PartitionProduceData(index, data)
                    for index, data in records.items()
                ],
            )
        ],
    )


def fetch_request(
    wanted: Sequence[tuple[Topic, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    leader_epoch: int = -1,
) -> messages.FetchRequest:
    """Build a full fetch, without a session, of (topic, partition, offset)."""
    return messages.FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[
            messages.FetchRequest.FetchTopic(
                topic.name,
                topic.topic_id,
                [
                    messages.FetchRequest.FetchPartition(
                        partition=partition,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                ],
            )
            for topic, partition, offset in wanted
        ],
    )


def fetch(
    talk: Talk,
    topic: Topic,
    offset: int,
    *,
    version: int = 12,
    partition: int = 0,
    **limits: int,
) -> messages.FetchResponse.PartitionData:
    """Fetch one partition and return what is said of it."""
    answer = talk.ask(fetch_request([(topic, partition, offset)], **limits), version)
    assert answer.error_code == 0
    (answered,) = answer.responses
    (found,) = answered.partitions
    assert found.partition_index == partition
    data: messages.FetchResponse.PartitionData = found
    return data


def offsets_of(records: Any) -> list[int]:  # noqa: ANN401 - the wire's bytes
    """Return the offset of every record in fetched bytes; a cut last batch is left out."""
    return [record.offset for record in records_of(records)]


def records_of(records: Any) -> list[Record]:  # noqa: ANN401 - the wire's bytes
    """Return every record in fetched bytes."""
    data = bytes(records or b"")
    return [record for pos, _ in scan(data) for record in iterate(data, pos)]
