"""JoinGroup, v0-9, and how its answers change with the state of the group."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.client.errors import BrokerTimeoutError
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, Topic, code
from tests.contracts.members import (
    CONSUMER,
    RANGE,
    join,
    join_request,
    move_the_log_on,
    stable,
    subscription,
    sync,
    sync_request,
    wait_for_rebalance,
)

VERSIONS = range(10)
UUID_CHARS = 36


@pytest.mark.parametrize("version", VERSIONS)
def test_the_only_member_leads(talk: Talk, group: str, version: int) -> None:
    answer = join(talk, group, version)

    assert (code(answer), answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.protocol_type == (CONSUMER if version >= 7 else None)
    assert (answer.protocol_name, answer.leader) == ("range", answer.member_id)
    assert not answer.skip_assignment
    (member,) = answer.members
    assert (member.member_id, member.group_instance_id) == (answer.member_id, None)
    assert bytes(member.metadata) == RANGE[0][1]
    assert answer.member_id.startswith("contract-")
    assert len(answer.member_id) == len("contract-") + UUID_CHARS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_id_is_required_since_v4(talk: Talk, group: str, version: int) -> None:
    answer = talk.ask(join_request(group), version)

    required = version >= 4
    assert code(answer) is (ErrorCode.MEMBER_ID_REQUIRED if required else ErrorCode.NONE)
    assert answer.generation_id == (-1 if required else 1)
    assert answer.member_id.startswith("contract-")


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_that_no_group_accepts(talk: Talk, group: str, version: int) -> None:
    refused = {
        ErrorCode.INVALID_GROUP_ID: [join_request("")],
        ErrorCode.INVALID_SESSION_TIMEOUT: [
            join_request(group, session_timeout_ms=5_999),
            join_request(group, session_timeout_ms=1_800_001),
        ],
        ErrorCode.UNKNOWN_MEMBER_ID: [join_request(group, "nobody")],
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: [
            join_request(group, protocols=()),
            join_request(group, protocol_type=""),
        ],
    }
    for expected, requests in refused.items():
        for request in requests:
            answer = talk.ask(request, version)

            assert code(answer) is expected
            assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
            assert (answer.member_id, answer.protocol_type) == (request.member_id, None)
            assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_the_bounds_of_sessions_are_inside(talk: Talk, group: str, session_timeout_ms: int) -> None:
    answer = join(talk, group, session_timeout_ms=session_timeout_ms)

    assert code(answer) is ErrorCode.NONE


def test_protocols_must_have_something_in_common(talk: Talk, group: str) -> None:
    stable(talk, group)

    other_type = talk.ask(join_request(group, protocol_type="connect"), 3)
    other_name = talk.ask(join_request(group, protocols=(("other", b""),)), 9)

    assert code(other_type) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(other_name) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_choice_counts(talk: Talk, group: str) -> None:
    answer = join(talk, group, protocols=(("second", b"2"), ("first", b"1")), protocol_type="any")

    assert (answer.protocol_name, bytes(answer.members[0].metadata)) == ("second", b"2")


def test_two_members(broker: Subject, talk: Talk, group: str) -> None:
    leader = stable(talk, group)
    with broker.connect(client_id="other") as other:
        follower = other.ask(join_request(group), 9).member_id
        other.tell(join_request(group, follower), 9)
        wait_for_rebalance(talk, group, leader, 1)
        told_leader = talk.ask(join_request(group, leader), 9)
        told_follower = other.receive()

        assert (told_leader.generation_id, told_follower.generation_id) == (2, 2)
        assert (told_leader.leader, told_follower.leader) == (leader, leader)
        members = {member.member_id for member in told_leader.members}
        assert (members, told_follower.members) == ({leader, follower}, [])

        # A follower that asks again before it has its assignment is told the same.
        assert other.ask(join_request(group, follower), 9) == told_follower
        other.tell(sync_request(group, follower, 2), 5)
        mine = sync(talk, group, leader, 2, {leader: b"1", follower: b"2"})
        assert mine == (ErrorCode.NONE, b"1")
        assert bytes(other.receive().assignment) == b"2"

        # In a stable group, too, as long as it has nothing new to say.
        assert other.ask(join_request(group, follower), 9) == told_follower
        news = (("range", subscription("t2")),)
        other.tell(join_request(group, follower, protocols=news), 9)
        wait_for_rebalance(talk, group, leader, 2)
        told_leader = talk.ask(join_request(group, leader), 9)
        assert (told_leader.generation_id, other.receive().generation_id) == (3, 3)
        metadata = {member.member_id: bytes(member.metadata) for member in told_leader.members}
        assert metadata[follower] == news[0][1]


def test_a_leader_that_joins_again_starts_a_rebalance(talk: Talk, group: str) -> None:
    leader = stable(talk, group)

    answer = talk.ask(join_request(group, leader), 9)

    assert (code(answer), answer.generation_id, answer.leader) == (ErrorCode.NONE, 2, leader)


def test_a_member_that_was_announced_and_has_not_joined(
    broker: Subject, talk: Talk, group: str
) -> None:
    stable(talk, group)
    announced = talk.ask(join_request(group), 9).member_id

    error, _ = sync(talk, group, announced, 1)
    assert error is ErrorCode.UNKNOWN_MEMBER_ID
    as_static = talk.ask(join_request(group, announced, instance="instance"), 9)
    expected = broker.expected("join as a static member under a dynamic member's id")
    assert code(as_static) is expected


def test_generations_go_on_after_a_group_was_empty(talk: Talk, group: str) -> None:
    member = stable(talk, group)
    identity = messages.LeaveGroupRequest.MemberIdentity(member, None)
    talk.ask(messages.LeaveGroupRequest(group_id=group, members=[identity]), 5)

    gone = talk.ask(join_request(group, member), 9)
    again = join(talk, group, protocols=(("other", b""),), protocol_type="another")

    assert code(gone) is ErrorCode.UNKNOWN_MEMBER_ID
    # One generation was the empty one.
    assert (code(again), again.generation_id) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize("client_id", ["", "ü€", "x" * 255])
def test_a_member_id_begins_with_the_clients_name(
    broker: Subject, group: str, client_id: str
) -> None:
    with broker.connect(client_id=client_id) as talk:
        member_id = join(talk, group).member_id
        (answer,) = talk.ask(messages.DescribeGroupsRequest([group]), 5).groups

    assert member_id.startswith(f"{client_id}-")
    assert len(member_id) == len(client_id) + 1 + UUID_CHARS
    assert answer.members[0].client_id == client_id


def test_a_very_long_name_of_a_client(broker: Subject, group: str) -> None:
    with broker.connect(client_id="x" * 300) as talk:
        member_id = join(talk, group).member_id

    expected = broker.expected("join: how much of a client's name is in a member id")
    assert len(member_id) == expected + 1 + UUID_CHARS


def test_a_refused_founder(broker: Subject, talk: Talk, group: str, topic: Topic) -> None:
    talk.ask(join_request(group, protocols=()), 9)
    move_the_log_on(talk, group, topic)

    (answer,) = talk.ask(messages.DescribeGroupsRequest([group]), 6).groups

    assert answer.group_state == broker.expected("join: what a refused founder leaves behind")


def test_a_member_that_asks_again_while_it_waits(broker: Subject, talk: Talk, group: str) -> None:
    leader = stable(talk, group)
    with broker.connect() as first, broker.connect() as second:
        newcomer = first.ask(join_request(group), 9).member_id
        first.tell(join_request(group, newcomer), 9)
        wait_for_rebalance(talk, group, leader, 1)
        second.tell(join_request(group, newcomer), 9)
        expected = broker.expected("join: the first of two requests of a member that waits")
        if expected is None:
            with pytest.raises(BrokerTimeoutError):
                first.receive(timeout_s=0.5)
        else:
            assert code(first.receive()) is expected
        talk.ask(join_request(group, leader), 9)
        answer = second.receive()
        assert (code(answer), answer.generation_id) == (ErrorCode.NONE, 2)


# Static members


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_needs_no_second_join(talk: Talk, group: str, version: int) -> None:
    answer = talk.ask(join_request(group, instance="i1"), version)

    assert (code(answer), answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.member_id.startswith("i1-")
    assert len(answer.member_id) == len("i1-") + UUID_CHARS
    assert answer.members[0].group_instance_id == "i1"


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_takes_its_place_back(talk: Talk, group: str, version: int) -> None:
    before = stable(talk, group, instance="i1")

    answer = talk.ask(join_request(group, instance="i1"), version)

    after = answer.member_id
    assert (code(answer), answer.generation_id) == (ErrorCode.NONE, 1), "nobody rebalances"
    assert after != before
    if version >= 9:
        assert (answer.leader, answer.skip_assignment) == (after, True)
        assert [member.member_id for member in answer.members] == [after]
    else:
        # It leads, but must not assign: the name of its former self makes it a follower.
        assert (answer.leader, answer.skip_assignment, answer.members) == (before, False, [])
    assert sync(talk, group, after, 1, instance="i1") == (ErrorCode.NONE, b"mine")
    fenced, _ = sync(talk, group, before, 1, instance="i1")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID


def test_claims_to_be_a_static_member(talk: Talk, group: str) -> None:
    stable(talk, group, instance="i1")

    taken = talk.ask(join_request(group, "stranger", instance="i1"), 9)
    unknown = talk.ask(join_request(group, "stranger", instance="i2"), 9)

    assert (code(taken), taken.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "stranger")
    assert (code(unknown), unknown.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")


def test_a_static_member_with_another_protocol_makes_all_rebalance(talk: Talk, group: str) -> None:
    stable(talk, group, instance="i1", protocols=(("range", b"a"), ("other", b"b")))

    answer = talk.ask(join_request(group, instance="i1", protocols=(("other", b"b"),)), 9)

    assert (code(answer), answer.generation_id, answer.protocol_name) == (
        ErrorCode.NONE,
        2,
        "other",
    )
