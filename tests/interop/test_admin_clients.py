"""Admin work by clients and tools that others wrote, unmodified."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from headwater.testing.broker import EmbeddedBroker
from tests import peers

TOOLS = "org.apache.kafka.tools"
WAIT_S = 30.0

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(topic, b"value", partition=0)
    assert producer.flush(WAIT_S) == 0


def test_librdkafka(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic("rd", 2, 1, config={"retention.ms": "5000"})])
    created["rd"].result(WAIT_S)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic("rd", 2, 1)])["rd"].result(WAIT_S)

    topic = ConfigResource("topic", "rd")
    told = admin.describe_configs([topic])[topic].result(WAIT_S)
    assert (told["retention.ms"].value, told["flush.messages"].value) == ("5000", "1")
    topic.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    admin.incremental_alter_configs([topic])[topic].result(WAIT_S)
    told = admin.describe_configs([topic])[topic].result(WAIT_S)
    assert told["cleanup.policy"].value == "delete,compact"

    admin.create_partitions([NewPartitions("rd", 5)])["rd"].result(WAIT_S)
    assert len(admin.list_topics("rd", WAIT_S).topics["rd"].partitions) == 5

    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce("rd", b"value", key=b"key", partition=0)
    assert producer.flush(WAIT_S) == 0
    partition = TopicPartition("rd", 0, 4)
    deleted = admin.delete_records([partition])[partition].result(WAIT_S)
    assert deleted.low_watermark == 4
    earliest = admin.list_offsets({TopicPartition("rd", 0): OffsetSpec.earliest()})  # type: ignore[no-untyped-call]
    assert next(iter(earliest.values())).result(WAIT_S).offset == 4

    cluster = admin.describe_cluster().result(WAIT_S)
    assert [node.id for node in cluster.nodes] == [1]
    assert cluster.controller.id == 1

    admin.delete_topics(["rd"])["rd"].result(WAIT_S)
    assert "rd" not in admin.list_topics(timeout=WAIT_S).topics


def test_kafka_python(bootstrap: str) -> None:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic("kp", 1, 1)])
        resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.BROKER, "1")
        assert "num.partitions" in str(admin.describe_configs([resource], config_filter="all"))
        assert admin.describe_cluster()["brokers"]
        admin.delete_topics(["kp"])
        assert "kp" not in admin.list_topics()
    finally:
        admin.close()


@pytest.fixture
def tool(bootstrap: str) -> Tool:
    peers.require("kafka")

    def run(name: str, *arguments: str) -> str:
        return peers.java(name, "--bootstrap-server", bootstrap, *arguments).stdout

    return run


@pytest.mark.peer
def test_kafkas_own_tools_for_topics(bootstrap: str, tool: Tool, tmp_path: Path) -> None:
    topics = f"{TOOLS}.TopicCommand"
    tool(
        topics, "--create", "--topic", "j", "--partitions", "2", "--config", "retention.ms=5000000"
    )
    fill(bootstrap, "j", 10)
    tool(topics, "--alter", "--topic", "j", "--partitions", "4")
    described = tool(topics, "--describe", "--topic", "j")
    assert "PartitionCount: 4\tReplicationFactor: 1\tConfigs: retention.ms=5000000" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 4

    offsets = tmp_path / "offsets.json"
    wanted = {"topic": "j", "partition": 0, "offset": 6}
    offsets.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    deleted = tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(offsets))
    assert "partition: j-0\tlow_watermark: 6" in deleted
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("j", 0), WAIT_S) == (6, 10)
    consumer.close()

    printed = tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", "j")
    (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
    sizes = {one["partition"]: one["size"] for one in broker["logDirs"][0]["partitions"]}
    assert sizes.keys() == {"j-0", "j-1", "j-2", "j-3"}
    assert sizes["j-0"] > 0


@pytest.mark.peer
def test_kafkas_own_tool_for_configs(bootstrap: str, tool: Tool) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("jc", 1, 1)])["jc"].result(WAIT_S)
    configs = "kafka.admin.ConfigCommand"
    topic = ("--entity-type", "topics", "--entity-name", "jc")
    broker = ("--entity-type", "brokers", "--entity-name", "1")

    tool(configs, *topic, "--alter", "--add-config", "cleanup.policy=[compact,delete]")
    assert (
        "cleanup.policy=compact,delete sensitive=false synonyms="
        "{DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}"
    ) in tool(configs, *topic, "--describe")
    tool(configs, *broker, "--alter", "--add-config", "log.retention.ms=777")
    assert (
        "log.retention.ms=777 sensitive=false synonyms="
        "{DYNAMIC_BROKER_CONFIG:log.retention.ms=777, DEFAULT_CONFIG:log.retention.hours=168}"
    ) in tool(configs, *broker, "--describe")
