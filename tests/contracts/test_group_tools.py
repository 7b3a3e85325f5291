"""DescribeGroups, v0-6, ListGroups, v0-5, DeleteGroups, v0-2, OffsetDelete, v0."""

from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, Topic, code, create_topic, unique
from tests.contracts.members import (
    CONSUMER,
    RANGE,
    commit,
    committed,
    join,
    join_request,
    leave,
    move_the_log_on,
    stable,
    subscription,
    wait_for_rebalance,
)

NONE = ErrorCode.NONE
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
NOT_ASKED = -(2**31)
# One bit per ACL operation that can be done to a group.
GROUP_OPERATIONS = 3400


def describe(talk: Talk, *groups: str, version: int = 5, operations: bool = False) -> list[Any]:
    request = messages.DescribeGroupsRequest(list(groups), operations)
    answer = talk.ask(request, version)
    # In which order groups are answered is not part of the contract.
    assert sorted(each.group_id for each in answer.groups) == sorted(groups)
    return list(answer.groups)


# DescribeGroups


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group(talk: Talk, group: str, version: int) -> None:
    member_id = stable(talk, group, instance="i1")

    (answer,) = describe(talk, group, version=version)

    assert (code(answer), answer.error_message, answer.group_state) == (NONE, None, "Stable")
    assert (answer.protocol_type, answer.protocol_data) == (CONSUMER, "range")
    assert answer.authorized_operations == NOT_ASKED
    (member,) = answer.members
    assert (member.member_id, member.client_id, member.client_host) == (
        member_id,
        "contract",
        "/127.0.0.1",
    )
    assert member.group_instance_id == ("i1" if version >= 4 else None)
    assert bytes(member.member_metadata) == RANGE[0][1]
    assert bytes(member.member_assignment) == b"mine"


def test_a_group_between_join_and_sync(talk: Talk, group: str) -> None:
    join(talk, group)

    (answer,) = describe(talk, group)

    assert (answer.group_state, answer.protocol_type) == ("CompletingRebalance", CONSUMER)
    assert answer.protocol_data == "", "told of stable groups only"
    assert bytes(answer.members[0].member_metadata) == b""


def test_a_group_that_waits_for_its_members(broker: Subject, talk: Talk, group: str) -> None:
    member = stable(talk, group)
    with broker.connect() as other:
        newcomer = other.ask(join_request(group), 9).member_id
        other.tell(join_request(group, newcomer), 9)
        wait_for_rebalance(talk, group, member, 1)

        (answer,) = describe(talk, group)

        assert (answer.group_state, answer.protocol_data) == ("PreparingRebalance", "")
        told = {each.member_id: bytes(each.member_assignment) for each in answer.members}
        assert told == {member: b"mine", newcomer: b""}
        assert {bytes(each.member_metadata) for each in answer.members} == {b""}


def test_a_group_that_was_left(talk: Talk, group: str) -> None:
    leave(talk, group, (stable(talk, group), None))

    (answer,) = describe(talk, group)

    assert (code(answer), answer.group_state, answer.members) == (NONE, "Empty", [])
    assert (answer.protocol_type, answer.protocol_data) == (CONSUMER, "")


def test_a_group_that_has_only_offsets(talk: Talk, group: str, topic: Topic) -> None:
    commit(talk, group, topic, {0: (5, -1, "")})

    (answer,) = describe(talk, group)

    assert (code(answer), answer.group_state, answer.members) == (NONE, "Empty", [])
    assert (answer.protocol_type, answer.protocol_data) == ("", "")


def test_a_group_whose_first_member_was_only_announced(
    talk: Talk, group: str, topic: Topic
) -> None:
    talk.ask(join_request(group), 9)
    move_the_log_on(talk, group, topic)

    (answer,) = describe(talk, group)

    assert (code(answer), answer.group_state, answer.protocol_type) == (NONE, "Empty", "")


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_does_not_exist(talk: Talk, version: int) -> None:
    group = unique("none")
    (answer,) = describe(talk, group, version=version, operations=True)

    assert code(answer) is (NOT_FOUND if version >= 6 else NONE)
    sentence = f"Group {group} not found." if version >= 6 else None
    assert (answer.error_message, answer.group_state) == (sentence, "Dead")
    assert (answer.protocol_type, answer.protocol_data, answer.members) == ("", "", [])
    # Asked for since v3, and not told beside an error.
    expected = GROUP_OPERATIONS if 3 <= version <= 5 else NOT_ASKED
    assert answer.authorized_operations == expected


@pytest.mark.parametrize("version", range(3, 7))
def test_authorized_operations(talk: Talk, group: str, version: int) -> None:
    stable(talk, group)

    (answer,) = describe(talk, group, version=version, operations=True)

    assert answer.authorized_operations == GROUP_OPERATIONS


def test_groups_are_answered_as_often_as_they_are_named(talk: Talk, group: str) -> None:
    stable(talk, group)
    none = unique("none")

    answers = describe(talk, none, group, none, version=6)

    assert sorted(code(each) for each in answers) == sorted([NOT_FOUND, NONE, NOT_FOUND])
    assert describe(talk, version=6) == []


# ListGroups


def listed(talk: Talk, group: str, version: int = 5, **filters: list[str]) -> list[Any]:
    answer = talk.ask(messages.ListGroupsRequest(**filters), version)
    assert code(answer) is NONE
    return [each for each in answer.groups if each.group_id == group]


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(talk: Talk, group: str, version: int) -> None:
    stable(talk, group)

    (answer,) = listed(talk, group, version)

    assert answer.protocol_type == CONSUMER
    assert answer.group_state == ("Stable" if version >= 4 else "")
    assert answer.group_type == ("classic" if version >= 5 else "")


