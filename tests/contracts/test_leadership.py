"""OffsetForLeaderEpoch, ElectLeaders, DescribeQuorum: who leads."""

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
    list_offset,
    missing_topic,
    now_ms,
    produce,
    unique,
)

NODE_ID = 1
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOTHING = (-1, -1)

# OffsetForLeaderEpoch

EpochsRequest = messages.OffsetForLeaderEpochRequest
EpochsTopic = EpochsRequest.OffsetForLeaderTopic
EpochsPartition = EpochsRequest.OffsetForLeaderPartition


def ends(
    talk: Talk, *topics: tuple[str, list[tuple[int, int, int]]], version: int = 4
) -> list[tuple[str, list[tuple[int, ErrorCode, int, int]]]]:
    """Ask with (partition, current leader epoch, leader epoch) of each topic."""
    request = EpochsRequest(
        topics=[
            EpochsTopic(name, [EpochsPartition(*each) for each in asked]) for name, asked in topics
        ]
    )
    return [
        (
            topic.topic,
            [
                (each.partition, code(each), each.leader_epoch, each.end_offset)
                for each in topic.partitions
            ],
        )
        for topic in talk.ask(request, version).topics
    ]


def end(talk: Talk, topic: Topic, current: int, epoch: int, version: int = 4) -> Any:  # noqa: ANN401 - (code, epoch, offset)
    (((_, answers),)) = ends(talk, (topic.name, [(0, current, epoch)]), version=version)
    ((_, *found),) = answers
    return tuple(found)


@pytest.fixture
def epoch(talk: Talk, topic: Topic) -> int:
    """Write two records, and give the epoch in which they are."""
    assert code(produce(talk, topic, batch_of(b"a", b"b"))) is NONE
    epoch: int = list_offset(talk, topic.name, -1).leader_epoch
    return epoch


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(talk: Talk, topic: Topic, epoch: int, version: int) -> None:
    for current in (-1, epoch):
        assert end(talk, topic, current, epoch, version) == (NONE, epoch, 2)
        assert end(talk, topic, current, epoch + 1, version) == (NONE, *NOTHING)
        assert end(talk, topic, current, 2**31 - 1, version) == (NONE, *NOTHING)
        assert end(talk, topic, current, -1, version) == (NONE, *NOTHING)
    assert end(talk, topic, epoch + 1, epoch, version) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert end(talk, topic, -2, epoch, version) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


def test_an_epoch_before_all_others(talk: Talk, topic: Topic, epoch: int) -> None:
    del epoch
    assert end(talk, topic, -1, -5) == (NONE, -5, 0)


@pytest.mark.parametrize("replica_id", [-2, -1, 1])
def test_whoever_asks(talk: Talk, topic: Topic, epoch: int, replica_id: int) -> None:
    asked = EpochsTopic(topic.name, [EpochsPartition(0, -1, epoch)])
    ((answer,),) = [
        each.partitions for each in talk.ask(EpochsRequest(replica_id, [asked]), 4).topics
    ]
    assert (code(answer), answer.leader_epoch, answer.end_offset) == (NONE, epoch, 2)


def test_what_does_not_exist_has_no_epochs(talk: Talk) -> None:
    topic = create_topic(talk, partitions=2)
    epoch = list_offset(talk, topic.name, -1).leader_epoch
    missing = missing_topic().name
    asked = [(index, -1, epoch) for index in (1, 0, 2, -1, 1)]
    unknown = [(index, UNKNOWN, -1, -1) for index in (2, -1)]

    assert ends(talk, (topic.name, asked), (missing, [(0, -1, 0)]), ("", []), (topic.name, [])) == [
        (topic.name, [(1, NONE, epoch, 0), (0, NONE, epoch, 0), *unknown, (1, NONE, epoch, 0)]),
        (missing, [(0, UNKNOWN, -1, -1)]),
        ("", []),
        (topic.name, []),
    ]


# ElectLeaders

PREFERRED, UNCLEAN = range(2)
ELECTED = "Leader election not needed for topic partition."


def elect(
    talk: Talk,
    wanted: list[tuple[str, list[int]]] | None,
    *,
    version: int = 2,
    election_type: int = PREFERRED,
) -> tuple[ErrorCode, list[tuple[str, list[tuple[int, ErrorCode, str]]]]]:
    request = messages.ElectLeadersRequest(
        election_type,
        None
        if wanted is None
        else [messages.ElectLeadersRequest.TopicPartitions(*each) for each in wanted],
        10_000,
    )
    answer = talk.ask(request, version)
    return code(answer), [
        (
            each.topic,
            [(part.partition_id, code(part), part.error_message) for part in each.partition_result],
        )
        for each in answer.replica_election_results
    ]


