"""Compaction takes records of the offsets topic away, and a start finds the same offsets."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode
from headwater.base.schema import Message
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    TxnOffsetCommitRequest,
)
from tests.delivery.dialects.kafka.desk import Desk
from tests.log.compaction.helpers import compact, roll

GROUPS = ("a", "b")
PARTITIONS = range(2)
IDS = ("x", "y")
OFFSETS_TOPIC = "__consumer_offsets"
# More than the day of delete.retention.ms, after which tombstones and markers may go.
LONG_MS = 2 * 24 * 3600 * 1000


class House:
    """A broker, and producers that commit offsets in transactions."""

    def __init__(self) -> None:
        self.desk = Desk({"offsets.topic.num.partitions": "1"})
        self.desk.broker.topics.create([NewTopic("t", len(PARTITIONS), {})])
        self.producers: dict[str, tuple[int, int]] = {}
        self.next_offset = 0
        self.clean_offset = 0

    def _ask(self, request: Message, version: int) -> Any:  # noqa: ANN401 - its own class
        return self.desk.ask(request, version)

    def commit(self, group: str, index: int) -> None:
        self.next_offset += 1
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(index, self.next_offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
        answer = self._ask(OffsetCommitRequest(group, topics=[topic]), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def commit_in_transaction(self, group: str, index: int, name: str) -> None:
        if name not in self.producers:
            answer = self._ask(InitProducerIdRequest(name, 900_000, -1, -1), 5)
            self.producers[name] = (answer.producer_id, answer.producer_epoch)
        self.next_offset += 1
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(index, self.next_offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [partition])
        request = TxnOffsetCommitRequest(name, group, *self.producers[name], topics=[topic])
        answer = self._ask(request, 5)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def end(self, name: str, committed: bool) -> None:
        if name in self.producers:
            answer = self._ask(EndTxnRequest(name, *self.producers[name], committed), 5)
            if answer.error_code == ErrorCode.NONE:
                self.producers[name] = (answer.producer_id, answer.producer_epoch)

    def delete(self, group: str, index: int) -> None:
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(index)
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic("t", [partition])
        self._ask(OffsetDeleteRequest(group, [topic]), 0)

    def roll(self) -> None:
        if (partition := self.desk.broker.topics.partition(OFFSETS_TOPIC, 0)) is not None:
            roll(partition.log)

    def compact(self, later_ms: int = 0) -> None:
        """Run a pass over all that can be cleaned, as if so much time had passed."""
        self.roll()
        if (partition := self.desk.broker.topics.partition(OFFSETS_TOPIC, 0)) is not None:
            self.clean_offset = compact(
                self.desk.disk,
                partition.log,
                clean_offset=self.clean_offset,
                now_ms=self.desk.clock.now_ms() + later_ms,
            )

    def crash(self) -> None:
        self.desk.crash()
        self.desk.commits.run()

    def seen(self) -> list[tuple[Any, ...]]:
        offsets = self.desk.broker.groups.offsets
        places = [(group, "t", index) for group in GROUPS for index in PARTITIONS]
        return [
            (place, offsets.get(*place), offsets.pending.is_pending(place[0], place[1:]))
            for place in places
        ]


PLACES = (st.sampled_from(GROUPS), st.sampled_from(PARTITIONS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), *PLACES),
        st.tuples(st.just("commit_in_transaction"), *PLACES, st.sampled_from(IDS)),
        st.tuples(st.just("commit_in_transaction"), *PLACES, st.sampled_from(IDS)),
        st.tuples(st.just("end"), st.sampled_from(IDS), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from(IDS), st.booleans()),
        st.tuples(st.just("delete"), *PLACES),
        st.tuples(st.sampled_from(["roll", "compact"])),
    ),
    min_size=15,
    max_size=40,
)


@given(STEPS)
@settings(max_examples=60)
def test_a_compacted_log_says_the_same(steps: list[tuple[Any, ...]]) -> None:
    house = House()
    for name, *arguments in steps:
        getattr(house, name)(*arguments)
    before = house.seen()
    # Each pass after the first takes tombstones and markers whose time is over.
    for passed_ms in (0, LONG_MS, 2 * LONG_MS):
        house.compact(passed_ms)
        house.crash()
        assert house.seen() == before


def test_a_pass_takes_superseded_transactions_away() -> None:
    """So that the test above is about something."""
    house = House()
    for number in range(50):
        house.commit_in_transaction("a", 0, "x")
        house.end("x", number % 2 == 0)
    partition = house.desk.broker.topics.partition(OFFSETS_TOPIC, 0)
    assert partition is not None
    size = sum(segment.size for segment in partition.log.segments)

    house.compact()

    assert sum(segment.size for segment in partition.log.segments) < size * 0.8
    before = house.seen()
    house.crash()
    assert house.seen() == before
    assert before[0][1].offset == 49
