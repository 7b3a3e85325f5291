"""Offsets in transactions: nobody sees them before the marker, and the marker decides."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import scan
from headwater.base.record.records import iterate
from headwater.delivery.broker.formats import envelope
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import CommitRequest, PartitionCommit
from headwater.delivery.broker.state_topic import ProducerKey
from tests.delivery.broker.groups.world import Consumer, World, stable_group

RETENTION_MS = 7 * 24 * 3600 * 1000
CHECK_MS = 600_000


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def slow() -> World:
    """A world in which nothing becomes durable by itself."""
    return World(auto_settle=False)


def both_ways(world: World, check: Callable[[], None]) -> None:
    """What holds while the broker runs holds after a crash as well."""
    world.settle()
    check()
    world.crash()
    check()


# Markers decide


def test_an_offset_of_a_transaction_is_seen_when_it_commits(world: World) -> None:
    assert world.commit_in_transaction(7) == [ErrorCode.NONE]
    assert world.committed() is None
    assert world.is_pending()

    world.end_transaction(committed=True)

    assert world.committed() == 7
    assert not world.is_pending()


def test_an_offset_of_an_aborted_transaction_never_was(world: World) -> None:
    world.commit(3)
    world.commit_in_transaction(7)

    world.end_transaction(committed=False)

    assert world.committed() == 3
    assert not world.is_pending()


def test_the_answer_comes_when_the_record_is_durable(slow: World) -> None:
    answer = slow.commit_in_transaction(7)
    assert answer == []
    assert slow.is_pending()

    slow.settle()

    assert answer == [ErrorCode.NONE]


def test_the_offset_is_seen_when_the_marker_is_durable(slow: World) -> None:
    slow.commit_in_transaction(7)
    slow.end_transaction(committed=True)
    assert slow.committed() is None

    slow.settle()

    assert slow.committed() == 7


def test_the_last_commit_of_a_transaction_counts(world: World) -> None:
    world.commit_in_transaction(7)
    world.commit_in_transaction(9)

    world.end_transaction(committed=True)

    assert world.committed() == 9


def test_the_end_of_another_producers_transaction_changes_nothing(world: World) -> None:
    world.commit_in_transaction(7, producer=1)
    world.commit_in_transaction(8, producer=2, partition=1)

    world.end_transaction(producer=2, committed=True)

    assert (world.committed(0), world.committed(1)) == (None, 8)
    assert world.is_pending(0)
    assert not world.is_pending(1)


def test_a_marker_ends_only_what_its_partition_holds(world: World) -> None:
    # With two partitions of the offsets topic, "a" and "b" are in different ones.
    world.commit_in_transaction(1, group="a")
    world.commit_in_transaction(2, group="b")
    assert world.groups.partition_of("a") != world.groups.partition_of("b")

    world.end_transaction(group="a", committed=True)

    assert world.committed(group="a") == 1
    assert world.is_pending(group="b")


def test_a_marker_without_pending_offsets_is_harmless(world: World) -> None:
    world.end_transaction(producer=99, committed=True)

    assert world.groups.listing() == []


def test_two_transactions_of_a_producer_follow_each_other(world: World) -> None:
    world.commit_in_transaction(1)
    world.end_transaction(committed=True)
    world.commit_in_transaction(2, epoch=1)
    assert world.committed() == 1

    world.end_transaction(committed=False, epoch=1)

    both_ways(world, lambda: _same(world.committed(), 1))


def _same(found: object, expected: object) -> None:
    assert found == expected


# Beside plain commits


def test_a_plain_commit_behind_the_transactions_record_wins(world: World) -> None:
    world.commit_in_transaction(7)
    world.commit(5)
    assert world.committed() == 5
    assert world.is_pending()

    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.committed(), 5))


def test_a_plain_commit_before_the_transactions_record_loses(world: World) -> None:
    world.commit(5)
    world.commit_in_transaction(3)

    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.committed(), 3))


def test_of_two_transactions_the_later_record_wins_whichever_ends_first(world: World) -> None:
    world.commit_in_transaction(1, producer=1)
    world.commit_in_transaction(2, producer=2)

    world.end_transaction(producer=2, committed=True)
    world.end_transaction(producer=1, committed=True)

    both_ways(world, lambda: _same(world.committed(), 2))


def test_a_plain_commit_on_its_way_does_not_hide_the_transaction(slow: World) -> None:
    slow.commit_in_transaction(7)
    slow.end_transaction(committed=True)
    slow.settle()
    answer = slow.commit(9)

    assert slow.committed() == 7
    slow.settle()
    assert (answer, slow.committed()) == ([ErrorCode.NONE], 9)


# Who may commit


def test_a_member_commits_with_its_generation(world: World) -> None:
    (member,) = stable_group(world, 1)

    answer = world.commit_in_transaction(
        7, member_id=member.member_id, generation_id=member.generation
    )

    assert answer == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"generation_id": 99}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nowhere"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_false_claim_is_refused(
    world: World, changes: dict[str, object], error: ErrorCode
) -> None:
    (member,) = stable_group(world, 1)
    claim: dict[str, object] = {
        "member_id": member.member_id,
        "generation_id": member.generation,
        **changes,
    }

    assert world.commit_in_transaction(7, **claim) == [error]  # type: ignore[arg-type]
    assert not world.is_pending()


def test_a_static_member_that_was_replaced_is_fenced(world: World) -> None:
    (member,) = stable_group(world, 1, instance="i")
    old_id = member.member_id
    newcomer = Consumer(world, instance="i")
    newcomer.enter()

    answer = world.commit_in_transaction(
        7, member_id=old_id, generation_id=member.generation, group_instance_id="i"
    )

    assert answer == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_producer_that_does_not_say_for_whom_it_speaks_is_believed(world: World) -> None:
    """Before KIP-447 the request had no room for it."""
    stable_group(world, 1)

    assert world.commit_in_transaction(7) == [ErrorCode.NONE]


def test_a_generation_of_a_group_that_does_not_exist_is_illegal(world: World) -> None:
    answer = world.commit_in_transaction(7, generation_id=1, member_id="m")

    assert answer == [ErrorCode.ILLEGAL_GENERATION]
    assert world.groups.listing() == []


def test_a_member_may_commit_while_the_group_rebalances(world: World) -> None:
    (member,) = stable_group(world, 1)
    Consumer(world).enter()
    assert world.describe().state is GroupState.PREPARING_REBALANCE
    member.enter()
    assert world.describe().state is GroupState.COMPLETING_REBALANCE

    answer = world.commit_in_transaction(
        7, member_id=member.member_id, generation_id=member.generation
    )

    assert answer == [ErrorCode.NONE]


def test_a_group_needs_a_name(world: World) -> None:
    assert world.commit_in_transaction(7, group="") == [ErrorCode.INVALID_GROUP_ID]


def test_each_partition_has_its_own_error(world: World) -> None:
    answer: list[ErrorCode] = []
    world.groups.committing.commit_in_transaction(
        CommitRequest(
            group_id="group",
            member_id="",
            group_instance_id=None,
            generation_id=-1,
            partitions=(
                PartitionCommit("t", 0, 1, -1, ""),
                PartitionCommit("t", 1, 2, -1, "x" * 5000),
                PartitionCommit("t", 9, 3, -1, ""),
                PartitionCommit("missing", 0, 4, -1, ""),
            ),
        ),
        ProducerKey(1, 0),
        answer.extend,
    )
    world.end_transaction(committed=True)

    assert answer == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert list(world.groups.offsets.of_group("group")) == [("t", 0)]


@pytest.mark.parametrize(
    "code, told",
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_what_the_log_refuses_is_not_pending(
    world: World, code: ErrorCode, told: ErrorCode
) -> None:
    world.commit(1, group="other")
    world.append_error = KafkaError(code)

    assert world.commit_in_transaction(7) == [told]

    world.append_error = None
    assert not world.is_pending()
    assert [name for name, _, _ in world.groups.listing()] == ["other"]


def test_the_session_of_a_member_is_not_prolonged(world: World) -> None:
    """As in Kafka: the consumer's own heartbeats do that."""
    (member,) = stable_group(world, 1)
    world.clock.advance(member.session_ms - 1)
    world.commit_in_transaction(7, member_id=member.member_id, generation_id=member.generation)

    world.clock.advance(1)

    assert world.describe().members == ()


