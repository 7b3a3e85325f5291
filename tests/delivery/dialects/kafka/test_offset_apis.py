"""OffsetCommit, OffsetFetch, OffsetDelete."""

from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import (
    DeleteTopicsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.delivery.dialects.kafka.desk import Desk

UNKNOWN_ID = b"\x01" * 16


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic(name, 2, {}) for name in ("t", "u")])
    return desk


def id_of(desk: Desk, topic: str) -> bytes:
    found = desk.broker.topics.get(topic)
    return found.topic_id if found is not None else UNKNOWN_ID


def commit_request(
    desk: Desk,
    offsets: dict[tuple[str, int], int],
    *,
    metadata: str | None = "note",
    **more: Any,  # noqa: ANN401 - fields of the request
) -> OffsetCommitRequest:
    topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
    for (topic, partition), offset in offsets.items():
        entry = topics.setdefault(
            topic, OffsetCommitRequest.OffsetCommitRequestTopic(topic, id_of(desk, topic))
        )
        entry.partitions.append(
            OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset, 5, metadata)
        )
    return OffsetCommitRequest(group_id="g", topics=list(topics.values()), **more)


def commit(
    desk: Desk,
    offsets: dict[tuple[str, int], int],
    version: int = 10,
    **more: Any,  # noqa: ANN401 - fields of the request
) -> list[int]:
    response = desk.ask(commit_request(desk, offsets, **more), version)
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def fetch_request(
    desk: Desk, wanted: dict[str, list[int]] | None, version: int, group: str = "g"
) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(
            group_id=group,
            topics=None
            if wanted is None
            else [OffsetFetchRequest.OffsetFetchRequestTopic(*one) for one in wanted.items()],
        )
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopics(name, id_of(desk, name), indexes)
            for name, indexes in wanted.items()
        ]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=topics)]
    )


