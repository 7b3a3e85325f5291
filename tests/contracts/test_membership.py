"""SyncGroup, v0-5, Heartbeat, v0-4, and LeaveGroup, v0-5, in every state of a group."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.client.errors import BrokerTimeoutError
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, code, unique
from tests.contracts.members import (
    CONSUMER,
    heartbeat,
    join,
    join_request,
    leave,
    stable,
    sync,
    sync_request,
    wait_for_rebalance,
)

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Heartbeat


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_between_join_and_sync_and_afterwards(
    talk: Talk, group: str, version: int
) -> None:
    member = join(talk, group).member_id
    assert heartbeat(talk, group, member, 1, version=version) is NONE

    sync(talk, group, member, 1)
    assert heartbeat(talk, group, member, 1, version=version) is NONE


@pytest.mark.parametrize("version", [0, 3, 4])
def test_heartbeats_of_others(talk: Talk, group: str, version: int) -> None:
    member = stable(talk, group)

    assert heartbeat(talk, group, member, 0, version=version) is ILLEGAL
    assert heartbeat(talk, group, member, 2, version=version) is ILLEGAL
    assert heartbeat(talk, group, "stranger", 1, version=version) is UNKNOWN
    assert heartbeat(talk, group, "", 1, version=version) is UNKNOWN
    assert heartbeat(talk, unique("none"), member, 1, version=version) is UNKNOWN
    assert heartbeat(talk, "", member, 1, version=version) is ErrorCode.INVALID_GROUP_ID


def test_heartbeats_of_static_members(talk: Talk, group: str) -> None:
    member = stable(talk, group, instance="i1")

    assert heartbeat(talk, group, member, 1, instance="i1") is NONE
    assert heartbeat(talk, group, member, 1) is NONE
    assert heartbeat(talk, group, "stranger", 1, instance="i1") is ErrorCode.FENCED_INSTANCE_ID
    assert heartbeat(talk, group, member, 1, instance="i2") is UNKNOWN
    # The place in the group is checked before the generation.
    assert heartbeat(talk, group, "stranger", 7, instance="i1") is ErrorCode.FENCED_INSTANCE_ID


def test_while_the_others_join(broker: Subject, talk: Talk, group: str) -> None:
    member = stable(talk, group)
    with broker.connect() as other:
        newcomer = other.ask(join_request(group), 9).member_id
        assert heartbeat(talk, group, newcomer, 1) is UNKNOWN, "it has not joined yet"
        other.tell(join_request(group, newcomer), 9)
        wait_for_rebalance(talk, group, member, 1)

        assert heartbeat(talk, group, member, 1) is REBALANCING
        assert heartbeat(talk, group, member, 0) is ILLEGAL
        assert heartbeat(talk, group, newcomer, 1) is REBALANCING
        assert sync(talk, group, member, 1) == (REBALANCING, b"")
        # Who leaves now is no longer waited for.
        assert leave(talk, group, (member, None)) == (NONE, [(member, None, NONE)])
        answer = other.receive()
        assert (code(answer), answer.generation_id, answer.leader) == (NONE, 2, newcomer)


# SyncGroup


@pytest.mark.parametrize("version", range(6))
def test_an_assignment_is_handed_out_and_told_again(talk: Talk, group: str, version: int) -> None:
    member = join(talk, group).member_id
    given = {member: b"mine", "ghost": b"nobody's"}

    first = talk.ask(sync_request(group, member, 1, given), version)
    again = talk.ask(sync_request(group, member, 1), version)

    assert (code(first), bytes(first.assignment)) == (NONE, b"mine")
    assert first == again
    told = (first.protocol_type, first.protocol_name)
    assert told == ((CONSUMER, "range") if version >= 5 else (None, None))


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_syncs_that_are_refused(talk: Talk, group: str, version: int) -> None:
    member = join(talk, group).member_id

    def ask(*asked: object) -> ErrorCode:
        error, assignment = sync(talk, *asked, version=version)
        assert assignment == b""
        return error

    assert ask("", member, 1) is ErrorCode.INVALID_GROUP_ID
    assert ask(unique("none"), member, 1) is UNKNOWN
    assert ask(group, "stranger", 1) is UNKNOWN
    assert ask(group, "", 1) is UNKNOWN
    assert ask(group, member, 0) is ILLEGAL
    assert ask(group, member, 2) is ILLEGAL
    assert ask(group, member, 1) is NONE, "refusals change nothing"


@pytest.mark.parametrize(
    "protocol",
    [("other", "range"), (CONSUMER, "other"), (None, None), (CONSUMER, None), (None, "range")],
)
def test_the_protocol_is_checked_since_v5(
    talk: Talk, group: str, protocol: tuple[str | None, str | None]
) -> None:
    member = stable(talk, group)

    assert sync(talk, group, member, 1, protocol=protocol, version=5) == (INCONSISTENT, b"")
    assert sync(talk, group, member, 1, protocol=protocol, version=4) == (NONE, b"mine")


def test_a_sync_of_an_unknown_instance(talk: Talk, group: str) -> None:
    member = stable(talk, group)

    assert sync(talk, group, member, 1, instance="i1") == (UNKNOWN, b"")


def test_a_leader_may_leave_members_without_an_assignment(
    broker: Subject, talk: Talk, group: str
) -> None:
    leader = stable(talk, group)
    with broker.connect() as other:
        follower = other.ask(join_request(group), 9).member_id
        other.tell(join_request(group, follower), 9)
        wait_for_rebalance(talk, group, leader, 1)
        talk.ask(join_request(group, leader), 9)
        other.receive()
        other.tell(sync_request(group, follower, 2), 5)

        assert sync(talk, group, leader, 2, {leader: b"all"}) == (NONE, b"all")
        answer = other.receive()
        assert (code(answer), bytes(answer.assignment)) == (NONE, b"")


# LeaveGroup


@pytest.mark.parametrize("version", range(3))
def test_one_member_leaves(talk: Talk, group: str, version: int) -> None:
    member = stable(talk, group)

    def ask(group_id: str, member_id: str) -> ErrorCode:
        request = messages.LeaveGroupRequest(group_id=group_id, member_id=member_id)
        return code(talk.ask(request, version))

    assert ask("", member) is ErrorCode.INVALID_GROUP_ID
    assert ask(unique("none"), member) is UNKNOWN
    assert ask(group, "stranger") is UNKNOWN
    assert ask(group, member) is NONE
    assert ask(group, member) is UNKNOWN
    assert heartbeat(talk, group, member, 1) is UNKNOWN


@pytest.mark.parametrize("version", range(3, 6))
def test_several_members_leave(talk: Talk, group: str, version: int) -> None:
    member = stable(talk, group)
    leaving = [("stranger", None), (member, None), ("", None), (member, None), ("", "i1")]

    error, answers = leave(talk, group, *leaving, version=version)

    assert error is NONE
    assert answers == [
        ("stranger", None, UNKNOWN),
        (member, None, NONE),
        ("", None, UNKNOWN),
        (member, None, UNKNOWN),
        ("", "i1", UNKNOWN),
    ]


@pytest.mark.parametrize("version", range(3, 6))
def test_leaving_what_does_not_exist(talk: Talk, group: str, version: int) -> None:
    nobody = ("nobody", None)

    assert leave(talk, "", nobody, version=version) == (ErrorCode.INVALID_GROUP_ID, [])
    unknown = leave(talk, unique("none"), nobody, version=version)
    assert unknown == (NONE, [(*nobody, UNKNOWN)])
    stable(talk, group)
    assert leave(talk, group, version=version) == (NONE, [])


def test_static_members_leave_by_their_instance(talk: Talk, group: str) -> None:
    stable(talk, group, instance="i1")

    error, answers = leave(talk, group, ("stranger", "i1"), ("stranger", "i2"), ("", "i1"))

    assert error is NONE
    assert answers == [
        ("stranger", "i1", ErrorCode.FENCED_INSTANCE_ID),
        ("stranger", "i2", UNKNOWN),
        ("", "i1", NONE),
    ]


def test_a_member_that_was_announced_can_leave(talk: Talk, group: str) -> None:
    stable(talk, group)
    announced = talk.ask(join_request(group), 9).member_id

    assert leave(talk, group, (announced, None)) == (NONE, [(announced, None, NONE)])
    assert code(talk.ask(join_request(group, announced), 9)) is UNKNOWN


def test_a_member_leaves_while_it_waits_for_its_assignment(
    broker: Subject, talk: Talk, group: str
) -> None:
    leader = stable(talk, group)
    with broker.connect() as other:
        follower = other.ask(join_request(group), 9).member_id
        other.tell(join_request(group, follower), 9)
        wait_for_rebalance(talk, group, leader, 1)
        talk.ask(join_request(group, leader), 9)
        other.receive()
        other.tell(sync_request(group, follower, 2), 5)
        with broker.connect() as third:
            assert leave(third, group, (follower, None)) == (NONE, [(follower, None, NONE)])

        expected = broker.expected("leave: the answer that the member waited for")
        if expected is None:
            with pytest.raises(BrokerTimeoutError):
                other.receive(timeout_s=0.5)
        else:
            assert code(other.receive()) is expected
    wait_for_rebalance(talk, group, leader, 2)


def test_an_announced_member_leaves(broker: Subject, talk: Talk, group: str) -> None:
    leader = stable(talk, group)
    announced = talk.ask(join_request(group), 9).member_id
    leave(talk, group, (announced, None))

    expected = broker.expected("leave: what an announced member makes of the group")
    assert heartbeat(talk, group, leader, 1) is expected
