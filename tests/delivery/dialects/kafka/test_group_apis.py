"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what tools ask of groups."""

from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from tests.delivery.dialects.kafka.desk import Desk

SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic("t", 2, {})])
    return desk


def join_request(member_id: str = "", **more: Any) -> JoinGroupRequest:  # noqa: ANN401
    return JoinGroupRequest(
        **{
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequest.JoinGroupRequestProtocol("range", SUBSCRIPTION)],
            **more,
        }
    )


def answer_to(desk: Desk, call: Call) -> Any:  # noqa: ANN401 - the call's own response
    answers = [response for answered, response in desk.line.answers if answered is call]
    return answers[0] if answers else None


def join(desk: Desk, version: int = 9, **more: Any) -> Any:  # noqa: ANN401
    """Join as the only member."""
    if version >= 4 and "group_instance_id" not in more:
        first = desk.ask(join_request(**more), version)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        more["member_id"] = first.member_id
    call = desk.begin(join_request(**more), version)
    desk.clock.advance(0)
    return answer_to(desk, call)


def sync(desk: Desk, joined: Any, version: int = 5, assignment: bytes = b"all") -> Any:  # noqa: ANN401
    return desk.ask(
        SyncGroupRequest(
            "g",
            joined.generation_id,
            joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(joined.member_id, assignment)],
        ),
        version,
    )


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(desk: Desk, version: int) -> None:
    joined = join(desk, version)

    assert joined.error_code == 0
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.protocol_name == "range"
    assert [member.metadata for member in joined.members] == [SUBSCRIPTION]
    assert joined.member_id.startswith("desk-")


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_fits_every_version(desk: Desk, version: int) -> None:
    response = desk.ask(join_request(group_id=""), version)

    assert response.error_code == ErrorCode.INVALID_GROUP_ID
    assert response.generation_id == -1
    assert response.protocol_name == (None if version >= 7 else "")


def test_v0_has_one_timeout_for_everything(desk: Desk) -> None:
    joined = join(desk, 0, session_timeout_ms=6_000)
    sync(desk, joined, 0)
    desk.begin(join_request(), 0)

    desk.clock.advance(5_999)
    assert len(desk.broker.groups.describe_all()[0].members) == 2
    desk.clock.advance(1)

    assert len(desk.broker.groups.describe_all()[0].members) == 1


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(desk: Desk, version: int) -> None:
    joined = join(desk)

    synced = sync(desk, joined, version)

    assert (synced.error_code, synced.assignment) == (0, b"all")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("given", [("consumer", None), (None, "range")])
def test_sync_v5_wants_the_protocol(desk: Desk, given: tuple[str | None, str | None]) -> None:
    joined = join(desk)

    synced = desk.ask(SyncGroupRequest("g", 1, joined.member_id, None, *given))

    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_every_version(desk: Desk, version: int) -> None:
    joined = join(desk)

    right = desk.ask(HeartbeatRequest("g", 1, joined.member_id), version)
    wrong = desk.ask(HeartbeatRequest("g", 2, joined.member_id), version)

    assert (right.error_code, wrong.error_code) == (0, ErrorCode.ILLEGAL_GENERATION)


def test_heartbeat_tells_a_fenced_instance(desk: Desk) -> None:
    joined = join(desk, group_instance_id="i")

    response = desk.ask(HeartbeatRequest("g", joined.generation_id, "another", "i"))

    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", range(3))
def test_leave_of_one_member(desk: Desk, version: int) -> None:
    joined = join(desk)

    left = desk.ask(LeaveGroupRequest("g", joined.member_id), version)
    again = desk.ask(LeaveGroupRequest("g", joined.member_id), version)
    nowhere = desk.ask(LeaveGroupRequest("", joined.member_id), version)

    assert left.error_code == 0
    assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert nowhere.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(3, 6))
