"""The consumer group in which everybody sees how far a query is."""

import json
import uuid

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.delivery.client.cluster import Cluster
from headwater.streams.source.offsets import Offsets, TopicOffsets
from headwater.streams.source.progress import Progress
from headwater.testing.manual_clock import ManualClock
from tests.streams.brokers import Broker
from tests.streams.source.driving import (
    EARLIEST,
    Streams,
    pairs,
    texts,
    values,
)


def committed(broker: Broker, group: str) -> dict[int, int]:
    """Ask kafka-python for what a group has committed."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        found = admin.list_group_offsets({group: None})[group]
        return {place.partition: each.offset for place, each in found.items()}
    finally:
        admin.close()


def test_the_lag_of_the_group_reaches_zero(broker: Broker, topic: str, stream: Streams) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    broker.send(topic, pairs(0, 100))
    broker.send_aborted(topic, pairs(100, 110))
    query = stream({"subscribe": topic, "kafka.group.id": group, **EARLIEST})
    query.all()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    try:
        places = [KafkaPartition(topic, number) for number in range(2)]
        ends = consumer.end_offsets(places)
        assert sum(ends.values()) > 110
        assert {place: ends[place] - consumer.committed(place) for place in places} == (
            dict.fromkeys(places, 0)
        )
    finally:
        consumer.close()


def test_a_query_has_a_group_of_its_own_that_its_checkpoint_keeps(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    options = {"subscribe": single, "groupIdPrefix": "mirror", **EARLIEST}
    query = stream(options)
    query.all()
    group = json.loads(query.ends[0])["group"]
    assert group.startswith("mirror-")
    assert committed(broker, group) == {0: 5}
    broker.send(single, pairs(5, 9))
    stream(options, checkpoint=query).all()
    assert committed(broker, group) == {0: 9}


def test_a_topic_that_is_gone_does_not_keep_the_others_from_the_group(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    clock = ManualClock()
    gone = TopicOffsets("", {0: 7})
    with Cluster(broker.bootstrap, timeout_s=1.0) as cluster:
        progress = Progress(cluster, clock)
        offsets = Offsets({single: TopicOffsets("", {0: 3}), "never-there": gone})
        progress.mirror(group, offsets)
        assert "does not show" in caplog.text
        clock.advance(60_000)
        progress.mirror(group, offsets)
        assert committed(broker, group) == {0: 3}
        caplog.clear()
        later = Offsets({single: TopicOffsets("", {0: 4}), "never-there": gone})
        progress.mirror(group, later)
        assert committed(broker, group) == {0: 4}
        assert caplog.text == ""


def test_the_start_of_a_batch_shows_that_the_one_before_is_done(
    broker: Broker, single: str, stream: Streams
) -> None:
    """Spark commits a batch only when it plans the next, which may be never."""
    query = stream({"subscribe": single, **EARLIEST})
    broker.send(single, pairs(0, 5))
    start = query.start()
    end = query.reader.latestOffset(json.loads(start), ReadAllAvailable())
    assert committed(broker, end["group"]) == {0: 0}
    assert query.reader.latestOffset(end, ReadAllAvailable()) == end
    assert committed(broker, end["group"]) == {0: 5}


def test_a_group_that_has_members_is_named_and_the_query_goes_on(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    member = KafkaConsumer(single, bootstrap_servers=broker.bootstrap, group_id=group)
    try:
        while not member.assignment():
            member.poll(timeout_ms=200)
        broker.send(single, pairs(0, 5))
        query = stream({"subscribe": single, "kafka.group.id": group, **EARLIEST})
        assert values(query.all()) == texts(0, 5)
        query.reader.stop()
    finally:
        member.close()
    (told,) = [each.message for each in caplog.records if group in each.message]
    assert "the group has members of its own" in told