# Deleting and expiring


def test_deleting_an_offset_takes_the_pending_one_along(world: World) -> None:
    world.commit(3)
    world.commit_in_transaction(7)

    assert world.delete_offsets(("t", 0)) == [(ErrorCode.NONE, [ErrorCode.NONE])]
    assert not world.is_pending()
    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.committed(), None))


def test_a_pending_offset_alone_can_be_deleted(world: World) -> None:
    world.commit_in_transaction(7)

    assert world.delete_offsets(("t", 0)) == [(ErrorCode.NONE, [ErrorCode.NONE])]
    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.committed(), None))


def test_an_offset_committed_after_the_deletion_stays(slow: World) -> None:
    slow.commit_in_transaction(7)
    slow.settle()
    slow.delete_offsets(("t", 0))
    slow.commit_in_transaction(8)
    slow.end_transaction(committed=True)

    both_ways(slow, lambda: _same(slow.committed(), 8))


def test_a_deletion_that_could_not_be_written_leaves_the_pending_offset(world: World) -> None:
    world.commit_in_transaction(7)
    world.append_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert world.delete_offsets(("t", 0)) == [(ErrorCode.NOT_COORDINATOR, [])]
    world.append_error = None

    world.end_transaction(committed=True)

    assert world.committed() == 7


def test_deleting_a_group_takes_its_pending_offsets_along(world: World) -> None:
    world.commit(1)
    world.commit_in_transaction(7, partition=1)

    assert world.delete() == [ErrorCode.NONE]
    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.groups.listing(), []))


def test_a_transaction_that_goes_on_founds_the_group_again(world: World) -> None:
    world.commit_in_transaction(7)
    world.delete()
    world.commit_in_transaction(8, partition=1)

    world.end_transaction(committed=True)

    both_ways(world, lambda: _same((world.committed(0), world.committed(1)), (None, 8)))


