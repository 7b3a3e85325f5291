"""Clients that go away while they wait for an answer."""

import pytest

from headwater.base.errors import ErrorCode
from tests.delivery.broker.groups.world import Consumer, World, stable_group


@pytest.fixture
def world() -> World:
    return World()


def test_an_abandoned_join_keeps_the_member_until_its_session_ends(world: World) -> None:
    first, second = stable_group(world, session_ms=30_000)
    first.join()
    assert first.waiting_join is not None

    first.waiting_join.abandon()
    second.join()

    assert {m.member_id for m in world.describe().members} == {first.member_id, second.member_id}
    assert second.generation == 2
    assert first.generation == 1, "nobody was there to be told"
    world.clock.advance(29_999)
    assert len(world.describe().members) == 2
    assert second.beat() is ErrorCode.NONE
    world.clock.advance(1)
    assert len(world.describe().members) == 1


def test_an_abandoned_join_does_not_hold_the_others_longer_than_its_session(world: World) -> None:
    first, second = stable_group(world, session_ms=10_000)
    first.join()
    assert first.waiting_join is not None
    first.waiting_join.abandon()
    for _ in range(2):
        world.clock.advance(5_000)
        second.beat()

    second.join()

    assert second.is_leader
    assert [m.member_id for m in second.joined.members] == [second.member_id]


def test_a_client_that_comes_back_replaces_its_abandoned_join(world: World) -> None:
    first, second = stable_group(world)
    first.join()
    assert first.waiting_join is not None
    first.waiting_join.abandon()
    first.join()

    second.join()

    assert (first.generation, second.generation) == (2, 2)


def test_a_second_join_of_the_same_member_answers_the_first(world: World) -> None:
    first, second = stable_group(world)
    first.join()
    first.join()
    assert first.joins[-1].error is ErrorCode.REBALANCE_IN_PROGRESS

    second.join()

    assert first.joined.generation_id == 2


def test_an_abandoned_sync_keeps_the_member_until_its_session_ends(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()
    assert second.waiting_sync is not None
    second.waiting_sync.abandon()

    for _ in range(2):
        world.clock.advance(5_000)
        first.beat()

    assert [m.member_id for m in world.describe().members] == [first.member_id]
    assert second.syncs == []


def test_a_join_abandoned_after_a_long_wait_starts_a_session(world: World) -> None:
    first, second = stable_group(world, session_ms=10_000)
    first.join()
    for _ in range(4):
        world.clock.advance(5_000)
        second.beat()
    assert first.waiting_join is not None

    first.waiting_join.abandon()
    for _ in range(2):
        world.clock.advance(5_000)
        second.beat()

    assert [m.member_id for m in world.describe().members] == [second.member_id]


def test_a_sync_abandoned_after_a_long_wait_starts_a_session(world: World) -> None:
    first, second = Consumer(world), Consumer(world)
    first.enter()
    second.enter()
    world.clock.advance(0)
    second.sync()
    for _ in range(4):
        world.clock.advance(5_000)
        first.beat()
    assert second.waiting_sync is not None

    second.waiting_sync.abandon()
    for _ in range(2):
        world.clock.advance(5_000)
        first.beat()

    assert [m.member_id for m in world.describe().members] == [first.member_id]
