"""CreateTopics, v2-7, DeleteTopics, v1-6, CreatePartitions, v0-3, DeleteRecords, v0-2."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    fetch,
    list_offset,
    missing_topic,
    offsets_of,
    produce,
    topic_configs,
    unique,
    wait_until_ready,
)

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = bytes(16)
TIMEOUT_MS = 10_000
PATIENCE_S = 20.0
ILLEGAL_NAMES = ["", ".", "..", "../x", "a b", "ä", "x" * 250]


def wanted(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assignments: Mapping[int, list[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> messages.CreateTopicsRequest.CreatableTopic:
    request = messages.CreateTopicsRequest
    return request.CreatableTopic(
        name,
        partitions,
        replication_factor,
        [request.CreatableReplicaAssignment(*each) for each in (assignments or {}).items()],
        [request.CreatableTopicConfig(*each) for each in (configs or {}).items()],
    )


def create(
    talk: Talk,
    *topics: messages.CreateTopicsRequest.CreatableTopic,
    version: int = 7,
    validate_only: bool = False,
) -> list[Any]:
    request = messages.CreateTopicsRequest(list(topics), TIMEOUT_MS, validate_only)
    return list(talk.ask(request, version).topics)


def exists(talk: Talk, name: str) -> bool:
    asked = messages.MetadataRequest.MetadataRequestTopic(NO_ID, name)
    request = messages.MetadataRequest([asked], allow_auto_topic_creation=False)
    return code(talk.ask(request, 12).topics[0]) is NONE


# CreateTopics


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_once(talk: Talk, version: int) -> None:
    name = unique("contract")
    (made,) = create(talk, wanted(name, 2, configs={"retention.ms": "5000"}), version=version)
    wait_until_ready(talk, name, 2)
    (again,) = create(talk, wanted(name), version=version)

    assert (code(made), made.name, made.error_message) == (NONE, name, None)
    # Numbers and configs are told since v5, the id since v7.
    numbers = (made.num_partitions, made.replication_factor)
    assert numbers == ((2, 1) if version >= 5 else (-1, -1))
    assert any(made.topic_id) is (version >= 7)
    told = {config.name: config for config in made.configs or []}
    if version >= 5:
        ours = told["retention.ms"]
        assert (ours.value, ours.config_source, ours.read_only, ours.is_sensitive) == (
            "5000",
            1,
            False,
            False,
        )
        assert (told["retention.bytes"].value, told["retention.bytes"].config_source) == ("-1", 5)
    else:
        assert told == {}
    assert code(again) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert again.error_message == f"Topic '{name}' already exists."
    assert (again.num_partitions, again.replication_factor) == (-1, -1)


@pytest.mark.parametrize("version", [2, 4, 7])
def test_numbers_are_left_to_the_broker(talk: Talk, version: int) -> None:
    name = unique("contract")
    (made,) = create(talk, wanted(name, -1, -1), version=version)
    wait_until_ready(talk, name, 1)

    assert code(made) is NONE
    assert code(list_offset(talk, name, -1, partition=1)) is UNKNOWN


@pytest.mark.parametrize("version", [2, 5, 7])
def test_validate_only_creates_nothing(broker: Subject, talk: Talk, version: int) -> None:
    name = unique("contract")
    (judged,) = create(talk, wanted(name, 3), version=version, validate_only=True)
    (refused,) = create(talk, wanted(name, 0), version=version, validate_only=True)

    assert (code(judged), code(refused)) == (NONE, ErrorCode.INVALID_PARTITIONS)
    assert judged.num_partitions == (3 if version >= 5 else -1)
    told_an_id = version >= 7 and broker.expected("create topics: an id from validate_only")
    assert any(judged.topic_id) is told_an_id
    assert not exists(talk, name)


@pytest.mark.parametrize("version", [2, 7])
def test_illegal_names(talk: Talk, version: int) -> None:
    answers = create(talk, *map(wanted, ILLEGAL_NAMES), version=version)

    found = {each.name: (code(each), each.error_message[:22]) for each in answers}
    illegal = (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid:")
    assert found == dict.fromkeys(ILLEGAL_NAMES, illegal)


def test_names_that_look_alike_in_metrics(talk: Talk) -> None:
    name = unique("a_b")
    create_topic(talk, name=name)

    (answer,) = create(talk, wanted(name.replace("_", ".")))

    assert code(answer) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides" in answer.error_message


def test_a_name_that_stands_twice_is_refused_once(talk: Talk) -> None:
    twice, once = unique("contract"), unique("contract")

    answers = create(talk, wanted(twice), wanted(once), wanted(twice, 2))

    found = {each.name: code(each) for each in answers}
    assert (found, len(answers)) == ({twice: ErrorCode.INVALID_REQUEST, once: NONE}, 2)
    wait_until_ready(talk, once, 1)
    assert not exists(talk, twice)


@pytest.mark.parametrize(
    "partitions, factor, expected",
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (0, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (10_001, 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_numbers_that_are_refused(
    talk: Talk, partitions: int, factor: int, expected: ErrorCode
) -> None:
    (answer,) = create(talk, wanted(unique("contract"), partitions, factor))

    assert code(answer) is expected
    assert answer.error_message


def test_assignments(talk: Talk) -> None:
    name = unique("contract")
    (made,) = create(talk, wanted(name, -1, -1, assignments={0: [1], 1: [1]}))
    assert (code(made), made.num_partitions) == (NONE, 2)

    for partitions, factor, assignments, expected in (
        (-1, -1, {0: [2]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {1: [1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {0: []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, {0: [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (1, -1, {0: [1]}, ErrorCode.INVALID_REQUEST),
        (-1, 1, {0: [1]}, ErrorCode.INVALID_REQUEST),
    ):
        topic = wanted(unique("contract"), partitions, factor, assignments=assignments)
        (answer,) = create(talk, topic)
        assert (assignments, code(answer)) == (assignments, expected)


@pytest.mark.parametrize(
    "configs, words",
    [
        ({"no.such.config": "x"}, "Unknown topic config name: no.such.config"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"cleanup.policy": "compact,foo"}, "cleanup.policy"),
        ({"compression.type": "br"}, "compression.type"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "min.cleanable.dirty.ratio"),
        ({"segment.bytes": "1"}, "segment.bytes"),
        ({"message.timestamp.type": "createtime"}, "message.timestamp.type"),
        ({"preallocate": "yes"}, "preallocate"),
    ],
)
def test_configs_that_are_refused(talk: Talk, configs: dict[str, str | None], words: str) -> None:
    (answer,) = create(talk, wanted(unique("contract"), configs=configs))

    assert code(answer) is ErrorCode.INVALID_CONFIG
    assert words in answer.error_message


def test_a_misspelt_config(broker: Subject, talk: Talk) -> None:
    (answer,) = create(talk, wanted(unique("contract"), configs={"retention.mss": "5"}))

    assert code(answer) is ErrorCode.INVALID_CONFIG
    plain, _, hint = answer.error_message.partition("Unknown topic config name: retention.mss")
    assert plain == ""
    assert ("retention.ms" in hint) is broker.expected("create topics: a hint at the right name")


# DeleteTopics


def delete_by_name(talk: Talk, *names: str, version: int) -> list[Any]:
    if version >= 6:
        state = messages.DeleteTopicsRequest.DeleteTopicState
        request = messages.DeleteTopicsRequest([state(name) for name in names])
    else:
        request = messages.DeleteTopicsRequest(topic_names=list(names))
    request.timeout_ms = TIMEOUT_MS
    return list(talk.ask(request, version).responses)


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted(talk: Talk, topic: Topic, version: int) -> None:
    missing = missing_topic().name
    answers = delete_by_name(talk, topic.name, missing, version=version)

    found = {each.name: (code(each), each.error_message) for each in answers}
    # Sentences are told since v5, ids since v6.
    sentence = "This server does not host this topic-partition." if version >= 5 else None
    assert found == {topic.name: (NONE, None), missing: (UNKNOWN, sentence)}
    ids = {each.name: each.topic_id for each in answers}
    assert ids == {topic.name: topic.topic_id if version >= 6 else NO_ID, missing: NO_ID}
    wait_until_gone(talk, topic)
    assert code(produce(talk, topic, batch_of(b"a"))) is UNKNOWN
    assert code(fetch(talk, topic, 0)) is UNKNOWN
    assert code(list_offset(talk, topic.name, -1)) is UNKNOWN


def wait_until_gone(talk: Talk, topic: Topic) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while exists(talk, topic.name) or code(list_offset(talk, topic.name, -1)) is NONE:
        assert time.monotonic() < end_s, f"{topic.name} is still there"


def test_a_topic_that_is_created_again_has_another_id(talk: Talk, topic: Topic) -> None:
    produce(talk, topic, batch_of(b"a"))
    delete_by_name(talk, topic.name, version=6)
    wait_until_gone(talk, topic)

    again = create_topic(talk, name=topic.name)

    assert again.topic_id != topic.topic_id
    assert list_offset(talk, again.name, -1).offset == 0
    assert code(fetch(talk, topic, 0, version=13)) is ErrorCode.UNKNOWN_TOPIC_ID


def test_deletion_by_id(talk: Talk, topic: Topic) -> None:
    missing, state = missing_topic(), messages.DeleteTopicsRequest.DeleteTopicState
    states = [state(None, topic.topic_id), state(None, missing.topic_id), state(missing.name)]

    answers = talk.ask(messages.DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS), 6).responses

    assert {(each.name, each.topic_id, code(each)) for each in answers} == {
        (topic.name, topic.topic_id, NONE),
        (None, missing.topic_id, ErrorCode.UNKNOWN_TOPIC_ID),
        (missing.name, NO_ID, UNKNOWN),
    }
    wait_until_gone(talk, topic)


def test_deletions_that_contradict_themselves(talk: Talk, topic: Topic) -> None:
    state = messages.DeleteTopicsRequest.DeleteTopicState
    for states in (
        [state(None, NO_ID)],
        [state(topic.name, topic.topic_id)],
        [state(topic.name), state(topic.name)],
        [state(None, topic.topic_id), state(None, topic.topic_id)],
    ):
        request = messages.DeleteTopicsRequest(states, timeout_ms=TIMEOUT_MS)
        answers = talk.ask(request, 6).responses
        assert [code(each) for each in answers] == [ErrorCode.INVALID_REQUEST]
    assert exists(talk, topic.name)


# CreatePartitions


def grow(
    talk: Talk,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    version: int = 3,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    request = messages.CreatePartitionsRequest
    topic = request.CreatePartitionsTopic(name, count, None)
    if assignments is not None:
        topic.assignments = [request.CreatePartitionsAssignment(each) for each in assignments]
    (answer,) = talk.ask(request([topic], TIMEOUT_MS, validate_only), version).results
    assert answer.name == name
    return code(answer), answer.error_message


@pytest.mark.parametrize("version", range(4))
def test_topics_only_grow(talk: Talk, topic: Topic, version: int) -> None:
    produce(talk, topic, batch_of(b"a"))

    assert grow(talk, topic.name, 3, version=version, validate_only=True) == (NONE, None)
    assert code(list_offset(talk, topic.name, -1, partition=1)) is UNKNOWN
    assert grow(talk, topic.name, 3, version=version) == (NONE, None)
    wait_until_ready(talk, topic.name, 3)
    assert offsets_of(fetch(talk, topic, 0).records) == [0]

    same = grow(talk, topic.name, 3, version=version)
    assert same == (ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s).")
    error, _ = grow(talk, topic.name, 2, version=version)
    assert error is ErrorCode.INVALID_PARTITIONS
    error, _ = grow(talk, missing_topic().name, 2, version=version)
    assert error is UNKNOWN


def test_assignments_of_new_partitions(talk: Talk, topic: Topic) -> None:
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT

    wrong: list[list[list[int]]] = [[], [[1], [1]], [[7]], [[]], [[1, 1]]]
    for assignments in wrong:
        assert grow(talk, topic.name, 2, assignments)[0] is refused, assignments
    assert grow(talk, topic.name, 2, [[1]]) == (NONE, None)


def test_a_topic_that_stands_twice_does_not_grow(talk: Talk, topic: Topic) -> None:
    wanted_topic = messages.CreatePartitionsRequest.CreatePartitionsTopic
    topics = [wanted_topic(topic.name, 2, None), wanted_topic(topic.name, 3, None)]

    answers = talk.ask(messages.CreatePartitionsRequest(topics, TIMEOUT_MS), 3).results

    assert [(each.name, code(each)) for each in answers] == [
        (topic.name, ErrorCode.INVALID_REQUEST)
    ]


# DeleteRecords


def trim(
    talk: Talk, name: str, offset: int, *, partition: int = 0, version: int = 2
) -> tuple[ErrorCode, int]:
    request = messages.DeleteRecordsRequest
    asked = request.DeleteRecordsTopic(name, [request.DeleteRecordsPartition(partition, offset)])
    (topic,) = talk.ask(request([asked], TIMEOUT_MS), version).topics
    assert topic.name == name
    (answer,) = topic.partitions
    assert answer.partition_index == partition
    return code(answer), answer.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_the_log_start_only_rises(talk: Talk, topic: Topic, version: int) -> None:
    produce(talk, topic, batch_of(b"a", b"b", b"c"))
    out_of_range = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)

    assert trim(talk, topic.name, 1, version=version) == (NONE, 1)
    assert trim(talk, topic.name, 0, version=version) == (NONE, 1), "never back"
    assert trim(talk, topic.name, 4, version=version) == out_of_range
    assert trim(talk, topic.name, -2, version=version) == out_of_range
    assert list_offset(talk, topic.name, -2).offset == 1
    assert trim(talk, topic.name, -1, version=version) == (NONE, 3), "-1 is the end"
    assert list_offset(talk, topic.name, -2).offset == 3
    assert produce(talk, topic, batch_of(b"d")).base_offset == 3


def test_what_cannot_be_trimmed(talk: Talk, topic: Topic) -> None:
    assert trim(talk, missing_topic().name, 0) == (UNKNOWN, -1)
    assert trim(talk, topic.name, 0, partition=5) == (UNKNOWN, -1)
    assert trim(talk, "a b", 0) == (UNKNOWN, -1)
    compacted = create_topic(talk, configs={"cleanup.policy": "compact"})
    assert trim(talk, compacted.name, 0) == (ErrorCode.POLICY_VIOLATION, -1)
    both = create_topic(talk, configs={"cleanup.policy": "compact,delete"})
    assert trim(talk, both.name, 0) == (NONE, 0)


def test_configs_at_birth_are_told_afterwards(talk: Talk) -> None:
    topic = create_topic(talk, configs={"retention.ms": " 5000 ", "cleanup.policy": "compact"})

    told = topic_configs(talk, topic.name, "retention.ms", "cleanup.policy")

    assert told == {"retention.ms": "5000", "cleanup.policy": "compact"}
