"""CreatePartitions: topics grow and never shrink."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import CreatePartitionsRequest
from tests.delivery.dialects.kafka.desk import Desk

Topic = CreatePartitionsRequest.CreatePartitionsTopic
Assignment = CreatePartitionsRequest.CreatePartitionsAssignment

SIZE = ErrorCode.INVALID_PARTITIONS
PLACE = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic("a", 2, {}), NewTopic("b", 1, {})])
    return desk


def grow(
    desk: Desk,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    name: str = "a",
    version: int | None = None,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    given = None if assignments is None else [Assignment(brokers) for brokers in assignments]
    request = CreatePartitionsRequest([Topic(name, count, given)], validate_only=validate_only)
    (result,) = desk.ask(request, version).results
    assert result.name == name
    return ErrorCode(result.error_code), result.error_message


def partitions(desk: Desk, name: str = "a") -> int:
    topic = desk.broker.topics.get(name)
    assert topic is not None
    return len(topic.partitions)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_can_be_written_to_at_once_and_after_a_crash(
    desk: Desk, version: int
) -> None:
    assert grow(desk, 5, version=version) == (ErrorCode.NONE, None)
    desk.append("a", 4)
    desk.crash()
    assert partitions(desk) == 5
    partition = desk.broker.topics.partition("a", 4)
    assert partition is not None
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize(
    "count, message",
    [
        (2, "Topic already has 2 partition(s)."),
        (1, "The topic a currently has 2 partition(s); 1 would not be an increase."),
        (0, "The topic a currently has 2 partition(s); 0 would not be an increase."),
        (-1, "The topic a currently has 2 partition(s); -1 would not be an increase."),
    ],
)
def test_a_topic_never_shrinks(desk: Desk, count: int, message: str) -> None:
    assert grow(desk, count) == (SIZE, message)
    assert grow(desk, count, validate_only=True) == (SIZE, message)
    assert partitions(desk) == 2


@pytest.mark.parametrize(
    "assignments, message",
    [
        ([[1]], "Attempted to add 2 additional partition(s), but only 1 assignment(s) were speci"),
        ([], "Attempted to add 2 additional partition(s), but only 0 assignment(s) were specif"),
        ([[1], [7]], "The manual partition assignment includes broker 7, but no such broker is re"),
        ([[1], []], "The manual partition assignment includes an empty replica list."),
        ([[1], [1, 1]], "The manual partition assignment includes the broker 1 more than once."),
    ],
)
def test_assignments_must_name_this_broker_once_each(
    desk: Desk, assignments: list[list[int]], message: str
) -> None:
    code, told = grow(desk, 4, assignments)
    assert code == PLACE
    assert (told or "").startswith(message)


def test_a_right_assignment(desk: Desk) -> None:
    assert grow(desk, 4, [[1], [1]]) == (ErrorCode.NONE, None)


def test_validate_only_adds_nothing(desk: Desk) -> None:
    assert grow(desk, 4, validate_only=True) == (ErrorCode.NONE, None)
    assert partitions(desk) == 2


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("validate_only", [True, False])
def test_topics_that_hold_the_brokers_state_do_not_grow(
    desk: Desk, name: str, validate_only: bool
) -> None:
    desk.broker.create_on_demand([name], allowed=True)
    before = partitions(desk, name)
    code, message = grow(desk, before + 1, name=name, validate_only=validate_only)
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (message or "").startswith(f"{name} holds all ")
    assert grow(desk, before, name=name)[0] == SIZE
    assert partitions(desk, name) == before


def test_topics_that_are_not_there(desk: Desk) -> None:
    for name in ("none", "a b", ".."):
        assert grow(desk, 4, name=name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)


def test_a_topic_named_twice_stays_and_spoils_no_other(desk: Desk) -> None:
    request = CreatePartitionsRequest(
        [Topic("a", 3, None), Topic("b", 3, None), Topic("a", 4, None)]
    )
    results = desk.ask(request).results
    assert [(result.name, result.error_code, result.error_message) for result in results] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("b", ErrorCode.NONE, None),
    ]
    assert (partitions(desk), partitions(desk, "b")) == (2, 3)


def test_there_are_limits() -> None:
    desk = Desk({"headwater.max.partitions": "10"})
    desk.broker.topics.create([NewTopic("a", 2, {})])
    code, message = grow(desk, 11)
    assert code == ErrorCode.POLICY_VIOLATION
    assert "headwater.max.partitions" in (message or "")
    assert grow(desk, 10) == (ErrorCode.NONE, None)
    assert grow(desk, 20_000)[0] == ErrorCode.POLICY_VIOLATION
