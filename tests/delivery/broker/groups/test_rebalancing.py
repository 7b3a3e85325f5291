"""Every transition of a group, with time in the test's hand."""

import pytest

from headwater.base.errors import ErrorCode, StorageError
from headwater.delivery.broker.groups.rebalancing import NEW_MEMBER_JOIN_TIMEOUT_MS
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import LeavingMember, Protocol
from tests.delivery.broker.groups.world import (
    GROUP,
    Consumer,
    World,
    assignment_for,
    settle_rebalance,
    stable_group,
    subscription,
)


@pytest.fixture
def world() -> World:
    return World()


def test_first_join_is_asked_to_come_back_with_an_id(world: World) -> None:
    consumer = Consumer(world)

    result = consumer.join()

    assert result is not None
    assert result.error is ErrorCode.MEMBER_ID_REQUIRED
    assert result.member_id.startswith("client-")
    assert world.describe().state is GroupState.EMPTY


def test_old_clients_join_without_an_id(world: World) -> None:
    consumer = Consumer(world, version=3)

    assert consumer.join() is None
    world.clock.advance(0)

    assert consumer.joined.generation_id == 1
    assert consumer.joined.leader == consumer.member_id


def test_a_given_id_expires_with_its_session_and_leaves_nothing_behind(world: World) -> None:
    consumer = Consumer(world)
    consumer.join()

    world.clock.advance(consumer.session_ms)

    assert world.groups.describe(GROUP) is None
    result = consumer.join()
    assert result is not None
    assert result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_becomes_stable(world: World) -> None:
    first, second = stable_group(world)

    description = world.describe()
    assert description.state is GroupState.STABLE
    assert description.generation_id == 1
    assert description.protocol_name == "range"
    assert description.leader == first.member_id
    assert {m.member_id: m.assignment for m in description.members} == {
        consumer.member_id: assignment_for(consumer.member_id, 1) for consumer in (first, second)
    }


def test_only_the_leader_learns_the_members(world: World) -> None:
    first, second = stable_group(world)

    assert [m.member_id for m in first.joined.members] == [first.member_id, second.member_id]
    assert [m.metadata for m in first.joined.members] == [subscription("t")] * 2
    assert second.joined.members == ()


def test_followers_wait_for_the_leaders_assignment(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)

    assert second.sync() is None
    assert world.describe().state is GroupState.COMPLETING_REBALANCE
    first.sync({second.member_id: b"all"})

    assert second.syncs[-1].assignment == b"all"
    assert first.syncs[-1].assignment == b""


def test_the_assignment_is_handed_out_only_when_it_is_durable() -> None:
    world = World(auto_settle=False)
    consumer = Consumer(world)
    consumer.enter()
    world.clock.advance(0)

    assert consumer.sync({consumer.member_id: b"x"}) is None
    assert world.describe().state is GroupState.COMPLETING_REBALANCE
    world.settle()

    assert consumer.syncs[-1].assignment == b"x"
    assert world.describe().state is GroupState.STABLE


def test_a_member_that_joins_while_the_assignment_is_being_stored_voids_it() -> None:
    world = World(auto_settle=False)
    first = Consumer(world)
    first.enter()
    world.clock.advance(0)
    first.sync({first.member_id: b"old"})

    second = Consumer(world)
    second.enter()
    assert first.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    world.settle()

    assert world.describe().state is GroupState.PREPARING_REBALANCE
    first.join()
    assert (first.generation, second.generation) == (2, 2)


def test_the_leaders_repeated_sync_stores_once() -> None:
    world = World(auto_settle=False)
    first = Consumer(world)
    first.enter()
    world.clock.advance(0)

    first.sync({first.member_id: b"x"})
    written = sum(p.log.log_end_offset for p in world.topics.offsets_partitions())
    first.sync({first.member_id: b"y"})

    assert first.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert sum(p.log.log_end_offset for p in world.topics.offsets_partitions()) == written
    world.settle()
    assert [sync.assignment for sync in first.syncs] == [b"", b"x"]


def test_a_new_member_makes_the_others_rejoin(world: World) -> None:
    first, second = stable_group(world)
    third = Consumer(world)

    third.enter()

    assert world.describe().state is GroupState.PREPARING_REBALANCE
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert first.join() is None
    assert second.join() is not None
    settle_rebalance([first, second, third])
    assert world.describe().generation_id == 2
    assert first.is_leader


def test_sync_in_the_join_phase_is_told_to_rejoin(world: World) -> None:
    first, _ = stable_group(world)
    Consumer(world).enter()

    result = first.sync()

    assert result is not None
    assert result.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_rejoins_unchanged_is_told_its_generation(world: World) -> None:
    _, follower = stable_group(world)

    result = follower.join()

    assert result is not None
    assert (result.error, result.generation_id) == (ErrorCode.NONE, 1)
    assert world.describe().state is GroupState.STABLE
    again = follower.sync()
    assert again is not None
    assert again.assignment == assignment_for(follower.member_id, 1)


