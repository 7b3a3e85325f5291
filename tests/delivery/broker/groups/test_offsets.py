"""Committing, reading, deleting and expiring offsets."""

from typing import Any

import pytest

from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import Protocol
from tests.delivery.broker.groups.world import GROUP, Consumer, World, stable_group, subscription

MINUTE_MS = 60_000
RETENTION_MS = 10_080 * MINUTE_MS


@pytest.fixture
def world() -> World:
    return World(topics=("t", "u"))


def test_an_offset_is_visible_when_it_is_durable_and_not_before() -> None:
    world = World(auto_settle=False)

    answer = world.commit(7)

    assert answer == []
    assert world.committed() is None
    world.settle()
    assert answer == [ErrorCode.NONE]
    assert world.committed() == 7


def test_what_was_never_durable_is_gone_after_a_crash() -> None:
    world = World(auto_settle=False)
    world.commit(7)
    world.settle()
    world.commit(8)

    world.crash()

    assert world.committed() == 7


def test_commits_become_visible_in_their_order() -> None:
    world = World(auto_settle=False)
    for offset in (3, 9, 5):
        world.commit(offset)

    world.settle()

    assert world.committed() == 5, "the last commit counts, even if it goes back"


def test_everything_that_was_said_is_kept(world: World) -> None:
    world.commit(7, metadata="héllo")

    found = world.groups.offsets.get(GROUP, "t", 0)

    assert found is not None
    assert (found.offset, found.metadata, found.leader_epoch) == (7, "héllo", -1)
    assert found.commit_timestamp_ms == world.clock.now_ms()


def test_a_commit_without_membership_founds_a_simple_group(world: World) -> None:
    world.commit(1)

    assert world.groups.listing() == [(GROUP, "", GroupState.EMPTY)]


