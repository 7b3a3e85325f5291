"""What a group refuses, and with which of Kafka's errors."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import Protocol
from tests.delivery.broker.groups.world import GROUP, RANGE, Consumer, World, stable_group


@pytest.fixture
def world() -> World:
    return World()


def test_group_ids_must_not_be_empty(world: World) -> None:
    consumer = Consumer(world, group="", member_id="x")

    joined, synced = consumer.join(), consumer.sync()
    assert joined is not None
    assert synced is not None
    assert joined.error is ErrorCode.INVALID_GROUP_ID
    assert synced.error is ErrorCode.INVALID_GROUP_ID
    assert consumer.beat() is ErrorCode.INVALID_GROUP_ID
    assert consumer.leave() == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize("session_ms", [999, 1_800_001])
def test_session_timeouts_have_bounds(world: World, session_ms: int) -> None:
    result = Consumer(world, session_ms=session_ms).join()

    assert result is not None
    assert result.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_strangers_with_an_id_are_unknown(world: World) -> None:
    stranger = Consumer(world, member_id="made-up", generation=1)

    for known in (False, True):
        if known:
            stable_group(world)
        joined, synced = stranger.join(), stranger.sync()
        assert joined is not None
        assert synced is not None
        assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert synced.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
        assert stranger.leave() == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_old_generation_is_illegal(world: World) -> None:
    first, _ = stable_group(world)

    assert first.beat(0) is ErrorCode.ILLEGAL_GENERATION
    result = first.sync(generation_id=0)
    assert result is not None
    assert result.error is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": "connect"}, {"protocol_name": "roundrobin"}],
)
def test_sync_checks_what_the_client_thinks_of_the_protocol(
    world: World, changes: dict[str, str]
) -> None:
    first, _ = stable_group(world)

    wrong = first.sync(**changes)  # type: ignore[arg-type]
    right = first.sync(protocol_type="consumer", protocol_name="range")

    assert wrong is not None
    assert wrong.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert right is not None
    assert right.error is ErrorCode.NONE
    assert (right.protocol_type, right.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize(
    "protocol_type, protocols",
    [
        ("connect", RANGE),
        ("consumer", (Protocol("sticky", b""),)),
        ("consumer", ()),
        ("", RANGE),
    ],
)
def test_members_need_common_ground(
    world: World, protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    stable_group(world)

    result = Consumer(world, protocol_type=protocol_type, protocols=protocols).join()

    assert result is not None
    assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.describe().state is GroupState.STABLE


@pytest.mark.parametrize("protocol_type, protocols", [("consumer", ()), ("", RANGE)])
def test_a_group_cannot_be_founded_without_a_protocol(
    world: World, protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    result = Consumer(world, protocol_type=protocol_type, protocols=protocols).join()

    assert result is not None
    assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.groups.describe(GROUP) is None


def test_an_empty_group_may_change_its_kind(world: World) -> None:
    (only,) = stable_group(world, 1)
    only.leave()

    stable_group(world, 1, protocol_type="connect", protocols=(Protocol("compatible", b""),))

    assert world.describe().protocol_type == "connect"


def test_most_votes_among_the_common_protocols_win(world: World) -> None:
    def knows(*names: str) -> tuple[Protocol, ...]:
        return tuple(Protocol(name, name.encode()) for name in names)

    consumers = [
        Consumer(world, protocols=knows("a", "b", "c")),
        Consumer(world, protocols=knows("b", "c")),
        Consumer(world, protocols=knows("c", "b", "a")),
        Consumer(world, protocols=knows("c", "b")),
        Consumer(world, protocols=knows("c", "d", "b")),
    ]
    for consumer in consumers:
        consumer.enter()
    world.clock.advance(0)

    assert consumers[0].joined.protocol_name == "c"
    assert {m.metadata for m in consumers[0].joined.members} == {b"c"}


def test_a_full_group_takes_no_more_members(world: World) -> None:
    world.set(group_max_size=2)
    first, second = stable_group(world)
    third = Consumer(world)

    result = third.enter()

    assert result is not None
    assert result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (first.beat(), second.beat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_full_join_phase_serves_those_who_come_first(world: World) -> None:
    stable_group(world, 3)
    world.set(group_max_size=2)
    members = [
        Consumer(world, member_id=m.member_id, generation=1)
        for m in world.groups.describe_all()[0].members
    ]
    assert members[0].beat() is ErrorCode.REBALANCE_IN_PROGRESS

    results = [member.join() for member in members]

    assert results[2] is not None
    assert results[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [member.generation for member in members[:2]] == [2, 2]


def test_a_full_group_forgets_the_ids_it_had_given_out(world: World) -> None:
    world.set(group_max_size=2)
    first, second = stable_group(world, 1)[0], Consumer(world)
    late = Consumer(world)
    late.join()
    second.enter()
    assert first.join() is None

    result = late.join()

    assert result is not None
    assert result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (first.generation, second.generation) == (2, 2), "nobody waits for the third"


def test_a_long_client_name_still_makes_a_valid_member_id(world: World) -> None:
    consumer = Consumer(world, instance="i" * 32_000)
    consumer.join()
    world.clock.advance(0)

    assert len(consumer.joined.member_id) < 300


def test_names_that_no_record_can_hold_are_refused(world: World) -> None:
    long = "x" * 40_000
    assert world.commit(1, group=long) == [ErrorCode.INVALID_REQUEST]
    assert world.groups.describe(long) is None
    fine, odd = Consumer(world), Consumer(world, instance=long)
    odd.join()
    fine.enter()
    world.clock.advance(0)
    fine.sync()

    result = odd.sync({})

    assert result is not None
    assert result.error is ErrorCode.INVALID_REQUEST
    assert fine.syncs[-1].error is ErrorCode.INVALID_REQUEST, "nobody waits for ever"


def test_a_stable_group_is_not_shaken_by_a_name_that_is_too_long(world: World) -> None:
    static = Consumer(world, instance="i")
    static.join()
    world.clock.advance(0)
    static.sync({})
    again = Consumer(world, instance="i")
    again.protocols = (*RANGE, Protocol("y" * 40_000, b""))

    result = again.join()

    assert result is not None
    assert result.error is ErrorCode.NONE, "only the protocol in use is stored"
