"""DeleteTopics: by name, by id, and what is refused."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import DeleteTopicsRequest
from tests.delivery.dialects.kafka.desk import Desk

State = DeleteTopicsRequest.DeleteTopicState
Answer = tuple[str | None, ErrorCode, str | None]

GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
GONE_MESSAGE = "This server does not host this topic-partition."
BAD = ErrorCode.INVALID_REQUEST


def delete(desk: Desk, *asked: str | bytes | tuple[str, bytes] | None) -> list[Answer]:
    states = []
    for one in asked:
        if isinstance(one, tuple):
            states.append(State(*one))
        elif isinstance(one, bytes):
            states.append(State(None, one))
        else:
            states.append(State(one))
    response = desk.ask(DeleteTopicsRequest(states))
    return [
        (result.name, ErrorCode(result.error_code), result.error_message)
        for result in response.responses
    ]


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic(name, 1, {}) for name in ("a", "b", "c")])
    return desk


def topic_id(desk: Desk, name: str) -> bytes:
    topic = desk.broker.topics.get(name)
    assert topic is not None
    return topic.topic_id


def test_by_name_and_by_id(desk: Desk) -> None:
    b_id = topic_id(desk, "b")
    response = desk.ask(DeleteTopicsRequest([State("a"), State(None, b_id)]))
    assert [(result.name, result.error_code) for result in response.responses] == [
        ("a", 0),
        ("b", 0),
    ]
    assert response.responses[1].topic_id == b_id
    assert [topic.name for topic in desk.broker.topics] == ["c"]


def test_stays_deleted_after_a_crash_and_comes_back_as_another(desk: Desk) -> None:
    before = topic_id(desk, "a")
    desk.append("a", count=3)
    delete(desk, "a")
    desk.crash()
    assert desk.broker.topics.get("a") is None
    desk.broker.topics.create([NewTopic("a", 1, {})])
    assert topic_id(desk, "a") != before
    partition = desk.broker.topics.partition("a", 0)
    assert partition is not None
    assert partition.log.log_end_offset == 0


def test_what_does_not_exist(desk: Desk) -> None:
    assert delete(desk, "none", "a b", "") == [
        ("none", GONE, GONE_MESSAGE),
        ("a b", GONE, GONE_MESSAGE),
        ("", GONE, GONE_MESSAGE),
    ]
    unknown = b"u" * 16
    response = desk.ask(DeleteTopicsRequest([State(None, unknown)])).responses[0]
    assert (response.name, response.topic_id, response.error_code, response.error_message) == (
        None,
        unknown,
        ErrorCode.UNKNOWN_TOPIC_ID,
        "This server does not host this topic ID.",
    )


def test_whoever_is_named_twice_stays(desk: Desk) -> None:
    a_id = topic_id(desk, "a")
    assert delete(desk, "a", "a") == [("a", BAD, "Duplicate topic name.")]
    assert delete(desk, a_id, a_id) == [(None, BAD, "Duplicate topic id.")]
    assert delete(desk, "none", "none") == [("none", BAD, "Duplicate topic name.")]
    both = "The provided topic name maps to an ID that was already supplied."
    assert delete(desk, "a", "b")[1] == ("b", ErrorCode.NONE, None)
    assert delete(desk, "c", topic_id(desk, "c"))[0] == ("c", BAD, both)


def test_name_or_id_but_not_both_and_not_neither(desk: Desk) -> None:
    a_id = topic_id(desk, "a")
    assert delete(desk, ("a", a_id), None) == [
        ("a", BAD, "You may not specify both topic name and topic id."),
        (None, BAD, "Neither topic name nor id were specified."),
    ]
    assert topic_id(desk, "a") == a_id


@pytest.mark.parametrize("version", range(1, 6))
def test_versions_before_ids(desk: Desk, version: int) -> None:
    request = DeleteTopicsRequest(topic_names=["a", "none", "b", "b"])
    results = desk.ask(request, version).responses
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.NONE),
        ("none", GONE),
        ("b", BAD),
    ]
    assert results[1].error_message == (GONE_MESSAGE if version >= 5 else None)


def test_a_broker_may_forbid_it() -> None:
    desk = Desk({"delete.topic.enable": "false"})
    desk.broker.topics.create([NewTopic("a", 1, {})])
    assert delete(desk, "a") == [
        ("a", ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    ]
    old = desk.ask(DeleteTopicsRequest(topic_names=["a"]), 2).responses[0]
    assert old.error_code == BAD


def test_a_full_disk_keeps_the_topic(desk: Desk) -> None:
    desk.disk.fail_at(desk.disk.operations + 1, OSError(28, "No space left on device"))
    assert delete(desk, "a")[0][1] == ErrorCode.KAFKA_STORAGE_ERROR
    assert desk.broker.topics.get("a") is not None


@pytest.mark.parametrize(
    "name, next_step",
    [
        ("__consumer_offsets", "DeleteGroups"),
        ("__transaction_state", "transactional.id.expiration.ms"),
    ],
)
def test_topics_that_hold_the_brokers_state_stay(desk: Desk, name: str, next_step: str) -> None:
    desk.broker.create_on_demand([name], allowed=True)
    ((_, code, message),) = delete(desk, name)
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (message or "").startswith(f"{name} holds all ")
    assert next_step in (message or "")
    assert desk.broker.topics.get(name) is not None
