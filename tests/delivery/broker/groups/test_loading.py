"""Groups and offsets come back from the log as they were."""

import logging
from unittest.mock import patch

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import parse_header
from headwater.base.record.records import Record, build_batch, iterate
from headwater.delivery.broker.formats import envelope
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import Protocol
from headwater.delivery.broker.state_topic import java_string_hash, partition_for
from tests.delivery.broker.groups.world import (
    GROUP,
    Consumer,
    FakePartition,
    World,
    settle_rebalance,
    stable_group,
    subscription,
)


@pytest.fixture
def world() -> World:
    return World(topics=("t", "u"))


def string(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def records(world: World) -> list[Record]:
    return [
        record
        for partition in world.topics.offsets_partitions()
        for batch in partition.log.batches
        for record in iterate(batch)
    ]


def append(partition: FakePartition, *entries: tuple[bytes, bytes | None]) -> None:
    batch = build_batch([Record(0, 1, key, value) for key, value in entries])
    partition.append(batch, parse_header(batch))


def test_everything_survives_a_crash(world: World) -> None:
    stable_group(world, 3)
    first, _ = stable_group(world, 2, group="connectors", protocol_type="connect")
    static = Consumer(world, group="static", instance="i-1")
    static.join()
    world.clock.advance(0)
    settle_rebalance([static])
    (gone,) = stable_group(world, 1, group="empty")
    gone.commit(5, metadata="note")
    gone.leave()
    first.commit(3, topic="u", partition=2)
    world.commit(9, group="simple")
    before = world.snapshot()

    world.crash()

    assert world.snapshot() == before
    assert [g.state for g in before["groups"]].count(GroupState.STABLE) == 3


def test_members_go_on_after_a_crash(world: World) -> None:
    first, second = stable_group(world)

    world.crash()

    assert first.beat() is ErrorCode.NONE
    assert second.commit(4) == [ErrorCode.NONE]
    assert first.join() is None
    second.join()
    settle_rebalance([first, second])
    assert first.generation == 2


def test_members_get_a_new_session_after_a_crash(world: World) -> None:
    first, second = stable_group(world)
    world.clock.advance(9_999)
    world.crash()

    world.clock.advance(9_999)
    first.beat()
    world.clock.advance(1)

    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_and_what_is_read_survive_a_crash(world: World) -> None:
    third = Consumer(world, group="mixed", session_ms=100_000, rebalance_ms=5_000)
    static = Consumer(world, group="mixed", instance="i", session_ms=100_000, rebalance_ms=5_000)
    static.join()
    third.enter()
    world.clock.advance(0)
    settle_rebalance([static, third])
    third.protocols = (Protocol("range", subscription("u")),)
    third.join()
    world.clock.advance(5_000)
    third.sync({})
    assert world.describe("mixed").leader == third.member_id

    world.crash()

    assert world.describe("mixed").leader == third.member_id
    answer = world.delete_offsets(("t", 0), ("u", 0), ("v", 0), group="mixed")
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert answer == [(ErrorCode.NONE, [subscribed, subscribed, ErrorCode.NONE])]


def test_a_crash_during_a_rebalance_brings_back_the_last_generation(world: World) -> None:
    first, second = stable_group(world)
    third = Consumer(world)
    third.enter()
    first.join()
    second.join()
    assert first.generation == 2

    world.crash()

    assert world.describe().generation_id == 1
    assert first.beat() is ErrorCode.ILLEGAL_GENERATION
    assert third.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_of_members_without_offsets_or_generation_leave_no_trace(world: World) -> None:
    Consumer(world).join()

    world.crash()

    assert world.groups.listing() == []


def test_the_records_are_kafkas_to_the_byte(world: World) -> None:
    world.commit(7, metadata="m", partition=3)
    (offset,) = records(world)

    topic = world.topics.get("t")
    assert topic is not None
    assert offset.key == b"\x00\x01" + string(GROUP) + string("t") + (3).to_bytes(4, "big")
    assert offset.value == b"".join(
        (
            b"\x00\x04",  # version 4: flexible
            (7).to_bytes(8, "big"),
            b"\xff\xff\xff\xff",  # leader epoch
            b"\x02m",
            world.clock.now_ms().to_bytes(8, "big"),
            b"\x01\x00\x10" + topic.topic_id,  # one tagged field: number 0, 16 bytes
        )
    )


def test_a_retention_of_its_own_needs_the_old_version(world: World) -> None:
    world.commit(7, retention_ms=1_000)
    (offset,) = records(world)

    now_ms = world.clock.now_ms()
    assert offset.value == b"".join(
        (
            b"\x00\x01",
            (7).to_bytes(8, "big"),
            string(""),
            now_ms.to_bytes(8, "big"),
            (now_ms + 1_000).to_bytes(8, "big"),
        )
    )


def test_a_group_is_kafkas_to_the_byte(world: World) -> None:
    consumer = Consumer(world, instance="i", protocols=(Protocol("range", b"\0\0meta"),))
    consumer.join()
    world.clock.advance(0)
    # Unreadable metadata is the members' own business.
    consumer.sync({consumer.member_id: b"parts"})
    (group,) = records(world)

    assert group.key == b"\x00\x02" + string(GROUP)
    assert group.value == b"".join(
        (
            b"\x00\x03",
            string("consumer"),
            (1).to_bytes(4, "big"),
            string("range"),
            string(consumer.member_id),
            world.clock.now_ms().to_bytes(8, "big"),
            (1).to_bytes(4, "big"),  # members
            string(consumer.member_id),
            string("i"),
            string("client"),
            string("/127.0.0.1"),
            (60_000).to_bytes(4, "big"),
            (10_000).to_bytes(4, "big"),
            (6).to_bytes(4, "big") + b"\0\0meta",
            (5).to_bytes(4, "big") + b"parts",
        )
    )


def test_tombstones_end_groups_and_offsets(world: World) -> None:
    world.commit(7)
    world.delete()

    _, offset, group = records(world)

    assert (offset.value, group.value) == (None, None)
    assert group.key == b"\x00\x02" + string(GROUP)


def test_the_topic_is_created_compacted_when_it_is_first_needed(world: World) -> None:
    assert world.topics.get("__consumer_offsets") is None

    world.commit(1)

    topic = world.topics.get("__consumer_offsets")
    assert topic is not None
    assert len(topic.partitions) == 2
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "flush.messages": "1",
        "segment.bytes": str(100 * 1024 * 1024),
    }


