"""State topics that were given more partitions: a start finds the newest of every key again."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import scan
from headwater.base.record.records import iterate
from headwater.delivery.broker.formats.envelope import key_owner
from headwater.delivery.broker.state_topic import partition_for
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from headwater.testing.memory_disk import PowerCut
from tests.delivery.dialects.kafka.desk import Desk

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
# Under 2, 3, 4 and 6 partitions these lie in partitions of their own, and each moves.
GROUPS = ("a", "b", "c", "d", "e", "f")


@dataclass
class Written:
    """A committed offset, in the order in which they were written."""

    offset: int
    counts: bool


class House:
    """A broker whose state topics grow as no client can make them."""

    def __init__(self) -> None:
        self.desk = Desk(
            {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
        )
        self.desk.broker.topics.create([NewTopic("t", 1, {})])
        self.acknowledged: dict[str, int] = {}
        # What a group's open transaction and those before it have written, in order: offset and
        # whether it counts by now.
        self.written: dict[str, list[Written]] = {group: [] for group in GROUPS}
        self.open: dict[str, tuple[int, int]] = {}
        self.producers: dict[str, tuple[int, int]] = {}
        self.next_offset = 0

    def commit(self, group: str) -> None:
        self._tick()
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, self.next_offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
        answer = self.desk.ask(OffsetCommitRequest(group, topics=[topic]), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        self._write(group, counts=True)

    def commit_in_transaction(self, group: str) -> None:
        self.begin(group)
        self.end(group, committed=True)

    def begin(self, group: str) -> None:
        """Commit in a transaction that stays open; one that is open already goes on."""
        producer = self.open.get(group) or self.init(group)
        self._tick()
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, self.next_offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [partition])
        request = TxnOffsetCommitRequest(f"x{group}", group, *producer, topics=[topic])
        answer = self.desk.ask(request, 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        self.open[group] = producer
        self._write(group, counts=False)

    def end(self, group: str, committed: bool) -> None:
        """End the transaction of a group, if one is open."""
        producer = self.open.pop(group, None)
        if producer is None:
            return
        self._tick()
        ended = self.desk.ask(EndTxnRequest(f"x{group}", *producer, committed=committed), 5)
        assert ended.error_code == ErrorCode.NONE
        self.producers[group] = (ended.producer_id, ended.producer_epoch)
        for each in self.written[group]:
            each.counts |= committed
        self.written[group] = [each for each in self.written[group] if each.counts]
        self._note(group)

    def init(self, group: str) -> tuple[int, int]:
        """Begin with a new epoch; a transaction that is open is aborted."""
        self._tick()
        self.open.pop(group, None)
        self.written[group] = [each for each in self.written[group] if each.counts]
        answer = self.desk.ask(InitProducerIdRequest(f"x{group}", 900_000, -1, -1), 5)
        assert answer.error_code == ErrorCode.NONE
        self.producers[group] = (answer.producer_id, answer.producer_epoch)
        return self.producers[group]

    def delete(self, group: str) -> None:
        self._tick()
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(0)
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic("t", [partition])
        self.desk.ask(OffsetDeleteRequest(group, [topic]), 0)
        self.written[group].clear()
        self._note(group)

    def _write(self, group: str, *, counts: bool) -> None:
        self.written[group].append(Written(self.next_offset, counts))
        self._note(group)

    def _note(self, group: str) -> None:
        self.acknowledged.pop(group, None)
        for each in self.written[group]:
            if each.counts:
                self.acknowledged[group] = each.offset

    def grow(self, partitions: int) -> None:
        """Give both topics more partitions, below everything that could refuse it."""
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            topic = self.desk.broker.topics.get(name)
            if topic is not None and len(topic.partitions) < partitions:
                self.desk.broker.topics.add_partitions(name, partitions)

    def restart(self) -> None:
        """Crash and start again; what is known of offsets is what it was."""
        before = self.seen(), self.pending()
        self.desk.crash()
        self.desk.commits.run()
        assert (self.seen(), self.pending()) == before

    def seen(self) -> dict[str, int]:
        offsets = self.desk.broker.groups.offsets
        found = {group: offsets.get(group, "t", 0) for group in GROUPS}
        return {group: each.offset for group, each in found.items() if each is not None}

    def pending(self) -> list[tuple[str, int]]:
        found = self.desk.broker.groups.offsets.pending.all()
        return sorted((key.group_id, each.offset) for key, each in found)

    def producers_seen(self) -> dict[str, tuple[int, int]]:
        known = {group: self.desk.broker.transactions.get(f"x{group}") for group in GROUPS}
        return {
            group: (each.producer_id, each.producer_epoch)
            for group, each in known.items()
            if each is not None
        }

    def live(self, name: str) -> list[tuple[int, bytes]]:
        """Return partition and key of every value that its partition has not taken back."""
        topic = self.desk.broker.topics.get(name)
        assert topic is not None
        found = []
        for partition in topic.partitions:
            log = partition.log
            extent = log.read(0, 1 << 20, upto_offset=log.log_end_offset, at_least_one=True)
            data = b"" if extent is None else extent.read()
            last: dict[bytes, bytes | None] = {}
            for pos, header in scan(data):
                if not header.is_control:
                    last |= {each.key or b"": each.value for each in iterate(data, pos)}
            found += [(log.partition, key) for key, value in last.items() if value is not None]
        return found

    def _tick(self) -> None:
        self.next_offset += 1
        self.desk.clock.advance(1)


@pytest.fixture
def house() -> House:
    return House()


def test_an_old_commit_does_not_come_back(house: House) -> None:
    for group in GROUPS:
        house.commit(group)
    house.grow(3)
    for group in GROUPS:
        house.commit(group)

    house.restart()

    assert house.seen() == house.acknowledged


def test_what_was_not_committed_anew_is_found_in_its_old_partition(house: House) -> None:
    for group in GROUPS:
        house.commit(group)
    house.grow(3)
    house.restart()
    # What is found lies at home from now on: here a later commit and its deletion are the last.
    for group in GROUPS[:3]:
        house.delete(group)
    for group in GROUPS[3:]:
        house.commit(group)

    house.restart()

    assert house.seen() == house.acknowledged


def test_a_deletion_at_home_outlives_the_value_in_the_old_partition(house: House) -> None:
    for group in GROUPS:
        house.commit(group)
    house.grow(3)
    for group in GROUPS[:3]:
        house.delete(group)

    house.restart()
    house.restart()

    assert house.seen() == house.acknowledged


def test_transactional_ids_keep_their_newest_epoch(house: House) -> None:
    for group in GROUPS:
        house.init(group)
    house.grow(3)
    for group in GROUPS[::2]:
        house.init(group)

    house.restart()

    assert house.producers_seen() == house.producers


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_nothing_is_left_astray(house: House, name: str, caplog: pytest.LogCaptureFixture) -> None:
    for group in GROUPS:
        house.commit_in_transaction(group)
    house.grow(3)
    for group in GROUPS[::2]:
        house.commit_in_transaction(group)

    house.restart()

    homes = [partition_for(key_owner(key) or "", 3) for _, key in house.live(name)]
    assert [index for index, _ in house.live(name)] == homes
    assert "lay in other partitions" in caplog.text
    caplog.clear()
    house.restart()
    assert "lay in other partitions" not in caplog.text
    assert (house.seen(), house.producers_seen()) == (house.acknowledged, house.producers)


def test_the_power_may_go_at_every_moment_of_the_repair(house: House) -> None:
    for group in GROUPS:
        house.commit(group)
    house.begin(GROUPS[3])
    house.grow(3)
    for group in GROUPS[:2]:
        house.commit(group)
    house.delete(GROUPS[2])
    for group in GROUPS[3:]:
        house.begin(group)
    grown = house.desk.disk
    for number in itertools.count(1):
        house.desk.disk = grown.after_power_cut(0, keep="nothing")
        house.desk.disk.cut_power_at(number)
        try:
            house.desk.start()
            house.desk.commits.run()
        except PowerCut:
            house.desk.disk = house.desk.disk.after_power_cut(number)
        else:
            break
        house.desk.start()
        house.desk.commits.run()
        assert house.seen() == house.acknowledged, number
        house.restart()
        assert house.seen() == house.acknowledged, number
    assert number > 20, "the repair writes"


@pytest.mark.parametrize("later", [False, True])
def test_a_transaction_that_is_open_across_the_repair_commits_as_if_nothing_had_moved(
    house: House, later: bool
) -> None:
    for group in GROUPS:
        house.commit(group)
        house.begin(group)
    house.grow(3)
    house.restart()
    for group in GROUPS:
        if later:
            house.commit(group)
        house.end(group, committed=True)
    assert house.seen() == house.acknowledged

    house.restart()

    assert house.seen() == house.acknowledged
    house.restart()
    assert house.seen() == house.acknowledged


def test_what_is_found_does_not_count_instead_of_what_an_open_transaction_wrote_at_home(
    house: House,
) -> None:
    for group in GROUPS:
        house.commit(group)
    house.grow(3)
    for group in GROUPS:
        house.begin(group)
    house.restart()
    for group in GROUPS:
        house.end(group, committed=True)
    assert house.seen() == house.acknowledged

    house.restart()

    assert house.seen() == house.acknowledged


def test_a_deletion_at_home_ends_what_an_open_transaction_wrote_elsewhere(house: House) -> None:
    for group in GROUPS:
        house.begin(group)
    house.grow(3)
    for group in GROUPS:
        house.delete(group)
    house.restart()
    assert not house.desk.broker.groups.offsets.pending.all()
    # Nor when the deletion is forgotten by the next growth.
    house.grow(4)
    house.restart()
    for group in GROUPS:
        house.end(group, committed=True)

    house.restart()

    assert house.seen() == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(GROUPS)),
        st.tuples(st.just("commit"), st.sampled_from(GROUPS)),
        st.tuples(st.just("commit_in_transaction"), st.sampled_from(GROUPS)),
        st.tuples(st.just("begin"), st.sampled_from(GROUPS)),
        st.tuples(st.just("end"), st.sampled_from(GROUPS), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from(GROUPS)),
        st.tuples(st.just("restart")),
    ),
    min_size=4,
    max_size=20,
)


@given(STEPS, STEPS, STEPS, st.booleans())
@settings(max_examples=60)
def test_whatever_happened_before_and_after_the_growth(
    before: list[tuple[Any, ...]],
    between: list[tuple[Any, ...]],
    after: list[tuple[Any, ...]],
    restarted: bool,
) -> None:
    """What was acknowledged last is what a start finds, also when a second growth follows.

    Two growths without a start between them may bring a deleted offset back, nothing else.
    """
    house = House()
    for growth, steps in ((0, before), (3, between), (6, after)):
        house.grow(growth)
        for name, *arguments in steps:
            if growth != 3 or restarted or name != "delete":
                getattr(house, name)(*arguments)
                assert house.seen() == house.acknowledged, name
        if growth == 3 and restarted:
            house.restart()
            assert house.seen() == house.acknowledged
    house.restart()
    for group in GROUPS:
        house.end(group, committed=True)
    assert house.seen() == house.acknowledged
    house.restart()
    assert (house.seen(), house.producers_seen()) == (house.acknowledged, house.producers)