def fetch(
    desk: Desk, wanted: dict[str, list[int]] | None, version: int = 9
) -> dict[tuple[str, int], tuple[int, int, str | None, int]]:
    response = desk.ask(fetch_request(desk, wanted, version), version)
    topics = response.topics
    if version >= 8:
        (group,) = response.groups
        assert (group.group_id, group.error_code) == ("g", 0)
        topics = group.topics
    names = {id_of(desk, name): name for name in ("t", "u")} | {UNKNOWN_ID: "?"}
    return {
        (names[topic.topic_id] if version >= 10 else topic.name, one.partition_index): (
            one.committed_offset,
            one.committed_leader_epoch,
            one.metadata,
            one.error_code,
        )
        for topic in topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(desk: Desk, version: int) -> None:
    assert commit(desk, {("t", 0): 7, ("u", 1): 8}, version) == [0, 0]

    found = fetch(desk, {"t": [0], "u": [1]})
    epoch = 5 if version >= 6 else -1
    assert found == {("t", 0): (7, epoch, "note", 0), ("u", 1): (8, epoch, "note", 0)}


@pytest.mark.parametrize("version", range(1, 11))
def test_fetch_in_every_version(desk: Desk, version: int) -> None:
    commit(desk, {("t", 0): 7})

    found = fetch(desk, {"t": [0, 1], "u": [0]}, version)

    assert found == {
        ("t", 0): (7, 5 if version >= 5 else -1, "note", 0),
        ("t", 1): (-1, -1, "", 0),
        ("u", 0): (-1, -1, "", 0),
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group(desk: Desk, version: int) -> None:
    commit(desk, {("t", 1): 7, ("t", 0): 6, ("u", 0): 8})

    found = fetch(desk, None, version)

    assert {key: offset for key, (offset, *_) in found.items()} == {
        ("t", 0): 6,
        ("t", 1): 7,
        ("u", 0): 8,
    }


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_that_does_not_exist_has_no_offsets_and_no_error(desk: Desk, version: int) -> None:
    assert fetch(desk, {"t": [0]}, version) == {("t", 0): (-1, -1, "", 0)}
    if version >= 2:
        assert fetch(desk, None, version) == {}


@pytest.mark.parametrize("version", [2, 9, 10])
def test_each_partition_has_its_own_error(desk: Desk, version: int) -> None:
    errors = commit(desk, {("t", 0): 1, ("t", 2): 1, ("gone", 0): 1}, version)

    missing = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing]
    assert fetch(desk, {"t": [0]})["t", 0][0] == 1


def test_metadata_has_a_bound(desk: Desk) -> None:
    assert commit(desk, {("t", 0): 1}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert commit(desk, {("t", 0): 1}, metadata=None) == [0]
    assert fetch(desk, {"t": [0]})["t", 0][2] == ""


@pytest.mark.parametrize(
    "version, error", [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_does_not_exist(
    desk: Desk, version: int, error: ErrorCode
) -> None:
    errors = commit(
        desk,
        {("t", 0): 1, ("gone", 0): 1},
        version,
        generation_id_or_member_epoch=3,
        member_id="m",
    )

    assert errors == [error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_retention_of_its_own(desk: Desk) -> None:
    commit(desk, {("t", 0): 1}, 4, retention_time_ms=60_000)

    desk.clock.advance(desk.settings.offsets_retention_check_interval_ms)
    desk.commits.run()

    assert fetch(desk, None) == {}


def test_offsets_are_there_after_a_crash_if_they_were_answered(desk: Desk) -> None:
    commit(desk, {("t", 0): 1})
    call = desk.begin(commit_request(desk, {("t", 0): 2}))
    assert [answer for answered, answer in desk.line.answers if answered is call] == []

    desk.crash()

    assert fetch(desk, {"t": [0]})["t", 0][0] == 1


def test_a_stable_fetch_waits_for_the_commit_before_it(desk: Desk) -> None:
    desk.begin(commit_request(desk, {("t", 0): 2}))
    request = fetch_request(desk, {"t": [0]}, 9)
    hasty = desk.begin(request, 9)
    request.require_stable = True
    patient = desk.begin(request, 9)

    answers = {id(call): answer for call, answer in desk.line.answers}
    assert answers[id(hasty)].groups[0].topics[0].partitions[0].committed_offset == -1
    assert id(patient) not in answers
    desk.commits.run()
    answers = {id(call): answer for call, answer in desk.line.answers}
    assert answers[id(patient)].groups[0].topics[0].partitions[0].committed_offset == 2


def test_several_groups_at_once(desk: Desk) -> None:
    commit(desk, {("t", 0): 1})
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(name, topics=None) for name in "gh"]

    for require_stable in (False, True):
        response = desk.ask(OffsetFetchRequest(groups=groups, require_stable=require_stable))
        assert [(one.group_id, len(one.topics)) for one in response.groups] == [("g", 1), ("h", 0)]
    assert desk.ask(OffsetFetchRequest(groups=[], require_stable=True)).groups == []


def test_an_unknown_topic_id(desk: Desk) -> None:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(
                "g",
                topics=[OffsetFetchRequest.OffsetFetchRequestTopics("", UNKNOWN_ID, [0, 1])],
            )
        ]
    )

    (group,) = desk.ask(request, 10).groups

    (topic,) = group.topics
    assert topic.topic_id == UNKNOWN_ID
    assert [(one.committed_offset, one.error_code) for one in topic.partitions] == [
        (-1, ErrorCode.UNKNOWN_TOPIC_ID)
    ] * 2


def test_a_deleted_topic_takes_its_offsets_along(desk: Desk) -> None:
    commit(desk, {("t", 0): 1, ("u", 0): 2})

    desk.ask(DeleteTopicsRequest(topic_names=["t"]), 1)
    desk.broker.topics.create([NewTopic("t", 2, {})])

    assert list(fetch(desk, None)) == [("u", 0)]
    desk.crash()
    assert list(fetch(desk, None)) == [("u", 0)]


def delete(desk: Desk, *partitions: tuple[str, int], group: str = "g") -> tuple[int, list[int]]:
    topics = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            topic, [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition)]
        )
        for topic, partition in partitions
    ]
    response = desk.ask(OffsetDeleteRequest(group, topics))
    return response.error_code, [
        partition.error_code for topic in response.topics for partition in topic.partitions
    ]


def test_offsets_are_deleted_durably(desk: Desk) -> None:
    commit(desk, {("t", 0): 1, ("u", 0): 2})

    answer = delete(desk, ("t", 0), ("t", 1), ("gone", 0))

    assert answer == (0, [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    desk.crash()
    assert list(fetch(desk, None)) == [("u", 0)]


def test_offsets_of_a_group_that_does_not_exist(desk: Desk) -> None:
    assert delete(desk, ("t", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert delete(desk, ("t", 0), group="") == (ErrorCode.INVALID_GROUP_ID, [])
