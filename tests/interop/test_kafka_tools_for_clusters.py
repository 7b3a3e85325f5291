"""Kafka's tools for whoever runs a cluster: features, leaders, replicas, quorum, configs.

Each expectation holds for Headwater and for Apache Kafka, unless it says otherwise.
"""

import json
import re
from pathlib import Path

import pytest

from tests.interop.clients import Clients, eventually
from tests.interop.scenarios import create
from tests.interop.tools import Run, prints, prints_no_more

CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "FeatureCommand"
PATIENCE_S = 30.0


def finalized(run: Run, name: str, level: str) -> None:
    """Wait until a feature is told with this level."""
    for _ in eventually(PATIENCE_S):
        rows = [re.split(r"\s{2,}", line) for line in run(FEATURES, "describe").splitlines()]
        told = {row[0]: row[3] for row in rows if len(row) > 3}
        if told[f"Feature: {name}"] == f"FinalizedVersionLevel: {level}":
            return
    pytest.fail(f"{told}")


def test_features(run: Run) -> None:
    transactions = "transaction.version"
    finalized(run, transactions, "2")
    finalized(run, "metadata.version", "4.3-IV0")
    downgrade = ("downgrade", "--feature", f"{transactions}=1")
    assert "can be downgraded to 1." in run(FEATURES, *downgrade, "--dry-run")
    finalized(run, transactions, "2")
    try:
        assert f"{transactions} was downgraded to 1." in run(FEATURES, *downgrade)
        finalized(run, transactions, "1")
    finally:
        upgraded = run(FEATURES, "upgrade", "--feature", f"{transactions}=2")
        assert f"{transactions} was upgraded to 2." in upgraded
        finalized(run, transactions, "2")
    refused = run(FEATURES, "upgrade", "--feature", f"{transactions}=9", status=1)
    assert "Local controller 1 only supports versions 0-2" in refused
    assert "Feature nope not found" in run(FEATURES, "disable", "--feature", "nope", status=1)


def test_elections(run: Run, clients: Clients, address: str, name: str) -> None:
    create(clients, address, name, partitions=2)
    election, leaders = ("--election-type", "preferred"), "LeaderElectionCommand"
    done = run(leaders, *election, "--topic", name, "--partition", "1")
    assert f"Valid replica already elected for partitions {name}-1" in done
    run(leaders, "--election-type", "unclean", "--all-topic-partitions")
    refused = run(leaders, *election, "--topic", name, "--partition", "7", status=1)
    assert f"{name}-7" in refused


def test_reassignments(run: Run, clients: Clients, address: str, name: str, tmp_path: Path) -> None:
    create(clients, address, name, partitions=2)
    reassign = "reassign.ReassignPartitionsCommand"
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
    move = ("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1")
    *_, proposed = [line for line in run(reassign, *move).splitlines() if line.startswith("{")]
    plan.write_text(proposed)
    given = ("--reassignment-json-file", str(plan))

    done = run(reassign, "--execute", *given)
    assert f"Successfully started partition reassignments for {name}-0,{name}-1" in done
    verified = run(reassign, "--verify", *given)
    for index in range(2):
        assert f"Reassignment of partition {name}-{index} is completed." in verified
    assert "No partition reassignments found." in run(reassign, "--list")
    cancelled = run(reassign, "--cancel", *given)
    assert "None of the specified partition reassignments are active." in cancelled
    plan.write_text(proposed.replace('"replicas":[1]', '"replicas":[2]'))
    assert "2" in run(reassign, "--execute", *given, status=1)


def test_the_quorum(run: Run) -> None:
    status = run("MetadataQuorumCommand", "describe", "--status")
    facts = dict(re.findall(r"^(\w+): +(.*)$", status, re.MULTILINE))
    assert (facts["LeaderId"], facts["MaxFollowerLag"], facts["CurrentObservers"]) == (
        "1",
        "0",
        "[]",
    )
    assert int(facts["HighWatermark"]) > 0
    (voter,) = json.loads(facts["CurrentVoters"])
    assert voter["id"] == 1
    (row,) = [
        line.split()
        for line in run("MetadataQuorumCommand", "describe", "--replication").splitlines()
        if line.startswith("1")
    ]
    assert (row[3], row[-1]) == ("0", "Leader")


def test_endpoints(run: Run, address: str) -> None:
    host, _, port = address.rpartition(":")
    listed = run("ClusterTool", "list-endpoints")
    assert re.search(
        rf"^1 +{re.escape(host)} +{port} +null +unfenced +broker", listed, re.MULTILINE
    )


def test_configs_of_the_broker(run: Run) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")

    describe = (CONFIGS, "--describe")
    told = run(CONFIGS, "--describe", "--all", *broker)
    for name, value in (
        ("node.id", "1"),
        ("broker.id", "1"),
        ("authorizer.class.name", ""),
        ("auto.create.topics.enable", "true"),
        ("log.retention.hours", "168"),
        ("remote.log.storage.system.enable", "false"),
        ("transaction.max.timeout.ms", "900000"),
    ):
        assert f"  {name}={value} sensitive=false" in told
    try:
        run(CONFIGS, "--alter", *every, "--add-config", "log.retention.ms=7200000")
        run(CONFIGS, "--alter", *broker, "--add-config", "log.retention.ms=3600000")
        prints(run, "log.retention.ms=3600000 sensitive=false", *describe, *broker)
        inherited = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000"
        prints(run, inherited, *describe, *broker)
        prints(run, "log.retention.ms=7200000", *describe, *every)
    finally:
        for entity in (broker, every):
            run(CONFIGS, "--alter", *entity, "--delete-config", "log.retention.ms")
    prints_no_more(run, "log.retention.ms", *describe, *every)
    refused = run(CONFIGS, "--alter", *broker, "--add-config", "node.id=7", status=1)
    assert "node.id" in refused


@pytest.mark.parametrize("kind", ["groups", "client-metrics"])
def test_what_nobody_has_configured(run: Run, kind: str) -> None:
    assert "sensitive=" not in run(CONFIGS, "--describe", "--entity-type", kind)


def test_metrics_of_clients_and_lists_of_permissions(run: Run) -> None:
    assert run("ClientMetricsCommand", "--list").startswith("\n")
    assert "No Authorizer is configured" in run("AclCommand", "--list", status=1)


def test_whoever_wants_to_authenticate_hears_at_once_that_nobody_can(
    run: Run, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="a" password="b";\n'
    )
    refused = run("TopicCommand", "--list", "--command-config", str(config), status=1)
    assert "mechanism PLAIN, enabled mechanisms are []" in refused
