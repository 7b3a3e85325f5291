"""The same admin requests to us and to Apache Kafka: the same answers, word for word.

Each scenario is a list of requests that are sent to both brokers in order. What may differ is
taken out before the comparison, by name and with its reason in ``skipped.md``; anything else that
differs fails.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from headwater.base.schema import Message, Struct
from headwater.delivery.wire.kafka.messages import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
)
from headwater.testing.broker import EmbeddedBroker
from tests.delivery.dialects.kafka.desk import ask_over_socket

SETTLE_S = 20.0
TIMEOUT_MS = 30_000
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4

# What is a matter of chance, of the machine, or a difference told in skipped.md.
IGNORED = {
    "throttle_time_ms",
    "topic_id",
    "cluster_id",
    "port",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "producer_id",
}
OUR_DEFAULTS = {"flush.messages", "headwater.overflow", "headwater.overflow.bytes"}
# Kafka's ELR feature sets this one for the whole cluster when a node is formatted.
THEIR_DEFAULTS = {"min.insync.replicas"}
BROKERS_ONLY = " or some brokers have all their log directories cordoned"


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with EmbeddedBroker(settings={"offsets.topic.num.partitions": "4"}) as broker:
        yield broker.bootstrap_servers


def plain(value: Any) -> Any:  # noqa: ANN401 - any part of any message
    """Return an answer as plain values, without what may differ, in an order of its own."""
    if isinstance(value, (Message, Struct)):
        names: Iterable[str] = type(value).__slots__
        return {name: plain(getattr(value, name)) for name in names if name not in IGNORED}
    if isinstance(value, list):
        kept = [
            one for one in value if getattr(one, "name", None) not in OUR_DEFAULTS | THEIR_DEFAULTS
        ]
        return sorted((plain(one) for one in kept), key=repr)
    if isinstance(value, str):
        return value.replace(BROKERS_ONLY, "")
    return value


def compare(ours: str, theirs: str, *requests: tuple[Message, int | None]) -> None:
    """Send everything to both; Kafka's metadata settles a moment after its answers."""
    for request, version in requests:
        here = plain(ask_over_socket(ours, request, version))
        end_s = time.monotonic() + SETTLE_S
        there = plain(ask_over_socket(theirs, request, version))
        while here != there and _is_repeatable(request) and time.monotonic() < end_s:
            time.sleep(0.05)
            there = plain(ask_over_socket(theirs, request, version))
        assert there == here, f"{request} v{version}"


def _is_repeatable(request: Message) -> bool:
    return isinstance(
        request,
        (
            DescribeConfigsRequest,
            DescribeLogDirsRequest,
            DeleteRecordsRequest,
            InitProducerIdRequest,
        ),
    )


def new(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: tuple[tuple[int, list[int]], ...] = (),
    configs: Mapping[str, str | None] | None = None,
    **more_configs: str | None,
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name,
        partitions,
        replication_factor,
        [CreateTopicsRequest.CreatableReplicaAssignment(*one) for one in assignments],
        [
            CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value)
            for key, value in {**(configs or {}), **more_configs}.items()
        ],
    )


def create(
    *topics: CreateTopicsRequest.CreatableTopic, validate_only: bool = False
) -> tuple[Message, None]:
    return CreateTopicsRequest(list(topics), validate_only=validate_only), None


def describe(kind: int, name: str, *keys: str) -> tuple[Message, None]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(kind, name, list(keys) or None)
    return DescribeConfigsRequest([resource], include_synonyms=True), None


def alter(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[Message, None]:
    configs = [IncrementalAlterConfigsRequest.AlterableConfig(*one) for one in changes]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)
    return IncrementalAlterConfigsRequest([resource], validate_only=validate_only), None


def replace(kind: int, name: str, *configs: tuple[str, str | None]) -> tuple[Message, None]:
    given = [AlterConfigsRequest.AlterableConfig(*one) for one in configs]
    return AlterConfigsRequest([AlterConfigsRequest.AlterConfigsResource(kind, name, given)]), None


def grow(name: str, count: int, assignments: list[list[int]] | None = None) -> tuple[Message, None]:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name, count, None)
    if assignments is not None:
        kind = CreatePartitionsRequest.CreatePartitionsAssignment
        topic.assignments = [kind(brokers) for brokers in assignments]
    return CreatePartitionsRequest([topic], TIMEOUT_MS), None