def test_leave_of_several_members(desk: Desk, version: int) -> None:
    joined = join(desk, group_instance_id="i")
    members = [
        LeaveGroupRequest.MemberIdentity("", "i", "asked to"),
        LeaveGroupRequest.MemberIdentity(joined.member_id, None),
    ]

    left = desk.ask(LeaveGroupRequest("g", members=members), version)
    nowhere = desk.ask(LeaveGroupRequest("", members=members), version)

    assert left.error_code == 0
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in left.members] == [
        ("", "i", 0),
        (joined.member_id, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert (nowhere.error_code, nowhere.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_leave_of_an_unknown_group(desk: Desk) -> None:
    member = LeaveGroupRequest.MemberIdentity("m")

    response = desk.ask(LeaveGroupRequest("none", members=[member]))

    assert response.error_code == 0
    assert response.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_hangs_up_while_it_waits_is_dropped_with_its_session(desk: Desk) -> None:
    first = join(desk)
    sync(desk, first)
    second = desk.ask(join_request())
    call = desk.begin(join_request(second.member_id))

    call.cancel()
    for _ in range(2):
        desk.clock.advance(5_000)
        desk.ask(HeartbeatRequest("g", 1, first.member_id))

    assert answer_to(desk, call) is None
    (group,) = desk.broker.groups.describe_all()
    assert [member.member_id for member in group.members] == [first.member_id]


def test_a_client_that_hangs_up_while_it_waits_for_its_assignment(desk: Desk) -> None:
    first = join(desk)
    second = desk.ask(join_request())
    call = desk.begin(join_request(second.member_id))
    again = desk.begin(
        join_request(
            first.member_id,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol("range", SUBSCRIPTION + b"new")],
        )
    )
    assert answer_to(desk, again).generation_id == 2
    waiting = desk.begin(SyncGroupRequest("g", 2, answer_to(desk, call).member_id), 4)

    waiting.cancel()
    for _ in range(2):
        desk.clock.advance(5_000)
        desk.ask(HeartbeatRequest("g", 2, first.member_id))

    assert answer_to(desk, waiting) is None
    (group,) = desk.broker.groups.describe_all()
    assert [member.member_id for member in group.members] == [first.member_id]


def test_groups_and_members_survive_a_crash(desk: Desk) -> None:
    joined = join(desk)
    sync(desk, joined)
    (before,) = desk.broker.groups.describe_all()

    desk.crash()

    assert desk.broker.groups.describe_all() == [before]
    response = desk.ask(HeartbeatRequest("g", 1, joined.member_id))
    assert response.error_code == 0


# Tools


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_of_a_group_is_this_node(desk: Desk, version: int) -> None:
    response = desk.ask(FindCoordinatorRequest("g"), version)

    assert (response.error_code, response.node_id) == (0, 1)
    assert (response.host, response.port) == ("127.0.0.1", 9092)


@pytest.mark.parametrize("version", [1, 3])
def test_the_coordinator_of_a_transactional_id_is_this_node(desk: Desk, version: int) -> None:
    response = desk.ask(FindCoordinatorRequest("t", key_type=1), version)

    assert (response.error_code, response.node_id, response.port) == (0, 1, 9092)


@pytest.mark.parametrize("version", range(4, 7))
def test_several_coordinators_at_once(desk: Desk, version: int) -> None:
    response = desk.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)

    assert [(one.key, one.error_code, one.node_id, one.port) for one in response.coordinators] == [
        ("g", 0, 1, 9092),
        ("h", 0, 1, 9092),
    ]


@pytest.mark.parametrize("key_type, version", [(2, 1), (2, 6), (9, 3), (-1, 4)])
def test_nobody_coordinates_anything_else(desk: Desk, key_type: int, version: int) -> None:
    request = FindCoordinatorRequest("x", key_type=key_type, coordinator_keys=["x"])

    response = desk.ask(request, version)

    (answer,) = response.coordinators if version >= 4 else [response]
    assert answer.error_code != 0
    assert answer.error_message
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


@pytest.mark.parametrize("version", range(7))
def test_describe_in_every_version(desk: Desk, version: int) -> None:
    joined = join(desk, group_instance_id="i")
    sync(desk, joined)

    response = desk.ask(
        DescribeGroupsRequest(["g", "none"], include_authorized_operations=True), version
    )

    group, missing = response.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("desk", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all")
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (group.authorized_operations > 0) is (version >= 3)
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


def test_describe_tells_less_of_a_group_that_is_not_stable(desk: Desk) -> None:
    joined = join(desk)
    sync(desk, joined)
    desk.begin(join_request(group_instance_id="i"))

    (group,) = desk.ask(DescribeGroupsRequest(["g"])).groups

    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(m.member_metadata, m.member_assignment) for m in group.members] == [
        (b"", b"all"),
        (b"", b""),
    ]
    assert group.authorized_operations == -2147483648


@pytest.mark.parametrize("version", range(6))
def test_list_in_every_version(desk: Desk, version: int) -> None:
    joined = join(desk)
    sync(desk, joined)

    response = desk.ask(ListGroupsRequest(), version)

    (group,) = response.groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type.lower() == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    "states, types, count",
    [
        (["stable"], [], 1),
        (["Empty", "STABLE"], [], 1),
        (["Empty"], [], 0),
        ([], ["Classic"], 1),
        ([], ["consumer"], 0),
        (["Nonsense"], [], 0),
    ],
)
def test_list_filters(desk: Desk, states: list[str], types: list[str], count: int) -> None:
    joined = join(desk)
    sync(desk, joined)

    response = desk.ask(ListGroupsRequest(states, types))

    assert len(response.groups) == count


@pytest.mark.parametrize("version", range(3))
def test_delete_in_every_version(desk: Desk, version: int) -> None:
    joined = join(desk)
    sync(desk, joined)
    refused = desk.ask(DeleteGroupsRequest(["g", "none"]), version)
    desk.ask(LeaveGroupRequest("g", joined.member_id), 0)

    deleted = desk.ask(DeleteGroupsRequest(["g"]), version)

    assert [(one.group_id, one.error_code) for one in refused.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert [(one.group_id, one.error_code) for one in deleted.results] == [("g", 0)]
    desk.crash()
    assert desk.broker.groups.describe_all() == []


def test_deleting_no_group_is_answered_too(desk: Desk) -> None:
    assert desk.ask(DeleteGroupsRequest([])).results == []
