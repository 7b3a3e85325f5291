"""Metadata: topics that come into being by being mentioned."""

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka.messages import DeleteTopicsRequest, MetadataRequest
from tests.delivery.dialects.kafka.desk import Desk

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def mention(desk: Desk, *names: str, client_id: str = "desk") -> dict[str, int]:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics, allow_auto_topic_creation=True)
    answer = desk.ask(request, 9, client_id=client_id)
    return {each.name: each.error_code for each in answer.topics}


def syncs_of(desk: Desk, *names: str) -> int:
    before = len(desk.disk.trace)
    assert mention(desk, *names) == dict.fromkeys(names, UNKNOWN)
    assert mention(desk, *names) == dict.fromkeys(names, ErrorCode.NONE)
    return sum(operation.kind == "sync" for operation in desk.disk.trace[before:])


def test_a_thousand_topics_cost_as_many_syncs_as_one() -> None:
    desk = Desk()
    one = syncs_of(desk, "first")
    assert one > 0
    assert syncs_of(desk, *(f"t{index}" for index in range(1_000))) == one


def test_a_full_disk_creates_none_of_them() -> None:
    desk = Desk()
    desk.disk.fail_at(desk.disk.operations + 1, OSError(28, "No space left on device"))
    assert mention(desk, "a", "b") == dict.fromkeys("ab", ErrorCode.KAFKA_STORAGE_ERROR)
    assert len(desk.broker.topics) == 0


def test_a_name_that_collides_keeps_no_other_from_being_created() -> None:
    desk = Desk()
    mention(desk, "a.b")
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert mention(desk, "a_b", "c", "d e") == {"a_b": invalid, "c": UNKNOWN, "d e": invalid}
    assert mention(desk, "c") == {"c": ErrorCode.NONE}


def test_a_client_does_not_bring_back_the_topic_that_it_has_just_deleted() -> None:
    desk = Desk()
    mention(desk, "orders")
    (deleted,) = desk.ask(DeleteTopicsRequest(topic_names=["orders"]), 5).responses
    assert deleted.error_code == ErrorCode.NONE

    for _ in range(4):
        assert mention(desk, "orders") == {"orders": UNKNOWN}
        desk.clock.advance(400)
    assert desk.broker.topics.get("orders") is None

    desk.clock.advance(400)
    mention(desk, "orders")
    assert mention(desk, "orders") == {"orders": ErrorCode.NONE}


def test_a_client_of_another_machine_may_have_the_same_id() -> None:
    desk = Desk()
    mention(desk, "orders")
    desk.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)

    desk.line.host = "/127.0.0.2"
    assert mention(desk, "orders") == {"orders": UNKNOWN}
    assert mention(desk, "orders") == {"orders": ErrorCode.NONE}


def test_another_client_creates_a_deleted_topic_at_once() -> None:
    desk = Desk()
    mention(desk, "orders")
    desk.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)

    assert mention(desk, "orders", client_id="other") == {"orders": UNKNOWN}
    assert mention(desk, "orders", client_id="other") == {"orders": ErrorCode.NONE}