def test_groups_are_found_after_the_setting_for_partitions_changed(world: World) -> None:
    world.commit(1, group="a")
    world.commit(2, group="b")

    world.set(offsets_topic_num_partitions=50)

    assert (world.committed(group="a"), world.committed(group="b")) == (1, 2)
    assert world.commit(3, group="a") == [ErrorCode.NONE]
    world.crash()
    assert world.committed(group="a") == 3


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
        ("consumer-группа", None),
        ("\U0001f980", 55358 * 31 + 56704),
    ],
)
def test_hashes_are_javas(text: str, expected: int | None) -> None:
    value = java_string_hash(text)

    assert -(1 << 31) <= value < 1 << 31
    if expected is not None:
        assert value == expected


def test_a_group_whose_hash_has_no_absolute_value_goes_to_the_first_partition() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello world", 50) == 2


def test_damaged_and_foreign_records_are_skipped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.commit(1)
    stable_group(world, 1, group="other")
    good = world.snapshot()
    first, *_ = world.topics.offsets_partitions()
    offset_key = b"\x00\x01" + string("x") + string("t") + bytes(4)
    append(first, (b"", b"empty key"), (b"\x00", b"half a number"))
    append(first, (offset_key, b"\x00\x04half a value"), (offset_key + b"y", b"\x00\x63future"))
    append(first, (b"\x00\x02" + string("g"), b"\x00\x03nonsense"))
    append(first, (b"\x00\x03" + string("consumer-group"), b"\x00\x00" + bytes(4)))
    append(first, (b"\x7f\xff", b"unknown kind"), (b"\x00\x02", b"\x00\x03"))

    with caplog.at_level(logging.WARNING):
        world.crash()

    assert world.snapshot() == good
    assert sum("was skipped" in message for message in caplog.messages) >= 5


def test_a_group_record_that_names_a_member_twice_is_skipped(world: World) -> None:
    (consumer,) = stable_group(world, 1)
    (group,) = records(world)
    assert group.value is not None
    assert group.key is not None
    count = group.value.index((1).to_bytes(4, "big"), 20)
    member = group.value[count + 4 :]
    twice = group.value[:count] + (2).to_bytes(4, "big") + member * 2
    partition = next(p for p in world.topics.offsets_partitions() if p.log.batches)
    append(partition, (group.key, twice))

    world.crash()

    assert consumer.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_batch_with_a_wrong_checksum_costs_only_itself(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.commit(1)
    world.commit(2, partition=1)
    partition = next(p for p in world.topics.offsets_partitions() if p.log.batches)
    damaged = bytearray(partition.log.batches[0])
    damaged[-1] ^= 0xFF
    partition.log.batches[0] = bytes(damaged)

    with caplog.at_level(logging.WARNING):
        world.crash()

    assert (world.committed(0), world.committed(1)) == (None, 2)
    assert any("unreadable" in message for message in caplog.messages)


def test_loading_decodes_only_what_counts(world: World) -> None:
    for offset in range(500):
        world.commit(offset)

    path = "headwater.delivery.broker.groups.records.decode_value"
    with patch(path, wraps=envelope.decode_value) as decode:
        world.crash()

    assert decode.call_count == 1
    assert world.committed() == 499


def test_a_log_larger_than_one_read_is_loaded_whole(world: World) -> None:
    for partition in range(4):
        world.commit(partition, partition=partition)

    with patch("headwater.delivery.broker.state_topic._READ_BYTES", 1):
        world.crash()

    assert [world.committed(partition) for partition in range(4)] == [0, 1, 2, 3]


def test_a_group_above_the_bound_is_rebalanced_after_a_start(world: World) -> None:
    first, *_ = stable_group(world, 3)

    world.set(group_max_size=2)

    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
