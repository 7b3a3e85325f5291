"""DescribeTopicPartitions: what the contract suite cannot ask of a shared broker."""

from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import DescribeTopicPartitionsRequest
from tests.delivery.dialects.kafka.desk import Desk


def test_the_broker_bounds_a_page() -> None:
    desk = Desk({"max.request.partition.size.limit": "2"})
    desk.broker.topics.create([NewTopic("a", 3, {})])
    for limit in (1, 2, 3, 2000):
        answer = desk.ask(DescribeTopicPartitionsRequest([], limit))

        (topic,) = answer.topics
        assert len(topic.partitions) == min(limit, 2)
        assert answer.next_cursor.partition_index == min(limit, 2)


def test_a_broker_without_topics() -> None:
    answer = Desk().ask(DescribeTopicPartitionsRequest())

    assert (answer.topics, answer.next_cursor) == ([], None)


def test_pages_while_topics_come_and_go() -> None:
    desk = Desk()
    desk.broker.topics.create([NewTopic(name, 2, {}) for name in ("a", "c", "e")])
    first = desk.ask(DescribeTopicPartitionsRequest([], 3))
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("c", 1)
    desk.broker.topics.delete("c")
    desk.broker.topics.create([NewTopic("d", 1, {})])
    cursor = DescribeTopicPartitionsRequest.Cursor("c", 1)
    second = desk.ask(DescribeTopicPartitionsRequest([], 3, cursor))

    assert [(topic.name, len(topic.partitions)) for topic in second.topics] == [("d", 1), ("e", 2)]
    assert second.next_cursor is None


def test_internal_topics_are_marked() -> None:
    desk = Desk()
    desk.broker.create_on_demand(["__consumer_offsets"], allowed=True)
    (topic,) = desk.ask(DescribeTopicPartitionsRequest()).topics

    assert (topic.name, topic.is_internal) == ("__consumer_offsets", True)