def test_a_follower_with_new_metadata_starts_a_rebalance(world: World) -> None:
    _, follower = stable_group(world)
    follower.protocols = (Protocol("range", subscription("t", "u")),)

    assert follower.join() is None

    assert world.describe().state is GroupState.PREPARING_REBALANCE


def test_the_leader_that_rejoins_starts_a_rebalance(world: World) -> None:
    leader, _ = stable_group(world)

    assert leader.join() is None

    assert world.describe().state is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("leads", [True, False])
def test_a_rejoin_in_the_sync_phase_repeats_the_answer(world: World, leads: bool) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    consumer = first if leads else second

    result = consumer.join()

    assert result == consumer.joins[1]
    assert world.describe().state is GroupState.COMPLETING_REBALANCE
    assert bool(consumer.joined.members) is leads


def test_new_metadata_in_the_sync_phase_starts_again(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()
    first.protocols = (Protocol("range", subscription("u")),)

    first.join()

    assert second.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.describe().state is GroupState.PREPARING_REBALANCE


# Time-outs


def test_a_silent_member_is_dropped_when_its_session_ends(world: World) -> None:
    first, second = stable_group(world)
    world.clock.advance(9_000)
    first.beat()

    world.clock.advance(1_000)

    assert [m.member_id for m in world.describe().members] == [first.member_id]
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_and_commits_keep_a_session_alive(world: World) -> None:
    first, second = stable_group(world)

    for _ in range(10):
        world.clock.advance(6_000)
        assert first.beat() is ErrorCode.NONE
        assert second.commit(1) == [ErrorCode.NONE]

    assert world.describe().state is GroupState.STABLE


def test_the_leaders_end_passes_the_lead_on(world: World) -> None:
    first, second, third = stable_group(world, 3)
    world.clock.advance(9_000)
    second.beat()
    third.beat()
    world.clock.advance(1_000)

    second.join()
    third.join()

    assert second.is_leader
    settle_rebalance([second, third])
    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_members_end_empties_the_group(world: World) -> None:
    stable_group(world)

    world.clock.advance(10_000)

    description = world.describe()
    assert description.state is GroupState.EMPTY
    assert description.members == ()
    assert world.clock.pending_timers == 1, "only the search for expired offsets goes on"


def test_rebalance_timeout_drops_those_that_do_not_rejoin(world: World) -> None:
    first, second = stable_group(world, session_ms=120_000)
    third = Consumer(world)
    third.enter()
    first.join()

    world.clock.advance(59_999)
    assert first.joins[-1].generation_id == 1
    world.clock.advance(1)

    assert first.joined.generation_id == 2
    assert {m.member_id for m in first.joined.members} == {first.member_id, third.member_id}
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_member_sets_the_rebalance_timeout(world: World) -> None:
    first, second = Consumer(world, rebalance_ms=1_000), Consumer(world, rebalance_ms=30_000)
    first.session_ms = second.session_ms = 100_000
    first.enter()
    second.enter()
    world.clock.advance(0)
    settle_rebalance([first, second])
    first.join()

    world.clock.advance(29_999)
    assert world.describe().state is GroupState.PREPARING_REBALANCE
    world.clock.advance(1)

    assert first.joined.generation_id == 2


def test_a_waiting_member_needs_no_heartbeat(world: World) -> None:
    first, second = stable_group(world, session_ms=10_000)
    first.join()
    for _ in range(5):
        world.clock.advance(9_000)
        assert second.beat() is ErrorCode.REBALANCE_IN_PROGRESS

    second.join()

    assert first.joined.generation_id == 2


def test_a_new_member_is_not_waited_for_for_ever(world: World) -> None:
    first = Consumer(world, rebalance_ms=30 * 60_000, session_ms=30 * 60_000)
    first.enter()
    world.clock.advance(0)
    settle_rebalance([first])
    late = Consumer(world)
    late.enter()

    world.clock.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)

    assert late.joins[-1].error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.member_id for m in world.describe().members] == [first.member_id]


def test_whoever_does_not_sync_is_dropped(world: World) -> None:
    first, second = Consumer(world, session_ms=200_000), Consumer(world, session_ms=200_000)
    first.enter()
    second.enter()
    world.clock.advance(0)
    first.sync({})

    world.clock.advance(60_000)

    assert world.describe().state is GroupState.PREPARING_REBALANCE
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_does_not_sync_is_dropped_and_the_others_are_told(world: World) -> None:
    first, second = Consumer(world, session_ms=200_000), Consumer(world, session_ms=200_000)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()

    world.clock.advance(60_000)

    assert second.syncs[-1].error is ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert second.is_leader