def test_a_deleted_topic_takes_its_pending_offsets_along(world: World) -> None:
    world.commit_in_transaction(7)

    world.topics.delete("t")
    world.add_topic("t")
    assert not world.is_pending()
    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.committed(), None))


def test_a_pending_offset_of_a_topic_deleted_unseen_is_dropped_at_the_start(world: World) -> None:
    world.commit_in_transaction(7)
    world.topics.forget_listeners()
    world.topics.delete("t")
    world.add_topic("t")

    world.crash()
    world.end_transaction(committed=True)

    both_ways(world, lambda: _same(world.committed(), None))


def test_a_pending_offset_keeps_the_old_one_and_the_group_from_expiring(world: World) -> None:
    world.commit(1)
    world.commit(2, partition=1)
    world.commit_in_transaction(7)

    world.clock.advance(RETENTION_MS + CHECK_MS)
    assert (world.committed(0), world.committed(1)) == (1, None)

    world.end_transaction(committed=False)
    world.clock.advance(CHECK_MS)
    both_ways(world, lambda: _same(world.groups.listing(), []))


def test_a_group_with_nothing_but_a_pending_offset_does_not_expire(world: World) -> None:
    world.commit_in_transaction(7)

    world.clock.advance(RETENTION_MS + CHECK_MS)
    world.end_transaction(committed=True)

    assert world.committed() == 7


# Groups come and go


def test_a_group_exists_from_its_first_pending_offset_on(world: World) -> None:
    world.commit_in_transaction(7)

    both_ways(world, lambda: _same(world.describe().state, GroupState.EMPTY))


def test_nothing_is_left_of_a_group_whose_only_transaction_was_aborted(world: World) -> None:
    world.commit_in_transaction(7)

    world.end_transaction(committed=False)

    both_ways(world, lambda: _same(world.groups.listing(), []))


def test_nothing_is_left_in_memory_of_ten_thousand_transactions(world: World) -> None:
    for producer in range(10_000):
        world.commit_in_transaction(producer, producer=producer, group=f"g{producer % 100}")
    pending = world.groups.offsets.pending
    assert len(pending) == 10_000

    for producer in range(10_000):
        group = f"g{producer % 100}"
        world.end_transaction(producer=producer, group=group, committed=producer % 2 == 0)

    assert len(pending) == 0
    assert (pending._by_writer, pending._writers) == ({}, {})
    # Half of them aborted, and with them every group of an odd number.
    assert len(world.groups.listing()) == 50


def test_a_transaction_that_repeats_itself_holds_one_offset(world: World) -> None:
    for offset in range(1000):
        world.commit_in_transaction(offset)

    assert len(world.groups.offsets.pending) == 1


# After a start


@pytest.mark.parametrize("restart", [World.restart, World.crash])
def test_a_pending_offset_is_pending_after_a_start(
    world: World, restart: Callable[[World], None]
) -> None:
    world.commit(3)
    world.commit_in_transaction(7, metadata="note")

    restart(world)
    assert world.committed() == 3
    assert world.is_pending()
    world.end_transaction(committed=True)

    found = world.groups.offsets.get("group", "t", 0)
    assert found is not None
    assert (found.offset, found.metadata) == (7, "note")


def test_a_lost_marker_leaves_the_offset_pending(slow: World) -> None:
    slow.commit_in_transaction(7)
    slow.settle()
    slow.end_transaction(committed=True)

    slow.crash()

    assert slow.committed() is None
    assert slow.is_pending()


def test_a_lost_commit_is_not_pending(slow: World) -> None:
    slow.commit_in_transaction(7)
    slow.settle()
    slow.end_transaction(committed=True)
    slow.settle()
    slow.commit_in_transaction(8, epoch=1)

    slow.crash()

    assert slow.committed() == 7
    assert not slow.is_pending()


def test_loading_decodes_only_what_counts_of_a_thousand_transactions(world: World) -> None:
    for offset in range(1000):
        world.commit_in_transaction(offset)
        world.end_transaction(committed=offset != 999)

    path = "headwater.delivery.broker.groups.records.decode_value"
    with patch(path, wraps=envelope.decode_value) as decode:
        world.crash()

    assert decode.call_count == 1
    assert world.committed() == 998


def test_a_damaged_marker_does_not_stop_the_start(world: World) -> None:
    world.commit_in_transaction(7)
    world.end_transaction(committed=True)
    partition = next(each for each in world.topics.offsets_partitions() if each.log.batches)
    marker = bytearray(partition.log.batches[-1])
    marker[-1] ^= 1
    partition.log.batches[-1] = bytes(marker)

    world.crash()

    assert world.is_pending()


# In the log


def test_the_batch_is_the_producers_and_has_no_sequence_number(world: World) -> None:
    world.commit_in_transaction(7, producer=5, epoch=3)
    (partition,) = [each for each in world.topics.offsets_partitions() if each.log.batches]

    ((_, header),) = scan(partition.log.batches[0])

    assert header.is_transactional
    assert not header.is_control
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert len(iterate(partition.log.batches[0])) == 1
