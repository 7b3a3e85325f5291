"""Members with a group.instance.id: their place outlives the process (KIP-345, KIP-814)."""

import pytest

from headwater.base.errors import ErrorCode, StorageError
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import LeavingMember, Protocol
from tests.delivery.broker.groups.world import (
    Consumer,
    World,
    assignment_for,
    settle_rebalance,
    subscription,
)


@pytest.fixture
def world() -> World:
    return World()


def static_group(world: World, *instances: str, version: int = 9) -> list[Consumer]:
    consumers = [Consumer(world, instance=instance, version=version) for instance in instances]
    for consumer in consumers:
        assert consumer.join() is None, "static members need no second join"
    world.clock.advance(0)
    settle_rebalance(consumers)
    return consumers


def restarted(consumer: Consumer, **changes: object) -> Consumer:
    fresh = Consumer(consumer.world, instance=consumer.instance, version=consumer.version)
    for name, value in changes.items():
        setattr(fresh, name, value)
    return fresh


def test_member_ids_name_the_instance(world: World) -> None:
    first, _ = static_group(world, "a", "b")

    assert first.member_id.startswith("a-")


def test_a_restarted_member_takes_its_place_without_a_rebalance(world: World) -> None:
    first, second = static_group(world, "a", "b")
    again = restarted(second)

    result = again.join()

    assert result is not None
    assert (result.error, result.generation_id) == (ErrorCode.NONE, 1)
    assert result.leader == first.member_id
    assert again.member_id != second.member_id
    assert world.describe().state is GroupState.STABLE
    synced = again.sync()
    assert synced is not None
    assert synced.assignment == assignment_for(second.member_id, 1)
    assert first.beat() is ErrorCode.NONE


def test_the_old_process_is_fenced(world: World) -> None:
    _, second = static_group(world, "a", "b")
    restarted(second).join()

    joined, synced = second.join(), second.sync()

    assert second.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert joined is not None
    assert joined.error is ErrorCode.FENCED_INSTANCE_ID
    assert synced is not None
    assert synced.error is ErrorCode.FENCED_INSTANCE_ID
    assert second.commit(1) == [ErrorCode.FENCED_INSTANCE_ID]
    assert second.leave() == [ErrorCode.FENCED_INSTANCE_ID]


@pytest.mark.parametrize("version, skips", [(9, True), (8, False)])
def test_a_restarted_leader_is_told_not_to_assign(world: World, version: int, skips: bool) -> None:
    leader, _ = static_group(world, "a", "b", version=version)
    again = restarted(leader)

    result = again.join()

    assert result is not None
    assert result.skip_assignment is skips
    if skips:
        assert result.leader == again.member_id
        assert len(result.members) == 2
    else:
        assert result.leader == leader.member_id, "so that it takes itself for a follower"
        assert result.members == ()
    assert world.describe().leader == again.member_id


def test_a_replacement_is_answered_when_it_is_durable_and_survives_a_crash() -> None:
    world = World(auto_settle=False)
    _, second = static_group(world, "a", "b")
    again = restarted(second)

    assert again.join() is None
    world.settle()

    assert again.joined.generation_id == 1
    world.crash()
    assert again.beat() is ErrorCode.NONE


def test_a_replacement_that_cannot_be_stored_is_undone(world: World) -> None:
    leader, _ = static_group(world, "a", "b")
    world.append_error = StorageError("disk full")

    result = restarted(leader).join()

    assert result is not None
    assert result.error is ErrorCode.NOT_COORDINATOR
    assert leader.beat() is ErrorCode.NONE
    assert world.describe().leader == leader.member_id


def test_a_replacement_that_changes_the_protocol_starts_a_rebalance(world: World) -> None:
    both = (Protocol("range", subscription("t")), Protocol("sticky", b""))
    consumers = [Consumer(world, instance=name, protocols=both) for name in ("a", "b")]
    for consumer in consumers:
        consumer.join()
    world.clock.advance(0)
    settle_rebalance(consumers)
    again = restarted(consumers[1], protocols=both[1:])

    assert again.join() is None
    assert world.describe().state is GroupState.PREPARING_REBALANCE
    consumers[0].join()

    assert again.joined.protocol_name == "sticky"


def test_a_replacement_in_the_sync_phase_starts_again(world: World) -> None:
    first, second = Consumer(world, instance="a"), Consumer(world, instance="b")
    first.join()
    second.join()
    world.clock.advance(0)
    second.sync()
    again = restarted(second)

    again.join()

    assert second.syncs[-1].error is ErrorCode.FENCED_INSTANCE_ID
    assert world.describe().state is GroupState.PREPARING_REBALANCE
    first.join()
    settle_rebalance([first, again])


def test_a_replacement_in_the_join_phase_fences_the_waiting_join(world: World) -> None:
    first, second = static_group(world, "a", "b")
    first.join()
    again = restarted(first)

    again.join()

    assert first.joins[-1].error is ErrorCode.FENCED_INSTANCE_ID
    second.join()
    settle_rebalance([again, second])


def test_a_static_member_keeps_its_place_through_a_rebalance_it_missed(world: World) -> None:
    first, second = static_group(world, "a", "b")
    first.session_ms = second.session_ms = 200_000
    first.join()
    second.join()
    settle_rebalance([first, second])
    dynamic = Consumer(world, session_ms=200_000)
    dynamic.enter()
    first.join()

    world.clock.advance(60_000)

    assert first.joined.generation_id == 3
    assert {m.group_instance_id for m in first.joined.members} == {"a", "b", None}


def test_a_rebalance_waits_on_while_no_static_member_is_back(world: World) -> None:
    first, second = static_group(world, "a", "b")
    first.session_ms = second.session_ms = 100_000
    first.join()
    second.join()
    settle_rebalance([first, second])
    world.leave(LeavingMember("", "a"))

    world.clock.advance(60_000)
    assert world.describe().state is GroupState.PREPARING_REBALANCE
    second.join()

    assert second.is_leader


def test_tools_remove_a_member_by_its_instance(world: World) -> None:
    first, second = static_group(world, "a", "b")

    assert world.leave(LeavingMember("", "a")) == [ErrorCode.NONE]

    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert second.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_unknown_instance_is_an_unknown_member(world: World) -> None:
    first, _ = static_group(world, "a", "b")
    first.instance = "c"

    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_given_to_a_dynamic_member_is_not_for_static_ones(world: World) -> None:
    consumer = Consumer(world)
    consumer.join()
    consumer.instance = "a"

    result = consumer.join()

    assert result is not None
    assert result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_session_ends_like_any_other(world: World) -> None:
    first, second = static_group(world, "a", "b")
    world.clock.advance(5_000)
    first.beat()

    world.clock.advance(5_000)

    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
