"""CreateTopics: what is created, what is refused, and in which words."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.settings import TOPIC_SETTINGS
from headwater.delivery.wire.kafka.messages import CreateTopicsRequest, CreateTopicsResponse
from tests.delivery.dialects.kafka.desk import Desk

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig
Result = CreateTopicsResponse.CreatableTopicResult

NO_ID = bytes(16)


def topic(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: list[tuple[int, list[int]]] | None = None,
    **configs: str | None,
) -> CreateTopicsRequest.CreatableTopic:
    return Topic(
        name,
        partitions,
        replication_factor,
        [Assignment(index, brokers) for index, brokers in assignments or ()],
        [Config(key.replace("_", "."), value) for key, value in configs.items()],
    )


def create(
    desk: Desk,
    *topics: CreateTopicsRequest.CreatableTopic,
    version: int | None = None,
    validate_only: bool = False,
) -> dict[str, CreateTopicsResponse.CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return {result.name: result for result in desk.ask(request, version).topics}


def refusal(desk: Desk, wanted: CreateTopicsRequest.CreatableTopic) -> tuple[ErrorCode, str | None]:
    result = create(desk, wanted)[wanted.name]
    assert (result.topic_id, result.num_partitions, result.replication_factor) == (NO_ID, -1, -1)
    assert result.configs == []
    return ErrorCode(result.error_code), result.error_message


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_topic_is_there_when_the_answer_is_and_after_a_crash(desk: Desk) -> None:
    result = create(desk, topic("orders", 3, retention_ms="5000"))["orders"]
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)

    desk.crash()
    stored = desk.broker.topics.get("orders")
    assert stored is not None
    assert (stored.topic_id, len(stored.partitions)) == (result.topic_id, 3)
    assert stored.config.retention_ms == 5000


def test_tells_every_config_with_its_source(desk: Desk) -> None:
    result = create(desk, topic("orders", retention_ms=" 5000 "))["orders"]
    assert result.configs is not None
    told = {config.name: config for config in result.configs}
    assert told.keys() == TOPIC_SETTINGS.keys()
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("5000", 1)
    assert (told["flush.messages"].value, told["flush.messages"].config_source) == ("1", 5)


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version(desk: Desk, version: int) -> None:
    results = create(desk, topic("a"), topic("."), version=version)
    assert {name: result.error_code for name, result in results.items()} == {
        "a": ErrorCode.NONE,
        ".": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert results["."].error_message == "Topic name is invalid: '.' is not allowed"
    assert (results["a"].topic_id != NO_ID) == (version >= 7)
    assert (results["a"].num_partitions == 1) == (version >= 5)


def test_minus_one_leaves_the_numbers_to_the_broker() -> None:
    desk = Desk({"num.partitions": "6"})
    assert create(desk, topic("a", -1, -1))["a"].num_partitions == 6


def test_validate_only_creates_nothing(desk: Desk) -> None:
    result = create(desk, topic("a", 2), validate_only=True)["a"]
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 2, NO_ID)
    assert desk.broker.topics.get("a") is None
    create(desk, topic("a"))
    assert create(desk, topic("a"), validate_only=True)["a"].error_code == 36


INVALID = ErrorCode.INVALID_TOPIC_EXCEPTION
CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize(
    "name, problem",
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("../x", f"'../x' {CHARACTERS}"),
        ("/etc/passwd", f"'/etc/passwd' {CHARACTERS}"),
        ("a b", f"'a b' {CHARACTERS}"),
        ("a\n", f"'a\n' {CHARACTERS}"),
        ("a\0", f"'a\0' {CHARACTERS}"),
        ("ä", f"'ä' {CHARACTERS}"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_bad_names(desk: Desk, name: str, problem: str) -> None:
    before = desk.disk.list_directory("/data/log")
    assert refusal(desk, topic(name)) == (INVALID, f"Topic name is invalid: {problem}")
    assert desk.disk.list_directory("/data/log") == before


def test_the_longest_name_can_be_written_to_and_deleted(desk: Desk) -> None:
    name = "x" * 249
    create(desk, topic(name))
    desk.append(name)
    desk.broker.topics.delete(name)


def test_names_that_would_be_one_metric_collide(desk: Desk) -> None:
    create(desk, topic("a.b"))
    message = "Topic 'a_b' collides with existing topic: a.b"
    assert refusal(desk, topic("a_b")) == (INVALID, message)
    assert create(desk, topic("a.b"))["a.b"].error_message == "Topic 'a.b' already exists."


@pytest.mark.parametrize(
    "wanted, code, message",
    [
        (
            topic("a", 0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("a", -2, -1),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic("a", 0, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic("a", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
                "cannot be reached because only 1 broker(s) are registered."
            ),
        ),
        (
            topic("a", 1, 3, retention_ms="x"),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            topic("a", retention_mss="1"),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: retention.mss; did you mean retention.ms?",
        ),
        (
            topic("a", headwater_overflow="drop"),
            ErrorCode.INVALID_CONFIG,
            "headwater.overflow=drop needs a bound: set headwater.overflow.bytes too",
        ),
        (
            topic("a", 10_001),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (
            topic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            topic("__consumer_offsets"),
            ErrorCode.INVALID_CONFIG,
            (
                "__consumer_offsets holds all groups and their offsets: cleanup.policy=delete "
                "would delete what is old but still in force; it must be compact."
            ),
        ),
        (
            topic("__transaction_state", cleanup_policy="compact", flush_messages="2"),
            ErrorCode.INVALID_CONFIG,
            (
                "__transaction_state holds all transactional ids and the outcomes of their "
                "transactions: flush.messages=2 would lose what was answered when the machine "
                "dies; it must be 1."
            ),
        ),
    ],
)
def test_refusals(
    desk: Desk, wanted: CreateTopicsRequest.CreatableTopic, code: ErrorCode, message: str
) -> None:
    assert refusal(desk, wanted) == (code, message)
    assert len(desk.broker.topics) == 0


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_a_topic_for_the_brokers_state_that_keeps_it(desk: Desk, name: str) -> None:
    wanted = topic(name, 2, cleanup_policy="compact", retention_ms="1000")
    assert create(desk, wanted)[name].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "assignments, problem",
    [
        ([(0, [2])], "includes broker 2, but no such broker is registered."),
        ([(0, [1, 1])], "includes the broker 1 more than once."),
        ([(0, [])], "includes an empty replica list."),
    ],
)
def test_brokers_that_cannot_hold_a_partition(
    desk: Desk, assignments: list[tuple[int, list[int]]], problem: str
) -> None:
    assert refusal(desk, topic("a", -1, -1, assignments)) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"The manual partition assignment {problem}",
    )


@pytest.mark.parametrize(
    "wanted, code, message",
    [
        (
            topic("a", -1, -1, [(1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic("a", -1, -1, [(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            topic("a", 3, -1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            topic("a", 3, 1, [(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            (
                "A manual partition assignment was specified, "
                "but replication factor was not set to -1."
            ),
        ),
    ],
)
def test_assignments_that_make_no_sense(
    desk: Desk, wanted: CreateTopicsRequest.CreatableTopic, code: ErrorCode, message: str
) -> None:
    assert refusal(desk, wanted) == (code, message)


def test_a_manual_assignment_to_this_broker_sets_the_number_of_partitions(desk: Desk) -> None:
    wanted = topic("a", -1, -1, [(1, [1]), (0, [1])])
    assert create(desk, wanted)["a"].num_partitions == 2


def test_a_name_that_stands_twice_is_not_created_and_spoils_no_other(desk: Desk) -> None:
    request = CreateTopicsRequest([topic("a"), topic("b"), topic("a", 2)])
    results = desk.ask(request).topics
    assert [(result.name, result.error_code, result.error_message) for result in results] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("b", ErrorCode.NONE, None),
    ]
    assert [found.name for found in desk.broker.topics] == ["b"]


def test_too_many_partitions_in_a_request_refuse_all_its_topics(desk: Desk) -> None:
    results = create(desk, topic("a", 6_000), topic("b", 6_000))
    assert {result.error_code for result in results.values()} == {ErrorCode.POLICY_VIOLATION}


def test_the_broker_holds_only_so_many_partitions() -> None:
    desk = Desk({"headwater.max.partitions": "10"})
    results = create(desk, topic("a", 6), topic("b", 5), topic("c", 4))
    assert [result.error_code for result in results.values()] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert "headwater.max.partitions" in (results["b"].error_message or "")


def test_a_full_disk_creates_none_of_them(desk: Desk) -> None:
    desk.disk.fail_at(desk.disk.operations + 1, OSError(28, "No space left on device"))
    results = create(desk, topic("a"), topic("b"))
    assert {result.error_code for result in results.values()} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len(desk.broker.topics) == 0
    assert create(desk, topic("a"))["a"].error_code == 0
