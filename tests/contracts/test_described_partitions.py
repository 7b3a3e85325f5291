"""DescribeTopicPartitions: topics page by page."""

from typing import Any, NamedTuple

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    code,
    create_topic,
    list_offset,
    missing_topic,
    unique,
)

Request = messages.DescribeTopicPartitionsRequest
Cursor = Request.Cursor
NODE = 1
TOPIC_OPERATIONS = 3576
NOT_ASKED = -(2**31)
NO_ID = bytes(16)


class Page(NamedTuple):
    """One answer: the partitions of each topic or its error, and the cursor."""

    topics: list[tuple[str, list[int] | ErrorCode]]
    cursor: tuple[str, int] | None


def ask(
    talk: Talk, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:  # noqa: ANN401 - the response
    where = None if cursor is None else Cursor(*cursor)
    return talk.ask(Request([Request.TopicRequest(name) for name in names], limit, where), 0)


def page(
    talk: Talk, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Page:
    answer = ask(talk, names, limit, cursor)
    following = answer.next_cursor
    return Page(
        [
            (
                topic.name,
                code(topic)
                if topic.error_code
                else [each.partition_index for each in topic.partitions],
            )
            for topic in answer.topics
        ],
        (following.topic_name, following.partition_index) if following else None,
    )


class Three(NamedTuple):
    """Three topics with three partitions each, in the order of their names."""

    a: str
    b: str
    c: str


@pytest.fixture(scope="module")
def three(broker: Subject) -> Three:
    """Create the topics; none of the tests changes them."""
    prefix = unique("pages")
    with broker.connect() as talk:
        for letter in "cab":
            create_topic(talk, partitions=3, name=f"{prefix}-{letter}")
    return Three(*(f"{prefix}-{letter}" for letter in "abc"))


def test_everything_about_a_topic(talk: Talk) -> None:
    topic = create_topic(talk, partitions=2)
    epoch = list_offset(talk, topic.name, -1).leader_epoch

    answer = ask(talk, [topic.name])

    assert (answer.throttle_time_ms, answer.next_cursor) == (0, None)
    (found,) = answer.topics
    assert (code(found), found.name, found.topic_id) == (ErrorCode.NONE, *topic)
    assert (found.is_internal, found.topic_authorized_operations) == (False, TOPIC_OPERATIONS)
    for index, partition in enumerate(found.partitions):
        assert (code(partition), partition.partition_index) == (ErrorCode.NONE, index)
        assert (partition.leader_id, partition.leader_epoch) == (NODE, epoch)
        assert (partition.replica_nodes, partition.isr_nodes) == ([NODE], [NODE])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert partition.offline_replicas == []


def test_topics_come_sorted_and_once(talk: Talk, three: Three) -> None:
    whole = [0, 1, 2]
    found = page(talk, [three.b, three.a, three.b])

    assert found == Page([(three.a, whole), (three.b, whole)], None)


def test_missing_topics(talk: Talk) -> None:
    missing, wrong = missing_topic().name, "not a name!"

    answer = ask(talk, [missing, wrong])

    assert [
        (topic.name, code(topic), topic.topic_id, topic.topic_authorized_operations)
        for topic in answer.topics
    ] == [
        (missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_ID, TOPIC_OPERATIONS),
        (wrong, ErrorCode.INVALID_TOPIC_EXCEPTION, NO_ID, TOPIC_OPERATIONS),
    ]
    assert page(talk, [missing]).topics == [(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)], (
        "asking creates nothing"
    )


def test_a_topic_without_a_name(broker: Subject, talk: Talk, three: Three) -> None:
    found = page(talk, [three.a, ""])

    assert sorted(found.topics) == sorted(
        (three.a if name == "a" else "", result)
        for name, result in broker.expected("describe topic partitions: no name")
    )


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
def test_pages(talk: Talk, three: Three, limit: int) -> None:
    everything = [(name, index) for name in three for index in range(3)]
    cursor: tuple[str, int] | None = None
    found: list[tuple[str, int]] = []
    while True:
        topics, cursor = page(talk, list(three), limit, cursor)
        part = [(name, index) for name, indexes in topics for index in indexes]  # type: ignore[union-attr]
        assert part == everything[len(found) : len(found) + limit]
        found += part
        assert cursor == (everything[len(found)] if len(found) < len(everything) else None)
        if cursor is None:
            break
    assert found == everything


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_the_smallest_page(talk: Talk, three: Three, limit: int) -> None:
    assert page(talk, list(three), limit) == Page([(three.a, [0])], (three.a, 1))


def test_errors_take_no_room(talk: Talk, three: Three) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    before, behind = f"{three.a}.", f"{three.b}."
    assert before < three.b < behind

    names = [before, three.b, behind]
    assert page(talk, names, 3) == Page([(before, unknown), (three.b, [0, 1, 2])], (behind, 0))
    assert page(talk, names, 3, (behind, 0)) == Page([(behind, unknown)], None)
    assert page(talk, names, 3, (behind, 5)) == Page([(behind, unknown)], None)
    assert page(talk, names, 2) == Page([(before, unknown), (three.b, [0, 1])], (three.b, 2))
    missing = [missing_topic().name for _ in range(3)]
    assert page(talk, missing, 2) == Page([(name, unknown) for name in sorted(missing)], None)


def test_a_cursor_behind_the_last_partition(talk: Talk, three: Three) -> None:
    whole = [0, 1, 2]
    names = list(three)
    assert page(talk, names, 3, (three.b, 3)) == Page([(three.b, []), (three.c, whole)], None)
    assert page(talk, names, 3, (three.b, 99)) == Page([(three.b, []), (three.c, whole)], None)
    assert page(talk, names, 3, (three.c, 3)) == Page([(three.c, [])], None)


def test_cursors_that_lead_nowhere(talk: Talk, three: Three) -> None:
    for cursor in ((f"{three.a}.", 1), ("~", 0), ("", 0), (three.c, -1)):
        answer = ask(talk, list(three), 3, cursor)

        assert answer.next_cursor is None
        assert [(topic.name, code(topic)) for topic in answer.topics] == [
            (name, ErrorCode.INVALID_REQUEST) for name in three
        ]
        assert {topic.topic_authorized_operations for topic in answer.topics} == {NOT_ASKED}


def test_all_topics(talk: Talk, three: Three) -> None:
    names = [topic.name for topic in ask(talk, []).topics]
    assert names == sorted(names)
    assert set(three) <= set(names)
    at = names.index(three.a)
    assert names[at : at + 3] == list(three)

    whole = [0, 1, 2]
    assert page(talk, [], 4, (three.a, 0)) == Page([(three.a, whole), (three.b, [0])], (three.b, 1))
    gone = f"{three.a}."
    assert page(talk, [], 3, (gone, 2)).topics == [(three.b, whole)], "one that is gone"
    assert page(talk, [], 3, ("~", 0)) == Page([], None)
    assert page(talk, [], 3, (three.a, -1)) == Page([], None)
    assert page(talk, [], 3, ("", 1)).topics[0][0] == names[0]