def delete(*names: str) -> tuple[Message, None]:
    states = [DeleteTopicsRequest.DeleteTopicState(name) for name in names]
    return DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS), None


def trim(name: str, *partitions: tuple[int, int]) -> tuple[Message, None]:
    wanted = [DeleteRecordsRequest.DeleteRecordsPartition(*one) for one in partitions]
    return DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic(name, wanted)]), None


def test_creating(ours: str, apache_kafka: str) -> None:
    compare(
        ours,
        apache_kafka,
        create(new("c1", 2, retention_ms="5000")),
        create(new("c1")),
        create(new("c1", 0, 9, foo="x")),
        create(new("c2", -1, -1)),
        create(new("c3"), new("c4", 3, compression_type="zstd"), validate_only=True),
        create(new("c1"), validate_only=True),
        create(*(new(name) for name in ("", ".", "..", "../x", "a b", "ä", "x" * 250))),
        create(new("c.5")),
        create(new("c_5")),
        create(new("c6"), new("c6", 2), new("c7")),
        create(new("c8", 0), new("c9", -2), new("c10", 1, 0), new("c11", 1, 2), new("c12", 0, 0)),
        create(new("__cluster_metadata")),
        create(new("c13", 10_001)),
        create(new("c13", 6_000), new("c14", 6_000)),
    )


def test_creating_with_assignments(ours: str, apache_kafka: str) -> None:
    compare(
        ours,
        apache_kafka,
        create(new("as1", -1, -1, ((0, [1]), (1, [1])))),
        create(new("as2", -1, -1, ((0, [2]),))),
        create(new("as2", -1, -1, ((1, [1]),))),
        create(new("as2", -1, -1, ((-1, [1]),))),
        create(new("as2", -1, -1, ((0, [1, 1]),))),
        create(new("as2", -1, -1, ((0, []),))),
        create(new("as2", -1, -1, ((0, [1]), (0, [1])))),
        create(new("as2", 3, -1, ((0, [1]),))),
        create(new("as2", -1, 3, ((0, [1]),))),
        create(new("as2", 1, 1, ((0, [1]),))),
        create(new("as2", -1, -1, ((0, [2]),), foo="x")),
    )


@pytest.mark.parametrize(
    "configs",
    [
        {"foo": "bar"},
        {"retention_ms": "x"},
        {"retention_ms": None},
        {"foo": "x", "retention_ms": None},
        {"retention_ms": "x", "foo": "x"},
        {"retention_ms": "-2"},
        {"retention_ms": "+5"},
        {"retention_ms": "9223372036854775808"},
        {"cleanup_policy": "compact,foo"},
        {"cleanup_policy": "compact, delete"},
        {"cleanup_policy": ""},
        {"cleanup_policy": "delete,delete"},
        {"cleanup_policy": "delete,"},
        {"compression_type": "br"},
        {"compression_gzip_level": "0"},
        {"compression_lz4_level": "0"},
        {"compression_zstd_level": "23"},
        {"min_cleanable_dirty_ratio": "1.5"},
        {"min_cleanable_dirty_ratio": "x"},
        {"preallocate": "yes"},
        {"preallocate": " TRUE "},
        {"max_message_bytes": "99999999999"},
        {"max_message_bytes": " 1000 "},
        {"max_message_bytes": ""},
        {"min_compaction_lag_ms": "10", "max_compaction_lag_ms": "5"},
        {"remote_storage_enable": "true"},
        {"leader_replication_throttled_replicas": "xx"},
        {"leader_replication_throttled_replicas": "*"},
        {"leader_replication_throttled_replicas": "0:1,1:1"},
        {"min_insync_replicas": "0"},
        {"retention_bytes": "-5"},
        {"segment_bytes": "1"},
        {"message_timestamp_type": "createtime"},
        {"segment_ms": "0"},
    ],
    ids=str,
)
def test_values_of_configs(ours: str, apache_kafka: str, configs: dict[str, str | None]) -> None:
    request = CreateTopicsRequest([new("values", configs=configs)], validate_only=True)
    # Kafka's answer repeats a value as it was sent; ours and every later one of both read it first.
    here, there = (ask_over_socket(where, request).topics[0] for where in (ours, apache_kafka))
    assert (there.error_code, there.error_message) == (here.error_code, here.error_message)


