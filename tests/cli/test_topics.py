"""`headwater topic`, beside a foreign client that looks at what it did."""

import json
import time

from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from headwater.cli.errors import Exit
from tests.cli.runner import Runner


def config_becomes(bootstrap: str, topic: str, key: str, expected: str) -> bool:
    """Ask librdkafka for a config; Apache Kafka tells a change by and by."""
    resource = ConfigResource("topic", topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        (future,) = admin.describe_configs([resource]).values()
        if future.result(timeout=30)[key].value == expected:
            return True
        time.sleep(0.1)
    return False


def partitions_of(bootstrap: str, topic: str) -> int | None:
    """Ask librdkafka for the number of partitions; None where there is no such topic."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    return len(topics[topic].partitions) if topic in topics else None


def test_create_takes_partitions_and_configs_that_people_write(
    cli: Runner, bootstrap: str, name: str
) -> None:
    cli.ok("topic", "create", name, "-p", "3", "-c", "retention.ms=2d", "-c", "segment.bytes=2MiB")
    assert partitions_of(bootstrap, name) == 3
    assert config_becomes(bootstrap, name, "retention.ms", str(2 * 86_400_000))
    assert config_becomes(bootstrap, name, "segment.bytes", str(2 << 20))


def test_create_reports_every_topic_in_one_document(cli: Runner, name: str) -> None:
    topics = cli.ok("topic", "create", f"{name}-a", f"{name}-b", "--json").json()["topics"]
    assert [(topic["topic"], topic["created"]) for topic in topics] == [
        (f"{name}-a", True),
        (f"{name}-b", True),
    ]


def test_create_refuses_a_topic_that_exists(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    again = cli.run("topic", "create", name, "--json")
    assert again.code == Exit.IN_THE_WAY
    assert again.error()["code"] == "TOPIC_ALREADY_EXISTS"
    assert f"headwater topic describe {name}" in again.error()["hint"]
    assert cli.ok("topic", "create", name, "--if-not-exists").text == f"{name}: exists already\n"


def test_create_dry_run_creates_nothing(cli: Runner, bootstrap: str, name: str) -> None:
    assert "could be created" in cli.ok("topic", "create", name, "--dry-run").text
    assert partitions_of(bootstrap, name) is None


def test_create_refuses_what_cannot_be(cli: Runner, name: str) -> None:
    assert cli.run("topic", "create", "no/such/name").code == Exit.USAGE
    bad = cli.run("topic", "create", name, "-c", "retention.ms=soon")
    assert bad.code == Exit.USAGE
    assert "retention.ms" in bad.stderr
    assert cli.run("topic", "create", name, "-c", "no.such.config=1").code == Exit.USAGE
    assert cli.run("topic", "create", name, "-c", "retention.ms").code == Exit.USAGE


def test_ls_counts_records_and_hides_internal_topics(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "2")
    cli.ok("produce", name, stdin=b"a\nb\nc\n")
    cli.ok("tail", name, "-e", "--group", name)
    shown = {topic["topic"]: topic for topic in cli.ok("topic", "ls", "--json").json()["topics"]}
    assert shown[name]["partitions"] == 2
    assert shown[name]["records"] == 3
    assert shown[name]["bytes"] > 0
    assert "__consumer_offsets" not in shown
    every = cli.ok("topic", "ls", "--all", "--json").json()["topics"]
    assert "__consumer_offsets" in {topic["topic"] for topic in every}


def test_ls_is_a_table_for_people(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "2")
    head, *rows = cli.ok("topic", "ls").lines
    assert head.split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS", "SIZE"]
    assert [name, "2", "1", "0", "0", "B"] in [row.split() for row in rows]


def test_records_of_a_compacted_topic_are_an_approximation(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name, "-c", "cleanup.policy=compact")
    cli.ok("produce", name, "-k", "a", stdin=b"1\n" * 3)
    (row,) = [row.split() for row in cli.ok("topic", "ls").lines if row.startswith(f"{name} ")]
    assert row[3] == "~3"
    assert cli.ok("topic", "describe", name).lines[-1].split()[5] == "~3"
    # Programs get the number, and know what it is.
    (found,) = [
        topic
        for topic in cli.ok("topic", "ls", "--json").json()["topics"]
        if topic["topic"] == name
    ]
    assert found["records"] == 3
    assert cli.ok("topic", "describe", name, "--json").json()["partitions"][0]["records"] == 3


def test_describe_shows_partitions_and_own_configs(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=1h")
    cli.ok("produce", name, "-p", "1", stdin=b"a\nb\n")
    document = cli.ok("topic", "describe", name, "--json").json()
    assert document["configs"]["retention.ms"] == "3600000"
    assert [each["end_offset"] for each in document["partitions"]] == [0, 2]
    text = cli.ok("topic", "describe", name).text
    assert "retention.ms=3600000" in text
    assert "PARTITION" in text


def test_config_shows_sets_and_unsets(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("topic", "config", name, "retention.ms=1h", "max.message.bytes=2MB")
    assert config_becomes(bootstrap, name, "retention.ms", "3600000")
    shown = cli.ok("topic", "config", name, "--json").json()["configs"]
    own = {each["name"]: each["value"] for each in shown if each["source"] == "topic"}
    assert own["max.message.bytes"] == "2000000"
    cli.ok("topic", "config", name, "--unset", "retention.ms")
    assert config_becomes(bootstrap, name, "retention.ms", "604800000")
    assert len(cli.ok("topic", "config", name, "--all").lines) > 20


def test_whoever_turns_compaction_on_is_told_what_goes(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    assert "without a key" not in cli.ok("topic", "config", name, "retention.ms=1h").stderr
    told = cli.ok("topic", "config", name, "cleanup.policy=compact").stderr
    assert told.startswith(f"note: {name} is compacted from now on")
    assert "records without a key go" in told
    as_json = cli.ok("topic", "config", name, "cleanup.policy=compact,delete", "--json")
    assert "without a key" in json.loads(as_json.stderr)["note"]
    assert "without a key" not in cli.ok("topic", "config", name, "cleanup.policy=delete").stderr


def test_config_refuses_what_is_not_allowed(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    assert cli.run("topic", "config", name, "retention.ms=soon").code == Exit.USAGE
    assert cli.run("topic", "config", name, "no.such=1").code == Exit.USAGE


def test_add_partitions(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    assert cli.ok("topic", "add-partitions", name, "3").text == f"{name}: 1 -> 3 partitions\n"
    assert partitions_of(bootstrap, name) == 3
    fewer = cli.run("topic", "add-partitions", name, "2")
    assert fewer.code == Exit.IN_THE_WAY
    assert f"headwater topic add-partitions {name} 4" in fewer.stderr


def test_rm_wants_to_be_confirmed(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, stdin=b"a\n")
    refused = cli.run("topic", "rm", name)
    assert refused.code == Exit.IN_THE_WAY
    assert "with 1 record." in refused.stderr
    assert "--yes" in refused.stderr
    assert partitions_of(bootstrap, name) == 1
    cli.ok("topic", "rm", name, "--yes")
    assert partitions_of(bootstrap, name) is None


def test_rm_of_several_removes_none_if_one_is_unknown(
    cli: Runner, bootstrap: str, name: str
) -> None:
    cli.ok("topic", "create", name)
    assert cli.run("topic", "rm", name, f"{name}-not", "--yes").code == Exit.NOT_FOUND
    assert partitions_of(bootstrap, name) == 1


def test_trim_says_first_and_does_with_yes(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, stdin=b"".join(b"%d\n" % number for number in range(10)))
    dry = cli.ok("topic", "trim", name, "--before", "4", "--json").json()
    assert (dry["done"], dry["records"]) == (False, 4)
    assert len(cli.ok("tail", name, "-e").lines) == 10
    cli.ok("topic", "trim", name, "--before", "4", "--yes")
    assert cli.ok("tail", name, "-e").lines == [str(number) for number in range(4, 10)]
    cli.ok("topic", "trim", name, "--before", "end", "--yes")
    assert cli.ok("tail", name, "-e").lines == []


def test_a_misspelt_topic_is_guessed(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    wrong = name[:-1]
    for arguments in (["topic", "describe", wrong], ["tail", wrong], ["produce", wrong]):
        result = cli.run(*arguments)
        assert result.code == Exit.NOT_FOUND
        assert f"topic '{wrong}' not found - did you mean '{name}'?" in result.stderr
        assert f"headwater topic create {wrong}" in result.stderr


def test_the_brokers_own_topics_are_left_alone(cli: Runner) -> None:
    for name, way in (
        ("__consumer_offsets", "headwater group rm"),
        ("__transaction_state", "headwater doctor"),
    ):
        for command in (
            ["topic", "create", name],
            ["topic", "rm", name, "--yes"],
            ["topic", "trim", name, "--before", "end", "--yes"],
            ["produce", name],
        ):
            refused = cli.run(*command)
            assert refused.code == Exit.NOT_ALLOWED
            assert f"{name} is the broker's own" in refused.stderr
            assert way in refused.stderr