def test_partitions_are_judged_one_by_one(world: World) -> None:
    assert world.commit(1, topic="nope") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit(1, partition=4) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit(1, partition=-1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.commit(1, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.commit(1, metadata="x" * 4096) == [ErrorCode.NONE]


def test_who_may_commit(world: World) -> None:
    first, second = stable_group(world)
    stranger: dict[str, Any] = {"member_id": "made-up", "generation_id": 1}

    assert first.commit(1) == [ErrorCode.NONE]
    assert world.commit(2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(2, **stranger) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit(2, member_id=second.member_id, generation_id=0) == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert world.commit(2, member_id=second.member_id) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit(2, group="no-such-group", generation_id=3, member_id="x") == [
        ErrorCode.ILLEGAL_GENERATION
    ]
    assert world.committed() == 1


def test_members_may_commit_during_the_join_phase_but_not_the_sync_phase(world: World) -> None:
    first, second = stable_group(world)
    Consumer(world).enter()

    assert first.commit(5) == [ErrorCode.NONE]
    first.join()
    second.join()
    assert world.describe().state is GroupState.COMPLETING_REBALANCE
    assert first.commit(6) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_tools_may_commit_for_an_empty_group(world: World) -> None:
    (only,) = stable_group(world, 1)
    only.leave()

    assert world.commit(3) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "failure, told",
    [
        (StorageError("disk full"), ErrorCode.NOT_COORDINATOR),
        (KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError(ErrorCode.INVALID_TIMESTAMP), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_failed_append_keeps_the_old_offset(
    world: World, failure: KafkaError, told: ErrorCode
) -> None:
    world.commit(1)
    world.append_error = failure

    assert world.commit(2) == [told]

    assert world.committed() == 1
    world.append_error = None
    assert world.commit(3) == [ErrorCode.NONE]
    assert world.committed() == 3


def test_stable_readers_wait_for_what_is_on_its_way() -> None:
    world = World(auto_settle=False)
    world.commit(1)
    seen: list[int | None] = []

    world.groups.committing.when_stable(GROUP, lambda: seen.append(world.committed()))
    world.groups.committing.when_stable("other", lambda: seen.append(None))

    assert seen == [None]
    world.settle()
    assert seen == [None, 1]


def test_lag_is_known_per_partition(world: World) -> None:
    world.commit(3, group="a")
    world.commit(5, group="b")
    world.commit(9, group="b", partition=1)

    assert dict(world.groups.offsets.committed_offsets("t", 0)) == {"a": 3, "b": 5}
    assert dict(world.groups.offsets.committed_offsets("t", 1)) == {"b": 9}
    assert dict(world.groups.offsets.committed_offsets("u", 0)) == {}


# Deleting groups


def test_deleting_a_group_deletes_its_offsets_durably(world: World) -> None:
    world.commit(1)
    world.commit(2, topic="u", partition=3)

    assert world.delete() == [ErrorCode.NONE]

    assert world.groups.listing() == []
    assert world.committed() is None
    world.crash()
    assert world.groups.listing() == []


def test_a_group_with_members_cannot_be_deleted(world: World) -> None:
    first, second = stable_group(world)

    assert world.delete() == [ErrorCode.NON_EMPTY_GROUP]
    assert world.delete("no-such-group") == [ErrorCode.GROUP_ID_NOT_FOUND]

    first.leave()
    second.leave()
    assert world.delete() == [ErrorCode.NONE]


def test_a_deletion_is_answered_when_it_is_durable() -> None:
    world = World(auto_settle=False)
    world.commit(1)
    world.settle()

    answer = world.delete()

    assert answer == []
    assert world.committed() == 1
    world.settle()
    assert answer == [ErrorCode.NONE]
    assert world.committed() is None


def test_a_commit_that_is_on_its_way_dies_with_its_group() -> None:
    world = World(auto_settle=False)
    world.commit(1)
    world.settle()
    world.commit(2, partition=1)

    world.delete()
    world.settle()

    assert world.groups.listing() == []
    world.crash()
    assert world.groups.listing() == []


def test_a_commit_after_the_deletion_lives() -> None:
    world = World(auto_settle=False)
    world.commit(1)
    world.settle()

    world.delete()
    world.commit(5)
    world.settle()

    assert world.committed() == 5
    world.crash()
    assert world.committed() == 5


def test_a_deletion_that_cannot_be_written_keeps_everything(world: World) -> None:
    world.commit(1)
    world.append_error = StorageError("disk full")

    assert world.delete() == [ErrorCode.NOT_COORDINATOR]
    assert world.delete_offsets(("t", 0)) == [(ErrorCode.NOT_COORDINATOR, [])]

    assert world.committed() == 1


def test_a_huge_group_is_deleted_in_pieces(world: World) -> None:
    world.add_topic("wide", 3_000)
    for partition in range(3_000):
        world.commit(partition, topic="wide", partition=partition)

    assert world.delete() == [ErrorCode.NONE]

    assert world.groups.listing() == []
    world.crash()
    assert world.groups.listing() == []


# Deleting offsets


def test_offsets_of_a_subscribed_topic_cannot_be_deleted(world: World) -> None:
    first, _ = stable_group(world)
    first.commit(1)
    first.commit(2, topic="u")

    answer = world.delete_offsets(("t", 0), ("u", 0), ("u", 1))

    assert answer == [
        (
            ErrorCode.NONE,
            [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE],
        )
    ]
    assert world.committed() == 1
    assert world.committed(topic="u") is None
    world.crash()
    assert world.committed(topic="u") is None


def test_offsets_of_an_empty_group_can_be_deleted(world: World) -> None:
    (only,) = stable_group(world, 1)
    only.commit(1)
    only.leave()

    assert world.delete_offsets(("t", 0)) == [(ErrorCode.NONE, [ErrorCode.NONE])]

    assert world.committed() is None


def test_who_does_not_say_what_it_reads_keeps_all_offsets(world: World) -> None:
    stable_group(world, 1, protocol_type="connect", protocols=(Protocol("x", b""),))
    stable_group(world, 1, group="odd", protocols=(Protocol("range", b"\0"),))

    assert world.delete_offsets(("t", 0)) == [(ErrorCode.NON_EMPTY_GROUP, [])]
    assert world.delete_offsets(("t", 0), group="odd") == [
        (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    ]
    assert world.delete_offsets(("t", 0), group="none") == [(ErrorCode.GROUP_ID_NOT_FOUND, [])]
    assert world.delete_offsets(("t", 0), group="") == [(ErrorCode.INVALID_GROUP_ID, [])]


# Topics that go


def test_a_deleted_topic_takes_its_offsets_along(world: World) -> None:
    world.commit(1, group="a")
    world.commit(2, group="b")
    world.commit(3, group="b", topic="u")

    world.topics.delete("t")
    world.add_topic("t")

    assert world.committed(group="a") is None
    assert world.committed(group="b", topic="u") == 3
    world.crash()
    assert world.committed(group="a") is None
    assert world.committed(group="b", topic="u") == 3


def test_a_commit_that_was_on_its_way_does_not_reach_a_new_topic_of_the_name() -> None:
    world = World(auto_settle=False)
    answer = world.commit(1)
    world.topics.delete("t")
    world.add_topic("t")

    world.settle()

    assert answer == [ErrorCode.NONE]
    assert world.committed() is None
    world.settle()
    world.crash()
    assert world.committed() is None


def test_offsets_of_a_topic_that_went_unnoticed_are_gone_after_a_start(world: World) -> None:
    world.commit(1)
    world.commit(2, topic="u", retention_ms=1_000_000)
    world.topics.forget_listeners()
    world.topics.delete("t")
    world.add_topic("t")

    world.restart()

    assert world.committed() is None
    assert world.committed(topic="u") == 2, "such records carry no topic id"


# Expiry


def expire(world: World, after_ms: int) -> None:
    world.clock.advance(after_ms + world.settings.offsets_retention_check_interval_ms)


def test_offsets_of_a_simple_group_expire_after_their_commit(world: World) -> None:
    world.commit(1)
    world.clock.advance(RETENTION_MS // 2)
    world.commit(2, partition=1)

    expire(world, RETENTION_MS // 2)
    assert (world.committed(0), world.committed(1)) == (None, 2)
    expire(world, RETENTION_MS // 2)

    assert world.groups.listing() == []
    world.crash()
    assert world.groups.listing() == []


def test_many_groups_expire_some_at_a_time(world: World) -> None:
    """All others wait meanwhile."""
    for number in range(1_200):
        world.commit(1, group=f"g{number}")
    interval_ms = world.settings.offsets_retention_check_interval_ms
    world.clock.set_calendar(world.clock.now_ms() + RETENTION_MS)
    left = []
    world.clock.advance(interval_ms)
    left.append(len(world.groups.listing()))
    # A group that comes back under the old name is not one of those that were to be looked at.
    world.groups.forgetting.delete_group("g1199", lambda _: None)
    world.commit(2, group="g1199")
    for _ in range(2):
        assert world.clock.advance_to_next_timer()
        left.append(len(world.groups.listing()))

    assert left == [700, 200, 1]
    assert world.committed(group="g1199") == 2
    assert world.clock.pending_timers == 1


def test_offsets_of_an_empty_group_expire_after_it_became_empty(world: World) -> None:
    (only,) = stable_group(world, 1, session_ms=1_800_000)
    only.commit(1)
    for _ in range(RETENTION_MS // 1_500_000 + 1):
        world.clock.advance(1_500_000)
        only.beat()
    assert world.committed() == 1
    only.leave()

    expire(world, RETENTION_MS - 2 * world.settings.offsets_retention_check_interval_ms)
    assert world.committed() == 1
    expire(world, 2 * world.settings.offsets_retention_check_interval_ms)

    assert world.groups.listing() == []


def test_a_stable_group_loses_only_topics_it_no_longer_reads(world: World) -> None:
    (only,) = stable_group(world, 1, session_ms=1_800_000)
    only.commit(1)
    only.commit(2, topic="u")

    for _ in range(RETENTION_MS // 1_500_000 + 1):
        world.clock.advance(1_500_000)
        only.beat()

    assert world.committed() == 1
    assert world.committed(topic="u") is None


def test_members_that_are_no_consumers_keep_their_offsets(world: World) -> None:
    (only,) = stable_group(
        world, 1, session_ms=1_800_000, protocol_type="connect", protocols=(Protocol("x", b""),)
    )
    only.commit(1)

    for _ in range(RETENTION_MS // 1_500_000 + 1):
        world.clock.advance(1_500_000)
        only.beat()

    assert world.committed() == 1


def test_a_commit_may_have_a_retention_of_its_own(world: World) -> None:
    world.commit(1, retention_ms=5 * MINUTE_MS)
    world.commit(2, partition=1, retention_ms=2 * RETENTION_MS)
    world.restart()

    expire(world, 5 * MINUTE_MS)
    assert (world.committed(0), world.committed(1)) == (None, 2)
    expire(world, RETENTION_MS)
    assert world.committed(1) == 2
    expire(world, RETENTION_MS)

    assert world.committed(1) is None


def test_a_commit_on_its_way_saves_its_offset_from_expiry() -> None:
    world = World(auto_settle=False)
    world.commit(1)
    world.settle()
    world.clock.advance(RETENTION_MS - 1)
    answer = world.commit(2)

    world.clock.advance(world.settings.offsets_retention_check_interval_ms)
    world.settle()

    assert answer == [ErrorCode.NONE]
    assert world.committed() == 2
    world.crash()
    assert world.committed() == 2


def test_an_empty_group_without_offsets_is_forgotten(world: World) -> None:
    (only,) = stable_group(world, 1)
    only.leave()

    expire(world, 0)

    assert world.groups.listing() == []
    world.crash()
    assert world.groups.listing() == []


def test_an_expiry_that_cannot_be_written_is_tried_again(world: World) -> None:
    world.commit(1)
    world.append_error = StorageError("disk full")
    expire(world, RETENTION_MS)
    assert world.committed() == 1

    world.append_error = None
    expire(world, 0)

    assert world.committed() is None


def test_subscriptions_follow_the_generation(world: World) -> None:
    (only,) = stable_group(world, 1)
    only.commit(1, topic="u")
    only.protocols = (Protocol("range", subscription("u")),)
    only.join()
    only.sync({})

    assert world.delete_offsets(("t", 0), ("u", 0)) == [
        (ErrorCode.NONE, [ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    ]


def test_an_id_that_was_given_out_keeps_its_group(world: World) -> None:
    (only,) = stable_group(world, 1)
    only.leave()
    newcomer = Consumer(world, session_ms=1_800_000)
    newcomer.join()

    expire(world, 0)

    assert newcomer.join() is None