@pytest.mark.parametrize(
    "version, election_type", [(0, PREFERRED), *((v, t) for v in (1, 2) for t in range(2))]
)
def test_no_election_is_needed(talk: Talk, version: int, election_type: int) -> None:
    name = create_topic(talk, partitions=2).name
    missing = missing_topic().name
    wanted = [(name, [0, 1, 2, -1]), (missing, [0]), ("", [0]), (name, [1, 1]), (name, [])]
    unneeded = ErrorCode.ELECTION_NOT_NEEDED

    assert elect(talk, wanted, version=version, election_type=election_type) == (
        NONE,
        [
            (
                name,
                [
                    (0, unneeded, ELECTED),
                    (1, unneeded, ELECTED),
                    (2, UNKNOWN, f"No such partition as {name}-2"),
                    (-1, UNKNOWN, f"No such partition as {name}--1"),
                ],
            ),
            (missing, [(0, UNKNOWN, f"No such topic as {missing}")]),
            ("", [(0, UNKNOWN, "No such topic as ")]),
            (name, [(1, unneeded, ELECTED), (1, unneeded, ELECTED)]),
            (name, []),
        ],
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_for_all_and_for_none(talk: Talk, version: int) -> None:
    name = create_topic(talk, partitions=2).name

    error, topics = elect(talk, None, version=version)

    assert error is NONE
    assert (name, []) in topics
    assert all(not partitions for _, partitions in topics)
    assert elect(talk, [], version=version) == (NONE, [])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("election_type", [2, -1])
def test_an_unknown_kind_of_election(talk: Talk, version: int, election_type: int) -> None:
    def ask(wanted: list[tuple[str, list[int]]] | None) -> Any:  # noqa: ANN401 - see elect
        return elect(talk, wanted, version=version, election_type=election_type)

    invalid = ErrorCode.INVALID_REQUEST
    why = f"Unknown election type {election_type}"
    assert ask([("a", [0, 7]), ("b", [])]) == (
        invalid,
        [("a", [(0, invalid, why), (7, invalid, why)]), ("b", [])],
    )
    assert ask(None) == (invalid, [])
    assert ask([]) == (NONE, [])


# DescribeQuorum

METADATA = "__cluster_metadata"
NO_ID = bytes(16)


def quorum(talk: Talk, version: int, *wanted: tuple[str, list[int]]) -> Any:  # noqa: ANN401 - the response
    asked = messages.DescribeQuorumRequest
    topics = [
        asked.TopicData(name, [asked.PartitionData(index) for index in indexes])
        for name, indexes in wanted
    ]
    return talk.ask(asked(topics), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_quorum_of_one(talk: Talk, version: int) -> None:
    before_ms = now_ms()
    answer = quorum(talk, version, (METADATA, [0]))

    assert (code(answer), answer.error_message) == (NONE, "")
    ((partition,),) = [each.partitions for each in answer.topics]
    assert (partition.partition_index, code(partition), partition.error_message) == (0, NONE, "")
    assert (partition.leader_id, partition.observers) == (NODE_ID, [])
    assert partition.leader_epoch >= 0
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, partition.high_watermark)
    # Apache Kafka tells it where the voters were chosen at its first start (KIP-853).
    assert version >= 2 or voter.replica_directory_id == NO_ID
    for moment_ms in (voter.last_fetch_timestamp, voter.last_caught_up_timestamp):
        if version >= 1:
            assert before_ms - 1000 <= moment_ms <= now_ms() + 1000
        else:
            assert moment_ms == -1
    assert [node.node_id for node in answer.nodes] == ([NODE_ID] if version >= 2 else [])


def test_where_the_voter_is_reached(broker: Subject, talk: Talk) -> None:
    ((listener,),) = [node.listeners for node in quorum(talk, 2, (METADATA, [0])).nodes]

    assert listener.host == "127.0.0.1"
    assert listener.name == broker.expected("describe quorum: the voter's listener")


def test_the_end_of_the_metadata_grows_with_it(talk: Talk) -> None:
    def high_watermark() -> int:
        ((partition,),) = [each.partitions for each in quorum(talk, 2, (METADATA, [0])).topics]
        offset: int = partition.high_watermark
        return offset

    before = high_watermark()
    create_topic(talk)
    assert high_watermark() > before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_other_quorums_do_not_exist(talk: Talk, version: int) -> None:
    why = "This server does not host this topic-partition." if version >= 2 else ""
    other = unique("quorum")
    for wanted in ((METADATA, [1]), (other, [0]), (METADATA, [0, 0]), (METADATA, [])):
        answer = quorum(talk, version, wanted)

        assert (code(answer), answer.nodes) == (NONE, [])
        (topic,) = answer.topics
        assert topic.topic_name == wanted[0]
        found = [
            (each.partition_index, code(each), each.error_message) for each in topic.partitions
        ]
        assert found == [(index, UNKNOWN, why) for index in wanted[1]]
    assert quorum(talk, version).topics == []
