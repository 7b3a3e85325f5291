"""OffsetForLeaderEpoch: after restarts, old epochs end where the crash left them."""

from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import OffsetForLeaderEpochRequest
from tests.delivery.dialects.kafka.desk import Desk

Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
Partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition


def ends(desk: Desk, *epochs: int) -> list[tuple[int, int]]:
    asked = [Partition(0, -1, epoch) for epoch in epochs]
    answer = desk.ask(OffsetForLeaderEpochRequest(topics=[Topic("a", asked)]), 4)
    (partitions,) = [topic.partitions for topic in answer.topics]
    assert [partition.error_code for partition in partitions] == [0] * len(epochs)
    return [(partition.leader_epoch, partition.end_offset) for partition in partitions]


def test_each_run_is_an_epoch() -> None:
    desk = Desk()
    desk.broker.topics.create([NewTopic("a", 1, {})])
    desk.append("a", count=2)
    desk.crash()
    desk.append("a")
    desk.crash()
    desk.crash()

    assert desk.broker.leader_epoch == 3
    # Nothing was written in the epochs 2 and 3, so that both end where 1 ends.
    assert ends(desk, 0, 1, 2, 3, 4) == [(0, 2), (1, 3), (1, 3), (3, 3), (-1, -1)]


def test_a_log_without_records_ends_where_it_begins() -> None:
    desk = Desk()
    desk.broker.topics.create([NewTopic("a", 1, {})])
    desk.crash()

    assert ends(desk, 0, 1, 2) == [(0, 0), (1, 0), (-1, -1)]