def test_a_session_begins_when_a_long_wait_for_the_assignment_ends(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()
    for _ in range(4):
        world.clock.advance(5_000)
        first.beat()
    first.sync({})
    assert second.syncs[-1].error is ErrorCode.NONE

    world.clock.advance(5_000)
    assert first.beat() is ErrorCode.NONE
    world.clock.advance(5_000)

    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_interrupted_sync_phase_leaves_no_timer(world: World) -> None:
    (only,) = stable_group(world, 1)
    before = world.clock.pending_timers

    for _ in range(5):
        only.join()
        only.protocols = (Protocol("range", subscription("t", str(len(only.joins)))),)
        only.join()
        only.sync({})

    assert world.clock.pending_timers == before


# The initial delay


def test_the_initial_delay_collects_members(world: World) -> None:
    world.set(group_initial_rebalance_delay_ms=3_000)
    first, second = Consumer(world), Consumer(world)
    first.enter()
    world.clock.advance(2_000)
    second.enter()

    world.clock.advance(1_000)
    assert not first.generation > 0, "a second member prolongs the delay"
    world.clock.advance(2_999)
    assert not first.generation > 0
    world.clock.advance(1)

    assert (first.generation, second.generation) == (1, 1)


def test_the_initial_delay_is_not_prolonged_without_new_members(world: World) -> None:
    world.set(group_initial_rebalance_delay_ms=3_000)
    first = Consumer(world)
    first.enter()

    world.clock.advance(3_000)

    assert first.generation == 1


def test_the_initial_delay_never_exceeds_the_rebalance_timeout(world: World) -> None:
    world.set(group_initial_rebalance_delay_ms=3_000)
    members = [Consumer(world, rebalance_ms=7_000) for _ in range(6)]
    for member in members:
        member.enter()
        world.clock.advance(1_500)

    assert all(member.generation == 1 for member in members[:4]), [m.joins for m in members]


def test_the_initial_delay_ends_in_an_empty_group_if_the_only_member_left(world: World) -> None:
    world.set(group_initial_rebalance_delay_ms=3_000)
    consumer = Consumer(world)
    consumer.enter()
    assert consumer.leave() == [ErrorCode.NONE]
    assert consumer.joins[-1].error is ErrorCode.UNKNOWN_MEMBER_ID

    world.clock.advance(3_000)

    assert world.describe().state is GroupState.EMPTY


# Leaving


def test_leaving_makes_the_others_rebalance(world: World) -> None:
    first, second = stable_group(world)

    assert first.leave() == [ErrorCode.NONE]

    assert second.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    second.join()
    assert second.is_leader
    assert second.generation == 2


def test_the_last_one_to_leave_is_answered_when_it_is_durable() -> None:
    world = World(auto_settle=False)
    (only,) = stable_group(world, 1)

    answer = only.leave()

    assert world.describe().state is GroupState.EMPTY
    assert answer == []
    world.settle()
    assert answer == [ErrorCode.NONE]


def test_leaving_in_the_join_phase_lets_the_others_go_on(world: World) -> None:
    first, second = stable_group(world)
    third = Consumer(world)
    third.enter()
    first.join()

    second.leave()

    assert (first.generation, third.generation) == (2, 2)


def test_leaving_with_an_id_that_was_never_used(world: World) -> None:
    first, _ = stable_group(world)
    third = Consumer(world)
    third.join()

    assert third.leave() == [ErrorCode.NONE]

    assert first.beat() is ErrorCode.NONE


def test_an_unused_id_holds_the_join_phase_open_until_it_expires(world: World) -> None:
    first, second = stable_group(world)
    third = Consumer(world, session_ms=5_000)
    third.join()
    first.join()
    second.join()
    assert world.describe().state is GroupState.PREPARING_REBALANCE

    world.clock.advance(5_000)

    assert (first.generation, second.generation) == (2, 2)


def test_leaving_members_are_judged_one_by_one(world: World) -> None:
    first, _ = stable_group(world)

    answer = world.leave(
        LeavingMember("nobody", None),
        LeavingMember(first.member_id, None),
        LeavingMember("", "no-such-instance"),
        LeavingMember("", None),
    )

    assert answer == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_a_member_removed_while_it_waits_for_its_assignment_is_told(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()

    second.leave()

    assert second.syncs[-1].error is ErrorCode.UNKNOWN_MEMBER_ID


# A disk that refuses


def test_an_assignment_that_cannot_be_stored_is_retried_by_a_rebalance(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()
    world.append_error = StorageError("disk full")

    result = first.sync({})

    assert result is not None
    assert result.error is ErrorCode.NOT_COORDINATOR
    assert second.syncs[-1].error is ErrorCode.NOT_COORDINATOR
    assert world.describe().state is GroupState.PREPARING_REBALANCE
    world.append_error = None
    first.join()
    second.join()
    settle_rebalance([first, second])


def test_an_empty_group_that_cannot_be_stored_is_empty_all_the_same(world: World) -> None:
    (only,) = stable_group(world, 1)
    world.append_error = StorageError("disk full")

    assert only.leave() == [ErrorCode.NONE]

    assert world.describe().state is GroupState.EMPTY


def test_closing_answers_everyone_and_stops_all_timers(world: World) -> None:
    first, _ = stable_group(world)
    first.join()
    waiting_for_sync = Consumer(world, group="other")
    follower = Consumer(world, group="other")
    waiting_for_sync.enter()
    follower.enter()
    world.clock.advance(0)
    follower.sync()
    Consumer(world, group="third").join()

    world.groups.close()

    assert first.joins[-1].error is ErrorCode.NOT_COORDINATOR
    assert follower.syncs[-1].error is ErrorCode.NOT_COORDINATOR
    assert world.clock.pending_timers == 0