def test_describing_configs(ours: str, apache_kafka: str) -> None:
    topics = [
        "retention.ms",
        "segment.bytes",
        "flush.ms",
        "cleanup.policy",
        "remote.storage.enable",
    ]
    broker = [
        "log.retention.ms",
        "log.retention.hours",
        "num.partitions",
        "node.id2",
        "log.roll.ms",
    ]
    compare(
        ours,
        apache_kafka,
        create(new("d1", 1, 1, retention_ms="5000", cleanup_policy="compact,delete")),
        describe(TOPIC, "d1"),
        describe(TOPIC, "d1", *topics, "none"),
        describe(TOPIC, "none"),
        describe(TOPIC, "a b"),
        describe(TOPIC, ""),
        describe(BROKER, "1", *broker),
        describe(BROKER, "2"),
        describe(BROKER, "x"),
        describe(8, ""),
        describe(8, "x"),
        describe(8, "2"),
        describe(16, ""),
        describe(32, ""),
        describe(0, "x"),
        describe(77, "x"),
    )


def test_changing_configs_of_a_topic(ours: str, apache_kafka: str) -> None:
    compare(
        ours,
        apache_kafka,
        create(new("i1", 1, 1, retention_ms="1", cleanup_policy="delete"), new("i2")),
        alter(TOPIC, "i1", ("retention.ms", SET, "5"), ("retention.bytes", DELETE, None)),
        alter(TOPIC, "i1", ("retention.ms", SET, "6"), validate_only=True),
        alter(TOPIC, "i1", ("none", DELETE, None)),
        alter(TOPIC, "i1", ("cleanup.policy", APPEND, "compact")),
        alter(TOPIC, "i2", ("cleanup.policy", APPEND, "compact,delete")),
        describe(TOPIC, "i1", "retention.ms", "cleanup.policy"),
        describe(TOPIC, "i2", "retention.ms", "cleanup.policy"),
        alter(TOPIC, "i1", ("cleanup.policy", SUBTRACT, "delete")),
        alter(TOPIC, "i1", ("cleanup.policy", SUBTRACT, "compact")),
        describe(TOPIC, "i1", "cleanup.policy"),
        alter(TOPIC, "i1", ("cleanup.policy", APPEND, "foo")),
        alter(TOPIC, "i1", ("retention.ms", APPEND, "5")),
        alter(TOPIC, "i1", ("cleanup.policy", APPEND, None)),
        alter(TOPIC, "i1", ("retention.ms", SET, None)),
        alter(TOPIC, "i1", ("retention.ms", SET, "5"), ("retention.ms", SET, "6")),
        alter(TOPIC, "i1", ("none", SET, "5")),
        alter(TOPIC, "i1", ("retention.bytes", SET, "77"), ("retention.ms", SET, "x")),
        alter(TOPIC, "none", ("retention.ms", SET, "5")),
        alter(TOPIC, "a b", ("retention.ms", SET, "5")),
        alter(TOPIC, "", ("retention.ms", SET, "5")),
        alter(TOPIC, "i1"),
        describe(TOPIC, "i1", "retention.ms", "retention.bytes"),
        replace(TOPIC, "i1", ("retention.bytes", "5")),
        describe(TOPIC, "i1"),
        replace(TOPIC, "i1", ("none", "5")),
        replace(TOPIC, "i1", ("retention.ms", None)),
        replace(TOPIC, "i1", ("retention.ms", "x")),
        replace(TOPIC, "i1", ("retention.ms", "5"), ("retention.ms", "6")),
        replace(TOPIC, "none", ("retention.ms", "5")),
        replace(TOPIC, "i1"),
        describe(TOPIC, "i1"),
    )


