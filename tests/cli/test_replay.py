"""`headwater replay`: the copy has all of the range, and the source is untouched."""

import json

import pytest
from confluent_kafka import Producer

from headwater.cli.errors import Exit
from tests.cli.runner import Runner

BASE_MS = 1_600_000_000_000


@pytest.fixture
def source(cli: Runner, bootstrap: str, name: str) -> str:
    """Give a topic of three partitions with keyed and keyless records, headers and old times."""
    cli.ok("topic", "create", name, "-p", "3", "-c", "retention.ms=-1")
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(300):
        producer.produce(
            name,
            None if number % 50 == 7 else f'{{"n": {number}}}',
            key=None if number % 3 == 0 else f"key-{number % 10}",
            headers=[("h", bytes([number % 256]))],
            timestamp=BASE_MS + number * 1000,
            partition=number % 3,
        )
    assert producer.flush(30) == 0
    return name


def content(cli: Runner, topic: str) -> list[dict[str, object]]:
    """Return all of a topic but what only its place in it decides."""
    records = cli.ok("tail", topic, "-e", "--json").json_lines()
    for record in records:
        del record["topic"], record["offset"]
    return sorted(records, key=lambda record: (record["partition"], record["ts"]))


def test_everything_is_kept(cli: Runner, source: str, name: str) -> None:
    target = f"{name}-copy"
    before = content(cli, source)
    report = cli.ok("replay", source, "--into", target, "--json").json()
    assert (report["copied"], report["scanned"], report["lost"]) == (300, 300, 0)
    assert report["partitions_kept"]
    assert content(cli, target) == before
    assert content(cli, source) == before
    configs = cli.ok("topic", "describe", target, "--json").json()["configs"]
    assert configs["retention.ms"] == "-1"


@pytest.mark.parametrize(
    "bounds, expected",
    [
        (["--from", "10", "--to", "20"], 30),
        (["--from", "-5"], 15),
        (["--from", f"@{BASE_MS + 100_000}", "--to", f"@{BASE_MS + 130_000}"], 30),
        (["-p", "1"], 100),
        (["--where", "value.n >= 290"], 10),
    ],
)
def test_a_range_is_copied(
    cli: Runner, source: str, name: str, bounds: list[str], expected: int
) -> None:
    report = cli.ok("replay", source, "--into", f"{name}-part", *bounds, "--json").json()
    assert report["copied"] == expected
    assert len(cli.ok("tail", f"{name}-part", "-e").lines) == expected


def test_what_replay_remarks_beside_json_is_json(cli: Runner, source: str, name: str) -> None:
    told = cli.ok("replay", source, "--into", f"{name}-late", "--from", "1000000", "--json")
    assert told.json()["copied"] == 0
    remarks = [json.loads(line) for line in told.stderr.splitlines()]
    assert remarks
    assert all("became" in remark["note"] for remark in remarks)


def test_an_existing_target_wants_append(cli: Runner, source: str, name: str) -> None:
    target = f"{name}-copy"
    cli.ok("topic", "create", target)
    refused = cli.run("replay", source, "--into", target)
    assert refused.code == Exit.IN_THE_WAY
    assert "--append" in refused.stderr
    assert cli.ok("tail", target, "-e").lines == []
    report = cli.ok("replay", source, "--into", target, "--append", "--json").json()
    assert not report["partitions_kept"]
    assert len(cli.ok("tail", target, "-e", "-f", "%o\\n").lines) == 300


def test_configs_of_the_new_topic(cli: Runner, source: str, name: str) -> None:
    cli.ok("replay", source, "--into", f"{name}-c", "--to", "1", "-c", "retention.bytes=1GiB")
    configs = cli.ok("topic", "describe", f"{name}-c", "--json").json()["configs"]
    assert configs["retention.bytes"] == str(1 << 30)


def test_a_topic_is_not_replayed_into_itself(cli: Runner, source: str) -> None:
    assert cli.run("replay", source, "--into", source, "--append").code == Exit.USAGE