def test_groups_without_members_are_listed(talk: Talk, group: str, topic: Topic) -> None:
    assert listed(talk, group) == []
    commit(talk, group, topic, {0: (5, -1, "")})

    (answer,) = listed(talk, group)

    assert (answer.protocol_type, answer.group_state, answer.group_type) == ("", "Empty", "classic")


@pytest.mark.parametrize("version", [4, 5])
def test_a_filter_of_states(talk: Talk, group: str, version: int) -> None:
    stable(talk, group)

    for passing in (["Stable"], ["stable"], ["STABLE"], ["Empty", "Stable"], []):
        assert listed(talk, group, version, states_filter=passing)
    for failing in (["Empty"], ["CompletingRebalance"], ["NoSuchState"]):
        assert not listed(talk, group, version, states_filter=failing)


def test_a_filter_of_types(talk: Talk, group: str) -> None:
    stable(talk, group)

    for passing in (["classic"], ["Classic"], ["CLASSIC", "consumer"], []):
        assert listed(talk, group, types_filter=passing)
    for failing in (["consumer"], ["share"], ["no-such-type"]):
        assert not listed(talk, group, types_filter=failing)
    assert not listed(talk, group, types_filter=["classic"], states_filter=["Empty"])


# DeleteGroups


def delete(talk: Talk, *groups: str, version: int = 2) -> dict[str, ErrorCode]:
    answer = talk.ask(messages.DeleteGroupsRequest(list(groups)), version)
    answers = {each.group_id: code(each) for each in answer.results}
    assert len(answers) == len(answer.results), "a group is answered once"
    return answers


@pytest.mark.parametrize("version", range(3))
def test_only_groups_without_members_are_deleted(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    offsets_only, none = unique("group"), unique("none")
    member = stable(talk, group)
    commit(talk, offsets_only, topic, {0: (5, -1, "")})

    assert delete(talk, group, offsets_only, none, none, version=version) == {
        group: ErrorCode.NON_EMPTY_GROUP,
        offsets_only: NONE,
        none: NOT_FOUND,
    }
    leave(talk, group, (member, None))
    assert delete(talk, group, version=version) == {group: NONE}
    assert delete(talk, group, version=version) == {group: NOT_FOUND}
    assert listed(talk, group) == listed(talk, offsets_only) == []
    assert committed(talk, offsets_only, topic, 0)[0][0] == -1


def test_deleting_no_group(talk: Talk) -> None:
    assert delete(talk) == {}


# OffsetDelete


def delete_offsets(
    talk: Talk, group: str, name: str, *partitions: int
) -> tuple[ErrorCode, dict[int, ErrorCode]]:
    request = messages.OffsetDeleteRequest
    wanted = request.OffsetDeleteRequestTopic(
        name, [request.OffsetDeleteRequestPartition(index) for index in partitions]
    )
    answer = talk.ask(request(group, [wanted]), 0)
    answers = {
        partition.partition_index: code(partition)
        for topic in answer.topics
        for partition in topic.partitions
    }
    return code(answer), answers


def test_offsets_that_nobody_reads_on_from(talk: Talk, group: str) -> None:
    topic = create_topic(talk, partitions=2)
    commit(talk, group, topic, {0: (5, -1, "")})

    # One was never committed, which is no error; one does not exist.
    assert delete_offsets(talk, group, topic.name, 0, 1, 9) == (
        NONE,
        {0: NONE, 1: NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert committed(talk, group, topic, 0)[0][0] == -1


def test_offsets_of_a_topic_that_members_read(talk: Talk, group: str, topic: Topic) -> None:
    other = create_topic(talk)
    member = stable(talk, group, protocols=(("range", subscription(topic.name)),))
    for each in (topic, other):
        claim = {"member_id": member, "generation": 1}
        commit(talk, group, each, {0: (5, -1, "")}, **claim)  # type: ignore[arg-type]

    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(talk, group, topic.name, 0) == (NONE, {0: subscribed})
    assert delete_offsets(talk, group, other.name, 0) == (NONE, {0: NONE})
    assert (committed(talk, group, topic, 0)[0][0], committed(talk, group, other, 0)[0][0]) == (
        5,
        -1,
    )


def test_offsets_of_members_that_are_no_consumers(talk: Talk, group: str, topic: Topic) -> None:
    member = stable(talk, group, protocol_type="connect", protocols=(("any", b"opaque"),))
    claim = {"member_id": member, "generation": 1}
    commit(talk, group, topic, {0: (5, -1, "")}, **claim)  # type: ignore[arg-type]

    assert delete_offsets(talk, group, topic.name, 0) == (ErrorCode.NON_EMPTY_GROUP, {})


def test_offsets_of_groups_and_topics_that_do_not_exist(
    talk: Talk, group: str, topic: Topic
) -> None:
    commit(talk, group, topic, {0: (5, -1, "")})

    assert delete_offsets(talk, "", topic.name, 0) == (ErrorCode.INVALID_GROUP_ID, {})
    assert delete_offsets(talk, unique("none"), topic.name, 0) == (NOT_FOUND, {})
    missing = delete_offsets(talk, group, unique("missing"), 0)
    assert missing == (NONE, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
