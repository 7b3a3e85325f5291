"""Alter- and ListPartitionReassignments, AlterReplicaLogDirs: where replicas lie and may go."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk, Topic, code, create_topic, missing_topic

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT
NODE = 1


# AlterPartitionReassignments


def reassign(
    talk: Talk,
    *topics: tuple[str, list[tuple[int, list[int] | None]]],
    version: int = 1,
    allow_change: bool = True,
) -> list[tuple[str, list[tuple[int, ErrorCode, str | None]]]]:
    asked = messages.AlterPartitionReassignmentsRequest
    wanted = [
        asked.ReassignableTopic(name, [asked.ReassignablePartition(*each) for each in partitions])
        for name, partitions in topics
    ]
    request = asked(10_000, topics=wanted)
    if version >= 1:
        request.allow_replication_factor_change = allow_change
    answer = talk.ask(request, version)
    assert (code(answer), answer.error_message) == (NONE, None if topics else "")
    assert answer.allow_replication_factor_change is (allow_change or not topics)
    return [
        (
            topic.name,
            [(each.partition_index, code(each), each.error_message) for each in topic.partitions],
        )
        for topic in answer.responses
    ]


@pytest.mark.parametrize("version, allow_change", [(0, True), (1, True), (1, False)])
def test_the_one_possible_assignment(talk: Talk, version: int, allow_change: bool) -> None:
    name = create_topic(talk, partitions=2).name

    def ask(*topics: tuple[str, list[tuple[int, list[int] | None]]]) -> object:
        return reassign(talk, *topics, version=version, allow_change=allow_change)

    assert ask((name, [(1, [NODE]), (0, [NODE])]), (name, [(0, [NODE])]), (name, [])) == [
        (name, [(1, NONE, None), (0, NONE, None)]),
        (name, [(0, NONE, None)]),
        (name, []),
    ]
    assert ask() == []


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "replicas, why",
    [
        ([2], "broker 2, but no such broker is registered."),
        ([1, 2], "broker 2, but no such broker is registered."),
        ([3, 2], "broker 2, but no such broker is registered."),
        ([-1], "broker -1, but no such broker is registered."),
        ([1, 1], "the broker 1 more than once."),
        ([], "an empty replica list."),
    ],
)
def test_impossible_assignments(
    talk: Talk, topic: Topic, replicas: list[int], why: str, version: int
) -> None:
    message = f"The manual partition assignment includes {why}"

    assert reassign(talk, (topic.name, [(0, replicas)]), version=version) == [
        (topic.name, [(0, INVALID, message)])
    ]


def test_nothing_can_be_cancelled(talk: Talk, topic: Topic) -> None:
    assert reassign(talk, (topic.name, [(0, None)])) == [
        (topic.name, [(0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)])
    ]


def test_what_does_not_exist_is_not_assigned(talk: Talk, topic: Topic) -> None:
    missing = missing_topic().name
    nowhere = f"Unable to find a topic named {missing}."

    def lost(index: int) -> tuple[int, ErrorCode, str]:
        return index, UNKNOWN, f"Unable to find partition {topic.name}:{index}."

    assert reassign(
        talk, (topic.name, [(7, [2]), (-1, [1]), (8, None)]), (missing, [(0, [1]), (1, None)])
    ) == [
        (topic.name, [lost(7), lost(-1), lost(8)]),
        (missing, [(0, UNKNOWN, nowhere), (1, UNKNOWN, nowhere)]),
    ]


# ListPartitionReassignments


def test_nothing_is_on_the_move(talk: Talk, topic: Topic) -> None:
    wanted = messages.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    missing = wanted(missing_topic().name, [0])
    for topics in (None, [], [wanted(topic.name, [0, 9])], [missing], [wanted(topic.name, [])]):
        request = messages.ListPartitionReassignmentsRequest(10_000, topics)
        answer = talk.ask(request, 0)

        assert (code(answer), answer.error_message, answer.topics) == (NONE, None, [])


# AlterReplicaLogDirs


def move(
    talk: Talk, *directories: tuple[str, list[tuple[str, list[int]]]], version: int
) -> dict[tuple[str, int], ErrorCode]:
    asked = messages.AlterReplicaLogDirsRequest
    request = asked(
        [
            asked.AlterReplicaLogDir(
                path, [asked.AlterReplicaLogDirTopic(*topic) for topic in topics]
            )
            for path, topics in directories
        ]
    )
    results = talk.ask(request, version).results
    found = [
        ((topic.topic_name, each.partition_index), code(each))
        for topic in results
        for each in topic.partitions
    ]
    assert len(found) == len(dict(found)), "each once"
    return dict(found)


@pytest.mark.parametrize("version", [1, 2])
def test_replicas_stay_where_they_are(talk: Talk, version: int) -> None:
    name = create_topic(talk, partitions=2).name
    missing = missing_topic().name
    (directory,) = talk.ask(messages.DescribeLogDirsRequest(None), 4).results
    here = directory.log_dir
    elsewhere = ErrorCode.LOG_DIR_NOT_FOUND

    def ask(
        *directories: tuple[str, list[tuple[str, list[int]]]],
    ) -> dict[tuple[str, int], ErrorCode]:
        return move(talk, *directories, version=version)

    assert ask() == {}
    assert ask((here, [(name, [])])) == {}
    assert ask((here, [(name, [0]), (name, [1, 1])])) == {(name, 0): NONE, (name, 1): NONE}
    assert ask((here, [(name, [9, -1]), (missing, [0])])) == {
        (name, 9): UNKNOWN,
        (name, -1): UNKNOWN,
        (missing, 0): UNKNOWN,
    }
    for path in ("/nowhere", "nowhere", "", f"{here}/"):
        assert ask((path, [(name, [0, 9]), (missing, [0])])) == {
            (name, 0): elsewhere,
            (name, 9): elsewhere,
            (missing, 0): elsewhere,
        }
    assert ask((here, [(name, [0])]), ("/nowhere", [(name, [0, 1])])) == {
        (name, 0): elsewhere,
        (name, 1): elsewhere,
    }
