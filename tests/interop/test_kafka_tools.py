"""Kafka's own command-line tools, run as they are against Headwater and against Apache Kafka.

Each expectation holds for both, so that it cannot be wrong about Kafka.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import peers
from tests.interop.clients import WITNESS, Clients
from tests.interop.members import Group
from tests.interop.records import plain
from tests.interop.scenarios import create, read, send
from tests.interop.tools import TOOLS, Run, prints, prints_no_more

PATIENCE_MS = "20000"


def test_topics(run: Run, name: str) -> None:
    topics = "TopicCommand"
    flags = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=7200000")
    assert f"Created topic {name}." in run(topics, "--create", "--topic", name, *flags)
    assert name in run(topics, "--list").split()
    described = run(topics, "--describe", "--topic", name)
    lines = [line for line in described.splitlines() if "Topic: " in line]
    head, *rows = [re.split(r"\t+ *", line) for line in lines]
    assert head[0] == f"Topic: {name}"
    assert head[2:4] == ["PartitionCount: 2", "ReplicationFactor: 1"]
    assert "retention.ms=7200000" in head[4]
    assert [row[2:6] for row in rows] == [
        [f"Partition: {index}", "Leader: 1", "Replicas: 1", "Isr: 1"] for index in range(2)
    ]
    run(topics, "--alter", "--topic", name, "--partitions", "4")
    assert "PartitionCount: 4" in run(topics, "--describe", "--topic", name)
    assert "already exists" in run(topics, "--create", "--topic", name, status=1)
    assert "already has 4 partition" in run(
        topics, "--alter", "--topic", name, "--partitions", "4", status=1
    )
    run(topics, "--delete", "--topic", name)
    assert name not in run(topics, "--list").split()
    assert "does not exist as expected" in run(topics, "--delete", "--topic", name, status=1)


def test_configs(run: Run, clients: Clients, address: str, name: str) -> None:
    create(clients, address, name)
    configs = "kafka.admin.ConfigCommand"
    topic = ("--entity-type", "topics", "--entity-name", name)
    changes = "retention.ms=3600000,cleanup.policy=[compact,delete]"
    assert "Completed updating config" in run(configs, "--alter", *topic, "--add-config", changes)
    described = prints(run, "retention.ms=3600000", configs, "--describe", *topic)
    assert re.search(r"retention\.ms=3600000 sensitive=false synonyms=\{DYNAMIC_TOPIC", described)
    assert "cleanup.policy=compact,delete" in described
    run(configs, "--alter", *topic, "--delete-config", "retention.ms")
    prints_no_more(run, "retention.ms", configs, "--describe", *topic)
    assert "retention.ms=604800000" in run(configs, "--describe", "--all", *topic)
    refused = run(configs, "--alter", *topic, "--add-config", "retention.ms=soon", status=1)
    assert "Invalid value soon for configuration retention.ms" in refused
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "num.partitions" in run(configs, "--describe", "--all", *broker)


def test_quotas(run: Run, name: str) -> None:
    configs = "kafka.admin.ConfigCommand"
    client = ("--entity-type", "clients", "--entity-name", name)
    both = ("--entity-type", "users", "--entity-name", f"u-{name}", *client)
    anybody = ("--entity-type", "users", "--entity-default", *client)
    changes = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=150.5"
    updated = run(configs, "--alter", *client, "--add-config", changes)
    assert f"Completed updating config for client {name}." in updated
    quotas = f"Quota configs for client-id '{name}' are"
    described = prints(run, quotas, configs, "--describe", *client)
    for wanted in ("consumer_byte_rate=2097152", "producer_byte_rate=1048576", "centage=150.5"):
        assert wanted in described
    for of, rate in ((both, "1"), (anybody, "2.5")):
        run(configs, "--alter", *of, "--add-config", f"controller_mutation_rate={rate}")
    described = prints(run, "controller_mutation_rate=1.0", configs, "--describe", *both)
    assert f"user-principal 'u-{name}', client-id '{name}' are" in described
    prints(run, "controller_mutation_rate=2.5", configs, "--describe", *anybody)
    refused = run(configs, "--alter", *client, "--add-config", "producer_byte_rate=-1", status=1)
    assert "must be greater than 0" in refused
    removed: tuple[tuple[tuple[str, ...], str], ...] = (
        (client, "producer_byte_rate,consumer_byte_rate,request_percentage"),
        (both, "controller_mutation_rate"),
        (anybody, "controller_mutation_rate"),
    )
    for entity, key in removed:
        run(configs, "--alter", *entity, "--delete-config", key)
        prints_no_more(run, "are", configs, "--describe", *entity)


def test_quotas_of_addresses_and_users(run: Run, name: str) -> None:
    configs = "kafka.admin.ConfigCommand"
    ip = ("--entity-type", "ips", "--entity-name", "127.0.0.99")
    run(configs, "--alter", *ip, "--add-config", "connection_creation_rate=7")
    prints(run, "connection_creation_rate=7", configs, "--describe", *ip)
    run(configs, "--alter", *ip, "--delete-config", "connection_creation_rate")
    assert "connection_creation_rate" not in run(configs, "--describe", "--entity-type", "ips")
    user = ("--entity-type", "users", "--entity-name", name)
    run(configs, "--alter", *user, "--add-config", "producer_byte_rate=1000")
    quota = f"Quota configs for user-principal '{name}' are producer_byte_rate=1000.0"
    prints(run, quota, configs, "--describe", *user)
    run(configs, "--alter", *user, "--delete-config", "producer_byte_rate")


def test_console_producer_and_consumer(run: Run, clients: Clients, address: str, name: str) -> None:
    create(clients, address, name)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run("ConsoleProducer", "--topic", name, *keyed, stdin="a:first\nb:zweite ü\nc:third\n")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    wanted = ("--from-beginning", "--max-messages", "3", "--timeout-ms", PATIENCE_MS)
    printed = run("consumer.ConsoleConsumer", "--topic", name, *wanted, *shown)
    assert "Offset:0\ta\tfirst\nOffset:1\tb\tzweite ü\nOffset:2\tc\tthird\n" in printed
    partition = ("--partition", "0", "--offset", "1", "--max-messages", "2")
    from_one = run("consumer.ConsoleConsumer", "--topic", name, *partition)
    assert from_one.splitlines()[:2] == ["zweite ü", "third"]


def test_offsets(run: Run, clients: Clients, address: str, name: str) -> None:
    create(clients, address, name, partitions=2)
    records = plain(10, partitions=2)
    send(clients[WITNESS], address, name, records)
    topic = ("--topic-partitions", f"{name}:0-2")

    def offsets(time: str) -> list[str]:
        return run("GetOffsetShell", *topic, "--time", time).split()

    assert offsets("earliest") == [f"{name}:0:0", f"{name}:1:0"]
    assert offsets("latest") == [f"{name}:0:5", f"{name}:1:5"]
    assert offsets("max-timestamp") == [f"{name}:0:4", f"{name}:1:4"]
    assert offsets("latest-tiered") == []
    assert offsets("earliest-local") == [f"{name}:0:0", f"{name}:1:0"]
    assert offsets(str(records[4].timestamp_ms)) == [f"{name}:0:2", f"{name}:1:2"]


def test_deleted_records(
    run: Run, clients: Clients, address: str, name: str, tmp_path: Path
) -> None:
    create(clients, address, name)
    send(clients[WITNESS], address, name, plain(10))
    wish = {"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 6}]}
    file = tmp_path / "wish.json"
    file.write_text(json.dumps(wish))
    done = run("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert f"partition: {name}-0\tlow_watermark: 6" in done
    assert len(read(clients[WITNESS], address, name)) == 4


def test_log_dirs(run: Run, clients: Clients, address: str, name: str) -> None:
    create(clients, address, name)
    send(clients[WITNESS], address, name, plain(10))
    printed = run("LogDirsCommand", "--describe", "--topic-list", name)
    (found,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    ((folder,),) = [broker["logDirs"] for broker in found["brokers"]]
    (partition,) = folder["partitions"]
    assert folder["error"] is None
    assert (partition["partition"], partition["offsetLag"], partition["isFuture"]) == (
        f"{name}-0",
        0,
        False,
    )
    assert partition["size"] > 0


@pytest.fixture
def group(clients: Clients, address: str, name: str) -> Iterator[Group]:
    """A group with one member and lag: the stream never stops."""
    create(clients, address, name, partitions=2)
    with Group(clients, address, name, partitions=2) as group:
        group.join(WITNESS)
        group.settle()
        yield group


def test_groups(run: Run, group: Group, name: str) -> None:
    groups = "consumer.group.ConsumerGroupCommand"
    one = ("--group", name)
    assert name in run(groups, "--list").split()
    assert re.search(rf"{name} +Classic +consumer", run("GroupsCommand", "--list"))
    described = run(groups, "--describe", *one)
    rows = [line.split() for line in described.splitlines() if line.startswith(name)]
    assert sorted(row[1:3] for row in rows) == [[name, "0"], [name, "1"]]
    assert "rdkafka" in described
    assert name in run(groups, "--list", "--state", "stable")
    assert name not in run(groups, "--list", "--state", "empty")
    assert name in run(groups, "--list", "--type", "classic")
    state = run(groups, "--describe", *one, "--state")
    assert re.search(rf"{name} .*range +Stable +1", state)
    members = run(groups, "--describe", *one, "--members", "--verbose")
    assert re.search(rf"{name} +rdkafka-\S+ +/\S+ +rdkafka +2 .*{name}:0,1", members)
    refused = run(groups, "--delete", *one, status=0)
    assert "GroupNotEmptyException" in refused

    group.end()
    moves = ("--reset-offsets", *one, "--topic", f"{name}:0", "--to-offset", "1", "--execute")
    assert re.search(rf"{name} +{name} +0 +1", run(groups, *moves))
    earliest = ("--reset-offsets", *one, "--all-topics", "--to-earliest", "--dry-run")
    assert re.search(rf"{name} +{name} +1 +0", run(groups, *earliest))
    assert re.search(r"Empty +0", run(groups, "--describe", *one, "--state"))
    forgotten = run(groups, "--delete-offsets", *one, "--topic", f"{name}:1")
    assert "Successful" in forgotten
    left = run(groups, "--describe", *one)
    assert re.search(rf"{name} +{name} +0 +1 ", left)
    assert not re.search(rf"{name} +{name} +1 +\d", left)
    assert "was successful" in run(groups, "--delete", *one)
    assert name not in run(groups, "--list").split()


def test_reset_of_a_streams_application(
    run: Run, clients: Clients, address: str, name: str
) -> None:
    store = f"{name}-store-changelog"
    create(clients, address, name)
    create(clients, address, store)
    send(clients[WITNESS], address, name, plain(10))
    reset = ("StreamsResetter", "--application-id", name, "--input-topics", name)
    intended = run(*reset, "--to-offset", "3", "--dry-run")
    assert f"Topic: {name} Partition: 0 Offset: 3" in intended
    groups = ("consumer.group.ConsumerGroupCommand", "--describe", "--group", name)
    assert store in run("TopicCommand", "--list").split()
    done = run(*reset, "--to-offset", "3")
    assert f"Topic: {name} Partition: 0 Offset: 3" in done
    assert f"Deleting inferred internal topics [{store}]" in done
    assert re.search(rf"{name} +{name} +0 +3 +10 +7 ", run(*groups))
    prints_no_more(run, store, "TopicCommand", "--list")


# Not against Apache Kafka: there its producer waits for ever in one of twenty runs.
@pytest.mark.parametrize("broker_kind", ["headwater"])
def test_performance(run: Run, name: str) -> None:
    run("TopicCommand", "--create", "--topic", name, "--partitions", "2")
    load = ("--num-records", "2000", "--record-size", "500", "--throughput", "-1")
    sent = run("ProducerPerformance", "--topic", name, *load, "--print-metrics")
    assert "2000 records sent" in sent
    wanted = ("--num-records", "2000", "--timeout", PATIENCE_MS, "--group", name)
    found = run("ConsumerPerformance", "--topic", name, *wanted)
    row = next(line for line in found.splitlines() if line.startswith("20"))
    assert int(row.split(", ")[4]) == 2000


# Not against Apache Kafka, as above.
@pytest.mark.parametrize("broker_kind", ["headwater"])
def test_performance_under_quotas(run: Run, name: str) -> None:
    configs = "kafka.admin.ConfigCommand"
    run("TopicCommand", "--create", "--topic", name, "--partitions", "2")
    # Ten seconds' worth of these come at once; a little more is sent.
    for client, quota in ((name, "producer"), ("perf-consumer-client", "consumer")):
        flags = ("--entity-type", "clients", "--entity-name", client)
        run(configs, "--alter", *flags, "--add-config", f"{quota}_byte_rate=100000")
    load = ("--num-records", "2150", "--record-size", "500", "--throughput", "-1")
    props = ("--command-property", f"client.id={name}")
    sent = run("ProducerPerformance", "--topic", name, *load, *props, "--print-metrics")
    assert "2150 records sent" in sent
    assert _largest(r"produce-throttle-time-max\S* +: (\S+)", sent) > 100
    wanted = ("--num-records", "2150", "--timeout", PATIENCE_MS, "--group", name)
    found = run("ConsumerPerformance", "--topic", name, *wanted, "--print-metrics")
    assert re.search(r", 2150, ", found)
    assert _largest(r"fetch-throttle-time-max\S* +: (\S+)", found) > 100


def _largest(pattern: str, printed: str) -> float:
    return max(float(number) for number in re.findall(pattern, printed))


def test_verifiable_producer_and_consumer(clients: Clients, address: str, name: str) -> None:
    peers.require("kafka")
    create(clients, address, name, partitions=2)
    # They finish their work while their Java ends, so each needs one of its own.
    to_topic = ("--bootstrap-server", address, "--topic", name, "--max-messages", "200")
    sent = _json(peers.java(f"{TOOLS}.VerifiableProducer", *to_topic).stdout)
    assert sum(each["name"] == "producer_send_success" for each in sent) == 200
    flags = ("--group-id", name, "--reset-policy", "earliest", "--verbose")
    found = _json(peers.java(f"{TOOLS}.VerifiableConsumer", *to_topic, *flags).stdout)
    values = [int(each["value"]) for each in found if each["name"] == "record_data"]
    assert sorted(values) == list(range(200))
    committed = [each for each in found if each["name"] == "offsets_committed"]
    assert committed
    assert all(each["success"] for each in committed)


def _json(printed: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_latency_from_end_to_end(run: Run, clients: Clients, address: str, name: str) -> None:
    create(clients, address, name)
    load = ("--num-records", "50", "--producer-acks", "all", "--record-size", "100")
    assert "Avg latency" in run("EndToEndLatency", "--topic", name, *load)


def test_compatibility_as_kafka_tests_it(
    run: Run, clients: Clients, address: str, name: str
) -> None:
    create(clients, address, name)
    supported = (
        "offsets-for-times",
        "create-topics",
        "cluster-id",
        "describe-configs",
        "idempotent-producer",
    )
    flags = [part for each in supported for part in (f"--{each}-supported", "True")]
    flags += ["--describe-acls-supported", "True"]
    flags += ["--expect-record-too-large-exception", "False"]
    flags += ["--num-cluster-nodes", "1"]
    run("ClientCompatibilityTest", "--topic", name, *flags)


def test_api_versions_and_cluster_id(run: Run) -> None:
    table = run("BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): 0 to \d+ \[usable: \d+\]", table)
    assert re.search(r"Fetch\(1\): 4 to \d+ \[usable: \d+\]", table)
    assert "Cluster ID: " in run("ClusterTool", "cluster-id")
