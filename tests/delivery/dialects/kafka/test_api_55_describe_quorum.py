"""DescribeQuorum: the journal of metadata as a quorum of one."""

from typing import Any

from headwater.base.uuids import uuid_from_text
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import DescribeQuorumRequest
from tests.delivery.dialects.kafka.desk import Desk


def quorum(desk: Desk) -> Any:  # noqa: ANN401 - the response
    partition = DescribeQuorumRequest.PartitionData(0)
    topic = DescribeQuorumRequest.TopicData("__cluster_metadata", [partition])
    return desk.ask(DescribeQuorumRequest([topic]))


def test_the_voter_is_this_data_directory() -> None:
    desk = Desk()
    answer = quorum(desk)

    ((partition,),) = [topic.partitions for topic in answer.topics]
    (voter,) = partition.current_voters
    assert voter.replica_directory_id == uuid_from_text(desk.broker.store.directory_id)
    assert voter.last_caught_up_timestamp == desk.clock.now_ms()
    (node,) = answer.nodes
    assert [(each.name, each.host, each.port) for each in node.listeners] == [
        ("PLAINTEXT", "127.0.0.1", 9092)
    ]


def test_its_end_never_goes_back() -> None:
    desk = Desk()
    ends = []
    epochs = []
    for number in range(3):
        desk.broker.topics.create([NewTopic(f"t{number}", 1, {})])
        ((partition,),) = [topic.partitions for topic in quorum(desk).topics]
        ends.append(partition.high_watermark)
        epochs.append(partition.leader_epoch)
        desk.crash()

    # Each turn adds a topic and the beginning of the next run.
    assert ends == [ends[0], ends[0] + 2, ends[0] + 4]
    assert epochs == [0, 1, 2]
