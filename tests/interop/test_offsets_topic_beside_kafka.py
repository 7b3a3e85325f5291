"""``__consumer_offsets`` is Kafka's: its tools read ours, and we read the one that it wrote."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import scan
from headwater.base.record.records import iterate
from headwater.delivery.broker.formats.envelope import key_number
from headwater.delivery.broker.state_topic import partition_for
from headwater.delivery.wire.kafka.messages import CreateTopicsRequest
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.delivery.broker.groups.world import FakePartition, World
from tests.interop.talk import Talk
from tests.interop.test_groups_beside_kafka import ours, theirs, topics
from tests.peers.kafka_server import ApacheKafka

__all__ = ["ours", "theirs", "topics"]

RECORD = re.compile(r"key: (?P<key>\{.*?\}) payload: (?P<payload>\{.*\}|<DELETE>|null)?$")


def fill(talk: Talk) -> None:
    """Leave a stable group with offsets behind, and traces of what was deleted."""
    talk.commit("tool", {("topic1", 1): 3}, 4, retention_time_ms=3_600_000)
    talk.commit("tool", {("topic2", 1): 99})
    talk.join("a", group_instance_id="i-a")
    talk.sync("a", group_instance_id="i-a", assign={"a": b"everything"})
    for offset in range(5):
        talk.commit("a", {("topic1", 0): offset, ("topic2", 0): 7}, group_instance_id="i-a")


def dumped(folder: Path) -> list[tuple[dict[str, Any], Any]]:
    """All records of the offsets topic, as Kafka's own tool decodes them."""
    files = ",".join(str(path) for path in sorted(folder.glob("__consumer_offsets-*/*.log")))
    done = peers.java(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--offsets-decoder",
        "--files",
        files,
    )
    found = []
    for line in done.stdout.splitlines():
        if match := RECORD.search(line):
            payload = match["payload"]
            value = json.loads(payload) if payload and payload.startswith("{") else None
            found.append((json.loads(match["key"]), value))
    return found


def test_kafkas_tool_decodes_our_records(tmp_path: Path) -> None:
    peers.require("kafka")
    with EmbeddedBroker(data_directory=str(tmp_path)) as broker:
        talk = Talk(broker.bootstrap_servers, "g")
        create_topics(talk)
        fill(talk)
        member_id = talk.member_ids["a"]
        topic_id = talk.topic_id("topic1")
        talk.close()

    records = dumped(tmp_path / "log")

    (group,) = [value["data"] for key, value in records if key["type"] == "2"]
    assert (group["protocolType"], group["protocol"]) == ("consumer", "range")
    assert (group["generation"], group["leader"]) == (1, member_id)
    (member,) = group["members"]
    assert (member["memberId"], member["groupInstanceId"]) == (member_id, "i-a")
    assert (member["sessionTimeout"], member["rebalanceTimeout"]) == (30_000, 40_000)
    offsets = [
        (key["data"], value) for key, value in records if key["type"] == "1" and value is not None
    ]
    assert {(key["group"], key["topic"], key["partition"]) for key, _ in offsets} == {
        ("g", topic, partition)
        for topic, partition in (("topic1", 0), ("topic1", 1), ("topic2", 0), ("topic2", 1))
    }
    last = [v for k, v in offsets if (k["topic"], k["partition"]) == ("topic1", 0)][-1]
    assert last["version"] == "4"
    assert (last["data"]["offset"], last["data"]["leaderEpoch"]) == (4, 3)
    assert last["data"]["metadata"] == "note"
    # The tool prints ids in Kafka's base64, which has no padding.
    assert len(last["data"]["topicId"]) == 22
    assert any(topic_id)
    (own,) = [v for k, v in offsets if (k["topic"], k["partition"]) == ("topic1", 1)]
    assert own["version"] == "1"
    assert own["data"]["expireTimestamp"] - own["data"]["commitTimestamp"] == 3_600_000


def create_topics(talk: Talk) -> None:
    new = [CreateTopicsRequest.CreatableTopic(name, 2, 1) for name in ("topic1", "topic2")]
    talk.ask("creates", CreateTopicsRequest(new), 7)


@pytest.fixture
def their_talk(theirs: str, topics: None) -> Iterator[Talk]:
    talk = Talk(theirs, "read-by-us")
    fill(talk)
    yield talk
    talk.close()


def test_we_load_what_kafka_wrote(their_talk: Talk, apache_kafka_node: ApacheKafka) -> None:
    world = World(topics=())
    for name in ("topic1", "topic2"):
        world.add_topic(name, 2)
        topic = world.topics.get(name)
        assert topic is not None
        topic.topic_id = their_talk.topic_id(name)
    their_records(world, apache_kafka_node.log_dir)

    world.restart()

    group = world.describe(their_talk.group)
    assert (group.state, group.generation_id, group.protocol_name) == ("Stable", 1, "range")
    (member,) = group.members
    assert member.member_id == their_talk.member_ids["a"]
    assert (member.group_instance_id, member.assignment) == ("i-a", b"everything")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    stored = world.groups.offsets.of_group(their_talk.group)
    assert {key: (one.offset, one.leader_epoch) for key, one in stored.items()} == {
        ("topic1", 0): (4, 3),
        ("topic1", 1): (3, -1),
        ("topic2", 0): (7, 3),
        ("topic2", 1): (99, 3),
    }
    # The member goes on with us where it was with Kafka.
    error = world.groups.membership.heartbeat(their_talk.group, member.member_id, "i-a", 1)
    assert error is ErrorCode.NONE


def test_kafka_puts_a_group_where_we_would_look_for_it(
    their_talk: Talk, apache_kafka_node: ApacheKafka
) -> None:
    world = World(topics=())
    partitions = their_records(world, apache_kafka_node.log_dir)
    seen = 0
    for index, partition in enumerate(partitions):
        for batch in partition.log.batches:
            for record in iterate(batch):
                assert record.key is not None
                if key_number(record.key) in {1, 2}:
                    length = int.from_bytes(record.key[2:4], "big")
                    group = record.key[4 : 4 + length].decode()
                    assert partition_for(group, len(partitions)) == index
                    seen += 1
    assert seen


def their_records(world: World, log_dir: Path) -> list[FakePartition]:
    """Give the world an offsets topic with Kafka's own batches in it."""
    count = len(list(log_dir.glob("__consumer_offsets-*")))
    new = SimpleNamespace(name="__consumer_offsets", partitions=count, configs={})
    (topic,) = world.topics.create([new])
    for index in range(count):
        log = topic.partitions[index].log
        for path in sorted((log_dir / f"__consumer_offsets-{index}").glob("*.log")):
            data = path.read_bytes()
            for position, header in scan(data):
                log.batches.append(data[position : position + header.size_bytes])
                log.log_end_offset = log.high_watermark = header.next_offset
    partitions: list[FakePartition] = topic.partitions
    return partitions


def test_kafka_writes_the_same_versions(their_talk: Talk, apache_kafka_node: ApacheKafka) -> None:
    records = dumped(apache_kafka_node.log_dir)

    versions = {
        (key["type"], value["version"])
        for key, value in records
        if value is not None and key["data"].get("group") == their_talk.group
    }
    assert versions == {("1", "1"), ("1", "4"), ("2", "3")}