def test_changing_configs_of_the_broker(ours: str, apache_kafka: str) -> None:
    told = describe(BROKER, "1", "log.retention.ms", "log.cleanup.policy")
    compare(
        ours,
        apache_kafka,
        create(new("b1")),
        alter(BROKER, "1", ("log.retention.ms", SET, "99999")),
        told,
        describe(TOPIC, "b1", "retention.ms"),
        alter(BROKER, "", ("log.retention.ms", SET, "88888")),
        told,
        alter(BROKER, "1", ("log.retention.ms", DELETE, None)),
        told,
        describe(TOPIC, "b1", "retention.ms"),
        describe(BROKER, "", "log.retention.ms"),
        alter(BROKER, "", ("log.retention.ms", DELETE, None)),
        alter(BROKER, "1", ("log.cleanup.policy", APPEND, "compact")),
        told,
        describe(TOPIC, "b1", "cleanup.policy"),
        replace(BROKER, "1"),
        told,
        alter(BROKER, "1", ("num.partitions", SET, "3"), ("log.dirs", SET, "x")),
        alter(BROKER, "", ("num.partitions", SET, "3")),
        alter(BROKER, "1", ("log.retention.ms", SET, "x")),
        alter(BROKER, "1", ("log.segment.bytes", SET, "1")),
        alter(BROKER, "1", ("log.retention.ms", APPEND, "1")),
        alter(BROKER, "1", ("log.retention.ms", SUBTRACT, "1")),
        alter(BROKER, "1", ("log.retention.ms", SET, None)),
        alter(BROKER, "2", ("log.retention.ms", SET, "1")),
        alter(BROKER, "x", ("log.retention.ms", SET, "1")),
        alter(8, "1", ("no.such.logger", SET, "DEBUG")),
        alter(32, "g", ("none", SET, "1")),
        alter(16, "g", ("none", SET, "1")),
        alter(0, "g", ("none", SET, "1")),
        replace(BROKER, "1", ("num.partitions", "5")),
        replace(BROKER, "2", ("log.retention.ms", "5")),
        replace(8, "1", ("x", "DEBUG")),
        replace(32, "1", ("x", "DEBUG")),
    )


def test_growing_and_deleting(ours: str, apache_kafka: str) -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    unknown = state(None, b"u" * 16)
    odd = [[state(None)], [unknown], [state("g1", b"u" * 16)], [unknown, unknown]]
    compare(
        ours,
        apache_kafka,
        create(new("g1"), new("g2")),
        grow("g1", 3),
        grow("g1", 3),
        grow("g1", 2),
        grow("g1", -1),
        grow("none", 3),
        grow("a b", 3),
        grow("g1", 4, [[1]]),
        grow("g1", 6, [[1]]),
        grow("g1", 5, [[7]]),
        grow("g1", 5, [[]]),
        grow("g1", 5, [[1, 1]]),
        *((DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS), None) for states in odd),
        delete("g2", "g2"),
        delete("g2", "none", "", "a b"),
        delete("g2"),
        (DeleteTopicsRequest(topic_names=["g1", "none"], timeout_ms=TIMEOUT_MS), 4),
        (DeleteTopicsRequest(topic_names=["g1", "none"], timeout_ms=TIMEOUT_MS), 5),
    )


def test_trimming(ours: str, apache_kafka: str) -> None:
    compare(
        ours,
        apache_kafka,
        create(new("t1", 2), new("t2", cleanup_policy="compact"), new("t3", cleanup_policy="")),
        trim("t1", (0, 0), (1, -1)),
        trim("t1", (0, 1)),
        trim("t1", (0, -2)),
        trim("t1", (9, 0)),
        trim("none", (0, 0)),
        trim("t2", (0, 0)),
        trim("t3", (0, 0)),
    )


@pytest.mark.parametrize("version", range(3))
def test_the_cluster(ours: str, apache_kafka: str, version: int) -> None:
    types = (1,) if version == 0 else (0, 1, 2, 3)
    for endpoint_type in types:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, endpoint_type=endpoint_type
        )
        compare(ours, apache_kafka, (request, version))


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories(ours: str, apache_kafka: str, version: int) -> None:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    compare(
        ours,
        apache_kafka,
        create(new(f"l{version}", 2)),
        (DescribeLogDirsRequest([topic(f"l{version}", [0, 7]), topic("none", [0])]), version),
        (DescribeLogDirsRequest([]), version),
    )


@pytest.mark.parametrize("version", range(6))
def test_producer_ids(ours: str, apache_kafka: str, version: int) -> None:
    requests = [InitProducerIdRequest(None), InitProducerIdRequest("")]
    if version >= 3:
        requests += [InitProducerIdRequest(None, 0, *given) for given in ((5, 7), (5, -1), (-1, 5))]
    compare(ours, apache_kafka, *((request, version) for request in requests))
